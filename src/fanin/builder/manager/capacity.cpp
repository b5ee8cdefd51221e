#include "fanin/builder/manager/capacity.hpp"

#include <algorithm>

#include "fanin/base/assert.hpp"

namespace fanin::builder {

Capacity::Capacity(std::size_t readout_units, std::size_t builder_units, std::uint64_t batch_bytes,
                   std::uint64_t transfer_window, bool in_order)
    : batch_bytes_(batch_bytes),
      transfer_window_(transfer_window),
      in_order_(in_order),
      readouts_(readout_units),
      builders_(builder_units) {}

void Capacity::readout_up(NodeId node, std::uint64_t memory, std::uint64_t metadata) {
  readouts_[node] = {true, memory, metadata};
  share_.reset();
}

void Capacity::readout_down(NodeId node) {
  readouts_[node].up = false;
  share_.reset();
}

void Capacity::builder_up(NodeId node, std::uint64_t capacity) {
  FANIN_ASSERT(!builders_[node].up);
  builders_[node] = {};
  builders_[node].up = true;
  builders_[node].capacity = capacity;
  ++builders_up_;
  share_.reset();
}

void Capacity::builder_down(NodeId node) {
  FANIN_ASSERT(builders_[node].up);
  builders_[node].up = false;
  --builders_up_;
  share_.reset();
}

// What readout units keep until it is built, divided by the builder units and one more for what
// lies between.
const Capacity::Share& Capacity::fair_share() {
  if (!share_) {
    Share all{0, ~std::uint64_t{0}};
    for (const Readout& readout : readouts_) {
      if (!readout.up) continue;
      all.memory += readout.memory;
      all.metadata = std::min(all.metadata, readout.metadata);
    }
    const std::size_t shares = 1 + builders_up_;
    share_ = {all.memory / shares, all.metadata / shares};
  }
  return *share_;
}

// Capacity comes back in the order of assignment: a batch that is released before an earlier one
// still counts until the earlier one is released. With `in_order` the earlier ones may wait for the
// very batch that is assigned again, so for that one only batches that are not released count. It
// always fits: it fitted before, and no new batch is assigned while an old one waits.
bool Capacity::has_room(NodeId node, const Need& need, Use use) {
  const Builder& builder = builders_[node];
  const bool again = use == Use::reassignment;
  const Share& share = fair_share();
  const std::uint64_t kept = std::min(builder.capacity / 4, 2 * batch_bytes_);
  const std::uint64_t capacity =
      again ? builder.capacity : std::min(builder.capacity - kept, share.memory);
  const std::uint64_t reserved = again && in_order_ ? builder.unreleased : builder.reserved;
  const bool room =
      reserved == 0 || (reserved + need.bytes <= capacity &&
                        (again || builder.metadata + need.metadata <= share.metadata));
  const bool window = builder.under_way == 0 || builder.under_way + need.bytes <= transfer_window_;
  return room && window;
}

Capacity::Reservation Capacity::reserve(NodeId node, const Need& need) {
  Builder& builder = builders_[node];
  FANIN_ASSERT(builder.up);
  builder.reserved += need.bytes;
  builder.unreleased += need.bytes;
  builder.metadata += need.metadata;
  builder.under_way += need.bytes;
  builder.entries.push_back({need, State::under_way});
  return builder.first + builder.entries.size() - 1;
}

Capacity::Entry& Capacity::entry(Builder& builder, Reservation reservation) {
  FANIN_ASSERT(reservation >= builder.first &&
               reservation - builder.first < builder.entries.size());
  return builder.entries[static_cast<std::size_t>(reservation - builder.first)];
}

void Capacity::received(NodeId node, Reservation reservation) {
  Entry& entry = this->entry(builders_[node], reservation);
  FANIN_ASSERT(entry.state == State::under_way);
  entry.state = State::received;
  builders_[node].under_way -= entry.need.bytes;
}

void Capacity::release(NodeId node, Reservation reservation) {
  Builder& builder = builders_[node];
  Entry& released = entry(builder, reservation);
  FANIN_ASSERT(released.state != State::released);
  if (released.state == State::under_way) builder.under_way -= released.need.bytes;
  released.state = State::released;
  builder.unreleased -= released.need.bytes;
  while (!builder.entries.empty() && builder.entries.front().state == State::released) {
    builder.reserved -= builder.entries.front().need.bytes;
    builder.metadata -= builder.entries.front().need.metadata;
    builder.entries.pop_front();
    ++builder.first;
  }
  const bool all_is_back = (builder.reserved | builder.metadata | builder.under_way) == 0;
  FANIN_ASSERT(!builder.entries.empty() || all_is_back);
}

std::uint64_t Capacity::bytes_reserved() const {
  std::uint64_t bytes = 0;
  for (const Builder& builder : builders_) {
    if (builder.up) bytes += builder.reserved + builder.metadata + builder.under_way;
  }
  return bytes;
}

} // namespace fanin::builder
