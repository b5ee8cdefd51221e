// The human-readable reason why a run makes no progress.
#pragma once

#include <string>

#include "fanin/builder/manager/dispatcher.hpp"
#include "fanin/builder/manager/known_events.hpp"
#include "fanin/builder/manager/membership.hpp"
#include "fanin/builder/manager/run_phase.hpp"

namespace fanin::builder {

// What the event manager waits for; "nothing" if that is so. Names nodes and events.
class WaitingText {
public:
  struct Parts {
    const System& system;
    const RunPhase& phase;
    const NodeList& readouts;
    const NodeList& builders;
    const DataPaths& paths;
    const KnownEvents& events;
    const Dispatcher& dispatcher;
  };
  explicit WaitingText(const Parts& parts) : parts_(parts) {}
  [[nodiscard]] std::string text() const;

private:
  [[nodiscard]] std::string of_readout(NodeId node) const; // empty: nothing
  [[nodiscard]] std::string of_builder(NodeId node) const; // likewise
  [[nodiscard]] std::string of_paths(NodeId builder) const;

  Parts parts_;
};

} // namespace fanin::builder
