// tcp://host:port: messages over TCP sockets. Options in the address: ?congestion=cubic|reno|bbr.
//
// Sockets do not block; an epoll descriptor of its own, edge triggered, collects what is ready, so
// that idle connections cost nothing, and is what the loop waits for. See tcp/frame.hpp for the
// bytes, tcp/stream_receiver.hpp for how they are received with one copy, docs/modules/net.md for
// why.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/net/loop.hpp"
#include "fanin/net/page_filler.hpp"
#include "fanin/net/resolver.hpp"
#include "fanin/net/slot_map.hpp"
#include "fanin/net/tcp/send_queue.hpp"
#include "fanin/net/tcp/socket.hpp"
#include "fanin/net/tcp/stream_receiver.hpp"
#include "fanin/net/transport.hpp"
#include "fanin/net/unidentified.hpp"

namespace fanin::net {

struct TcpOptions {
  // From the start of a connection until the peer has introduced itself. A stranger that stays
  // silent is dropped then; a connect() that gets no answer ends with connect_failed.
  Duration handshake_timeout = std::chrono::seconds{5};
  // How long close() goes on to deliver what was accepted.
  Duration linger_timeout = std::chrono::seconds{5};
  // Accepted connections whose peers have not shown yet who they are, at most: accepting pauses
  // then, and the oldest one goes once it is older than stranger_patience.
  std::uint32_t strangers_max = 128;
  Duration stranger_patience = std::chrono::seconds{1};
  // Before accepting goes on: the process has run out of descriptors, or strangers_max is reached.
  Duration accept_pause = std::chrono::milliseconds{100};
  // While connections wait for pages: how often messages that have hardly begun give up theirs.
  Duration retreat_period = std::chrono::milliseconds{20};
  std::string congestion = "cubic"; // the default of ?congestion=; empty: the host's
  // Told why a connection could not be made or was broken off, in words, for the log.
  std::function<void(CloseReason, std::string_view)> report;
};

struct TcpCounters {
  std::array<std::uint64_t, close_reasons> closed{}; // connections by CloseReason
  std::uint64_t handshake_timeouts = 0; // silent strangers, also in closed
  std::uint64_t accept_failures = 0; // out of descriptors or memory
};

class TcpTransport final : public Transport {
public:
  explicit TcpTransport(Loop& loop, TcpOptions options = {});
  // Open connections are cut as by a crash.
  ~TcpTransport() override;

  [[nodiscard]] Result<ListenerId> listen(const Url& url,
                                          const ConnectionOptions& options) override;
  [[nodiscard]] Url listening_url(ListenerId listener) const override;
  void close_listener(ListenerId listener) override;
  [[nodiscard]] Result<ConnectionId> connect(const Url& url,
                                             const ConnectionOptions& options) override;
  [[nodiscard]] SendOutcome send(ConnectionId connection,
                                 std::span<const memory::View> extents) override;
  void flush() override;
  [[nodiscard]] std::size_t poll(std::span<Event> events) override;
  [[nodiscard]] bool arm() override;
  [[nodiscard]] int descriptor() const override { return epoll_.get(); }
  void close(ConnectionId connection, bool abort) override;
  void trust(ConnectionId connection) override;
  [[nodiscard]] std::string peer_name(ConnectionId connection) const override;
  [[nodiscard]] std::size_t closing() const override { return closing_; }

  [[nodiscard]] const TcpCounters& counters() const { return counters_; }

private:
  // Tells listeners from connections in what epoll reports.
  static constexpr std::uint64_t listener_bit = 1ULL << 63;

  enum class Stage : std::uint8_t {
    connecting, // until the socket is connected
    handshake, // until the peer's preface is here
    open,
    ended, // nothing more comes or goes; `closed` is to be reported
    closing // closed here: delivers the rest, then ends without an event
  };

  struct Connection {
    Connection(TcpTransport& owner, const ConnectionOptions& given, PageFiller& filler,
               std::uint32_t largest);

    ConnectionId id = ConnectionId::none;
    Stage stage = Stage::handshake;
    bool readable = true; // until the socket said that it is not
    bool can_write = true; // likewise
    bool peer_shut_down = false; // the end of the stream is in the socket's buffer
    bool listed = false; // in ready_
    bool hot = false; // in hot_
    std::uint16_t misses = 0; // reads while hot that found nothing
    bool starving = false; // in starving_
    bool to_flush = false; // in flush_list_
    bool wants_writable = false;
    bool writable_pending = false;
    bool send_failed = false; // the peer takes nothing more; what it sent is still to be read
    bool shut_down = false; // closing: everything was written
    bool stranger = false; // accepted; counted in strangers_
    bool silent = false; // ended before anybody was told of it
    CloseReason reason = CloseReason::local; // of `ended`
    ListenerId listener = ListenerId::none; // that accepted it
    Time accepted_at{};
    std::uint32_t max_message = 0; // that this side takes, and once open that the peer does
    ConnectionOptions options;
    Descriptor socket;
    tcp::StreamReceiver receiver;
    tcp::SendQueue queue;
    Resolver::Question question; // for its host's addresses
    std::vector<Address> addresses; // still to be tried
    Time connect_by{}; // by one of them
    Address peer; // once it is connected
    Url target; // until then
    std::string congestion;
    Timer deadline; // of the handshake, then of closing
  };

  struct Listener {
    ConnectionOptions options;
    Url url;
    Descriptor socket;
    Timer retry; // after accept_pause
    ListenerId id = ListenerId::none;
    Listener(TcpTransport& owner, const ConnectionOptions& given, Url real, Descriptor bound);
  };

  // Work done per poll, so that nothing else waits long.
  struct Budget {
    std::span<Event> events;
    std::size_t count = 0;
    std::size_t before = 0; // `count` when this connection was visited
    std::size_t bytes = 0; // still to be read in this poll
    std::size_t visit_bytes = 0; // from this connection
    [[nodiscard]] bool full() const { return count == events.size(); }
  };

  [[nodiscard]] Result<> check(const Url& url, const ConnectionOptions& options) const;
  [[nodiscard]] const std::string& congestion_of(const Url& url) const;
  Connection& make_connection(const ConnectionOptions& options);
  [[nodiscard]] Connection* find_open(ConnectionId id) const;
  void list(Connection& connection, bool first = false);
  [[nodiscard]] static std::string peer_text(const Connection& connection);
  void report(CloseReason reason, const Connection& connection, std::string_view text) const;
  [[nodiscard]] bool watch(Connection& connection);

  void collect_ready();
  void heat(Connection& connection);
  void list_hot();
  void accept_all();
  [[nodiscard]] bool accept_one(Listener& listener); // false: nothing more for now
  [[nodiscard]] Connection* stranger_in_the_way() const;
  void send_away(Connection& stranger);
  void no_stranger(Connection& connection);
  void take_addresses(Connection& connection, const Resolver::Found& found);
  void connect_next(Connection& connection, int last_error);
  void connect_progress(Connection& connection);
  void start_handshake(Connection& connection);
  void wake_starving();
  void visit(Connection& connection, Budget& budget);
  void receive(Connection& connection, Budget& budget);
  void take_messages(Connection& connection, Budget& budget);
  void opened(Connection& connection, Budget& budget);
  void starve(Connection& connection, const Budget& budget);
  void retreat();
  void read(Connection& connection, Budget& budget);
  void read_failed(Connection& connection, int error);
  void stream_failed(Connection& connection);
  static Event& emit(const Connection& connection, Budget& budget, EventKind kind);
  void emit_closed(Connection& connection, Budget& budget);
  void end(Connection& connection, CloseReason reason, bool reset);
  void erase(Connection& connection);
  void send_nothing_more(Connection& connection);
  void cut_unanswered();
  void write(Connection& connection);
  void continue_closing(Connection& connection);
  void expire(Connection& connection);

  Loop& loop_;
  TcpOptions options_;
  Descriptor epoll_;
  tcp::SendQueue::Store store_; // before the connections that use it
  PageFillers fillers_;
  UnidentifiedPages unidentified_;
  SlotMap<ConnectionId, Connection> connections_;
  SlotMap<ListenerId, Listener> listeners_;
  std::deque<ConnectionId> ready_;
  std::vector<ConnectionId>
      hot_; // low latency, and something came lately: read without asking epoll
  std::uint32_t quiet_polls_ = 0; // in a row
  std::vector<ConnectionId> starving_; // who has waited longest comes first
  std::vector<ConnectionId> served_; // have begun to starve in this poll, after a message
  std::vector<ConnectionId> flush_list_;
  std::vector<ConnectionId> flushing_;
  std::vector<ConnectionId> expired_;
  std::vector<ListenerId> accepting_; // may have connections to accept
  std::size_t closing_ = 0;
  std::size_t strangers_ = 0;
  bool released_ = false; // pages have come back since the last poll
  Timer retreating_{[this] { retreat(); }}; // while connections starve
  Timer looking_{[this] { cut_unanswered(); }}; // while there are connections
  TcpCounters counters_;
};

} // namespace fanin::net
