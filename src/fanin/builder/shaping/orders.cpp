#include "fanin/builder/shaping/orders.hpp"

#include <algorithm>
#include <utility>

namespace fanin::builder::shaping {

std::unique_ptr<Order> make_order(Policy policy, std::size_t readout_units,
                                  std::size_t builder_units, NodeId readout_unit,
                                  std::uint64_t seed) {
  switch (policy) {
  case Policy::none: break;
  case Policy::random: return std::make_unique<RandomOrder>(seed);
  case Policy::linear_shift:
  case Policy::tokens: return std::make_unique<LinearShift>(builder_units, readout_unit);
  case Policy::barrel_shifter:
    return std::make_unique<BarrelShifter>(readout_units, builder_units, readout_unit);
  }
  return nullptr;
}

std::optional<NodeId> RandomOrder::next(std::span<const Destination> to, Time) {
  std::optional<NodeId> chosen;
  std::uint64_t open = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i].open && random_.below(++open) == 0) chosen = static_cast<NodeId>(i);
  }
  return chosen;
}

std::optional<NodeId> LinearShift::next(std::span<const Destination> to, Time) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::size_t node = (next_ + i) % to.size();
    if (to[node].open) return static_cast<NodeId>(node);
  }
  return {};
}

BarrelShifter::BarrelShifter(std::size_t readout_units, std::size_t builder_units,
                             NodeId readout_unit)
    : slots_(std::max(readout_units, builder_units)),
      slot_(readout_unit),
      left_out_(builder_units),
      sent_at_(builder_units) {}

// What has been confirmed, and who is there again.
void BarrelShifter::measure(std::span<const Destination> to, Time now) {
  under_way_ = 0;
  Duration::rep confirmed = 0;
  Time begun = never; // the first of them was sent
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::deque<Time>& sent_at = sent_at_[i];
    for (; sent_at.size() > to[i].under_way; sent_at.pop_front()) {
      begun = std::min(begun, sent_at.front());
      ++confirmed;
    }
    sent_at.resize(to[i].under_way, now);
    LeftOut& left = left_out_[i];
    const bool back = to[i].under_way < left.under_way || (to[i].open && !left.open);
    if (left.yes && back) left = {};
    if (!left.yes) under_way_ += to[i].under_way;
  }
  if (confirmed == 0) return;
  measure((now - std::max(begun, confirmed_at_)) / confirmed);
  confirmed_at_ = now;
}

// One that was late for once is no measure. Much less than the mean means that such a one was.
void BarrelShifter::measure(Duration carrier) {
  if (!std::exchange(measured_, true)) {
    slot_time_ = carrier;
  } else if (carrier < slot_time_ / 2) {
    slot_time_ = (slot_time_ + carrier) / 2;
  } else {
    slot_time_ += (std::min(carrier, 2 * slot_time_) - slot_time_) / 8;
  }
}

std::optional<std::size_t>
BarrelShifter::slots_until_one_waits(std::span<const Destination> to) const {
  for (std::size_t i = 0; i < slots_; ++i) {
    const std::size_t node = (slot_ + i) % slots_;
    if (node < to.size() && to[node].waits && !left_out_[node].yes) return i;
  }
  return {};
}

std::optional<NodeId> BarrelShifter::next(std::span<const Destination> to, Time now) {
  measure(to, now);
  wake_ = never;
  while (const auto slots = slots_until_one_waits(to)) {
    if (*slots > 0) {
      const Time due = slot_begun_ + slot_time_ * static_cast<Duration::rep>(*slots);
      if (now < due) {
        wake_ = due;
        return {};
      }
      slot_ = (slot_ + *slots) % slots_;
      slot_begun_ = now;
      give_up_ = never;
    }
    const auto node = static_cast<NodeId>(slot_);
    if (to[node].open && under_way_ < under_way_most) return node;
    if (give_up_ == never) give_up_ = now + cycle_time();
    if (now < give_up_) {
      wake_ = give_up_;
      return {};
    }
    leave_out_late(node, to);
    give_up_ = never;
  }
  return {};
}

void BarrelShifter::leave_out(NodeId node, std::span<const Destination> to) {
  left_out_[node] = {true, to[node].open, to[node].under_way};
  under_way_ -= to[node].under_way;
}

// What the slot waits for does not come: a grant of its builder unit, or that of those before it.
void BarrelShifter::leave_out_late(NodeId node, std::span<const Destination> to) {
  if (!to[node].open) return leave_out(node, to);
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (!left_out_[i].yes && to[i].under_way > 0) leave_out(static_cast<NodeId>(i), to);
  }
}

// What was under way is not confirmed: nothing is learnt from it.
void BarrelShifter::closed(NodeId node) {
  sent_at_[node].clear();
  left_out_[node] = {};
}

void BarrelShifter::sent(NodeId, Time now) {
  slot_ = (slot_ + 1) % slots_;
  slot_begun_ = now;
  give_up_ = never;
}

} // namespace fanin::builder::shaping
