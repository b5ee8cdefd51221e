/// \file
/// A super-fragment: what one event builder of the first stage has built of an event, as one
/// fragment for the second stage. Little-endian, without padding:
///
///     SuperHeader (24 bytes) | table: count x SuperEntry (12 bytes) | payloads, back to back
///
/// docs/receive-format.md describes the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/wire/fragment.hpp"

namespace fanin::wire {

inline constexpr std::uint32_t super_magic = 0x46534e46; ///< "FNSF"

enum SuperFlag : std::uint16_t {
  super_incomplete = 1 ///< a required source of the first stage is missing
};

struct SuperHeader {
  std::uint32_t magic = super_magic;
  std::uint16_t version = 1;
  std::uint16_t flags = 0; ///< of SuperFlag
  std::uint64_t event = 0; ///< the detector's number
  std::uint32_t count = 0; ///< entries: all sources of the first stage
  RunNumber run = 0; ///< of the first stage; 0: it says nothing of it
};
static_assert(sizeof(SuperHeader) == 24);
static_assert(offsetof(SuperHeader, event) == 8);
static_assert(offsetof(SuperHeader, count) == 16);
static_assert(offsetof(SuperHeader, run) == 20);
static_assert(std::is_trivially_copyable_v<SuperHeader>);

/// One source, ascending by id. Of a fragment that is missing `entry` has the flag fragment_absent,
/// size 0 and a MissingReason instead of a checksum.
struct SuperEntry {
  SourceId source = 0;
  FragmentEntry entry;

  /// Of one that is missing. The bytes come from outside: an unknown reason is `absent`.
  [[nodiscard]] MissingReason missing_reason() const {
    const bool known = is_missing_reason(entry.crc32c);
    return known ? static_cast<MissingReason>(entry.crc32c) : MissingReason::absent;
  }
};
static_assert(sizeof(SuperEntry) == 12);
static_assert(std::is_trivially_copyable_v<SuperEntry>);

[[nodiscard]] constexpr std::uint64_t super_head_size(std::size_t sources) {
  return sizeof(SuperHeader) + sources * sizeof(SuperEntry);
}

/// The head of a super-fragment; it points into the bytes, which need no alignment.
class SuperHead {
public:
  /// `head`: the first bytes of it, at least super_head_size(sources) if there are so many; `size`:
  /// bytes in all. The bytes come from outside: good() says whether they are a super-fragment with
  /// so many sources.
  SuperHead(std::span<const std::byte> head, std::uint64_t size, std::size_t sources)
      : head_(head), good_(check(size, sources)) {}

  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] const SuperHeader& header() const { return header_; } ///< good()
  [[nodiscard]] SuperEntry entry(std::size_t i) const { ///< good(), and i < header().count
    SuperEntry entry;
    std::memcpy(&entry, head_.data() + sizeof header_ + i * sizeof entry, sizeof entry);
    return entry;
  }

private:
  [[nodiscard]] FANIN_INTERNAL_API bool check(std::uint64_t size, std::size_t sources);

  std::span<const std::byte> head_;
  SuperHeader header_;
  bool good_;
};

} // namespace fanin::wire
