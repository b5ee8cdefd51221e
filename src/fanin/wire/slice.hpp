/// \file
/// Two stages: each event builder of the second stage, a slice, builds the blocks of event numbers
/// that are dealt to it. It counts its events without the numbers of the others.
#pragma once

#include <cstdint>

#include "fanin/base/identity.hpp"

namespace fanin::wire {

/// Blocks of `block` numbers are dealt in turn over `of` slices. With one slice numbers stay as
/// they are.
struct Slice {
  std::uint32_t number = 0; ///< below `of`
  std::uint32_t of = 1;
  std::uint32_t block = 1024; ///< a power of two

  /// The detector's number of an event of this slice.
  [[nodiscard]] constexpr EventNumber detector_number(EventNumber own) const {
    return (own / block * of + number) * block + own % block;
  }
  /// The detector's number of an end: one above the number of the last event below the end.
  [[nodiscard]] constexpr EventNumber detector_end(EventNumber own) const {
    return own == 0 ? 0 : detector_number(own - 1) + 1;
  }
  [[nodiscard]] constexpr EventRange detector_range(EventRange own) const {
    return {detector_number(own.first), detector_end(own.end)};
  }
  /// The slice's own number of an event that is dealt to it.
  [[nodiscard]] constexpr EventNumber own_number(EventNumber detector) const {
    return detector / block / of * block + detector % block;
  }
  friend bool operator==(const Slice&, const Slice&) = default;
};

} // namespace fanin::wire
