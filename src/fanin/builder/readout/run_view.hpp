// What a readout unit knows of the run from the event manager, as far as reading and judging
// numbers depend on it.
#pragma once

#include <algorithm>
#include <optional>

#include "fanin/base/identity.hpp"
#include "fanin/wire/control.hpp"

namespace fanin::builder {

struct RunView {
  EventNumber limit = 0; // no event from here on is wanted yet
  EventNumber read_end = 0; // up to where sources are read when `last`; limit or less
  bool last = false; // no event from the limit on will be wanted
  bool paused = false;
  EventNumber horizon = 0; // events below exist, as far as readout units agree
  bool alone = false; // all other readout units have come to their end
  bool others_wait = false; // all other readout units have more, and wait for this one
  std::optional<EventNumber> joined_at; // the run was under way, or is triggered
  std::optional<EventNumber> announced; // by this readout unit below; none: it has not begun

  // Events are wanted, or none will be.
  [[nodiscard]] bool begun() const { return limit != 0 || last; }

  void set_limit(const wire::Limit& message) {
    limit = message.event;
    read_end = std::min(message.event, message.read);
    last = message.last != 0;
    paused = false;
  }
  void pause(const wire::Pause& message) {
    horizon = message.horizon;
    paused = true;
  }
  void set_horizon(const wire::Horizon& message) {
    horizon = message.event;
    alone = message.alone != 0;
    others_wait = message.slow != 0;
  }
};

} // namespace fanin::builder
