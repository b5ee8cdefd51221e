// The same network byte by byte, as an oracle: fabric.cpp computes when a tail leaves a link, this
// model moves each byte over each link. It is as plain as it can be, and slow. Routes are those by
// destination.
#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fanin/fabric/fabric.hpp"

namespace fanin::fabric {
namespace {

constexpr std::uint32_t none = ~0U;
constexpr Picoseconds byte_time = 1000;

struct Sending {
  Picoseconds at = 0;
  std::uint32_t source = 0;
  std::uint32_t destination = 0;
  std::uint64_t bytes = 0;
};

class FlitNetwork {
public:
  FlitNetwork(const FabricOptions& options, const Topology& topology)
      : options_(options),
        topology_(topology),
        latency_(to_picoseconds(options.topology.link_latency)),
        links_(topology.links().size()),
        next_port_(std::size_t{topology.hosts()} * topology.hosts()) {}

  // When the last byte of each message has arrived.
  std::vector<Picoseconds> run(const std::vector<Sending>& sendings) {
    arrived_.assign(sendings.size(), 0);
    for (const Sending& sending : sendings) times_.insert(sending.at);
    std::size_t sent = 0;
    while (!times_.empty()) {
      now_ = *times_.begin();
      times_.erase(times_.begin());
      for (; sent < sendings.size() && sendings[sent].at == now_; ++sent)
        cut_into_packets(sendings[sent], sent);
      while (move()) {
      }
    }
    return arrived_;
  }

  // When it first mattered which of two events at the same time came first, which the rules leave
  // open.
  [[nodiscard]] Picoseconds first_tie() const { return first_tie_; }

private:
  // Of a queue: the link that fills it and the link that it feeds; none: several. That of a network
  // interface is filled by none.
  using QueueName = std::pair<std::uint32_t, std::uint32_t>;

  struct Hop {
    std::uint32_t link = none;
    QueueName from;
    std::uint64_t room = 0; // in the queue behind the link
    std::vector<Picoseconds> begun; // when each byte began to cross the link
    bool head_there = false;
    bool left = false;
  };
  struct Packet {
    std::size_t message = 0;
    std::uint32_t size = 0;
    std::uint32_t port = 0; // its destination
    std::vector<Hop> hops;
  };
  struct Queue {
    std::deque<std::size_t> packets;
    std::uint64_t used = 0; // bytes
    bool asks = false;
    Picoseconds last_packet = -1; // when it came
    std::deque<QueueName> waiting; // for room in this one
  };
  struct LinkState {
    bool busy = false;
    bool feeds = false; // a packet of a queue behind it is on its way
    std::deque<QueueName> requests;
    Picoseconds last_request = -1;
  };

  void cut_into_packets(const Sending& sending, std::size_t message) {
    const std::uint32_t ports = topology_.ports();
    std::uint32_t& next =
        next_port_[std::size_t{sending.source} * topology_.hosts() + sending.destination];
    const std::uint32_t port = std::exchange(next, (next + 1) % ports);
    for (std::uint64_t at = 0; at < sending.bytes; at += options_.packet) {
      const auto payload =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(options_.packet, sending.bytes - at));
      queues_[{none, Topology::link_from(sending.source * ports + port)}].packets.push_back(
          packets_.size());
      packets_.push_back({.message = message,
                          .size = payload + options_.packet_header,
                          .port = sending.destination * ports + port,
                          .hops = {}});
    }
  }

  // Routes by destination.
  [[nodiscard]] std::uint32_t link_after(std::uint32_t link, const Packet& packet) const {
    if (topology_.ends_at_port(link)) return none;
    return topology_.link_of_route(topology_.links()[link].to, packet.port, packet.port);
  }
  [[nodiscard]] std::uint32_t wanted_link(const QueueName& queue) {
    if (queue.second != none) return queue.second;
    const Packet& packet = packets_[queues_[queue].packets.front()];
    return link_after(packet.hops.back().link, packet);
  }
  [[nodiscard]] QueueName queue_behind(std::uint32_t link, const Packet& packet) const {
    switch (options_.queueing) {
    case Queueing::input_fifo: return {link, none};
    case Queueing::virtual_output_queues: return {link, link_after(link, packet)};
    case Queueing::output_queues: break;
    }
    return {none, link_after(link, packet)};
  }

  // Something happens at this time; false: nothing more does.
  bool move() {
    bool moved = false;
    for (std::size_t i = 0; i < under_way_.size(); ++i) { // more may get under way
      const std::size_t packet = under_way_[i];
      for (std::size_t hop = 0; hop < packets_[packet].hops.size(); ++hop) {
        moved |= tail_leaves(packet, hop);
        moved |= head_arrives(packet, hop);
      }
    }
    std::erase_if(under_way_, [&](std::size_t packet) {
      const Hop& last = packets_[packet].hops.back();
      return last.left && topology_.ends_at_port(last.link);
    });
    for (const auto& [name, queue] : queues_) moved |= ask(name);
    for (std::uint32_t link = 0; link < links_.size(); ++link) moved |= give(link);
    for (const std::size_t index : under_way_) {
      Packet& packet = packets_[index];
      for (std::size_t hop = packet.hops.size(); hop-- > 0;) moved |= next_byte(packet, hop);
    }
    return moved;
  }

  bool tail_leaves(std::size_t index, std::size_t at) {
    Packet& packet = packets_[index];
    Hop& hop = packet.hops[at];
    if (hop.left || hop.begun.size() < packet.size || hop.begun.back() + byte_time > now_)
      return false;
    hop.left = true;
    note_tie_of_tails(packet, at);
    links_[hop.link].busy = false;
    if (hop.from.first != none) links_[hop.from.first].feeds = false;
    Queue& queue = queues_[hop.from];
    queue.packets.pop_front();
    queue.asks = false;
    if (at > 0) queue.used -= packet.hops[at - 1].room;
    if (topology_.ends_at_port(hop.link)) {
      Picoseconds& arrived = arrived_[packet.message];
      arrived = std::max(arrived, now_ + latency_);
    }
    give_room(hop.from);
    return true;
  }

  // What has left this queue leaves room for those that wait for it, in their order, and gives the
  // other queues of its input their turns.
  void give_room(QueueName left) {
    if (ask(left)) give(wanted_link(left));
    auto& waiting = queues_[left].waiting;
    for (std::size_t count = waiting.size(); count > 0 && !waiting.empty(); --count) {
      const QueueName waits = waiting.front();
      waiting.pop_front();
      give(wanted_link(waits));
    }
    if (left.first == none) return;
    give(left.first);
    const auto turn = [&](const QueueName& name) {
      if (name.first == left.first && queues_[name].asks) give(wanted_link(name));
    };
    for (auto at = queues_.upper_bound(left); at != queues_.end(); ++at) turn(at->first);
    for (auto at = queues_.begin(); at->first < left; ++at) turn(at->first);
  }

  bool head_arrives(std::size_t index, std::size_t at) {
    Packet& packet = packets_[index];
    Hop& hop = packet.hops[at];
    if (hop.head_there || hop.begun.empty() || hop.begun.front() + latency_ > now_) return false;
    hop.head_there = true;
    if (topology_.ends_at_port(hop.link)) return true;
    Queue& queue = queues_[queue_behind(hop.link, packet)];
    note_tie(queue.last_packet);
    queue.packets.push_back(index);
    return true;
  }

  bool ask(const QueueName& name) {
    Queue& queue = queues_[name];
    if (queue.asks || queue.packets.empty()) return false;
    queue.asks = true;
    LinkState& link = links_[wanted_link(name)];
    note_tie(link.last_request);
    link.requests.push_back(name);
    return true;
  }

  // One tail makes a link free, and another one makes room behind it or lets another queue of an
  // input send: then who is served depends on which of them was first. With input FIFOs this is
  // so behind one link, else at one switch.
  void note_tie_of_tails(const Packet& packet, std::size_t at) {
    const auto place = [&](std::size_t hop) {
      const std::uint32_t link = packet.hops[hop].link;
      return options_.queueing == Queueing::input_fifo ? link : topology_.links()[link].to;
    };
    if (at > 0) note_tie(last_tails_.try_emplace(place(at - 1), -1).first->second);
    if (!topology_.ends_at_port(packet.hops[at].link))
      note_tie(last_tails_.try_emplace(place(at), -1).first->second);
  }

  void note_tie(Picoseconds& last) {
    if (std::exchange(last, now_) == now_) first_tie_ = std::min(first_tie_, now_);
  }

  // To the first request for which there is room.
  bool give(std::uint32_t link) {
    LinkState& state = links_[link];
    if (state.busy) return false;
    for (auto request = state.requests.begin(); request != state.requests.end(); ++request) {
      const QueueName from = *request;
      if (from.first != none && links_[from.first].feeds) continue;
      const std::size_t index = queues_[from].packets.front();
      Packet& packet = packets_[index];
      std::uint64_t room = 0;
      if (!topology_.ends_at_port(link)) {
        Queue& behind = queues_[queue_behind(link, packet)];
        room = std::min<std::uint64_t>(packet.size, options_.buffer);
        const auto waiting = std::ranges::find(behind.waiting, from);
        const bool waits = waiting != behind.waiting.end();
        if (behind.used + room > options_.buffer) {
          if (!waits) behind.waiting.push_back(from);
          continue;
        }
        behind.used += room;
        if (waits) behind.waiting.erase(waiting);
      }
      if (packet.hops.empty()) under_way_.push_back(index);
      packet.hops.push_back({.link = link, .from = from, .room = room, .begun = {}});
      state.busy = true;
      if (from.first != none) links_[from.first].feeds = true;
      state.requests.erase(request);
      return true;
    }
    return false;
  }

  // A byte crosses a link after the byte before it, after it has come over the link before, and
  // when there is room for it behind the link.
  bool next_byte(Packet& packet, std::size_t at) {
    Hop& hop = packet.hops[at];
    const std::size_t byte = hop.begun.size();
    if (byte == packet.size || (byte > 0 && hop.begun.back() + byte_time > now_)) return false;
    if (at > 0) {
      const auto& before = packet.hops[at - 1].begun;
      if (byte >= before.size() || before[byte] + latency_ > now_) return false;
    }
    const std::size_t gone = at + 1 < packet.hops.size() ? packet.hops[at + 1].begun.size() : 0;
    if (hop.room > 0 && byte >= hop.room + gone) return false;
    hop.begun.push_back(now_);
    times_.insert({now_ + byte_time, now_ + latency_});
    return true;
  }

  const FabricOptions& options_;
  const Topology& topology_;
  Picoseconds latency_;
  Picoseconds now_ = 0;
  std::set<Picoseconds> times_; // when something may happen
  std::vector<LinkState> links_;
  std::map<QueueName, Queue> queues_;
  std::vector<Packet> packets_;
  std::vector<std::size_t> under_way_; // packets whose head has left its host
  std::vector<std::uint32_t> next_port_; // of each pair of hosts
  std::vector<Picoseconds> arrived_; // of each message
  std::map<std::uint32_t, Picoseconds> last_tails_; // of each place
  Picoseconds first_tie_ = std::numeric_limits<Picoseconds>::max();
};

FabricOptions random_network(Random& random, Queueing queueing) {
  FabricOptions options;
  options.topology.hosts = 2 + static_cast<std::uint32_t>(random.below(9));
  options.topology.ports = 1 + static_cast<std::uint32_t>(random.below(2));
  options.topology.link_rate = 1e9;
  options.topology.link_latency = Duration{1 + static_cast<std::int64_t>(random.below(40))};
  if (random.chance(2, 3)) {
    options.topology.shape = Shape::clos;
    options.topology.spines = 1 + static_cast<std::uint32_t>(random.below(3));
    options.topology.uplinks =
        options.topology.spines * (1 + static_cast<std::uint32_t>(random.below(2)));
    options.topology.switch_ports = 3;
  }
  options.queueing = queueing;
  options.routing = Routing::destination;
  options.packet = 20 + static_cast<std::uint32_t>(random.below(200));
  options.packet_header = static_cast<std::uint32_t>(random.below(10));
  options.buffer = 41 + random.below(random.chance(1, 2) ? 60 : 600);
  return options;
}

std::vector<Sending> random_messages(Random& random, std::uint32_t hosts, std::size_t count) {
  std::vector<Sending> sendings(count);
  for (Sending& sending : sendings)
    sending = {.at = static_cast<Picoseconds>(random.below(count * 100'000)),
               .source = static_cast<std::uint32_t>(random.below(hosts)),
               .destination = static_cast<std::uint32_t>(random.below(hosts)),
               .bytes = 1 + random.below(500)};
  std::ranges::sort(sendings, {}, &Sending::at);
  return sendings;
}

std::vector<Picoseconds> arrivals(Fabric& fabric, const std::vector<Sending>& sendings) {
  std::vector<Picoseconds> arrived(sendings.size());
  fabric.on_delivered = [&](const Delivery& delivery) { arrived[delivery.tag] = delivery.last; };
  for (std::size_t i = 0; i < sendings.size(); ++i)
    fabric.send(sendings[i].at, sendings[i].source, sendings[i].destination, sendings[i].bytes, i);
  while (!fabric.idle()) fabric.advance();
  return arrived;
}

// A failing seed is printed.
void compare_on_random_networks(Queueing queueing, std::size_t messages) {
  constexpr std::size_t networks = 200;
  std::size_t compared = 0;
  for (std::uint64_t seed = 1; seed <= networks; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const FabricOptions options = random_network(random, queueing);
    const auto sendings = random_messages(random, options.topology.hosts, messages);
    auto made = Fabric::make(options);
    ASSERT_TRUE(made.has_value()) << made.error().text;
    const auto arrived = arrivals(**made, sendings);
    FlitNetwork flits(options, (*made)->topology());
    const auto expected = flits.run(sendings);
    for (std::size_t i = 0; i < messages; ++i) {
      if (std::min(arrived[i], expected[i]) > flits.first_tie()) continue;
      EXPECT_EQ(arrived[i], expected[i]) << "message " << i;
      ++compared;
    }
  }
  EXPECT_GT(compared, networks * messages / 2); // the others come after a tie
}

TEST(FlitOracle, input_fifos_are_as_a_network_simulated_byte_by_byte) {
  compare_on_random_networks(Queueing::input_fifo, 25);
}

TEST(FlitOracle, virtual_output_queues_are_as_a_network_simulated_byte_by_byte) {
  compare_on_random_networks(Queueing::virtual_output_queues, 15);
}

TEST(FlitOracle, output_queues_are_as_a_network_simulated_byte_by_byte) {
  compare_on_random_networks(Queueing::output_queues, 15);
}

} // namespace
} // namespace fanin::fabric
