// Makes the 64-bit event number out of a source's own narrow counter.
#pragma once

#include <cstdint>

#include "fanin/base/assert.hpp"
#include "fanin/base/identity.hpp"

namespace fanin::source {

// A counter of `bits` bits (24-bit LV1, 32-bit trigger number, ...) wraps; each value is taken as
// the one nearest to the last number that was accepted, so that a step back of less than half the
// range is a step back and not a wrap. A value that was not accepted moves nothing: one flipped bit
// does not leave the source a turn of its counter behind. The offset of the source is added to the
// result; it may be negative.
class Numbering {
public:
  explicit Numbering(int bits = 64, std::int64_t offset = 0)
      : shift_(64 - bits), offset_(static_cast<std::uint64_t>(offset)) {
    FANIN_ASSERT(bits >= 1 && bits <= 64);
  }

  // Of bits above the counter's width nothing is taken. Below zero (a step back from the first
  // turn, or a negative offset) numbers wrap to the top of the 64-bit range, far beyond any window.
  [[nodiscard]] EventNumber extend(std::uint64_t counter) const {
    return started_ ? near(counter, last_ + offset_) : first_turn(counter);
  }
  // The number of that counter value nearest to `event`.
  [[nodiscard]] EventNumber near(std::uint64_t counter, EventNumber event) const {
    const std::uint64_t last = event - offset_;
    // The difference in the counter's own width, sign-extended.
    const auto step = static_cast<std::int64_t>((counter - last) << shift_) >> shift_;
    return event + static_cast<std::uint64_t>(step);
  }
  [[nodiscard]] EventNumber first_turn(std::uint64_t counter) const {
    return ((counter << shift_) >> shift_) + offset_;
  }
  // What the source's counter says where the run has `event`; 0 where that would be below zero.
  [[nodiscard]] std::uint64_t counter_of(EventNumber event) const {
    const std::uint64_t counter = event - offset_;
    return counter < event_number_end ? counter : 0;
  }
  [[nodiscard]] bool plain() const { return shift_ == 0 && offset_ == 0; } // numbers as they are

  // Later values are taken as the ones nearest to `event`.
  void accept(EventNumber event) {
    started_ = true;
    last_ = event - offset_;
  }
  // The next value is taken as it is.
  void restart() { started_ = false; }

private:
  int shift_;
  std::uint64_t offset_;
  std::uint64_t last_ = 0;
  bool started_ = false;
};

} // namespace fanin::source
