/// \file
/// Many nodes on one thread in virtual time: each has its own loop and its own in-memory transport,
/// and one scheduler decides who runs next. The protocol's tests use it.
///
/// Deterministic: the same seed gives the same trace. Ties in time are broken by the order of
/// scheduling, never by addresses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/random.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/resolver.hpp"
#include "fanin/net/stream/stream.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net::in_memory {
class Carrier;
}

namespace fanin::net {

/// Options of the in-memory network. `strict` exposes code that relies on properties of TCP: a
/// message needs a receive that was posted before it came; sends complete late, and their memory
/// must not be reused before (a checksum shows it); messages of different connections overtake each
/// other. A receive pool then needs posted_receives pages for each connection besides those that
/// the application holds, and one page for small messages.
struct VirtualNetworkOptions {
  Duration latency_min = std::chrono::microseconds{5};
  /// Largest latency; uniform for each message, in order within a connection.
  Duration latency_max = std::chrono::microseconds{50};
  bool strict = false;
  std::uint32_t posted_receives = 4; ///< strict: per connection
  Duration turn_cost{500}; ///< virtual time that a turn costs a node if it did something
  Duration message_cost{}; ///< beside it, of each message that the node has sent or taken
  double byte_cost_ns = 0; ///< likewise, of each of its bytes
  /// Byte streams: bytes of a connection, in one direction, that are written and not read.
  std::size_t stream_buffer = 128U << 10;
  /// Carries messages in place of the latencies, which then hold for refusals and completions only.
  /// Nodes are numbered in the order of add_node(). It outlives the world.
  in_memory::Carrier* carrier = nullptr;
};

class VirtualNode;

class FANIN_INTERNAL_API VirtualWorld {
public:
  VirtualWorld(std::uint64_t seed, VirtualNetworkOptions options);
  ~VirtualWorld();

  /// The URL scheme of its nodes is "sim": listen on sim://name.
  VirtualNode& add_node(std::string name);
  [[nodiscard]] VirtualNode* find_node(const std::string& name) const; ///< null: there is none

  /// Runs until no node has anything left to do, or until `end`. Returns the number of turns. A
  /// node runs when a message or a timer is due, when its last turn did something, or when receive
  /// pages have come back; and once at the beginning, so that it sees changes from outside.
  /// Afterwards now() is `end`, unless that is `never`.
  std::uint64_t run_until(Time end);
  /// One turn of one node; false when nothing is left.
  bool step();

  [[nodiscard]] Time now() const;
  [[nodiscard]] Random& random();
  [[nodiscard]] std::uint64_t trace_hash() const; ///< over (time, node, event kind, connection,
                                                  ///< size)

private:
  friend class VirtualNode;
  struct State;
  std::unique_ptr<State> state_;
};

class FANIN_INTERNAL_API VirtualNode {
public:
  [[nodiscard]] Loop& loop();
  [[nodiscard]] Transport& transport();
  /// Of the node's current life. An address is tcp://name:port. Bytes that come to a frozen node
  /// wait in its kernel, which answers for it.
  [[nodiscard]] Streams& streams();
  /// The name service of the node's current life. It knows all names at once, unless a test sets
  /// something else.
  [[nodiscard]] ScriptedResolver& name_service();
  [[nodiscard]] const std::string& name() const;

  /// For a handler on the node itself: its turn takes so much longer.
  void spend(Duration time);
  /// A frozen node (SIGSTOP) does not run; its peers see only silence.
  void freeze();
  void thaw();
  /// A dead node (kill -9): all its connections close at the peers with peer_died, its listeners
  /// refuse. What it had sent still arrives. Its streams end as if it had closed them. The caller
  /// destroys the applications on it first, and its pools afterwards. A restarted node has a new
  /// loop and a new transport. Not from a handler on the node itself.
  void kill();
  void restart();
  /// Ends all connections between two nodes, as a lost network would: both ends get peer_died, and
  /// what was under way is lost.
  void disconnect(VirtualNode& other);
  /// From now on nothing of this node arrives at the other one, over connections that were made to
  /// this port (0: any), and neither is told: a dead link or a firewall, in one direction. What was
  /// sent meanwhile arrives after repair_path(), unless its connection has ended.
  void break_path(VirtualNode& to, std::uint16_t port = 0);
  void repair_path(VirtualNode& to, std::uint16_t port = 0);
  /// Between the two directions of the node and all others: extra delay, for slow nodes.
  void slow_down(Duration extra_latency);
  /// From now on each connection to the node brings so many bytes in a second: a slow or shared
  /// link, over which messages come in pieces. 0: no limit.
  void limit_rate(std::uint64_t bytes_per_second);
  [[nodiscard]] bool alive() const;
  [[nodiscard]] bool frozen() const;

private:
  friend class VirtualWorld;
  struct State;
  std::unique_ptr<State> state_;
  explicit VirtualNode(std::unique_ptr<State> state);

public:
  ~VirtualNode();
};

} // namespace fanin::net
