// Which builder unit comes first for a batch: the assignment policy. Whether a builder unit has
// room (Capacity), is reached by all readout units (DataPaths) and reads what it is told, and that
// consecutive parts stay together (BuilderChoice), is decided outside of the policy.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fanin/base/identity.hpp"

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
};

// One after the other, from the one behind the last that was chosen.
class RoundRobin final : public Assigner {
public:
  explicit RoundRobin(std::size_t builder_units) {
    for (std::size_t i = 0; i < 2 * builder_units; ++i) {
      order_.push_back(static_cast<NodeId>(i % builder_units));
    }
  }
  [[nodiscard]] std::span<const NodeId> preference(const AssignmentRequest&) override {
    return std::span{order_}.subspan(next_, order_.size() / 2);
  }
  void assigned(NodeId builder, const AssignmentRequest&) override {
    next_ = (builder + std::size_t{1}) % (order_.size() / 2);
  }

private:
  std::vector<NodeId> order_; // all of them, twice
  std::size_t next_ = 0;
};

} // namespace fanin::builder
