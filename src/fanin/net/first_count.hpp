/// \file
/// The first value of 32-bit counts that wrap. It is just below 2^32, so that every busy connection
/// and every test passes the wrap at once and not after an hour.
#pragma once

#include <cstdint>

namespace fanin::net {

inline constexpr std::uint32_t first_count = 0U - 200U;

} // namespace fanin::net
