/// \file
/// tcp://host:port: messages over TCP sockets. Options in the address: ?congestion=cubic|reno|bbr,
/// ?dscp=0..63.
///
/// Sockets do not block. An edge-triggered epoll descriptor collects the ready ones, so that idle
/// connections cost nothing; the loop waits for it. tcp/frame.hpp has the bytes,
/// tcp/stream_receiver.hpp how they are received with one copy, docs/modules/net/tcp.md the
/// reasons.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fanin/net/close_accounts.hpp"
#include "fanin/net/connect_attempts.hpp"
#include "fanin/net/connection_state.hpp"
#include "fanin/net/event_batch.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/page_filler.hpp"
#include "fanin/net/resolver.hpp"
#include "fanin/net/slot_map.hpp"
#include "fanin/net/socket_listeners.hpp"
#include "fanin/net/tcp/send_queue.hpp"
#include "fanin/net/tcp/stream_receiver.hpp"
#include "fanin/net/tcp_socket.hpp"
#include "fanin/net/transport.hpp"
#include "fanin/net/unidentified_pages.hpp"
#include "fanin/net/unidentified_peers.hpp"
#include "fanin/net/work_list.hpp"

namespace fanin::net {

struct TcpOptions {
  /// Time from the start of a connection until the peer has introduced itself. A silent accepted
  /// peer is closed then; a connect() without an answer ends with connect_failed.
  Duration handshake_timeout = std::chrono::seconds{5};
  /// After close(), what was accepted is delivered as long as the peer's host takes at least 64 KiB
  /// within this time.
  Duration linger_timeout = std::chrono::seconds{5};
  /// Limits of unidentified peers. At the limit accepting pauses, and the oldest one is closed once
  /// its time is over.
  UnidentifiedLimits unidentified;
  /// Pause before accepting continues, when the process has no descriptors left or the limit is
  /// reached.
  Duration accept_pause = std::chrono::milliseconds{100};
  /// While connections wait for pages: how often a message that has hardly begun gives up its
  /// memory, and how often one that hardly makes progress does.
  Duration reclaim_period = std::chrono::milliseconds{20};
  Duration stall_period = std::chrono::seconds{1};
  std::string congestion = "cubic"; ///< the default of ?congestion=; empty: the host's
  ReportFunction report;
};

/// Two source files: tcp_setup.cpp makes connections, tcp.cpp sends, receives and ends them. They
/// stay one type, since every step moves a connection between the lists of one poll, and the budget
/// of a poll is shared by all. What does not need these lists is in types of its own: bytes to
/// messages (StreamReceiver), messages to bytes (SendQueue), listeners, unidentified peers,
/// accounts.
class TcpTransport final : public Transport {
public:
  explicit TcpTransport(Loop& loop, TcpOptions options = {});
  /// Open connections end at their peers as after a crash.
  ~TcpTransport() override;

  [[nodiscard]] Result<> check_address(const Url& url) const override;
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
  void mark_identified(ConnectionId connection) override;
  [[nodiscard]] std::string peer_name(ConnectionId connection) const override;
  [[nodiscard]] std::uint64_t unfinished(ConnectionId connection) const override;
  [[nodiscard]] std::size_t closing() const override { return closing_; }
  [[nodiscard]] std::uint64_t given_up() const override { return given_up_; }

  [[nodiscard]] const CloseAccounts& accounts() const { return accounts_; }

private:
  using Listener = SocketListeners::Listener;
  struct Connection;
  using ConnectionList = WorkList<Connection>;

  struct Connection {
    Connection(TcpTransport& owner, const ConnectionOptions& given, PageFiller& filler);

    ConnectionId id = ConnectionId::none;
    ConnectionState state;
    bool readable = true; // until the socket said that it is not
    bool can_write = true; // likewise
    bool peer_shut_down = false; // the end of the stream is in the socket's buffer
    std::uint16_t empty_reads = 0; // reads while eager that found nothing
    bool wants_writable = false;
    bool writable_pending = false;
    bool send_failed = false; // the peer takes nothing more; what it sent is still to be read
    bool shut_down = false; // closing: everything was written
    bool peer_ended = false; // closing: the peer has said that nothing more follows
    bool spoke = false; // a message of it was handed out
    bool deadline_extended = false; // was late and had something unread
    std::uint64_t messages_sent = 0; // accepted by send()
    std::uint64_t messages_taken = 0; // handed out
    std::uint64_t written = 0; // bytes that the kernel has accepted
    std::uint64_t taken = 0; // closing: bytes that the peer's host had at the last look
    std::uint32_t peer_max_message = 0; // bytes, once it is open
    ConnectionOptions options;
    Descriptor socket;
    tcp::StreamReceiver receiver;
    tcp::SendQueue queue;
    Resolver::Question question; // for its host's addresses
    ConnectAttempts attempts; // until it is connected
    Address peer; // once it is connected
    Url target; // until then
    Timer deadline; // of the handshake, then of closing
    UnidentifiedPeers<Connection>::Entry unidentified{*this};
    ConnectionList::Place ready{*this};
    ConnectionList::Place eager{*this};
    ConnectionList::Place starved{*this}; // in starved_ or starved_after_message_
    ConnectionList::Place flush{*this};
    ConnectionList::Place expired{*this};
  };

  // Work done per poll, so that nothing else waits long.
  struct Budget {
    EventBatch events;
    std::size_t before = 0; // events when this connection was visited
    std::size_t bytes = 0; // still to be read in this poll; of eager connections, beside it
    std::size_t visit_bytes = 0; // from this connection
    bool read = false; // something
  };

  [[nodiscard]] StreamOptions stream_options(const Url& url) const;
  Connection& make_connection(const ConnectionOptions& checked);
  [[nodiscard]] static std::string peer_text(const Connection& connection);
  void report(CloseReason reason, Connection& connection, std::string_view text) const;
  [[nodiscard]] bool watch(ConnectionId id, int socket);

  void collect_ready();
  void poll_eagerly(Connection& connection);
  void list_eager();
  [[nodiscard]] bool accept_one(Listener& listener); // false: nothing more for now
  void evict(Connection& unidentified);
  [[nodiscard]] bool extend_if_unread(Connection& connection);
  void take_addresses(Connection& connection, const Resolver::Found& found);
  void connect_next(Connection& connection);
  void connect_progress(Connection& connection);
  void start_handshake(Connection& connection);
  void retry_starved();
  void visit(Connection& connection, Budget& budget);
  void receive(Connection& connection, Budget& budget);
  void take_messages(Connection& connection, Budget& budget);
  void peer_ended(Connection& connection);
  void opened(Connection& connection, Budget& budget);
  void mark_starved(Connection& connection, const Budget& budget);
  void reclaim_regions();
  void read(Connection& connection, Budget& budget);
  void read_failed(Connection& connection, int error);
  void stream_failed(Connection& connection);
  void emit_closed(Connection& connection, Budget& budget);
  void end(Connection& connection, CloseReason reason, bool reset);
  void erase(Connection& connection);
  void send_nothing_more(Connection& connection);
  void end_dead_hosts();
  void write(Connection& connection);
  void continue_closing(Connection& connection);
  [[nodiscard]] static std::uint64_t taken(const Connection& connection);
  [[nodiscard]] static bool has_acknowledged_all(const Connection& connection);
  [[nodiscard]] static bool has_untaken(const Connection& connection, CloseReason reason);
  void discard_what_comes(Connection& connection);
  [[nodiscard]] bool look_for_end(Connection& connection, std::span<const std::byte> bytes);
  void peer_gone(Connection& connection, bool died);
  void count_given_up(Connection& connection, std::string_view why);
  void give_up(Connection& connection, std::string_view why);
  void expire(Connection& connection);

  Loop& loop_;
  TcpOptions options_;
  Descriptor epoll_;
  tcp::SendQueue::Store store_; // before the connections that use it
  PageFillers fillers_;
  UnidentifiedPages unidentified_pages_;
  UnidentifiedPeers<Connection> unidentified_;
  CloseAccounts accounts_;
  SocketListeners listeners_;
  SlotMap<ConnectionId, Connection> connections_;
  ConnectionList ready_; // to be visited
  ConnectionList eager_; // low latency, and something came lately: read without asking epoll
  ConnectionList starved_; // wait for pages; the one that has waited longest comes first
  ConnectionList starved_after_message_; // since this poll, in which they got one
  ConnectionList flush_list_;
  ConnectionList expired_; // their deadline has passed
  std::uint32_t empty_polls_ = 0; // in a row
  std::size_t closing_ = 0;
  std::uint64_t given_up_ = 0;
  bool released_ = false; // pages have come back since the last poll
  Timer reclaim_tick_{[this] { reclaim_regions(); }}; // while connections are starved
  Time next_stall_check_{}; // with reclaim_regions()
  Timer dead_host_tick_{[this] { end_dead_hosts(); }}; // while there are connections
};

} // namespace fanin::net
