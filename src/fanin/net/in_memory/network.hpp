/// \file
/// A network that exists in memory only: transports on one thread whose messages travel as views
/// and are copied once, into the receiver's page. With a latency it is the network of VirtualWorld,
/// in virtual time; without one it is inproc://, where both ends belong to one transport.
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
#include "fanin/net/page_filler.hpp"
#include "fanin/net/resolver.hpp"
#include "fanin/net/slot_map.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net::in_memory {

class MemoryTransport;
struct Pipe;
struct End;

enum class ItemKind : std::uint8_t { connect_request, connected, message, end, completion };

/// Something under way to one end of a pipe. A message's item comes back to its sender as its
/// completion; until then it is in the sender's list of outstanding messages.
struct Item {
  ItemKind kind = ItemKind::message;
  CloseReason reason = CloseReason::local; ///< of `end`
  std::uint8_t side = 0; ///< of the pipe, where it goes
  bool dropped = false; ///< lost under way, its views are released already
  std::uint8_t extent_count = 0;
  std::uint32_t size = 0;
  std::uint32_t checksum = 0; ///< strict: of the bytes when they were sent
  std::shared_ptr<Pipe> pipe;
  memory::View extents[max_extents];
  std::vector<std::byte> owned; ///< instead of extents, after the sender's death
  Item* next = nullptr; ///< in the queue of arrived items
  Item* outstanding_next = nullptr; ///< of the sender
  Item* outstanding_previous = nullptr;
};

/// One end of a connection.
struct End {
  MemoryTransport* transport = nullptr; ///< null: not accepted yet, or died
  bool alive = false; ///< neither closed here nor reported closed
  bool connected = false;
  bool handed_out = true; ///< false: its `accepted` event is still to come
  ConnectionId id = ConnectionId::none;
  ListenerId listener = ListenerId::none;
  ConnectionOptions options;
  PageFiller* filler = nullptr;
  /// sending
  std::uint64_t queued_bytes = 0; ///< sent and not completed
  bool given_up = false; ///< something that it sent was not taken
  bool wants_writable = false;
  bool writable_pending = false;
  Time last_due{}; ///< keeps the order of what goes to the other end
  Item* outstanding = nullptr;
  /// receiving: items that have arrived
  Item* first = nullptr;
  Item* last = nullptr;
  bool listed = false; ///< in the transport's ready list
  bool identified = true; ///< else no receive is posted before a message has come
  std::vector<memory::Loan> posted; ///< strict
};

struct Pipe {
  End ends[2];
  Url target;
};

struct NetworkOptions {
  std::string scheme = "inproc";
  const Clock* clock = nullptr; ///< null: no latency, everything arrives at once
  Random* random = nullptr;
  Duration latency_min{};
  Duration latency_max{};
  Duration departure_delay{}; ///< what is sent in a handler leaves when its turn is over
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
  /// more, and nobody is told. What was held back arrives once it is whole again.
  void break_path(const MemoryTransport& from, MemoryTransport& to, std::uint16_t port);
  void repair_path(const MemoryTransport& from, MemoryTransport& to, std::uint16_t port);
  /// Before many transports end at once: what is under way need not be kept for the others.
  void end_world() { ending_ = true; }

private:
  friend class MemoryTransport;

  [[nodiscard]] bool immediate() const { return options_.clock == nullptr; }
  [[nodiscard]] Time now() const { return immediate() ? Time{} : options_.clock->now(); }
  [[nodiscard]] Time arrival(const MemoryTransport& from, const MemoryTransport& to);
  [[nodiscard]] bool broken(std::uint32_t from, std::uint32_t to, std::uint16_t port) const;
  Item& make_item(ItemKind kind, const std::shared_ptr<Pipe>& pipe, int side);
  void free_item(Item& item);
  void trace(std::uint32_t node, const Event& event);

  NetworkOptions options_;
  std::map<std::string, MemoryTransport*> transports_; // by host name; "" is any host
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint16_t>> broken_; // from, to, port
  std::deque<Item> items_;
  std::vector<Item*> free_items_;
  std::uint64_t sequence_ = 0;
  std::uint64_t trace_hash_ = 0xcbf29ce484222325U;
  bool ending_ = false;
};

class MemoryTransport : public Transport {
public:
  /// `host`: the one name it listens on, or empty: any. `node`: its number in the trace.
  MemoryTransport(Network& network, std::string host, std::uint32_t node);
  /// A crash: peers see peer_died; what was sent still arrives.
  ~MemoryTransport() override;

  [[nodiscard]] Result<ListenerId> listen(const Url& url,
                                          const ConnectionOptions& options) override;
  [[nodiscard]] Url listening_url(ListenerId listener) const override;
  void close_listener(ListenerId listener) override;
  [[nodiscard]] Result<ConnectionId> connect(const Url& url,
                                             const ConnectionOptions& options) override;
  [[nodiscard]] SendOutcome send(ConnectionId connection,
                                 std::span<const memory::View> extents) override;
  void flush() override {}
  [[nodiscard]] std::size_t poll(std::span<Event> events) override;
  [[nodiscard]] bool arm() override;
  [[nodiscard]] int descriptor() const override { return -1; }
  void close(ConnectionId connection, bool abort) override;
  void mark_identified(ConnectionId connection) override;
  [[nodiscard]] std::string peer_name(ConnectionId connection) const override;
  [[nodiscard]] std::uint64_t given_up() const override { return given_up_; }

  [[nodiscard]] std::uint32_t node() const { return node_; }
  /// For the scheduler: whether poll() would do something now, and when the next thing arrives.
  [[nodiscard]] bool has_ready() const;
  [[nodiscard]] Time next_arrival() const { return heap_.empty() ? never : heap_.front().due; }

  /// All connections between the two: what is under way is lost, both ends get peer_died.
  void disconnect(MemoryTransport& other);
  void set_extra_latency(Duration extra) { extra_latency_ = extra; }
  /// Asked for the peer's name with each connect(); null: all names are known.
  void set_resolver(Resolver* resolver) { resolver_ = resolver; }

  // Messages copied once more so that their pages are at least half full (strict).

private:
  friend class Network;

  struct Connection {
    std::shared_ptr<Pipe> pipe;
    std::uint8_t side = 0;
    [[nodiscard]] End& end() const { return pipe->ends[side]; }
    [[nodiscard]] End& peer() const { return pipe->ends[1 - side]; }
  };
  struct Listener {
    Url url;
    ConnectionOptions options;
  };
  struct Arrival {
    Time due;
    std::uint64_t sequence;
    Item* item;
  };
  struct Later {
    bool operator()(const Arrival& a, const Arrival& b) const {
      return a.due != b.due ? a.due > b.due : a.sequence > b.sequence;
    }
  };

  [[nodiscard]] Result<ConnectionOptions> check(const Url& url,
                                                const ConnectionOptions& options) const;
  [[nodiscard]] std::uint16_t free_port(const std::string& host) const;
  [[nodiscard]] std::pair<ListenerId, const Listener*> find_listener(const Url& url) const;

  void request(ConnectionId id, const Resolver::Found& found);
  void dispatch_to(MemoryTransport& to, Item& item, Time due);
  void send_in_order(End& from, MemoryTransport& to, Item& item);
  void send_end(Connection& connection, CloseReason reason);
  void release_held();
  void arrivals();
  void arrive(Item& item);
  void accept(Item& item);
  void list(End& end, const std::shared_ptr<Pipe>& pipe, int side);
  void discard(Item& item);
  void return_to_sender(Item& item);
  void complete(Item& item);
  static void unlink(End& sender, Item& item);
  static void drop_outstanding(End& sender);
  void release(const Connection& connection); // forgets an end: views, posted pages, arrived items
  void linger(const Connection& connection);

  [[nodiscard]] bool deliverable(const End& end) const;
  bool deliver_one(const Connection& connection, Event& event);
  bool deliver_message(End& end, Item& item, Event& event);
  [[nodiscard]] bool receive(End& end, Item& item, memory::View& message);
  [[nodiscard]] bool receive_strictly(End& end, Item& item, memory::View& message);
  void post_receives(End& end);

  Network& network_;
  std::string host_;
  std::uint32_t node_;
  Duration extra_latency_{};
  Resolver* resolver_ = nullptr;
  std::map<ConnectionId, Resolver::Question> questions_; // of connections without an answer yet
  SlotMap<ConnectionId, Connection> connections_;
  std::vector<Connection> lingering_; // closed here, with messages still on their way
  SlotMap<ListenerId, Listener> listeners_;
  PageFillers fillers_;
  std::vector<Arrival> heap_;
  std::deque<Connection> ready_; // ends with arrived items
  std::deque<Connection> starved_; // of ready_, in this poll
  bool released_ = false; // views have come back since the last poll
  std::uint64_t given_up_ = 0;
};

} // namespace fanin::net::in_memory
