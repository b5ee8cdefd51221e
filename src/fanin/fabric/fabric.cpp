#include "fanin/fabric/fabric.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/try.hpp"
#include "fanin/fabric/deadlock.hpp"

namespace fanin::fabric {
namespace {

constexpr std::uint64_t buffer_most = 1ULL << 40;
constexpr std::uint32_t packet_most = 1U << 24;
constexpr std::uint64_t queues_most = 1ULL << 24;

Result<> check(const FabricOptions& options) {
  const auto wrong = [](std::string text) { return fail(ErrorKind::usage, std::move(text)); };
  if (options.packet == 0 || options.packet > packet_most || options.packet_header > packet_most)
    return wrong("a packet has 1 B to 16 MiB, and a header of at most 16 MiB");
  if (options.buffer == 0 || options.buffer > buffer_most)
    return wrong("the buffer of a queue in a switch has 1 B to 1 TiB");
  const auto is_rate = [](double rate) { return rate == 0 || (rate >= 1e3 && rate <= 1e14); };
  if (!is_rate(options.nic_out) || !is_rate(options.nic_in))
    return wrong("the rate of a network interface is 1 kB/s to 100 TB/s");
  if (options.message_cost < Duration{} || options.message_cost > std::chrono::seconds{1})
    return wrong("the cost of a message is at most 1 s");
  const bool drops = options.when_full == WhenFull::drop;
  if (drops && options.queueing != Queueing::output_queues)
    return wrong("only a switch with output queues drops packets");
  const std::uint64_t packet = options.packet + std::uint64_t{options.packet_header};
  const double under_way = options.topology.link_rate * 1e-9 *
                           static_cast<double>(options.topology.link_latency.count());
  const bool holds_packet = options.buffer >= packet;
  if (drops && !holds_packet)
    return wrong("a switch that drops packets has buffers for at least one packet");
  if (!holds_packet && static_cast<double>(options.buffer) < under_way)
    return wrong(fmt::format("the buffer of a queue in a switch, {} B, holds neither a packet nor "
                             "what is under way on a link (its rate times its latency: {:.0f} B): "
                             "make it larger, or the packets smaller",
                             options.buffer, under_way));
  if (options.routing == Routing::adaptive && options.queueing != Queueing::input_fifo)
    return wrong("adaptive routing takes another route for the head of an input FIFO: the other "
                 "kinds of queues need another routing");
  if (options.routing == Routing::adaptive && options.reroute_after <= Duration{})
    return wrong("adaptive routing waits for some time before it takes another route");
  return {};
}

} // namespace

Result<std::unique_ptr<Fabric>> Fabric::make(const FabricOptions& options) {
  FANIN_TRY(check(options));
  auto topology = FANIN_TRY(Topology::make(options.topology));
  std::uint64_t queues = 0;
  if (options.queue_for_each_destination)
    queues += std::uint64_t{topology.all_ports()} * topology.hosts();
  const bool of_each_output = options.queueing == Queueing::virtual_output_queues;
  for (const Link& link : topology.links())
    if (link.to != no_link) queues += of_each_output ? topology.outputs(link.to) : 1;
  if (queues > queues_most)
    return fail(ErrorKind::usage, fmt::format("the network has {} queues, and at most {} can be "
                                              "simulated: simulate fewer hosts",
                                              queues, queues_most));
  if (options.when_full == WhenFull::pause)
    FANIN_TRY(check_deadlock(dependencies(topology),
                             [&](std::uint32_t link) { return topology.name(link); }));
  return std::unique_ptr<Fabric>(new Fabric(options, std::move(topology)));
}

Fabric::Fabric(const FabricOptions& options, Topology topology)
    : options_(options),
      topology_(std::move(topology)),
      random_(options.seed),
      link_rate_(options.topology.link_rate),
      latency_(to_picoseconds(options.topology.link_latency)),
      links_(topology_.links().size()),
      interfaces_(topology_.hosts()) {
  if (options.nic_out > 0) nic_out_ = Rate(options.nic_out);
  if (options.nic_in > 0) nic_in_ = Rate(options.nic_in);
  make_queues();
}

void Fabric::make_queues() {
  if (options_.queue_for_each_destination) queues_of_port_ = topology_.hosts();
  const std::size_t in_interfaces = std::size_t{topology_.all_ports()} * queues_of_port_;
  queues_.resize(in_interfaces);
  waiting_.resize(in_interfaces);
  const bool of_outputs = options_.queueing == Queueing::output_queues;
  queue_of_link_.assign(links_.size(), none);
  for (std::uint32_t link = 0; link < links_.size(); ++link) {
    const std::uint32_t end = topology_.links()[link].to;
    const bool leaves_switch = link >= topology_.all_ports();
    if (of_outputs ? !leaves_switch : end == no_link) continue;
    const bool several = options_.queueing == Queueing::virtual_output_queues;
    queue_of_link_[link] = static_cast<std::uint32_t>(queues_.size());
    queues_.resize(
        queues_.size() + (several ? topology_.outputs(end) : 1),
        {.room = options_.buffer, .size = options_.buffer, .input = of_outputs ? none : link});
  }
}

void Fabric::send(Picoseconds at, std::uint32_t source, std::uint32_t destination,
                  std::uint64_t bytes, std::uint64_t tag) {
  if (free_messages_ == none) {
    free_messages_ = static_cast<std::uint32_t>(messages_.size());
    messages_.emplace_back();
  }
  const std::uint32_t index = free_messages_;
  Message& message = messages_[index];
  free_messages_ = message.next;
  Interface& interface = interfaces_[source];
  message = {.tag = tag,
             .bytes = bytes,
             .to_send = bytes,
             .missing = bytes,
             .source = source,
             .destination = destination,
             .port = next_port(interface, destination)};
  const Picoseconds ready =
      std::max(at, interface.processor_free) + to_picoseconds(options_.message_cost);
  interface.processor_free = ready;
  events_.add(ready, static_cast<std::uint16_t>(Kind::ready), index);
}

// Those for each destination take turns.
std::uint32_t Fabric::next_port(Interface& interface, std::uint32_t destination) const {
  if (topology_.ports() == 1) return 0;
  if (interface.next_ports.empty()) interface.next_ports.resize(topology_.hosts());
  std::uint8_t& next = interface.next_ports[destination];
  const std::uint32_t port = next;
  next = static_cast<std::uint8_t>((port + 1) % topology_.ports());
  return port;
}

void Fabric::advance() {
  const Event event = events_.take();
  switch (static_cast<Kind>(event.kind)) {
  case Kind::ready: enter(event.index); break;
  case Kind::head: head_arrived(event.index); break;
  case Kind::tail: tail_left(event.index, event.detail); break;
  case Kind::blocked: blocked(event.index, event.detail); break;
  case Kind::resend: {
    Worm& worm = worms_[event.index];
    worm.taken = worm.left = 0;
    worm.then = none;
    worm.sent_again = true;
    push(worm.hops[0].queue, event.index);
    break;
  }
  }
}

void Fabric::enter(std::uint32_t index) {
  Message& message = messages_[index];
  message.next = none;
  const std::uint32_t port = message.source * topology_.ports() + message.port;
  const std::uint32_t queue =
      port * queues_of_port_ + (queues_of_port_ > 1 ? message.destination : 0);
  Waiting& waiting = waiting_[queue];
  if (waiting.first == none) {
    waiting.first = index;
  } else {
    messages_[waiting.last].next = index;
  }
  waiting.last = index;
  if (queues_[queue].first == none) make_worm(queue);
}

// The next packet of the first message that waits.
void Fabric::make_worm(std::uint32_t queue) {
  Waiting& waiting = waiting_[queue];
  Message& message = messages_[waiting.first];
  if (free_worms_ == none) {
    free_worms_ = static_cast<std::uint32_t>(worms_.size());
    worms_.emplace_back();
  }
  const std::uint32_t index = free_worms_;
  Worm& worm = worms_[index];
  free_worms_ = std::exchange(worm.message, waiting.first);
  worm.payload =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(message.to_send, options_.packet));
  worm.size = std::max(worm.payload + options_.packet_header, 1U);
  worm.port = message.destination * topology_.ports() + message.port;
  worm.taken = worm.left = 0;
  worm.then = none;
  worm.sent_again = false;
  message.to_send -= worm.payload;
  if (message.to_send == 0) waiting.first = message.next;
  push(queue, index);
}

void Fabric::push(std::uint32_t queue, std::uint32_t index) {
  Worm& worm = worms_[index];
  Hop& hop = worm.hops[worm.taken];
  hop.queue = queue;
  hop.next = none;
  const std::uint32_t place = index * hops_most + worm.taken;
  Queue& to = queues_[queue];
  if (to.first != none) {
    hop_at(std::exchange(to.last, place)).next = place;
    return;
  }
  to.first = to.last = place;
  request(queue);
}

std::uint32_t Fabric::choose(const Worm& worm, std::uint32_t at_switch) {
  switch (options_.routing) {
  case Routing::fixed: {
    const std::uint64_t from = worm.hops[0].queue / queues_of_port_;
    const std::uint64_t route = mix_bits(options_.seed ^ (from << 32 | worm.port));
    return topology_.link_of_route(at_switch, worm.port, route);
  }
  case Routing::destination: return topology_.link_of_route(at_switch, worm.port, worm.port);
  case Routing::dispersive:
  case Routing::adaptive: break;
  }
  const LinkRange range = topology_.towards(at_switch, worm.port);
  return range.first +
         static_cast<std::uint32_t>(range.count == 1 ? 0 : random_.below(range.count));
}

// The link that the head wants next; where a queue depends on it, also the one after that.
void Fabric::choose_links(Worm& worm) {
  if (worm.taken == 0) {
    worm.wants = Topology::link_from(worm.hops[0].queue / queues_of_port_);
  } else if (worm.then != none) {
    worm.wants = worm.then;
  } else {
    const std::uint32_t at_switch = topology_.links()[worm.hops[worm.taken - 1U].link].to;
    worm.wants = choose(worm, at_switch);
  }
  const std::uint32_t end = topology_.links()[worm.wants].to;
  const bool known = options_.queueing == Queueing::input_fifo || end == no_link;
  worm.then = known ? none : choose(worm, end);
}

std::uint32_t Fabric::queue_behind(std::uint32_t link, std::uint32_t then) const {
  if (topology_.ends_at_port(link)) return none;
  switch (options_.queueing) {
  case Queueing::input_fifo: return queue_of_link_[link];
  case Queueing::virtual_output_queues:
    return queue_of_link_[link] + topology_.links()[then].output;
  case Queueing::output_queues: return queue_of_link_[then];
  }
  return none;
}

bool Fabric::has_other_way(const Worm& worm) const {
  if (worm.taken == 0) return false;
  const std::uint32_t at_switch = topology_.links()[worm.hops[worm.taken - 1U].link].to;
  return topology_.towards(at_switch, worm.port).count > 1;
}

// The first worm of a queue asks for its link. Links are given in the order of requests.
void Fabric::request(std::uint32_t queue) {
  const std::uint32_t index = first_worm(queue);
  Worm& worm = worms_[index];
  choose_links(worm);
  add_request(worm.wants, queue);
  const std::uint16_t generation = ++worm.generation;
  serve(worm.wants);
  const bool waits = worm.generation == generation;
  if (options_.routing == Routing::adaptive && waits && has_other_way(worm))
    events_.add(events_.now() + to_picoseconds(options_.reroute_after),
                static_cast<std::uint16_t>(Kind::blocked), index, generation);
}

void Fabric::add_request(std::uint32_t link, std::uint32_t queue) {
  LinkState& state = links_[link];
  queues_[queue].next_request = none;
  if (state.first_request == none) {
    state.first_request = queue;
  } else {
    queues_[state.last_request].next_request = queue;
  }
  state.last_request = queue;
}

void Fabric::remove_request(std::uint32_t link, std::uint32_t queue) {
  LinkState& state = links_[link];
  std::uint32_t before = none;
  for (std::uint32_t at = state.first_request; at != queue; at = queues_[at].next_request)
    before = at;
  const std::uint32_t after = queues_[queue].next_request;
  if (before == none) {
    state.first_request = after;
  } else {
    queues_[before].next_request = after;
  }
  if (state.last_request == queue) state.last_request = before;
}

void Fabric::serve(std::uint32_t link) {
  const LinkState& state = links_[link];
  if (state.worm != none) return;
  for (std::uint32_t queue = state.first_request; queue != none;
       queue = queues_[queue].next_request) {
    if (!may_take(link, queue)) continue;
    remove_request(link, queue);
    take(link, queue);
    return;
  }
}

// Where the buffer behind the link is smaller than the worm, it has to be empty.
bool Fabric::may_take(std::uint32_t link, std::uint32_t queue) {
  const Queue& from = queues_[queue];
  if (from.input != none && links_[from.input].feeds) return false;
  const Worm& worm = worms_[first_worm(queue)];
  const std::uint32_t behind = queue_behind(link, worm.then);
  if (behind == none || options_.when_full == WhenFull::drop) return true;
  const Queue& to = queues_[behind];
  if (to.room >= std::min<std::uint64_t>(worm.size, to.size)) return true;
  if (to.input == none && from.waits_for == none) wait_for_room(queue, behind);
  return false;
}

void Fabric::wait_for_room(std::uint32_t queue, std::uint32_t full) {
  queues_[queue].waits_for = full;
  queues_[queue].next_waiting = none;
  Queue& to = queues_[full];
  (to.first_waiting == none ? to.first_waiting : queues_[to.last_waiting].next_waiting) = queue;
  to.last_waiting = queue;
  ++to.waiting;
}

void Fabric::stop_waiting(std::uint32_t queue) {
  const std::uint32_t full = std::exchange(queues_[queue].waits_for, none);
  if (full == none) return;
  Queue& to = queues_[full];
  std::uint32_t before = none;
  for (std::uint32_t at = to.first_waiting; at != queue; at = queues_[at].next_waiting) before = at;
  const std::uint32_t after = queues_[queue].next_waiting;
  (before == none ? to.first_waiting : queues_[before].next_waiting) = after;
  if (to.last_waiting == queue) to.last_waiting = before;
  --to.waiting;
}

void Fabric::take(std::uint32_t link, std::uint32_t queue) {
  stop_waiting(queue);
  const std::uint32_t index = first_worm(queue);
  Worm& worm = worms_[index];
  FANIN_ASSERT(worm.taken < hops_most);
  ++worm.generation; // its request is over
  LinkState& state = links_[link];
  state.worm = index;
  const std::uint32_t input = queues_[queue].input;
  if (input != none) links_[input].feeds = true;
  const Picoseconds now = events_.now();
  Hop& hop = worm.hops[worm.taken++];
  hop.link = link;
  hop.room = 0;
  hop.head = now;
  hop.finish = reserve_interface(worm, link, now + link_rate_.time_of(worm.size));
  const std::uint32_t behind = queue_behind(link, worm.then);
  if (behind != none) {
    const bool drops = options_.when_full == WhenFull::drop;
    hop.room =
        drops
            ? worm.size
            : static_cast<std::uint32_t>(std::min<std::uint64_t>(worm.size, queues_[behind].size));
    if (!drops) fill(behind, hop.room); // else when its head is there
    events_.add(now + latency_, static_cast<std::uint16_t>(Kind::head), index);
  }
  ++counters_.events;
  find_tails(index);
}

// What the network interfaces at the ends of the route allow.
Picoseconds Fabric::reserve_interface(const Worm& worm, std::uint32_t link, Picoseconds finish) {
  const bool out = worm.taken == 1;
  const bool in = topology_.ends_at_port(link);
  const auto reserve = [&](Picoseconds& free, const Rate& rate) {
    free = std::max(free, events_.now()) + rate.time_of(worm.payload);
    finish = std::max(finish, free);
  };
  const Message& message = messages_[worm.message];
  if (out && nic_out_.limited()) reserve(interfaces_[message.source].out_free, nic_out_);
  if (in && nic_in_.limited()) {
    Interface& interface = interfaces_[message.destination];
    reserve(options_.nic_shared ? interface.out_free : interface.in_free, nic_in_);
  }
  return finish;
}

// The tails whose times are certain now: those of links behind which the whole worm has room, as
// far as its head has come.
void Fabric::find_tails(std::uint32_t index) {
  Worm& worm = worms_[index];
  const bool at_end = topology_.ends_at_port(worm.hops[worm.taken - 1U].link);
  while (worm.left < worm.taken) {
    std::uint64_t room = 0;
    for (std::size_t i = worm.left; i < worm.taken; ++i) room += worm.hops[i].room;
    if (!at_end && room < worm.size) return;
    const std::size_t hop = worm.left;
    Picoseconds tail = tail_time(worm, hop);
    if (hop > 0) tail = std::max(tail, worm.hops[hop - 1].finish + latency_);
    worm.hops[hop].finish = tail;
    ++worm.left;
    events_.add(tail, static_cast<std::uint16_t>(Kind::tail), index,
                static_cast<std::uint16_t>(hop));
  }
}

// A byte leaves a link after the one before it, and after a later link has taken what is ahead of
// it beyond the room between the two.
Picoseconds Fabric::tail_time(const Worm& worm, std::size_t hop) {
  Picoseconds tail = worm.hops[hop].finish;
  std::uint64_t room = 0;
  for (std::size_t i = hop + 1; i < worm.taken; ++i) {
    room += worm.hops[i - 1].room;
    if (room >= worm.size) break;
    const Hop& later = worm.hops[i];
    __extension__ using Wide = __int128;
    const auto needed = static_cast<Picoseconds>(Wide{later.finish - later.head} *
                                                 static_cast<Wide>(worm.size - room) / worm.size);
    tail = std::max(tail, later.head + needed);
  }
  return tail;
}

void Fabric::fill(std::uint32_t queue, std::uint64_t bytes) {
  Queue& to = queues_[queue];
  to.room -= bytes;
  counters_.queue_most = std::max(counters_.queue_most, to.size - to.room);
}

void Fabric::head_arrived(std::uint32_t index) {
  Worm& worm = worms_[index];
  const std::uint32_t queue = queue_behind(worm.hops[worm.taken - 1U].link, worm.then);
  if (options_.when_full == WhenFull::drop) {
    if (queues_[queue].room < worm.size) {
      ++counters_.dropped;
      const Picoseconds gone = std::max(events_.now(), worm.hops[worm.taken - 1U].finish);
      events_.add(gone + to_picoseconds(options_.resend_after),
                  static_cast<std::uint16_t>(Kind::resend), index);
      return;
    }
    fill(queue, worm.size);
  }
  push(queue, index);
}

void Fabric::tail_left(std::uint32_t index, std::size_t hop) {
  ++counters_.events;
  Worm& worm = worms_[index];
  const Hop at = worm.hops[hop];
  links_[at.link].worm = none;
  links_[at.link].bytes += worm.size;
  if (hop == 0) departed(worm);
  leave_queue(at.queue, hop > 0 ? worms_[index].hops[hop - 1].room : 0);
  if (topology_.ends_at_port(at.link)) came_out(index);
  serve(at.link);
}

// The first worm has left, and with it the room that it had.
void Fabric::leave_queue(std::uint32_t index, std::uint64_t room) {
  Queue& queue = queues_[index];
  queue.first = hop_at(queue.first).next;
  queue.room += room;
  if (queue.input != none) links_[queue.input].feeds = false;
  if (queue.first != none) {
    request(index);
  } else if (index < waiting_.size() && waiting_[index].first != none) {
    make_worm(index);
  }
  if (index < waiting_.size()) return;
  if (queue.input == none) {
    for (std::uint32_t left = queue.waiting; left > 0 && queue.waiting > 0; --left) {
      const std::uint32_t waits = queue.first_waiting;
      stop_waiting(waits); // if it still finds no room, it waits again
      serve(worms_[first_worm(waits)].wants);
    }
    return;
  }
  serve(queue.input);
  if (options_.queueing != Queueing::virtual_output_queues) return;
  const std::uint32_t first = queue_of_link_[queue.input];
  const std::uint32_t count = topology_.outputs(topology_.links()[queue.input].to);
  for (std::uint32_t i = 0; i < count && !links_[queue.input].feeds; ++i) {
    const std::uint32_t other = first + (index - first + 1 + i) % count;
    if (queues_[other].first != none) serve(worms_[first_worm(other)].wants);
  }
}

void Fabric::departed(const Worm& worm) {
  const Message& message = messages_[worm.message];
  const bool all = message.to_send == 0 && !worm.sent_again;
  if (all && on_departed) on_departed(message.source);
}

void Fabric::came_out(std::uint32_t index) {
  const Worm& worm = worms_[index];
  const Hop& hop = worm.hops[worm.taken - 1U];
  Message& message = messages_[worm.message];
  if (message.first < 0) message.first = hop.head + latency_;
  message.last = events_.now() + latency_;
  message.missing -= worm.payload;
  ++counters_.packets;
  counters_.payload += worm.payload;
  const std::uint32_t of = worm.message;
  free_worm(index);
  if (message.missing > 0) return;
  const Delivery delivery{.tag = message.tag,
                          .source = message.source,
                          .destination = message.destination,
                          .bytes = message.bytes,
                          .first = message.first,
                          .last = message.last};
  ++counters_.messages;
  free_message(of);
  if (on_delivered) on_delivered(delivery);
}

// The head asks for another link, if it still waits for the same one.
void Fabric::blocked(std::uint32_t index, std::uint16_t generation) {
  const Worm& worm = worms_[index];
  if (worm.generation != generation) return;
  const std::uint32_t queue = worm.hops[worm.taken].queue;
  const std::uint32_t before = worm.wants;
  remove_request(before, queue);
  request(queue);
  if (worm.wants != before) ++counters_.rerouted;
}

void Fabric::free_worm(std::uint32_t index) {
  ++worms_[index].generation;
  worms_[index].message = std::exchange(free_worms_, index);
}

void Fabric::free_message(std::uint32_t index) {
  messages_[index].next = std::exchange(free_messages_, index);
}

} // namespace fanin::fabric
