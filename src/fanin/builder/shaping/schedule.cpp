#include "fanin/builder/shaping/schedule.hpp"

#include <algorithm>

#include "fanin/base/assert.hpp"

namespace fanin::builder::shaping {

Schedule::Schedule(const Shaping& shaping, std::size_t readout_units, std::size_t builder_units,
                   NodeId readout_unit, std::uint64_t seed)
    : shaping_(shaping),
      share_(shaping.share(readout_units)),
      builders_(builder_units),
      to_(builder_units) {
  FANIN_ASSERT(shaping.on() && share_ >= std::uint64_t{carriers_least} * shaping.carrier);
  order_ = make_order(shaping.policy, readout_units, builder_units, readout_unit, seed);
}

void Schedule::opened(NodeId node) {
  closed(node);
  builders_[node].connected = true;
}

void Schedule::closed(NodeId node) {
  if (builders_[node].connected) {
    to_[node] = {};
    order_->closed(node);
  }
  builders_[node] = {};
}

bool Schedule::granted(NodeId node, std::uint64_t bytes) {
  Builder& builder = builders_[node];
  if (!builder.connected) return true;
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
  if (!builder.connected) return;
  const bool waits = builder.waiting != 0;
  const bool open = waits && !builder.full && least(builder) <= room(node);
  const auto under_way = static_cast<std::uint32_t>(builder.full_carriers.size());
  to_[node] = {waits, open, under_way};
}

// When all that was sent has been received and granted anew, there is room for a carrier.
std::uint64_t Schedule::least(const Builder& builder) const {
  if (!shaping_.fills_carriers()) return builder.waiting;
  return std::max<std::uint64_t>(builder.waiting, shaping_.carrier);
}

std::optional<NodeId> Schedule::next(Time now) { return order_->next(to_, now); }

void Schedule::sent(NodeId node, std::uint64_t bytes, bool fills) {
  FANIN_ASSERT(bytes <= room(node));
  Builder& builder = builders_[node];
  builder.sent += bytes;
  if (fills) builder.full_carriers.push_back(builder.sent);
}

void Schedule::carried(NodeId node, Time now) {
  ++carriers_;
  if (builders_[node].connected) order_->sent(node, now);
}

Time Schedule::wake() const { return order_->wake(); }

} // namespace fanin::builder::shaping
