// Makes the 64-bit event number out of a source's own narrow counter.
#pragma once

#include <cstdint>

#include "fanin/base/assert.hpp"
#include "fanin/base/identity.hpp"

namespace fanin::source {

// A counter of `bits` bits (24-bit LV1, 32-bit trigger number, ...) wraps; each value is taken as
// the one nearest to the value before, so that a step back of less than half the range is a step
// back and not a wrap. The offset of the source is added to the result; it may be negative.
class Numbering {
public:
  explicit Numbering(int bits = 64, std::int64_t offset = 0)
      : shift_(64 - bits), offset_(static_cast<std::uint64_t>(offset)) {
    FANIN_ASSERT(bits >= 1 && bits <= 64);
  }

  // Of bits above the counter's width nothing is taken. Below zero (a step back from the first
  // pass, or a negative offset) numbers wrap to the top of the 64-bit range, far beyond any window.
  [[nodiscard]] EventNumber extend(std::uint64_t counter) {
    if (!started_) {
      started_ = true;
      last_ = (counter << shift_) >> shift_;
      return last_ + offset_;
    }
    // The difference in the counter's own width, sign-extended.
    const auto step = static_cast<std::int64_t>((counter - last_) << shift_) >> shift_;
    last_ += static_cast<std::uint64_t>(step);
    return last_ + offset_;
  }

  // The next value is taken as it is.
  void restart() { started_ = false; }
  // The next value is the one nearest to `event`: for a source that joins a run under way.
  void restart_near(EventNumber event) {
    started_ = true;
    last_ = event - offset_;
  }

private:
  int shift_;
  std::uint64_t offset_;
  std::uint64_t last_ = 0;
  bool started_ = false;
};

} // namespace fanin::source
