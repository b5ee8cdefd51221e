// What a builder unit has to tell the event manager of its batches: what has come, what it hands
// back, and what is committed. Storage may be faster than the event manager reads, and lists of
// exceptions are long: what there is no room for is said later.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/builder/building/assembler.hpp"
#include "fanin/builder/building/status_reporter.hpp"
#include "fanin/builder/control/control_client.hpp"

namespace fanin::builder {

class CommitReporter {
public:
  void received(const Assembly& assembly) {
    FANIN_ASSERT(assembly.state == AssemblyState::decided);
    received_.push_back({assembly.range.first, assembly.attempt});
  }
  // Storage keeps it longer than others, in memory of its own.
  void set_aside(const Assembly& assembly) {
    received_.push_back({assembly.range.first, assembly.attempt, 1});
  }
  // `blamed`: the readout unit whose blocks do not come.
  void handed_back(const Assembly& assembly, std::optional<NodeId> blamed) {
    FANIN_ASSERT(assembly.state == AssemblyState::assigned); // what storage has, it commits
    handed_back_.push_back(
        {assembly.range.first, assembly.attempt, blamed.value_or(0), blamed ? 1U : 0U});
  }
  // It stays as it is until report() returns it.
  void committed(Assembly& assembly) { committed_.push_back(&assembly); }
  void clear();

  // Sends what there is room for. `status` sends the names of new files of the sink before what is
  // in them. Gives the assemblies that were reported; valid until the next call.
  [[nodiscard]] const std::vector<Assembly*>& report(ControlClient& control, StatusReporter& status,
                                                     const storage::EventSink& sink);
  // All is said.
  [[nodiscard]] bool done() const {
    return received_.empty() && handed_back_.empty() && committed_.empty();
  }

private:
  [[nodiscard]] static bool report_built(ControlClient& control, Assembly& assembly);

  std::deque<wire::Received> received_;
  std::deque<wire::HandBack> handed_back_;
  std::deque<Assembly*> committed_;
  std::vector<Assembly*> reported_; // by the latest report()
};

} // namespace fanin::builder
