// For the pull flow: sources get their numbers back in order. So a batch for which nobody asks,
// since its builder unit is frozen, would in the end hold up the sources. Then the readout unit
// asks the event manager which builder unit has it.
#pragma once

#include "fanin/base/clock.hpp"
#include "fanin/base/identity.hpp"

namespace fanin::builder {

// Knows no connection.
class UncutWatch {
public:
  // It asks when the sources have been held up for `patience`, and each time that passes again.
  explicit UncutWatch(Duration patience) : patience_(patience) {}

  // `held_up`: sources wait for room, and batches that begin at `first_uncut` were announced and
  // not asked for. True: it is time to ask; asked() has to follow.
  [[nodiscard]] bool due(bool held_up, EventNumber first_uncut, Time now) {
    if (!held_up) {
      since_ = never;
    } else if (since_ == never || first_uncut_ != first_uncut) {
      since_ = now;
      first_uncut_ = first_uncut;
    } else {
      return now - since_ >= patience_;
    }
    return false;
  }
  void asked(Time now) { since_ = now; }

  // It has to be checked again.
  [[nodiscard]] bool watching() const { return since_ != never; }
  void reset() { since_ = never; }

private:
  Duration patience_;
  Time since_ = never; // the sources are held up, or were when it last asked
  EventNumber first_uncut_ = 0;
};

} // namespace fanin::builder
