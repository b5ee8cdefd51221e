// memcpy for bytes that another core reads soon.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

namespace fanin::memory {

// The C library copies more than this with one instruction of the processor ("rep movsb"). Into
// memory that another core has read it is slow: a third of the rate, over shared memory from 256
// KiB on (docs/benchmarks.md).
inline void copy(std::byte* to, std::span<const std::byte> from) {
  while (!from.empty()) {
    const std::size_t piece = std::min<std::size_t>(from.size(), 2048);
    std::memcpy(to, from.data(), piece);
    to += piece;
    from = from.subspan(piece);
  }
}

} // namespace fanin::memory
