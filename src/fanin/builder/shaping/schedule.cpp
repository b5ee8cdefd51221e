#include "fanin/builder/shaping/schedule.hpp"

#include <algorithm>

#include "fanin/base/assert.hpp"

namespace fanin::builder::shaping {

Schedule::Schedule(const Shaping& shaping, std::size_t readout_units, std::size_t builder_units,
                   NodeId readout_unit, std::uint64_t seed)
    : shaping_(shaping),
      share_(shaping.share(readout_units)),
      readout_units_(readout_units),
      readout_unit_(readout_unit),
      seed_(seed),
      builders_(builder_units) {
  FANIN_ASSERT(shaping.on() && share_ >= std::uint64_t{carriers_least} * shaping.carrier);
}

void Schedule::opened(NodeId node, std::size_t rail) {
  closed(node);
  while (rails_.size() <= rail) {
    rails_.push_back({make_order(shaping_.policy, readout_units_, builders_.size(), readout_unit_,
                                 seed_ + rails_.size()),
                      std::vector<Destination>(builders_.size())});
  }
  builders_[node].rail = rail;
}

void Schedule::closed(NodeId node) {
  Builder& builder = builders_[node];
  if (builder.rail != no_rail) {
    rails_[builder.rail].to[node] = {};
    rails_[builder.rail].order->closed(node);
  }
  builder = {};
}

bool Schedule::granted(NodeId node, std::uint64_t bytes) {
  Builder& builder = builders_[node];
  if (builder.rail == no_rail) return true;
  if (bytes > builder.sent + share_) return false;
  builder.granted = std::max(builder.granted, bytes); // a request may bring an earlier one
  // It is the share beyond what had been received.
  std::erase_if(builder.full_carriers,
                [&](std::uint64_t end) { return end + share_ <= builder.granted; });
  update(node);
  return true;
}

void Schedule::set_waiting(NodeId node, std::uint64_t bytes) {
  builders_[node].waiting = bytes;
  update(node);
}

void Schedule::set_full(NodeId node, bool full) {
  builders_[node].full = full;
  update(node);
}

void Schedule::update(NodeId node) {
  const Builder& builder = builders_[node];
  if (builder.rail == no_rail) return;
  const bool waits = builder.waiting != 0;
  const bool open = waits && !builder.full && least(builder) <= room(node);
  const auto under_way = static_cast<std::uint32_t>(builder.full_carriers.size());
  rails_[builder.rail].to[node] = {waits, open, under_way};
}

// When all that was sent has been received and granted anew, there is room for a carrier.
std::uint64_t Schedule::least(const Builder& builder) const {
  if (!shaping_.fills_carriers()) return builder.waiting;
  return std::max<std::uint64_t>(builder.waiting, shaping_.carrier);
}

std::optional<NodeId> Schedule::next(Time now) {
  for (Rail& rail : rails_) {
    if (const auto node = rail.order->next(rail.to, now)) return node;
  }
  return {};
}

void Schedule::sent(NodeId node, std::uint64_t bytes, bool fills) {
  FANIN_ASSERT(bytes <= room(node));
  Builder& builder = builders_[node];
  builder.sent += bytes;
  if (fills) builder.full_carriers.push_back(builder.sent);
}

void Schedule::carried(NodeId node, Time now) {
  ++carriers_;
  if (builders_[node].rail != no_rail) rails_[builders_[node].rail].order->sent(node, now);
}

Time Schedule::wake() const {
  Time wake = never;
  for (const Rail& rail : rails_) wake = std::min(wake, rail.order->wake());
  return wake;
}

} // namespace fanin::builder::shaping
