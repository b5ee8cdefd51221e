/// \file
/// trace+tcp://, trace+inproc://, ...: counts what passes and measures times, above any transport.
/// It changes nothing else: the bytes between processes stay the same, so a traced process and one
/// that is not traced understand each other.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "fanin/base/histogram.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/log.hpp"
#include "fanin/net/decorator.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::net {

struct Traffic {
  std::uint64_t messages_sent = 0; ///< accepted by send()
  std::uint64_t bytes_sent = 0;
  std::uint64_t backpressure = 0; ///< refused by send(); a message that is tried again counts again
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_received = 0;
};

struct Trace {
  Traffic traffic; ///< of all connections there were
  std::array<std::uint64_t, event_kinds> events{}; ///< given by poll(), by EventKind
  std::array<std::uint64_t, close_reasons> closed{}; ///< connections by CloseReason
  std::uint64_t too_large = 0; ///< refused by send()
  Histogram handling; ///< time in a handler for an event: the mean over one poll()
  Histogram held_back; ///< of a connection, from the first `backpressure` to `writable`
  Histogram connecting; ///< from connect() to `connected`
};

class TraceTransport final : public Decorator {
public:
  /// `log` is told the traffic of each connection that ends (debug), and the whole trace at the end
  /// of the transport (info). The loop outlives the transport.
  TraceTransport(Loop& loop, std::unique_ptr<Transport> below, LogFunction log = {});
  ~TraceTransport() override;

  [[nodiscard]] const Trace& trace() const { return trace_; }
  [[nodiscard]] const Traffic* traffic(ConnectionId connection) const; ///< null: there is none now
  /// The trace, times in nanoseconds, with the connections there are now.
  [[nodiscard]] json::Value to_json() const;

  void close_listener(ListenerId listener) override;
  [[nodiscard]] Result<ConnectionId> connect(const Url& url,
                                             const ConnectionOptions& options) override;
  [[nodiscard]] SendOutcome send(ConnectionId connection,
                                 std::span<const memory::View> extents) override;
  [[nodiscard]] std::size_t poll(std::span<Event> events) override;
  void close(ConnectionId connection, bool abort) override;
  void dispatching(std::span<Event> events) override;

private:
  struct Connection {
    Traffic traffic;
    std::string peer; // human-readable
    Time connect_at{};
    Time refused_at = never;
  };

  void count(const Event& event);
  void ended(ConnectionId id, CloseReason reason);

  Loop& loop_;
  LogFunction log_;
  Trace trace_;
  std::unordered_map<ConnectionId, Connection> connections_;
  std::size_t handing_out_ = 0; // events in the hands of the loop, since
  Time handing_out_since_{};
};

} // namespace fanin::net
