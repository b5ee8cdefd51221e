/// \file
/// A network that exists in memory only: which transports there are, how long messages take between
/// them, and which paths are broken. With a latency it is the network of VirtualWorld, in virtual
/// time; without one it is inproc://, where both ends belong to one transport.
///
/// With `strict` it behaves like RDMA where TCP would be forgiving: see VirtualNetworkOptions.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/random.hpp"
#include "fanin/net/in_memory/carrier.hpp"
#include "fanin/net/in_memory/item.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net::in_memory {

struct NetworkOptions {
  std::string scheme = "inproc";
  const Clock* clock = nullptr; ///< null: no latency, everything arrives at once
  Random* random = nullptr;
  Duration latency_min{};
  Duration latency_max{};
  Duration departure_delay{}; ///< what is sent in a handler leaves when its turn is over
  /// Null: items take latencies. Else only answers of hosts and name services do: refusals, and
  /// what says that a message was taken. Outlives the network.
  Carrier* carrier = nullptr;
  bool strict = false;
  std::uint32_t posted_receives = 4;
};

class Network {
public:
  explicit Network(NetworkOptions options);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// Called when something is under way to a transport, with the time of its arrival.
  std::function<void(MemoryTransport&, Time)> on_departure;

  [[nodiscard]] std::uint64_t trace_hash() const { return trace_hash_; }
  /// One direction between two nodes, of connections to this port (0: to any): nothing arrives any
  /// more, and nobody is told. What was held back arrives once the path is repaired.
  void break_path(const MemoryTransport& from, MemoryTransport& to, std::uint16_t port);
  void repair_path(const MemoryTransport& from, MemoryTransport& to, std::uint16_t port);
  /// Call it before many transports end at once: messages under way are then not kept for the
  /// others.
  void end_world() { ending_ = true; }

  /// For byte streams, which have events and latencies of their own.
  [[nodiscard]] Time now() const { return immediate() ? Time{} : options_.clock->now(); }
  [[nodiscard]] Time arrival(Duration extra, Random& random) const;
  [[nodiscard]] bool broken(std::uint32_t from, std::uint32_t to, std::uint16_t port) const;
  void trace(std::uint32_t node, std::uint64_t what, std::uint64_t bytes);

private:
  friend class MemoryTransport;
  friend class Carrier;

  void arrive(Item& item, Time first, Time last);
  void lose(Item& item);
  [[nodiscard]] bool immediate() const { return options_.clock == nullptr; }
  [[nodiscard]] std::uint32_t posted_most() const { // of each end; 0: not strict
    return options_.strict ? options_.posted_receives : 0;
  }
  [[nodiscard]] Time arrival(const MemoryTransport& from, const MemoryTransport& to);
  [[nodiscard]] Time departure(Duration extra) const {
    return immediate() ? Time{} : now() + options_.departure_delay + extra;
  }
  Item& make_item(ItemKind kind, const std::shared_ptr<Pipe>& pipe, int side);
  void free_item(Item& item);
  void trace(std::uint32_t node, const Event& event);
  void mix(std::uint64_t value);

  NetworkOptions options_;
  LatencyCarrier latencies_;
  Carrier* carrier_;
  std::map<std::string, MemoryTransport*> transports_; // by host name; "" is any host
  std::vector<MemoryTransport*> by_life_; // null: it has ended
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint16_t>> broken_; // from, to, port
  std::deque<Item> items_;
  std::vector<Item*> free_items_;
  std::uint64_t trace_hash_ = 0xcbf29ce484222325U;
  bool ending_ = false;
};

} // namespace fanin::net::in_memory
