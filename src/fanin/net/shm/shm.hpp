/// \file
/// shm://name:port: messages between processes of one host and one user, through memory. A message
/// in a pool that was made with ArenaOptions::shared is not copied: the receiver reads it in place,
/// and the page returns to its pool when the receiver has released it. Other messages are copied
/// once, into pages of the transport.
///
/// A connection is a Unix socket (an abstract name, so that nothing stays behind), over which the
/// ends tell who they are and hand over descriptors, and an outbox of each end (shm/outbox.hpp).
/// While there is traffic, poll() looks into the outboxes and calls nothing of the kernel; an end
/// that falls idle arms its outbox, and its eventfd wakes it. See docs/modules/net/shm.md.
///
/// Thread: the loop's.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "fanin/net/close_accounts.hpp"
#include "fanin/net/connection_state.hpp"
#include "fanin/net/event_batch.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/page_filler.hpp"
#include "fanin/net/shm/lent_memory.hpp"
#include "fanin/net/shm/outbox.hpp"
#include "fanin/net/shm/packet.hpp"
#include "fanin/net/slot_map.hpp"
#include "fanin/net/socket_listeners.hpp"
#include "fanin/net/transport.hpp"
#include "fanin/net/unidentified_pages.hpp"
#include "fanin/net/unidentified_peers.hpp"
#include "fanin/net/work_list.hpp"

namespace fanin::net {

struct ShmOptions {
  /// Time from the start of a connection until the peer has introduced itself.
  Duration handshake_timeout = std::chrono::seconds{5};
  /// How long close() waits for a peer that takes nothing. Once the outbox has had room for the
  /// end, the peer gets all messages: they lie in memory that it has mapped.
  Duration linger_timeout = std::chrono::seconds{5};
  /// Accepted connections whose peers are unidentified. At the limit accepting pauses, and the
  /// oldest one is closed once its time is over.
  UnidentifiedLimits unidentified;
  /// Pause before connecting or accepting is tried again, when the listener's queue is full or no
  /// descriptors are left.
  Duration retry_pause = std::chrono::milliseconds{10};
  /// Bytes of the transport's own pages, for messages from pools that are not shared; at least two
  /// pages of the largest such message. Made when the first one is sent.
  std::uint64_t copy_pool = 8U << 20;
  ReportFunction report;
};

struct ShmCounters {
  std::uint64_t wakes = 0; ///< of peers that slept
  std::uint64_t lent = 0; ///< messages sent without a copy
  std::uint64_t copied = 0; ///< messages copied into pages of the transport
};

/// Three source files: shm_setup.cpp makes connections, shm_send.cpp sends, shm.cpp receives and
/// ends them. They stay one type, since every step moves a connection between the lists of one
/// poll, and a page that comes back may let another connection continue. What does not need these
/// lists is in types of its own: the layout of an outbox, packets, lent memory, listeners,
/// unidentified peers.
class ShmTransport final : public Transport {
public:
  /// Throws std::system_error if the operating system gives no epoll.
  explicit ShmTransport(Loop& loop, ShmOptions options = {});
  /// Open connections end at their peers as after a crash. Pages that peers still read return to
  /// their pools, which must not be used any more.
  ~ShmTransport() override;

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
  [[nodiscard]] std::size_t closing() const override { return closing_; }
  [[nodiscard]] std::uint64_t given_up() const override { return given_up_; }
  [[nodiscard]] bool shares_memory() const override { return true; }

  [[nodiscard]] const CloseAccounts& accounts() const { return accounts_; }
  [[nodiscard]] const ShmCounters& counters() const { return counters_; }

private:
  // A message whose bytes the peer reads.
  struct Slot {
    std::array<memory::View, shm::pieces_max> extents;
    std::uint32_t use = first_count;
    std::uint32_t bytes = 0;
    bool lent = false;
  };

  struct Sending {
    std::uint32_t written = first_count; // units
    std::uint32_t taken = first_count; // of them, at the last look
    std::uint32_t returns_taken = first_count; // of the peer's
    std::uint64_t signalled = 0; // the peer's `armed` that was answered
    std::uint64_t queued_bytes = 0; // of messages not taken yet
    std::uint64_t held_bytes = 0; // of messages not given back yet
    std::array<std::uint32_t, shm::units_max> bytes_at{}; // of the message that begins there
    std::vector<Slot> slots;
    std::vector<std::uint32_t> free_slots;
    std::vector<std::uint64_t> announced; // arenas
  };
  struct Receiving {
    std::uint32_t read = first_count; // units of the peer's
    std::uint32_t returned = first_count; // into the own outbox
    std::vector<shm::Return> returns; // that have no room there yet
    std::uint32_t starved_for = 0; // bytes of a page
    bool holds_all = false; // it holds as many messages of the peer as it may
    bool lacks_memory = false; // this process cannot map what the peer has announced now
    bool lack_reported = false;
    std::optional<shm::ReceivedPacket> packet; // that could not be taken
  };

  struct Connection;
  using ConnectionList = WorkList<Connection>;
  using Listener = SocketListeners::Listener;
  [[nodiscard]] Result<Connection*> make_connection(const ConnectionOptions& checked);
  void report(CloseReason reason, Connection& connection, std::string_view text) const;

  // making connections (shm_setup.cpp)
  [[nodiscard]] bool accept_one(Listener& listener);
  void evict(Connection& unidentified);
  [[nodiscard]] bool extend_if_unread(Connection& unidentified);
  void try_connect(Connection& connection);
  void try_again(Connection& connection);
  void start_handshake(Connection& connection);
  void read_packets(Connection& connection);
  [[nodiscard]] static Result<shm::ReceivedPacket> next_packet(Connection& connection);
  void wait_for_memory(Connection& connection, std::string_view why);
  [[nodiscard]] Result<> take_packet(Connection& connection, shm::ReceivedPacket& packet);
  [[nodiscard]] Result<> take_hello(Connection& connection, const shm::Hello& hello,
                                    shm::ReceivedPacket& packet);

  // sending (shm_send.cpp)
  [[nodiscard]] PageFiller* find_copy_filler(std::uint32_t size);
  [[nodiscard]] bool can_copy(const Connection& connection);
  [[nodiscard]] PageFiller* make_copy_filler(std::uint32_t size);
  [[nodiscard]] SendOutcome send_copied(Connection& connection,
                                        std::span<const memory::View> extents, std::uint32_t size);
  [[nodiscard]] bool announce(Connection& connection, std::span<const memory::View> extents);
  [[nodiscard]] bool has_room(Connection& connection, std::uint32_t units);
  [[nodiscard]] std::byte* begin_record(Connection& connection, std::uint32_t units,
                                        std::uint32_t message_bytes);
  void put_inlined(Connection& connection, std::span<const memory::View> extents,
                   std::uint32_t size);
  void put_lent(Connection& connection, std::span<const memory::View> extents, std::uint32_t size);
  void refresh_taken(Connection& connection);
  void take_returns(Connection& connection);
  void put_returns(Connection& connection);
  void free_slot(Connection& connection, std::uint32_t slot);
  void publish_records(Connection& connection);
  void mark_for_flush(Connection& connection);
  void flush(Connection& connection);
  void signal(Connection& connection, bool work);
  void check_writable(Connection& connection);

  // receiving and the rest
  void collect();
  void socket_event(Connection& connection, std::uint32_t events);
  void poll_eagerly(Connection& connection);
  [[nodiscard]] bool arm(Connection& connection);
  void disarm(Connection& connection);
  [[nodiscard]] static bool waits_for_own_pages(const Connection& connection);
  [[nodiscard]] bool has_work(const Connection& connection);
  [[nodiscard]] bool visit(Connection& connection, EventBatch& events);
  [[nodiscard]] bool take_messages(Connection& connection, EventBatch& events);
  [[nodiscard]] std::uint32_t read_record(Connection& connection, std::uint32_t available,
                                          shm::Record& record);
  void discard_messages(Connection& connection);
  [[nodiscard]] bool take_record(Connection& connection, std::uint32_t available,
                                 EventBatch& events);
  [[nodiscard]] bool take_inlined(Connection& connection, const shm::Record& record,
                                  std::uint32_t index, EventBatch& events);
  [[nodiscard]] bool take_lent(Connection& connection, const shm::Record& record,
                               std::uint32_t index, EventBatch& events);
  void give_back(Connection& connection, shm::Return what);
  bool violation(Connection& connection, std::string_view what);
  void end(Connection& connection, CloseReason reason);
  static void take_no_more(Connection& connection, std::uint32_t withdrawn);
  void wait_for_progress(Connection& connection);
  void continue_closing(Connection& connection);
  [[nodiscard]] static bool has_untaken(const Connection& connection);
  void give_up(Connection& connection, std::string_view why);
  void abandon_closing(Connection& connection);
  void retire(Connection& connection);
  void signal_aborted(Connection& connection);
  static void check_abort(Connection& connection);
  static void stop_waiting(Connection& connection);
  void erase_if_drained(Connection& connection);
  void erase(Connection& connection);
  void peer_gone(Connection& connection);
  void expire(Connection& connection);

  Loop& loop_;
  ShmOptions options_;
  Descriptor epoll_;
  PageFillers fillers_;
  UnidentifiedPages unidentified_pages_;
  UnidentifiedPeers<Connection> unidentified_;
  CloseAccounts accounts_;
  SocketListeners listeners_;
  std::vector<std::unique_ptr<memory::PagePool>> copy_pools_; // of growing page size
  SlotMap<ConnectionId, Connection> connections_;
  ConnectionList eager_; // looked into by every poll(), in turns
  ConnectionList flush_list_; // flush() has something to do for them
  ConnectionList expired_; // their deadline has passed
  std::size_t closing_ = 0;
  std::uint64_t given_up_ = 0;
  std::uint32_t polls_ = 0;
  bool released_ = false; // pages have come back since the last poll
  ShmCounters counters_;
};

} // namespace fanin::net
