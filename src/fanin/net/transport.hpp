// The one interface that every network implements: messages over reliable, ordered connections.
//
// A message is up to max_extents pieces of memory, sent without a copy and delivered in one piece,
// or two, in a page of the receiver's pool, or where memory is shared, in the sender's. Nothing is
// ordered across connections. A transport belongs to one loop and one thread; no call blocks.
// Backpressure is an outcome, not an error: a refused message was not taken, and a `writable` event
// says when to try again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "fanin/base/clock.hpp"
#include "fanin/base/result.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net {

// Unique within one transport for its whole life; never reused.
enum class ConnectionId : std::uint64_t { none = 0 };
enum class ListenerId : std::uint64_t { none = 0 };

inline constexpr std::size_t max_extents = 4;

enum class SendOutcome : std::uint8_t {
  accepted,
  backpressure, // queue full: not taken; `writable` follows
  too_large, // over what the peer takes (its max_message), or too many extents; or no memory to
             // copy it
  closed // no such connection, or not yet connected
};

enum class CloseReason : std::uint8_t {
  local, // close() was called here (no event is delivered for it)
  peer_closed, // orderly end
  peer_died, // reset or abort
  connect_failed, // nobody listens, or no route
  protocol_violation, // bytes that no peer of this version sends; counted
  version_mismatch, // a peer of another protocol version
  message_too_large,
  unknown_host // nobody knows its name; the name service may know it later
};
inline constexpr std::size_t close_reasons = 8;
[[nodiscard]] std::string_view name(CloseReason reason);

enum class EventKind : std::uint8_t {
  accepted, // a listener got a connection, ready for sending
  connected, // connect() is complete
  message,
  writable, // after backpressure, there is room again
  closed // last event of a connection, after all its messages
};
inline constexpr std::size_t event_kinds = 5;
[[nodiscard]] std::string_view name(EventKind kind);

class Handler;

struct Event {
  EventKind kind = EventKind::message;
  CloseReason reason = CloseReason::local;
  ConnectionId connection = ConnectionId::none;
  Handler* handler = nullptr;
  // The whole message, in a page of the receive pool, or of the transport if its sender is not
  // trusted yet (ConnectionOptions::strangers); or, where memory is shared (shares_memory()),
  // in the sender's. There, one that was sent as two extents stays in two pieces: `message`, then
  // `rest`, which is empty otherwise.
  memory::View message;
  memory::View rest;
};

class Transport;

// Whoever owns a connection. Called by the loop, one event at a time; runs to completion.
class Handler {
public:
  virtual ~Handler() = default;
  virtual void on_event(Transport& transport, Event& event) = 0;
};

struct ConnectionOptions {
  // Where received messages are put; must outlive the transport. When the pool is empty, the
  // connection stops reading until pages return: backpressure.
  memory::PagePool* receive_pool = nullptr;
  Handler* handler = nullptr;
  std::uint32_t max_message = 0; // received; bytes; at most half a page of receive_pool (so that
                                 // pages are at least half full) ; 0: half a page
  std::uint64_t send_queue_bytes = 4u << 20; // refused (backpressure) beyond this
  // Where memory is shared, likewise beyond this in messages that the peer has not let go of.
  std::uint64_t held_bytes = std::numeric_limits<std::uint64_t>::max();
  bool low_latency = false; // control: small messages leave at once. Otherwise bulk data
  // Of a listener that anybody may reach: until trust(), a connection takes one small message
  // (4 KiB), in pages of the transport (shm, tcp), and what comes behind it, or a larger one,
  // waits. So it can pin nothing of the pool, and needs nothing of it. Transports whose peers are
  // of this program ignore it.
  bool strangers = false;
};

class Transport {
public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  // The real address, with the port that was chosen, is in listening_url().
  [[nodiscard]] virtual Result<ListenerId> listen(const Url& url,
                                                  const ConnectionOptions& options) = 0;
  [[nodiscard]] virtual Url listening_url(ListenerId listener) const = 0;
  // Connections that were handed out by an `accepted` event stay; no further one follows.
  virtual void close_listener(ListenerId listener) = 0;

  // Returns at once; `connected` or `closed` follows in poll().
  [[nodiscard]] virtual Result<ConnectionId> connect(const Url& url,
                                                     const ConnectionOptions& options) = 0;

  // One message. The views are held until the bytes are no longer needed.
  [[nodiscard]] virtual SendOutcome send(ConnectionId connection,
                                         std::span<const memory::View> extents) = 0;

  // Puts what has been accepted by send() on its way. The loop calls it once per turn; without a
  // call, poll() does it.
  virtual void flush() = 0;

  // Fills `events`, in order per connection; returns how many. Zero: nothing to do now. A bounded
  // amount of work: there may be more at once.
  [[nodiscard]] virtual std::size_t poll(std::span<Event> events) = 0;

  // Before waiting: false if work has arrived meanwhile. After true, descriptor() becomes readable
  // as soon as there is work.
  [[nodiscard]] virtual bool arm() = 0;
  [[nodiscard]] virtual int descriptor() const = 0; // -1: woken by the scheduler (in memory)

  // What was accepted by send() is still delivered (orderly end) unless `abort`. Idempotent. No
  // event follows.
  virtual void close(ConnectionId connection, bool abort = false) = 0;

  // The peer has shown who it is: ConnectionOptions::strangers no longer holds for it.
  virtual void trust(ConnectionId) {}

  [[nodiscard]] virtual std::string peer_name(ConnectionId connection) const = 0; // for people
  // What lies in pools made with ArenaOptions::shared goes without a copy.
  [[nodiscard]] virtual bool shares_memory() const { return false; }
  // Connections closed here for which something is still to be sent: a process that ends before
  // this is 0 cuts it off.
  [[nodiscard]] virtual std::size_t closing() const { return 0; }
  // Of those, how many ended before their peers had taken everything, as far as this side knows:
  // they died, or took nothing for as long as the transport lingers.
  [[nodiscard]] virtual std::uint64_t given_up() const { return 0; }

  // The loop says which events of its last poll() it has yet to hand out (those with a handler), so
  // that close() can withdraw the ones of its connection: "no event follows" holds within a batch.
  virtual void dispatching(std::span<Event> events) { dispatching_ = events; }

protected:
  [[nodiscard]] std::span<Event> undispatched() const { return dispatching_; }
  void withdraw(ConnectionId connection);

private:
  std::span<Event> dispatching_;
};

} // namespace fanin::net
