/// \file
/// The metadata of one fragment, on the wire and in memory: 8 bytes, little-endian.
#pragma once

#include <cstdint>
#include <type_traits>

#include "fanin/wire/reasons.hpp"

namespace fanin::wire {

/// Flags of a fragment, in the top bits of its size.
enum FragmentFlag : std::uint32_t {
  fragment_absent = 1U << 31, ///< the source has no fragment for this event (its size is 0)
  fragment_bad_number = 1U << 30, ///< the source's own event number disagrees
  fragment_truncated = 1U << 29, ///< the front end cut the fragment short
  fragment_bad_checksum = 1U << 28, ///< CRC32C differs; set by a source that checks, or by the
                                    ///< builder unit
  fragment_in_doubt = 1U << 27 ///< its source began to count again in mid-run: its number may be
                               ///< that of another event; set by the queue
};

inline constexpr std::uint32_t fragment_size_mask = (1U << 27) - 1; ///< 128 MiB - 1
inline constexpr std::uint32_t fragment_flag_mask = ~fragment_size_mask;

/// An absent fragment has no checksum, so its entry has the reason there.
struct FragmentEntry {
  std::uint32_t size_and_flags = 0;
  std::uint32_t crc32c = 0; ///< of the payload, 0 where integrity = "none"; absent: AbsentReason

  [[nodiscard]] static constexpr FragmentEntry make_absent(AbsentReason why) {
    return {fragment_absent, static_cast<std::uint32_t>(why)};
  }

  [[nodiscard]] std::uint32_t size() const { return size_and_flags & fragment_size_mask; }
  [[nodiscard]] std::uint32_t flags() const { return size_and_flags & fragment_flag_mask; }
  [[nodiscard]] bool absent() const { return (size_and_flags & fragment_absent) != 0; }
  friend bool operator==(const FragmentEntry&, const FragmentEntry&) = default;
};
static_assert(sizeof(FragmentEntry) == 8);
static_assert(std::is_trivially_copyable_v<FragmentEntry>);

} // namespace fanin::wire
