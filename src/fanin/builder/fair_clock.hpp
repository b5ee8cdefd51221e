// A clock for deadlines that others have to keep: it stands still while its owner does not run
// (SIGSTOP, a paused host, a busy one) or is itself what everything waits for. What has come
// meanwhile lies in its sockets, so that a pause makes nobody late.
#pragma once

#include <algorithm>

#include "fanin/base/clock.hpp"

namespace fanin::builder {

class FairClock {
public:
  // While it is looked at, its owner looks again within `period`.
  explicit FairClock(Duration period) : period_(period) {}

  // The time now; `held_up`: it stands still from here on until that is false.
  [[nodiscard]] Duration look(Time now, bool held_up) {
    if (looked_ != never && stalled_since_ == never) {
      const Duration passed = now - looked_;
      stalled_ += passed > 2 * period_ ? passed : std::max(passed - period_, Duration{0});
    }
    looked_ = now;
    if (held_up && stalled_since_ == never) stalled_since_ = now;
    if (!held_up && stalled_since_ != never) {
      stalled_ += now - stalled_since_;
      stalled_since_ = never;
    }
    return (stalled_since_ == never ? now : stalled_since_).time_since_epoch() - stalled_;
  }
  // Nobody has a deadline: it may be long until it is looked at again.
  void rest() { looked_ = never; }

private:
  Duration period_;
  Duration stalled_{}; // total time in which it stood still
  Time stalled_since_ = never;
  Time looked_ = never; // never: nobody has a deadline
};

} // namespace fanin::builder
