// The assignment policies that `event.assignment` names. A new one is a class here, a name in
// AssignmentPolicy (system.hpp) and a line in make_assigner().
#pragma once

#include <vector>

#include "fanin/builder/manager/assigner.hpp"

namespace fanin::builder {

// One after the other, from the one behind the last that was chosen.
class RoundRobin final : public Assigner {
public:
  explicit RoundRobin(std::size_t builder_units);
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

// The one that has the fewest bytes assigned and not built; of equals the one that waits longest.
// For builder units of different speed. Costs instructions linear in the builder units.
class LeastLoaded final : public Assigner {
public:
  explicit LeastLoaded(std::size_t builder_units);
  [[nodiscard]] std::span<const NodeId> preference(const AssignmentRequest&) override {
    return order_;
  }
  void assigned(NodeId builder, const AssignmentRequest& request) override;
  void ended(NodeId builder, std::uint64_t bytes) override;

private:
  std::vector<NodeId> order_; // by load
  std::vector<std::uint64_t> load_; // bytes
};

// Bytes in proportion to weights. Each builder unit has a tag: the bytes that it was given, divided
// by its weight. The lowest tag comes first. One that was away is at most two batches of the
// lightest one behind, so that it does not get all batches when it is back. Costs instructions
// linear in the builder units.
class Weighted final : public Assigner {
public:
  // One weight for each builder unit, 1 to weight_max; `batch_bytes`: System::batch_size.
  Weighted(const std::vector<std::uint32_t>& weights, std::uint64_t batch_bytes);
  [[nodiscard]] std::span<const NodeId> preference(const AssignmentRequest&) override {
    return order_;
  }
  void assigned(NodeId builder, const AssignmentRequest& request) override;

private:
  std::vector<std::uint32_t> weights_;
  std::vector<NodeId> order_; // by tag
  std::vector<std::uint64_t> tags_;
  std::uint64_t furthest_ = 0; // tag
  std::uint64_t lag_max_; // behind the furthest
};

// The event number alone says which: blocks of batch_events numbers are dealt out in turn. So each
// event manager of several comes to the same answer. A batch waits for its builder unit.
class ByNumber final : public Assigner {
public:
  // `batch_events`: a power of two.
  ByNumber(std::size_t builder_units, std::uint32_t batch_events);
  [[nodiscard]] std::span<const NodeId> preference(const AssignmentRequest& request) override {
    const auto builder = request.range.first / batch_events_ % builders_.size();
    return std::span{builders_}.subspan(builder, 1);
  }
  void assigned(NodeId, const AssignmentRequest&) override {}

private:
  std::vector<NodeId> builders_;
  std::uint32_t batch_events_;
};

} // namespace fanin::builder
