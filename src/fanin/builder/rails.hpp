// The addresses of one builder unit, each over a network (rail) of its own. Readout units spread
// their data over them (lane.hpp).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/result.hpp"
#include "fanin/builder/control/node_environment.hpp"
#include "fanin/net/listener.hpp"
#include "fanin/net/url.hpp"

namespace fanin::builder {

// As they travel in messages: a line each.
[[nodiscard]] std::string rails_text(std::span<const net::Url> rails);
// Errors: malformed, usage: no address, or an invalid one.
[[nodiscard]] Result<std::vector<net::Url>> parse_rails(std::string_view text);

// Listens at all of them. Where that is possible at some only, the others are logged. Errors: it is
// possible at none.
[[nodiscard]] Result<std::vector<net::Listener>>
listen_on_rails(const NodeEnvironment& environment, std::span<const net::Url> rails,
                const net::ConnectionOptions& options);
[[nodiscard]] std::vector<net::Url> urls_of(std::span<const net::Listener> listeners);

} // namespace fanin::builder
