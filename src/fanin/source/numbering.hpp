/// \file
/// Makes 64-bit event numbers from the narrow counter of a source.
#pragma once

#include <cstdint>

#include "fanin/base/assert.hpp"
#include "fanin/base/identity.hpp"

namespace fanin::source {

/// A counter of `bits` bits (24-bit LV1, 32-bit trigger number, ...) wraps: each of its values
/// stands for many numbers. The source's offset, which may be negative, is added. Below zero (a
/// step back at the start, or a negative offset) numbers wrap to the top of the 64-bit range, far
/// beyond any window.
class Numbering {
public:
  explicit Numbering(int bits = 64, std::int64_t offset = 0)
      : shift_(64 - bits), offset_(static_cast<std::uint64_t>(offset)) {
    FANIN_ASSERT(bits >= 1 && bits <= 64);
  }

  /// The number of that counter value nearest to `event`: a step back of less than half the range
  /// is a step back and not a wrap. Bits above the counter's width are ignored.
  [[nodiscard]] EventNumber near(std::uint64_t counter, EventNumber event) const {
    if (is_none(counter)) return counter;
    const std::uint64_t last = event - offset_;
    // The difference in the counter's own width, sign-extended.
    const auto step = static_cast<std::int64_t>((counter - last) << shift_) >> shift_;
    return event + static_cast<std::uint64_t>(step);
  }
  /// The number of that counter value before any wrap.
  [[nodiscard]] EventNumber without_wraps(std::uint64_t counter) const {
    if (is_none(counter)) return counter;
    return ((counter << shift_) >> shift_) + offset_;
  }
  /// The value of the source's counter at `event`; 0 if it would be below zero.
  [[nodiscard]] std::uint64_t counter_of(EventNumber event) const {
    const std::uint64_t counter = event - offset_;
    return counter < event_number_end ? counter : 0;
  }
  [[nodiscard]] bool narrow() const { return shift_ != 0; } ///< it wraps
  [[nodiscard]] bool plain() const { return shift_ == 0 && offset_ == 0; } ///< numbers as they are

private:
  // A counter of 64 bits that is below zero: a negative offset must make no number of it.
  [[nodiscard]] bool is_none(std::uint64_t counter) const {
    return shift_ == 0 && counter >= event_number_end;
  }

  int shift_;
  std::uint64_t offset_;
};

} // namespace fanin::source
