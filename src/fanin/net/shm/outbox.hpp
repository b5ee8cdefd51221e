// What one end of a connection tells the other, in one page of shared memory (4 KiB) that it alone
// writes and the other end maps read-only: messages, or where they lie; which of the peer's
// messages were taken and which of its pages come back; whether it sleeps. A connection has one in
// each direction. Nothing is locked, so a process may die at any instant and leave nothing undone.
//
// Whoever reads an outbox trusts nothing in it: numbers are copied first, then checked.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "fanin/net/first_count.hpp"

namespace fanin::net::shm {

inline constexpr std::size_t line = 64; // of cache
inline constexpr std::size_t unit_size = 32;
inline constexpr std::uint32_t units_max = 64;
inline constexpr std::uint32_t returns_max = 128;
// Counts wrap at 2^32, where the place in a ring must not jump.
static_assert(std::has_single_bit(units_max) && std::has_single_bit(returns_max));
// A message up to this size travels in the outbox itself; to pin a page for less is a waste.
inline constexpr std::uint32_t inline_max = 256;
inline constexpr std::uint32_t pieces_max = 2;

enum class RecordKind : std::uint32_t {
  skip = 1, // nothing up to the end of the ring
  inlined, // `length` bytes follow
  lent, // pieces follow: bytes in the sender's memory, which its receiver gives back
  end // nothing more follows: the end is an orderly one
};

struct Record {
  RecordKind kind = RecordKind::skip;
  std::uint32_t length = 0; // of the message; bytes
  std::uint32_t slot = 0; // lent: of the sender's table of what is lent, and which use of the slot
  std::uint32_t use = 0;
};
static_assert(sizeof(Record) == 16);

struct Piece {
  std::uint32_t memory = 0; // as it was announced: the first is 0
  std::uint32_t length = 0;
  std::uint64_t offset = 0;
};
static_assert(sizeof(Piece) == 16);

// A message given back.
struct Return {
  std::uint32_t slot = 0;
  std::uint32_t use = 0;
};

// `armed` is 4 times a number that grows each time its owner goes to sleep, plus these bits:
inline constexpr std::uint64_t armed_for_work = 1; // messages, and pages that come back
inline constexpr std::uint64_t armed_for_room = 2; // messages were taken

inline constexpr std::uint64_t closed_bit = 1ULL << 32;

// All counts run freely and wrap at 2^32.
struct Outbox {
  alignas(line) std::atomic<std::uint32_t> written{first_count}; // units
  // Not 0: nothing more follows, and the end is not orderly. The owner still reads the messages
  // that were lent to it. It hangs up the socket when it has released them, or when its process
  // ends.
  std::atomic<std::uint32_t> aborted{0};
  // Not 0: the owner takes no more messages, however it ends. `closed_bit`, and the units
  // of the peer's that it had taken: `taken` goes on, since what comes later is thrown away.
  std::atomic<std::uint64_t> closed{0};
  alignas(line) std::atomic<std::uint32_t> returned{first_count}; // entries of `returns`
  alignas(line) std::atomic<std::uint32_t> taken{first_count}; // of the peer's units
  std::atomic<std::uint32_t> returns_taken{first_count}; // of the peer's returns
  alignas(line) std::atomic<std::uint64_t> armed{0};
  alignas(line) std::array<std::byte, units_max * unit_size> units{};
  std::array<Return, returns_max> returns{};
  std::array<std::byte, 768> unused{}; // up to a page
};
static_assert(sizeof(Outbox) == 4096);
static_assert(offsetof(Outbox, units) == 256 && offsetof(Outbox, returns) == 2304);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free);

[[nodiscard]] constexpr std::uint32_t units_of(std::size_t bytes) {
  return static_cast<std::uint32_t>((bytes + unit_size - 1) / unit_size);
}

} // namespace fanin::net::shm
