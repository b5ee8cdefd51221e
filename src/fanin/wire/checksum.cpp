#include "fanin/wire/checksum.hpp"

#include <isa-l/crc.h>

#include <algorithm>

namespace fanin::wire {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) {
  // ISA-L takes an int length, and a pointer to non-const that it only reads.
  constexpr std::size_t piece_max = 1U << 30;
  std::uint32_t state = ~previous;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), piece_max));
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(piece.data()));
    state = crc32_iscsi(data, static_cast<int>(piece.size()), state);
    bytes = bytes.subspan(piece.size());
  }
  return ~state;
}

} // namespace fanin::wire
