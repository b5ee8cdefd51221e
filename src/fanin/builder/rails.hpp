// The addresses of one builder unit, each over a network (rail) of its own. Every readout unit is
// connected over one of them, spread evenly, and goes on over the next one when that is lost.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/result.hpp"
#include "fanin/net/url.hpp"

namespace fanin::builder {

// As they travel in messages: a line each.
[[nodiscard]] std::string rails_text(std::span<const net::Url> rails);
// Errors: malformed, usage: no address, or an invalid one.
[[nodiscard]] Result<std::vector<net::Url>> parse_rails(std::string_view text);

} // namespace fanin::builder
