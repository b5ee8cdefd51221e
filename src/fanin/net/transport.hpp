/// \file
/// The one interface that every network implements: messages over reliable, ordered connections.
///
/// A message is up to max_extents pieces of memory. It is sent without a copy and delivered in one
/// piece in a page of the receiver's pool; where memory is shared, in one or two pieces in the
/// sender's memory. Messages of different connections have no order. A transport belongs to one
/// loop and one thread; no call blocks. Backpressure is an outcome, not an error: a refused message
/// was not taken, and a `writable` event says when to try again. docs/modules/net/contract.md has
/// the whole contract.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/owning_process.hpp"
#include "fanin/base/result.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net {

/// The id of a connection: unique within one transport for its whole life.
enum class ConnectionId : std::uint64_t { none = 0 };
enum class ListenerId : std::uint64_t { none = 0 };

inline constexpr std::size_t max_extents = 4;

enum class SendOutcome : std::uint8_t {
  accepted,
  backpressure, ///< the queue is full; the message was not taken; `writable` follows
  too_large, ///< over the peer's max_message, too many extents, or no memory for the copy that
             ///< is needed
  closed ///< no such connection, or not yet connected
};

enum class CloseReason : std::uint8_t {
  local, ///< close() was called here (no event is delivered for it)
  peer_closed, ///< orderly end
  peer_died, ///< reset or abort
  connect_failed, ///< nobody listens, no route, or no answer
  protocol_violation, ///< bytes that no peer of this version sends; counted
  version_mismatch, ///< a peer of another protocol version
  message_too_large,
  unknown_host, ///< the name service does not know the host's name, but may know it later
  evicted ///< it had not identified itself, and others waited for its place; counted
};
inline constexpr std::size_t close_reasons = 9;
[[nodiscard]] FANIN_API std::string_view name(CloseReason reason);

enum class EventKind : std::uint8_t {
  accepted, ///< a listener has a new connection, ready for sending
  connected, ///< connect() is complete
  message,
  writable, ///< after backpressure, there is room again
  closed ///< last event of a connection, after all its messages
};
inline constexpr std::size_t event_kinds = 5;
[[nodiscard]] FANIN_API std::string_view name(EventKind kind);

class Handler;

struct Event {
  EventKind kind = EventKind::message;
  CloseReason reason = CloseReason::local;
  ConnectionId connection = ConnectionId::none;
  Handler* handler = nullptr;
  /// The whole message. It lies in a page of the receive pool; in a page of the transport, if its
  /// sender is unidentified (ConnectionOptions::peers_must_identify); or, where memory is shared
  /// (shares_memory()), in the sender's memory. There a message that was sent as two extents stays
  /// in two pieces, `message` and `rest`. Otherwise `rest` is empty. Of `closed`: why, in words;
  /// empty if the transport knows no more than `reason`.
  memory::View message;
  memory::View rest;
};

class Transport;

/// The owner of connections. The loop calls it for each event; it runs to completion.
class Handler {
public:
  virtual ~Handler() = default;
  virtual void on_event(Transport& transport, Event& event) = 0;
};

struct ConnectionOptions {
  /// The pool for received messages; it must outlive the transport. When it is empty, the
  /// connection stops reading until pages return: backpressure.
  memory::PagePool* receive_pool = nullptr;
  Handler* handler = nullptr;
  std::uint32_t max_message = 0; ///< largest message received here, in bytes; at most half a page
                                 ///< of receive_pool; 0: half a page
  std::uint64_t send_queue_bytes = 4u << 20; ///< bytes; send() gives backpressure beyond this
  /// Where memory is shared: send() gives backpressure beyond this many bytes in messages that the
  /// peer has not released.
  std::uint64_t held_bytes = std::numeric_limits<std::uint64_t>::max();
  bool low_latency = false; ///< true: small messages leave at once (control). false: they are
                            ///< gathered (data)
  /// This end sends little, and other nodes wait for it: the queues of this host may send it before
  /// data of other connections (tcp).
  bool urgent = false;
  /// Of a listener: accepted peers are unidentified until mark_identified() is called. Until then a
  /// connection delivers one small message (4 KiB), in pages of the transport (shm, tcp); a larger
  /// or a further message waits. So it uses no page of the pool. Transports within one program
  /// ignore this option.
  bool peers_must_identify = false;
};

class Transport {
public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  /// Checks whether an address can belong to this transport, above all its options. It neither
  /// listens nor connects, and checks only what this host can know. listen() and connect() refuse
  /// all addresses that it refuses. Errors: usage, not_found.
  [[nodiscard]] virtual Result<> check_address(const Url& url) const {
    (void)url;
    return {};
  }

  /// Listens at an address; listening_url() has the port that was chosen. Errors: usage, refused
  /// (in use), not_found (the host), exhausted.
  [[nodiscard]] virtual Result<ListenerId> listen(const Url& url,
                                                  const ConnectionOptions& options) = 0;
  [[nodiscard]] virtual Url listening_url(ListenerId listener) const = 0;
  /// Stops listening. Connections that were reported by an `accepted` event stay. No further
  /// `accepted` event follows.
  virtual void close_listener(ListenerId listener) = 0;

  /// Begins to connect, and returns at once. `connected` or `closed` follows in poll(). Errors:
  /// usage, exhausted, unsupported.
  [[nodiscard]] virtual Result<ConnectionId> connect(const Url& url,
                                                     const ConnectionOptions& options) = 0;

  /// Sends one message. The transport holds the views until it no longer needs the bytes.
  [[nodiscard]] virtual SendOutcome send(ConnectionId connection,
                                         std::span<const memory::View> extents) = 0;

  /// Starts the transfer of what send() has accepted. The loop calls it once in each turn; without
  /// a call, poll() does it.
  virtual void flush() = 0;

  /// Fills `events`, in order for each connection, and returns their number. 0: there is nothing to
  /// do now. It does a bounded amount of work: there may be more at once.
  [[nodiscard]] virtual std::size_t poll(std::span<Event> events) = 0;

  /// Called before the loop sleeps. False: there is work. After true, descriptor() becomes readable
  /// as soon as there is work.
  [[nodiscard]] virtual bool arm() = 0;
  [[nodiscard]] virtual int descriptor() const = 0; ///< the descriptor for which the loop waits;
                                                    ///< -1: none (in memory, a scheduler runs the
                                                    ///< loop)

  /// Closes a connection. What send() accepted is still delivered (orderly end) unless `abort`:
  /// each transport has a linger_timeout for a peer that takes nothing. No event follows. A second
  /// call has no effect.
  virtual void close(ConnectionId connection, bool abort = false) = 0;

  /// Says that the peer is identified: ConnectionOptions::peers_must_identify ends for it.
  virtual void mark_identified(ConnectionId) {}

  /// The peer's address, for messages and the log.
  [[nodiscard]] virtual std::string peer_name(ConnectionId connection) const = 0;
  /// The bytes that have come of a message that is not complete yet. So an owner sees that a large
  /// message makes progress on a slow network. 0: there is no such message, or messages come whole.
  [[nodiscard]] virtual std::uint64_t unfinished(ConnectionId) const { return 0; }
  /// True: messages in pools made with ArenaOptions::shared are sent without a copy.
  [[nodiscard]] virtual bool shares_memory() const { return false; }
  /// The number of connections that were closed here, and still deliver messages or wait for the
  /// peer to take them. A process that ends before this number is 0 may lose these messages.
  [[nodiscard]] virtual std::size_t closing() const { return 0; }
  /// The number of connections that ended, after close() or before it, when their peers had not
  /// taken everything, as far as this side knows: the peers died, closed, or took nothing for as
  /// long as the transport lingers. A peer that closes says what it has handed to its owner. Of one
  /// that dies, only what its host or its network device has taken is known.
  [[nodiscard]] virtual std::uint64_t given_up() const { return 0; }

  /// True in a process that fork() has made of the transport's. There it must not be used, and not
  /// destroyed either: its connections are the other process's.
  [[nodiscard]] bool is_copy() const { return !process_.is_current(); }

  /// The loop says which events of the last poll() it has not handed out yet (those with a
  /// handler). So close() can withdraw the events of its connection: "no event follows" holds
  /// within a batch too.
  virtual void dispatching(std::span<Event> events) { dispatching_ = events; }

protected:
  [[nodiscard]] std::span<Event> undispatched() const { return dispatching_; }
  /// Returns the number of messages that are withdrawn: their owner does not get them.
  FANIN_API std::size_t withdraw(ConnectionId connection);

private:
  OwningProcess process_;
  std::span<Event> dispatching_;
};

} // namespace fanin::net
