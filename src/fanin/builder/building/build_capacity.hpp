// How many pages a builder unit needs for receiving, and what it can build with them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fanin::builder {

// One being filled, one just begun.
inline constexpr std::uint64_t receive_pages_per_connection = 2;

// Pages that a builder unit needs to have `capacity` bytes under construction: pages are at least
// half full (net/transport.hpp), and each connection for data may have two begun.
[[nodiscard]] constexpr std::uint64_t receive_pages(std::uint64_t capacity, std::uint32_t page_size,
                                                    std::size_t connections) {
  return 2 * ((capacity + page_size - 1) / page_size) + receive_pages_per_connection * connections;
}
// The converse; 0 if there are too few pages to work at all.
[[nodiscard]] constexpr std::uint64_t build_capacity(std::uint64_t pages, std::uint32_t page_size,
                                                     std::size_t connections) {
  const std::uint64_t begun = receive_pages_per_connection * connections;
  return pages <= begun ? 0 : (pages - begun) / 2 * page_size;
}

} // namespace fanin::builder
