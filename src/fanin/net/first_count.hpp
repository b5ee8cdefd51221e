// Counts of 32 bits that run freely, and wrap, begin just below 2^32: so every busy connection, and
// every test, passes the wrap in its first moments and not after an hour.
#pragma once

#include <cstdint>

namespace fanin::net {

inline constexpr std::uint32_t first_count = 0U - 200U;

} // namespace fanin::net
