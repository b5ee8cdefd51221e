/// \file
/// What the message sockets of one thread have in common: the loop (Schumacher 2017, section III:
/// "a central event loop"), transports by scheme, page pools, random numbers for reconnecting, and
/// the log.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/log.hpp"
#include "fanin/base/log_limiter.hpp"
#include "fanin/base/random.hpp"
#include "fanin/base/result.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/net/link.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/registry.hpp"

namespace fanin::message {

/// Work that a Context does at the end of each turn, while the task wants it: a page to send, a
/// queue to read.
class TurnEndTask {
public:
  virtual ~TurnEndTask() = default;
  /// `stay`: call it again in the next turn. `worked`: the loop must not sleep before.
  struct Answer {
    bool stay = false;
    bool worked = false;
  };
  [[nodiscard]] virtual Answer at_turn_end() = 0;

private:
  friend class Context;
  bool listed_ = false;
};

struct ContextOptions {
  /// Size of a page, with room for headers beside messages whose sizes are powers of two.
  static constexpr std::uint32_t send_page = (1U << 20) + 4096;
  /// Default of the most bytes of one connection that a transport may hold: four pages, and what
  /// the transport counts in addition for each.
  static constexpr std::uint64_t send_queue = 4 * (std::uint64_t{send_page} + 4096);
  /// Pages in which messages are gathered, in memory that other processes can read (shm://). The
  /// sums: docs/modules/message.md.
  memory::PoolOptions send_pool{.page_size = send_page, .pages = 16, .arena = {.shared = true}};
  /// Pages for receiving, at least twice as large: a transport takes messages up to half a page.
  memory::PoolOptions receive_pool{.page_size = 2 * send_page, .pages = 16, .arena = {}};
  net::WaitPolicy wait = net::WaitPolicy::block;
  std::uint64_t seed = 0; ///< seed of the random times of reconnecting; 0: taken from the clock
  LogFunction log = {}; ///< empty: nothing is logged
};

/// What an application with its own loop provides. All of it must outlive the Context.
struct ContextParts {
  net::Loop& loop;
  const net::TransportSet& transports;
  memory::PagePool& send_pool; ///< made with ArenaOptions::shared, if a transport shares memory
  memory::PagePool& receive_pool;
  std::uint64_t seed = 0;
  LogFunction log = {};
};

/// When to try again after a connection failed or ended. The first attempt follows after `initial`.
/// Each attempt that fails, or whose connection lasts less than `max`, doubles the time, up to
/// `max`. Half of the time is random, so that sockets that lost the same peer do not all reconnect
/// at once.
struct ReconnectPolicy {
  Duration initial = std::chrono::milliseconds{10};
  Duration max = std::chrono::seconds{2};
};

/// A view costs the transport an extent and may cost the receiver a page. Below this size a copy is
/// cheaper.
inline constexpr std::uint32_t copy_below_bytes = 4096;

/// A Context must outlive its sockets. Thread: the loop's, also for everything made from the
/// Context. It starts no thread. In a process that fork() makes, the Context and its sockets are
/// copies: close() and the destructors send nothing there and change nothing of the original's. No
/// other call is allowed on them.
class Context final : net::Service {
public:
  /// Uses `registry` instead of the transports that come with fanin. Errors: usage (page sizes),
  /// exhausted (memory).
  [[nodiscard]] FANIN_API static Result<std::unique_ptr<Context>>
  make(ContextOptions options = {}, const net::TransportRegistry* registry = nullptr);
  FANIN_API explicit Context(ContextParts parts);
  FANIN_API ~Context() override;

  /// Runs the loop until stop(), which may be called from a callback. Waits as options.wait says.
  /// Must not be called from a callback: the process ends.
  void run() { loop_.run(); }
  void stop() { loop_.stop(); }
  /// One turn without waiting; true if something was done. Must not be called from a callback: the
  /// process ends. After backpressure in a callback keep the message, return, and go on in
  /// on_writable (examples/sockets/forward.cpp).
  bool turn() { return loop_.turn(); }
  /// Blocks: runs the loop until closed sockets and connections have delivered what they had
  /// accepted, or their peers are gone, or stop() is called. Transports give up a peer that has
  /// taken nothing for their linger time (5 s; tcp: since its host took something last). drain()
  /// waits for ever for a peer that is alive and does not read messages that a socket still has.
  /// False: not all was taken, as far as this side knows; a copy that fork() has made knows
  /// nothing, and does not wait. Must not be called from a callback: the process ends.
  FANIN_API bool drain();
  /// The number of connections that ended before their peers had taken everything, as far as this
  /// side knows. It does not matter which side closed them.
  [[nodiscard]] FANIN_API std::uint64_t given_up() const;

  /// True in a process that fork() has made of the Context's.
  [[nodiscard]] bool is_copy() const { return loop_.is_copy(); }
  [[nodiscard]] net::Loop& loop() const { return loop_; }
  [[nodiscard]] memory::PagePool& send_pool() const { return send_pool_; }
  [[nodiscard]] memory::PagePool& receive_pool() const { return receive_pool_; }

  /// For the sockets. A transport is made when its scheme is first used. Errors: unsupported (no
  /// such scheme), and those of its factory.
  [[nodiscard]] FANIN_API Result<net::Transport*> transport(const net::Url& url);
  [[nodiscard]] Random& random() { return random_; }
  void log(LogLevel level, std::string_view text) const {
    if (log_) log_(level, text);
  }
  /// Logs warnings that peers can cause, at most a few a second.
  void log_of_peers(std::string_view text) {
    if (log_) refusals_.write(log_, loop_.now(), LogLevel::warning, text);
  }
  FANIN_API void at_turn_end(TurnEndTask& task);
  FANIN_API void forget(TurnEndTask& task);
  /// A connection was aborted here: what its peer has taken is not known.
  void aborted() { ++aborted_; }
  /// Changes the number of closed sockets that have something left to send.
  void closing(int change) {
    closing_sockets_ += change;
    FANIN_ASSERT(closing_sockets_ >= 0);
  }

private:
  struct Owned;
  Context(std::unique_ptr<Owned> owned, const ContextOptions& options);
  bool poll() override;
  bool arm() override;
  [[nodiscard]] bool drained() const; // all that was closed has delivered

  [[nodiscard]] Result<net::Transport*> find_transport(const net::Url& url);

  std::unique_ptr<Owned> owned_; // null: made from parts
  net::Loop& loop_;
  const net::TransportSet* given_transports_ = nullptr; // of the parts
  memory::PagePool& send_pool_;
  memory::PagePool& receive_pool_;
  Random random_;
  LogFunction log_;
  LogLimiter refusals_;
  std::vector<net::Transport*> used_;
  std::vector<TurnEndTask*> tasks_; // null: gone
  bool tasks_added_ = false; // a task was listed since the last end of a turn
  bool draining_ = false;
  std::uint64_t aborted_ = 0;
  int closing_sockets_ = 0;
};

} // namespace fanin::message
