// The orders of the shaping policies.
#pragma once

#include "fanin/base/random.hpp"
#include "fanin/builder/shaping/order.hpp"

namespace fanin::builder::shaping {

// Any one that is open, all with the same probability.
class RandomOrder final : public Order {
public:
  explicit RandomOrder(std::uint64_t seed) : random_(seed) {}
  [[nodiscard]] std::optional<NodeId> next(std::span<const Destination> to, Time now) override;
  void sent(NodeId, Time) override {}

private:
  Random random_;
};

// One after the other. Each readout unit begins with another one, and passes over those that are
// not open.
class LinearShift final : public Order {
public:
  LinearShift(std::size_t builder_units, NodeId readout_unit)
      : next_(readout_unit % builder_units) {}
  [[nodiscard]] std::optional<NodeId> next(std::span<const Destination> to, Time now) override;
  void sent(NodeId to, Time) override { next_ = to + std::size_t{1}; }

private:
  std::size_t next_;
};

} // namespace fanin::builder::shaping
