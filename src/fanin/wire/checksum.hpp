// CRC32C (Castagnoli, RFC 3720): initial value and final inversion as everywhere, so that any other
// implementation agrees. By ISA-L, which interleaves three streams; a plain chain of crc32
// instructions would cost 40 % of the TCP rate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fanin::wire {

// crc32c(b, crc32c(a)) is the checksum of a followed by b. Of no bytes: 0.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0);

} // namespace fanin::wire
