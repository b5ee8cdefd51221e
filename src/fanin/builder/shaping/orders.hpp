// The orders of the shaping policies.
#pragma once

#include <deque>
#include <vector>

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

// A cycle of max(readout units, builder units) slots. In each slot all readout units send to
// different builder units, one carrier each; those whose number is beyond the last builder unit
// send nothing. Readout units share no clock, so receipt is the clock: two carriers are under way
// at most, one in the network and one behind it, and the next slot with a carrier begins when the
// first of them is confirmed. A slot without a carrier lasts as long as a carrier has lasted.
class BarrelShifter final : public Order {
public:
  BarrelShifter(std::size_t readout_units, std::size_t builder_units, NodeId readout_unit);
  [[nodiscard]] std::optional<NodeId> next(std::span<const Destination> to, Time now) override;
  void sent(NodeId to, Time now) override;
  void closed(NodeId to) override;
  [[nodiscard]] Time wake() const override { return wake_; }

  static constexpr std::uint32_t under_way_most = 2;
  // Until a carrier has been confirmed.
  static constexpr Duration slot_at_first = std::chrono::microseconds{100};

  // How long a carrier takes, from the last ones.
  [[nodiscard]] Duration slot() const { return slot_time_; }

private:
  // A builder unit that was waited for in vain, as it was then.
  struct LeftOut {
    bool yes = false;
    bool open = false;
    std::uint32_t under_way = 0;
  };
  void measure(std::span<const Destination> to, Time now);
  void measure(Duration carrier);
  [[nodiscard]] std::optional<std::size_t>
  slots_until_one_waits(std::span<const Destination> to) const;
  void leave_out(NodeId node, std::span<const Destination> to);
  void leave_out_late(NodeId node, std::span<const Destination> to);
  [[nodiscard]] Duration cycle_time() const {
    return slot_time_ * static_cast<Duration::rep>(slots_);
  }

  const std::size_t slots_; // of a cycle
  std::size_t slot_;        // its builder unit, or beyond the last one
  Time slot_begun_{};
  Time give_up_ = never; // what the slot waits for
  Time wake_ = never;
  std::vector<LeftOut> left_out_;
  std::uint32_t under_way_ = 0; // to those that are not left out
  std::vector<std::deque<Time>> sent_at_; // those under way, by builder unit, left out or not
  Time confirmed_at_{};         // the last one
  bool measured_ = false;       // the next, not slot_at_first
  Duration slot_time_ = slot_at_first;
};

} // namespace fanin::builder::shaping
