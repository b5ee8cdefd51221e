/// \file
/// CRC32C (Castagnoli, RFC 3720), with the usual initial value and final inversion, so that any
/// other implementation agrees. It is computed by ISA-L, which interleaves three streams; a plain
/// chain of crc32 instructions would cost 40 % of the TCP rate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fanin/base/export.hpp"

namespace fanin::wire {

/// crc32c(b, crc32c(a)) is the checksum of a followed by b. The checksum of no bytes is 0.
[[nodiscard]] FANIN_API std::uint32_t crc32c(std::span<const std::byte> bytes,
                                             std::uint32_t previous = 0);

/// The checksum of a followed by b, from those of both and the bytes of b, which are not read.
[[nodiscard]] FANIN_API std::uint32_t crc32c_of_both(std::uint32_t first, std::uint32_t second,
                                                     std::uint32_t second_size);

} // namespace fanin::wire
