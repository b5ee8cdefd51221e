// Sees to it that data get through: readout units that do not reach a builder unit are told to try
// their next rail, and given up if they stand in the way of the run for too long.
#pragma once

#include <string_view>

#include "fanin/builder/control/node_outbox.hpp"
#include "fanin/builder/manager/data_paths.hpp"
#include "fanin/builder/manager/membership.hpp"
#include "fanin/builder/manager/run_phase.hpp"
#include "fanin/builder/system.hpp"

namespace fanin::builder {

// Thread: the event manager's loop.
class PathWatch {
public:
  // What it works with; all must outlive it.
  struct Parts {
    const System& system;
    const RunPhase& phase;
    const NodeList& readouts;
    const NodeList& builders;
    DataPaths& paths;
    NodeOutbox& outbox;
  };
  // A builder unit that lives says something more often than once in `silence`.
  PathWatch(const Parts& parts, Duration silence) : parts_(parts), silence_(silence) {}

  // A builder unit says whether a readout unit reaches it. False: it is invalid.
  [[nodiscard]] bool on_reached(NodeId builder, const wire::Reached& reached, Time now);
  // The builder unit has handed a batch back because of this readout unit.
  void on_blamed(NodeId builder, NodeId readout, Time now);
  // Periodically: gives up readout units that no builder unit reaches.
  void watch(Time now);

private:
  void give_up(NodeId readout, std::string_view why, Time now);

  Parts parts_;
  Duration silence_;
};

} // namespace fanin::builder
