// A clock for deadlines that others have to keep: it stands still while its owner does not run
// (SIGSTOP, a paused host, a busy one) or while all others wait for it. Messages that come
// meanwhile wait in its sockets, so that a pause makes nobody late.
#pragma once

#include <algorithm>

#include "fanin/base/clock.hpp"

namespace fanin::builder {

class DeadlineClock {
public:
  // Its owner reads it at least once in `period`, except after pause().
  explicit DeadlineClock(Duration period) : period_(period) {}

  // The time now; `held_up`: it stands still from here on until that is false.
  [[nodiscard]] Duration read(Time now, bool held_up) {
    if (last_checked_ != never && stalled_since_ == never) {
      const Duration passed = now - last_checked_;
      stalled_ += passed > 2 * period_ ? passed : std::max(passed - period_, Duration{0});
    }
    last_checked_ = now;
    if (held_up && stalled_since_ == never) stalled_since_ = now;
    if (!held_up && stalled_since_ != never) {
      stalled_ += now - stalled_since_;
      stalled_since_ = never;
    }
    return (stalled_since_ == never ? now : stalled_since_).time_since_epoch() - stalled_;
  }
  // Nobody has a deadline: it may be long until it is read again.
  void pause() { last_checked_ = never; }

private:
  Duration period_;
  Duration stalled_{}; // total time in which it stood still
  Time stalled_since_ = never;
  Time last_checked_ = never; // never: nobody has a deadline
};

// Measures how long its owner did not run, or hardly ran. Messages of others wait in its sockets
// meanwhile, so this time must not count against them.
class PauseClock {
public:
  // Its owner reads it again within `period`.
  explicit PauseClock(Duration period) : clock_(period) {}
  void start(Time now) { start_from(now, clock_.read(now, false)); }
  // The pauses since it was read last; never negative.
  [[nodiscard]] Duration read(Time now) {
    const Duration running = clock_.read(now, false);
    const Duration paused = (now - last_checked_) - (running - running_);
    start_from(now, running);
    return std::max(paused, Duration{0});
  }
  // The time without pauses, when it was read last.
  [[nodiscard]] Duration running_time() const { return running_; }

private:
  void start_from(Time now, Duration running) {
    last_checked_ = now;
    running_ = running;
  }
  DeadlineClock clock_;
  Duration running_{};
  Time last_checked_ = never;
};

} // namespace fanin::builder
