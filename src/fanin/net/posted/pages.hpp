// How many pages of its receive pool a connection keeps posted.
#pragma once

#include <cstdint>
#include <string_view>

#include "fanin/base/result.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net::posted {

inline constexpr std::string_view pages_option = "posted"; // of an address

// As the address says, or the usual number. Errors: usage.
[[nodiscard]] Result<std::uint32_t> pages_of(const Url& url);
// 0 where the address's network posts none.
[[nodiscard]] std::uint32_t pages_planned(const Url& url);

} // namespace fanin::net::posted
