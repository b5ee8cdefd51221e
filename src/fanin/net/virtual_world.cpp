#include "fanin/net/virtual_world.hpp"

#include <algorithm>

#include "fanin/base/assert.hpp"
#include "fanin/net/in_memory/byte_network.hpp"
#include "fanin/net/in_memory/memory_transport.hpp"
#include "fanin/net/indexed_heap.hpp"

namespace fanin::net {

using in_memory::ByteNetwork;
using in_memory::MemoryTransport;
using in_memory::Network;
using in_memory::NetworkOptions;

struct VirtualNode::State {
  VirtualWorld::State* world = nullptr;
  std::string name;
  std::uint32_t index = 0;
  std::unique_ptr<Loop> loop;                 // null while the node is dead, as the next three
  std::unique_ptr<ScriptedResolver> name_service;
  std::unique_ptr<MemoryTransport> transport;
  std::unique_ptr<Streams> streams;
  bool frozen = false;
  bool runnable = true;                       // has to run even if nothing is due
  Duration extra_latency{};
  std::uint64_t rate = 0;
  Time busy_until{};
  Duration spent{};                           // in this turn
  // In the scheduler's heap, unless wake is never.
  Time wake = never;
  std::uint64_t order = 0;                    // breaks ties: who was scheduled first runs first
  std::size_t heap_index = 0;
};

struct VirtualWorld::State {
  using NodeState = VirtualNode::State;

  VirtualNetworkOptions options;
  VirtualClock clock;
  Random random;
  Network network;
  ByteNetwork bytes;
  std::vector<std::unique_ptr<VirtualNode>> nodes;
  struct Before {
    bool operator()(const NodeState& a, const NodeState& b) const {
      return a.wake != b.wake ? a.wake < b.wake : a.order < b.order;
    }
  };
  IndexedHeap<NodeState, &NodeState::heap_index, Before> heap;
  std::uint64_t orders = 0;
  std::uint64_t turns = 0;
  NodeState* running = nullptr;

  State(std::uint64_t seed, const VirtualNetworkOptions& given)
      : options(given),
        random(seed),
        network(network_options()),
        bytes(network, ~seed, options.stream_buffer) {
    network.on_departure = [this](MemoryTransport& to, Time due) { something_due(to, due); };
    bytes.on_event = [this](std::uint32_t node) { something_came(*nodes[node]->state_); };
  }

  NetworkOptions network_options() {
    return {.scheme = "sim",
            .clock = &clock,
            .random = &random,
            .latency_min = options.latency_min,
            .latency_max = std::max(options.latency_min, options.latency_max),
            .departure_delay = options.turn_cost,
            .carrier = options.carrier,
            .strict = options.strict,
            .posted_receives = std::max(options.posted_receives, 1U)};
  }

  void start(NodeState& node);
  void stop(NodeState& node);
  void something_due(MemoryTransport& to, Time due);
  void something_came(NodeState& node);
  [[nodiscard]] bool is_first(Time due, Time end) const;
  bool deliver_bytes(Time end);
  bool carry(Time end);
  void reschedule(NodeState& node);
  void reschedule_all(bool run_each);
  void set_wake(NodeState& node, Time wake);
  [[nodiscard]] Duration cost_of(const in_memory::Moved& moved) const {
    const double bytes_ns = options.byte_cost_ns * static_cast<double>(moved.bytes);
    return static_cast<Duration::rep>(moved.messages) * options.message_cost +
           Duration{static_cast<Duration::rep>(bytes_ns)};
  }
  void run(NodeState& node);
};

void VirtualWorld::State::start(NodeState& node) {
  node.loop = std::make_unique<Loop>(clock);
  node.transport = std::make_unique<MemoryTransport>(network, node.name, node.index);
  node.transport->set_extra_latency(node.extra_latency);
  node.transport->set_rate(node.rate);
  node.streams = bytes.make_streams(node.index);
  node.name_service = std::make_unique<ScriptedResolver>(
      *node.loop, [this](const std::string& name) { return bytes.find(name); });
  node.loop->set_resolver(node.name_service.get());
  node.transport->set_resolver(node.name_service.get());
  node.loop->add(*node.transport);
  node.frozen = false;
  node.runnable = true;
  node.busy_until = clock.now();
  reschedule(node);
}

void VirtualWorld::State::stop(NodeState& node) {
  FANIN_ASSERT(running != &node);
  set_wake(node, never);
  node.streams.reset();
  node.transport.reset();
  node.name_service.reset();
  node.loop.reset();
}

void VirtualWorld::State::something_due(MemoryTransport& to, Time due) {
  NodeState& node = *nodes[to.node()]->state_;
  if (node.frozen || node.transport.get() != &to || &node == running) return;
  const Time wake = std::max(due, node.busy_until);
  if (wake < node.wake) set_wake(node, wake);
}

void VirtualWorld::State::something_came(NodeState& node) {
  node.runnable = true;
  if (&node != running) reschedule(node);
}

// Whether something is due before the next turn of a node.
bool VirtualWorld::State::is_first(Time due, Time end) const {
  return due != never && due <= end && (heap.empty() || heap.front().wake >= due);
}

bool VirtualWorld::State::deliver_bytes(Time end) {
  const Time due = bytes.next();
  if (!is_first(due, end)) return false;
  clock.advance_to(due);
  bytes.deliver();
  return true;
}

bool VirtualWorld::State::carry(Time end) {
  if (options.carrier == nullptr) return false;
  const Time due = options.carrier->next();
  if (!is_first(due, end)) return false;
  clock.advance_to(due);
  options.carrier->advance(due);
  return true;
}

void VirtualWorld::State::reschedule(NodeState& node) {
  if (node.frozen || node.transport == nullptr) {
    set_wake(node, never);
    return;
  }
  const Time now = clock.now();
  Time wake = std::min(node.transport->next_arrival(), node.loop->next_deadline());
  if (node.runnable || node.transport->has_ready()) wake = now;
  if (wake != never) wake = std::max({wake, now, node.busy_until});
  set_wake(node, wake);
}

void VirtualWorld::State::reschedule_all(bool run_each) {
  for (const auto& node : nodes) {
    if (run_each) node->state_->runnable = true;
    reschedule(*node->state_);
  }
}

void VirtualWorld::State::set_wake(NodeState& node, Time wake) {
  if (wake == node.wake) return;
  const bool listed = node.wake != never;
  node.wake = wake;
  node.order = orders++;
  if (wake == never) {
    heap.remove(node);
  } else if (listed) {
    heap.update(node);
  } else {
    heap.add(node);
  }
}

void VirtualWorld::State::run(NodeState& node) {
  clock.advance_to(node.wake);
  node.runnable = false;
  running = &node;
  const bool worked = node.loop->turn();
  running = nullptr;
  if (worked) {
    node.busy_until = clock.now() + options.turn_cost + cost_of(node.transport->take_moved()) +
                      std::exchange(node.spent, Duration{});
    node.runnable = true;
  }
  reschedule(node);
  ++turns;
}

VirtualWorld::VirtualWorld(std::uint64_t seed, VirtualNetworkOptions options)
    : state_(std::make_unique<State>(seed, options)) {}

VirtualWorld::~VirtualWorld() {
  state_->network.end_world();
  for (const auto& node : state_->nodes) state_->stop(*node->state_);
}

VirtualNode& VirtualWorld::add_node(std::string name) {
  for (const auto& node : state_->nodes) {
    const bool name_is_new = node->name() != name;
    FANIN_ASSERT(name_is_new);
  }
  auto node = std::make_unique<VirtualNode::State>();
  node->world = state_.get();
  node->name = std::move(name);
  node->index = static_cast<std::uint32_t>(state_->nodes.size());
  state_->bytes.add_host(node->name);
  state_->nodes.push_back(std::unique_ptr<VirtualNode>(new VirtualNode(std::move(node))));
  VirtualNode& added = *state_->nodes.back();
  state_->start(*added.state_);
  return added;
}

VirtualNode* VirtualWorld::find_node(const std::string& name) const {
  const auto found = std::ranges::find(
      state_->nodes, name, [](const auto& node) -> const auto& { return node->name(); });
  return found == state_->nodes.end() ? nullptr : found->get();
}

std::uint64_t VirtualWorld::run_until(Time end) {
  const std::uint64_t turns_before = state_->turns;
  state_->reschedule_all(true);
  while (true) {
    if (state_->deliver_bytes(end) || state_->carry(end)) continue;
    if (state_->heap.empty() || state_->heap.front().wake > end) break;
    state_->run(state_->heap.front());
  }
  if (end != never) state_->clock.advance_to(end);
  return state_->turns - turns_before;
}

bool VirtualWorld::step() {
  state_->reschedule_all(false);
  while (state_->deliver_bytes(never) || state_->carry(never)) {
  }
  if (state_->heap.empty()) return false;
  state_->run(state_->heap.front());
  return true;
}

Time VirtualWorld::now() const { return state_->clock.now(); }
Random& VirtualWorld::random() { return state_->random; }
std::uint64_t VirtualWorld::trace_hash() const { return state_->network.trace_hash(); }

VirtualNode::VirtualNode(std::unique_ptr<State> state) : state_(std::move(state)) {}
VirtualNode::~VirtualNode() = default;

Loop& VirtualNode::loop() {
  FANIN_ASSERT(alive());
  return *state_->loop;
}

Transport& VirtualNode::transport() {
  FANIN_ASSERT(alive());
  return *state_->transport;
}

Streams& VirtualNode::streams() {
  FANIN_ASSERT(alive());
  return *state_->streams;
}

ScriptedResolver& VirtualNode::name_service() {
  FANIN_ASSERT(alive());
  return *state_->name_service;
}

const std::string& VirtualNode::name() const { return state_->name; }
bool VirtualNode::alive() const { return state_->transport != nullptr; }
bool VirtualNode::frozen() const { return state_->frozen; }

void VirtualNode::spend(Duration time) { state_->spent += time; }

void VirtualNode::freeze() {
  state_->frozen = true;
  state_->world->reschedule(*state_);
}

void VirtualNode::thaw() {
  state_->frozen = false;
  state_->runnable = true;
  if (state_->world->running != state_.get()) state_->world->reschedule(*state_);
}

void VirtualNode::kill() {
  if (alive()) state_->world->stop(*state_);
}

void VirtualNode::restart() {
  kill();
  state_->world->start(*state_);
}

void VirtualNode::disconnect(VirtualNode& other) {
  FANIN_ASSERT(&other != this);
  if (alive() && other.alive()) state_->transport->disconnect(*other.state_->transport);
  state_->world->bytes.disconnect(state_->index, other.state_->index);
}

void VirtualNode::break_path(VirtualNode& to, std::uint16_t port) {
  if (alive() && to.alive()) {
    state_->world->network.break_path(*state_->transport, *to.state_->transport, port);
  }
}

void VirtualNode::repair_path(VirtualNode& to, std::uint16_t port) {
  if (alive() && to.alive()) {
    state_->world->network.repair_path(*state_->transport, *to.state_->transport, port);
    state_->world->bytes.release_held();
  }
}

void VirtualNode::slow_down(Duration extra_latency) {
  state_->extra_latency = extra_latency;
  state_->world->bytes.set_extra_latency(state_->index, extra_latency);
  if (alive()) state_->transport->set_extra_latency(extra_latency);
}

void VirtualNode::limit_rate(std::uint64_t bytes_per_second) {
  state_->rate = bytes_per_second;
  state_->world->bytes.set_rate(state_->index, bytes_per_second);
  if (alive()) state_->transport->set_rate(bytes_per_second);
}

} // namespace fanin::net
