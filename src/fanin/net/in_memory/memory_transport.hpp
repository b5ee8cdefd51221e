/// \file
/// A transport whose messages travel as views, on one thread, and are copied once, into the
/// receiver's page. Its network (in_memory/network.hpp) says how long they take.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/net/due_queue.hpp"
#include "fanin/net/in_memory/network.hpp"
#include "fanin/net/page_filler.hpp"
#include "fanin/net/resolver.hpp"
#include "fanin/net/slot_map.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net::in_memory {

/// What a node has sent and taken.
struct Moved {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};

/// It stays one type of more than 400 lines, since each step moves an item between the two ends of
/// a pipe, and both may belong to one transport. Items, ends and arrivals are types of their own.
class MemoryTransport : public Transport {
public:
  /// `host`: the one name it listens on, or empty: any. `node`: its number in the trace.
  MemoryTransport(Network& network, std::string host, std::uint32_t node);
  /// A crash: peers see peer_died; what was sent still arrives.
  ~MemoryTransport() override;

  [[nodiscard]] Result<> check_address(const Url& url) const override;
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
  [[nodiscard]] std::uint64_t unfinished(ConnectionId connection) const override;
  [[nodiscard]] std::uint64_t given_up() const override { return given_up_; }

  [[nodiscard]] std::uint32_t node() const { return node_; }
  /// For the scheduler: whether poll() would do something now, and when the next thing arrives.
  [[nodiscard]] bool has_ready() const;
  [[nodiscard]] Time next_arrival() const { return arrivals_.next(); }

  /// Since it was asked before.
  [[nodiscard]] Moved take_moved() { return std::exchange(moved_, {}); }

  /// All connections between the two: what is under way is lost, both ends get peer_died.
  void disconnect(MemoryTransport& other);
  void set_extra_latency(Duration extra) { extra_latency_ = extra; }
  /// Bytes per second that come over each connection; 0: no limit.
  void set_rate(std::uint64_t rate) { rate_ = rate; }
  /// Asked for the peer's name with each connect(); null: all names are known.
  void set_resolver(Resolver* resolver) { resolver_ = resolver; }

private:
  friend class Network;

  struct Connection {
    std::shared_ptr<Pipe> pipe;
    std::uint8_t side = 0;
    [[nodiscard]] End& end() const { return pipe->ends[side]; }
    [[nodiscard]] End& peer() const { return pipe->ends[1 - side]; }
    [[nodiscard]] const ConnectionState& state() const { return end().state; }
  };
  struct Listener {
    Url url;
    ConnectionOptions options;
  };
  [[nodiscard]] std::uint16_t free_port(const std::string& host) const;
  [[nodiscard]] std::pair<ListenerId, const Listener*> find_listener(const Url& url) const;

  void request(ConnectionId id, const Resolver::Found& found);
  void take_carried(End& from, Item& item); // it is on its way to this one
  void undeliverable(Item& item);
  void dispatch_to(MemoryTransport& to, Item& item, Time due);
  void send_in_order(End& from, MemoryTransport& to, Item& item);
  void send_end(Connection& connection, CloseReason reason);
  void release_held();
  void arrive(Item& item);
  void accept(Item& item);
  void list(End& end, const std::shared_ptr<Pipe>& pipe, int side);
  static void count_given_up(End& sender);
  void discard(Item& item);
  void return_to_sender(Item& item);
  void complete(Item& item);
  void release(const Connection& connection); // forgets an end: views, posted pages, arrived items
  void linger(const Connection& connection);

  [[nodiscard]] bool deliver_one(const Connection& connection, Event& event);
  [[nodiscard]] bool deliver_item(const Connection& connection, Item& item, Event& event);
  void deliver_end(const Connection& connection, Item& item, Event& event);

  Network& network_;
  std::string host_;
  std::uint32_t node_;
  std::uint32_t life_; // its place in Network::by_life_
  Duration extra_latency_{};
  std::uint64_t rate_ = 0;
  Resolver* resolver_ = nullptr;
  std::map<ConnectionId, Resolver::Question> questions_; // of connections without an answer yet
  SlotMap<ConnectionId, Connection> connections_;
  std::vector<Connection> lingering_; // closed here, with messages still on their way
  SlotMap<ListenerId, Listener> listeners_;
  PageFillers fillers_;
  DueQueue<Item*> arrivals_; // by the time of their arrival
  std::deque<Connection> ready_; // ends with arrived items
  std::deque<Connection> starved_; // of ready_, in this poll
  bool released_ = false; // views have come back since the last poll
  std::uint64_t given_up_ = 0;
  Moved moved_;
};

} // namespace fanin::net::in_memory
