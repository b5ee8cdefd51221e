/// \file
/// memcpy for bytes that another core will read soon.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace fanin::memory {

namespace detail {

inline constexpr std::size_t copied_at_once = 2048; // bytes

[[gnu::noinline]] inline void copy_in_pieces(std::byte* to, std::span<const std::byte> from) {
  while (!from.empty()) {
    std::size_t piece = from.size() < copied_at_once ? from.size() : copied_at_once;
    asm("" : "+r"(piece)); // with a known size the compiler would use that instruction
    std::memcpy(to, from.data(), piece);
    to += piece;
    from = from.subspan(piece);
  }
}

} // namespace detail

/// The C library copies more than 2 KiB with one instruction of the processor ("rep movsb"). That
/// is slow into memory that another core has read: a third of the rate, over shared memory from 256
/// KiB on (docs/benchmarks.md). So large copies are made in pieces.
inline void copy(std::byte* to, std::span<const std::byte> from) {
  if (from.size() > detail::copied_at_once) [[unlikely]] {
    detail::copy_in_pieces(to, from);
  } else if (!from.empty()) {
    std::memcpy(to, from.data(), from.size());
  }
}

} // namespace fanin::memory
