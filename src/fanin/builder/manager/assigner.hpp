// Which builder unit comes first for a batch: the assignment policy. The policy does not decide
// whether a builder unit has room (Capacity), is reached by all readout units (DataPaths) and reads
// its messages, nor which consecutive batches stay together (BuilderChoice).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "fanin/base/identity.hpp"
#include "fanin/builder/system.hpp"

namespace fanin::builder {

// A batch that needs a builder unit.
struct AssignmentRequest {
  EventRange range;
  std::uint64_t bytes = 0;
  Attempt attempt = 0; // above 0: it was assigned before
};

// Thread: the event manager's loop.
class Assigner {
public:
  virtual ~Assigner() = default;
  // The builder units that may build it, the one that is preferred first. The first one that can
  // take it gets it; if none can, the batch waits, and is asked for again. Valid until the next
  // call. Must not depend on which of them are up.
  [[nodiscard]] virtual std::span<const NodeId> preference(const AssignmentRequest& request) = 0;
  // It was assigned to this builder unit, which need not be the first of the preference.
  virtual void assigned(NodeId builder, const AssignmentRequest& request) = 0;
  // A batch of so many bytes that was assigned to it is built, or was taken back.
  virtual void ended(NodeId /*builder*/, std::uint64_t /*bytes*/) {}
};

// The policy that the configuration names.
[[nodiscard]] std::unique_ptr<Assigner> make_assigner(const System& system);

} // namespace fanin::builder
