// The human-readable reason why a run makes no progress; RunView (executive/) writes "waiting for"
// before it.
#pragma once

#include <string>
#include <vector>

#include "fanin/builder/manager/dispatcher.hpp"
#include "fanin/builder/manager/known_events.hpp"
#include "fanin/builder/manager/membership.hpp"
#include "fanin/builder/manager/run_phase.hpp"
#include "fanin/builder/wanted_list.hpp"

namespace fanin::builder {

// What the event manager waits for; empty: nothing. Names nodes and events, a few of them.
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
    const std::vector<std::string>& storage; // by builder unit: what its storage waits for
    bool held = false; // EventManagerOptions::held
  };
  explicit WaitingText(const Parts& parts) : parts_(parts) {}
  [[nodiscard]] std::string text() const;

private:
  [[nodiscard]] std::string unfinished() const; // nodes, when all is built
  [[nodiscard]] std::string of_readout(NodeId node) const; // empty: nothing
  // `oldest`: of its batches; null: it has none.
  void add_builder(NodeId node, const Batch* oldest, WantedList& wanted) const;
  void add_paths(NodeId builder, WantedList& wanted) const;

  Parts parts_;
};

} // namespace fanin::builder
