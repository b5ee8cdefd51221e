#include "fanin/net/in_memory/network.hpp"

#include <utility>

#include "fanin/net/in_memory/memory_transport.hpp"

namespace fanin::net::in_memory {

void Carrier::arrive(Item& item, Time first, Time last) const {
  network_->arrive(item, first, last);
}

Duration LatencyCarrier::draw(Random& random) const {
  const auto spread = static_cast<std::uint64_t>((most_ - least_).count());
  return least_ + Duration{static_cast<Duration::rep>(random.below(spread + 1))};
}

void LatencyCarrier::depart(const Departure& departure) {
  const Time due = random_ == nullptr ? departure.at : departure.at + draw(*random_);
  arrive(*departure.item, due, due);
}

Network::Network(NetworkOptions options)
    : options_(std::move(options)),
      latencies_(options_.random, options_.latency_min, options_.latency_max),
      carrier_(options_.carrier == nullptr ? &latencies_ : options_.carrier) {
  carrier_->network_ = this;
}

Network::~Network() = default;

Time Network::arrival(const MemoryTransport& from, const MemoryTransport& to) {
  if (immediate()) return Time{};
  return arrival(from.extra_latency_ + to.extra_latency_, *options_.random);
}

Time Network::arrival(Duration extra, Random& random) const {
  return now() + options_.departure_delay + latencies_.draw(random) + extra;
}

// In the order in which they have left their end, whichever way the carrier has taken them.
void Network::arrive(Item& item, Time first, Time last) {
  item.begins = first;
  item.ends = last;
  item.carried = true;
  const std::shared_ptr<Pipe> pipe = item.pipe; // the last item may be lost
  End& from = pipe->ends[1 - item.side];
  while (from.first_under_way != nullptr && from.first_under_way->carried) {
    Item& next = from.take_under_way();
    MemoryTransport* const to = by_life_[next.to_life];
    if (to == nullptr) {
      lose(next);
    } else {
      to->take_carried(from, next);
    }
  }
}

// Its node has died while it was on its way.
void Network::lose(Item& item) {
  MemoryTransport* const sender = item.pipe->ends[1 - item.side].transport;
  if (sender == nullptr) {
    free_item(item);
  } else {
    sender->undeliverable(item);
  }
}

Item& Network::make_item(ItemKind kind, const std::shared_ptr<Pipe>& pipe, int side) {
  if (free_items_.empty()) free_items_.push_back(&items_.emplace_back());
  Item& item = *free_items_.back();
  free_items_.pop_back();
  item.kind = kind;
  item.pipe = pipe;
  item.side = static_cast<std::uint8_t>(side);
  return item;
}

void Network::free_item(Item& item) {
  item.release_extents();
  item = Item{};
  free_items_.push_back(&item);
}

// FNV-1a over words, then a shift for the high bits.
void Network::mix(std::uint64_t value) {
  trace_hash_ = (trace_hash_ ^ value) * 0x100000001b3U;
  trace_hash_ ^= trace_hash_ >> 29;
}

void Network::trace(std::uint32_t node, const Event& event) {
  mix(static_cast<std::uint64_t>(now().time_since_epoch().count()));
  mix(node);
  mix(static_cast<std::uint64_t>(event.kind) << 8 | static_cast<std::uint64_t>(event.reason));
  mix(static_cast<std::uint64_t>(event.connection));
  mix(std::uint64_t{event.message.size} + event.rest.size);
}

void Network::trace(std::uint32_t node, std::uint64_t what, std::uint64_t bytes) {
  mix(static_cast<std::uint64_t>(now().time_since_epoch().count()));
  mix(node);
  mix(what);
  mix(bytes);
}

bool Network::broken(std::uint32_t from, std::uint32_t to, std::uint16_t port) const {
  return !broken_.empty() &&
         (broken_.contains({from, to, port}) || broken_.contains({from, to, 0}));
}

void Network::break_path(const MemoryTransport& from, MemoryTransport& to, std::uint16_t port) {
  broken_.insert({from.node(), to.node(), port});
}

void Network::repair_path(const MemoryTransport& from, MemoryTransport& to, std::uint16_t port) {
  broken_.erase({from.node(), to.node(), port});
  to.release_held();
}

} // namespace fanin::net::in_memory
