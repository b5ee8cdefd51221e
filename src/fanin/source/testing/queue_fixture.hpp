// For tests: a fragment queue with a pool of its own, and its contents read back the way a readout
// unit does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "fanin/source/event_numbers.hpp"
#include "fanin/source/fragment_queue.hpp"

namespace fanin::source::testing {

using Bytes = std::vector<std::byte>;

// Bytes that depend on `seed`.
inline Bytes bytes_of(std::size_t size, std::uint64_t seed) {
  Bytes bytes(size);
  std::uint64_t state = seed + 1;
  for (auto& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

struct QueueFixture {
  explicit QueueFixture(const FragmentQueueOptions& options,
                        const memory::PoolOptions& pool_options = {.page_size = 65536, .pages = 16})
      : pool(memory::PagePool::make(pool_options).value()), queue(options, *pool) {}

  // Nothing will follow: the last number counts without one.
  void end_held() { queue.numbers().end_held(); }

  std::unique_ptr<memory::PagePool> pool;
  FragmentQueue queue;
};

// The payload of one event, put together from its pieces. Event below next_event().
inline Bytes payload_of(const FragmentQueue& queue, EventNumber event) {
  Bytes bytes;
  Cursor cursor{event, 0};
  while (cursor.event == event) {
    wire::FragmentEntry entry;
    const Piece piece = queue.cut(cursor, event + 1, 1U << 30, 1, &entry);
    const auto part = piece.payload.bytes();
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return bytes;
}

} // namespace fanin::source::testing
