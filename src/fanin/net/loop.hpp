/// \file
/// The one place that waits. A loop owns nothing. It polls its transports and services, calls
/// handlers and fires timers, all on one thread; every handler runs to completion. In real time it
/// sleeps in epoll_pwait2 when there is nothing to do; in virtual time a scheduler calls turn() and
/// moves the clock (net/virtual_world.hpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/owning_process.hpp"
#include "fanin/net/indexed_heap.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net {

class Resolver;

/// Something besides a transport that the loop polls: storage completions, a source with a file
/// descriptor, work that an application has left to do.
class Service {
public:
  virtual ~Service() = default;
  /// Does a bounded amount of work. True: it did some and may have more.
  virtual bool poll() = 0;
  /// Called before the loop sleeps. False: there is work, so do not sleep.
  virtual bool arm() { return true; }
  /// A descriptor that becomes readable when there is work, after arm() returned true; -1: none. It
  /// must stay the same while the service is added (use an epoll descriptor if what it watches
  /// changes).
  [[nodiscard]] virtual int descriptor() const { return -1; }
};

class Loop;

/// A deadline with a callback on the loop's thread. The code that waits owns it. Destroying it
/// cancels it; do not destroy it in its own callback. Starting it again does not allocate.
class Timer {
public:
  Timer() = default; ///< only wakes the loop, which then polls its transports and services
  explicit Timer(std::function<void()> callback) : callback_(std::move(callback)) {}
  ~Timer() { cancel(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  FANIN_API void start(Loop& loop, Time deadline); ///< replaces an earlier deadline
  FANIN_API void cancel();
  /// As start(), or cancel() if `deadline` is `never`. Cheap if the deadline is unchanged.
  FANIN_API void set(Loop& loop, Time deadline);
  [[nodiscard]] bool active() const { return loop_ != nullptr; }
  [[nodiscard]] Time deadline() const { return deadline_; }

private:
  friend class Loop;
  std::function<void()> callback_;
  Loop* loop_ = nullptr;
  Time deadline_ = never;
  std::size_t heap_index_ = 0;
};

enum class WaitPolicy : std::uint8_t {
  block, ///< sleep as soon as there is nothing to do
  poll ///< never sleep; gives the core away (sched_yield) when there is nothing to do
};

class Loop {
public:
  /// `policy`: how run() waits. Objects made for the loop may rely on it.
  FANIN_API explicit Loop(const Clock& clock, WaitPolicy policy = WaitPolicy::block);
  FANIN_API ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// Transports are polled in the order of adding: add control before data.
  FANIN_API void add(Transport& transport);
  FANIN_API void add(Service& service);
  /// May be called from a handler. Call it for a transport or service that is destroyed before the
  /// loop.
  FANIN_API void remove(Transport& transport);
  FANIN_API void remove(Service& service);

  /// Sets the resolver of host names (net/resolver.hpp). Without a resolver, or with null,
  /// resolver() returns one that blocks.
  void set_resolver(Resolver* resolver) { resolver_ = resolver; }
  [[nodiscard]] FANIN_API Resolver& resolver();

  /// The time of the current turn, the same for all handlers in it. Outside a turn: the clock's
  /// time.
  [[nodiscard]] Time now() const { return in_turn_ ? now_ : clock_.now(); }
  [[nodiscard]] WaitPolicy policy() const { return policy_; }
  /// The clock, for measurements within a turn.
  [[nodiscard]] const Clock& clock() const { return clock_; }

  /// One turn: polls everything with a budget, fires timers that are due, flushes. True: something
  /// was done. Must not be called from a handler.
  FANIN_API bool turn();
  /// Earliest timer, or never.
  [[nodiscard]] FANIN_API Time next_deadline() const;

  /// Runs turns until stop(), and waits between them according to the policy. stop() may be called
  /// from a handler, or together with wake() from another thread or a signal handler. A stop()
  /// before run() counts. Must not be called from a handler, nor in a process that fork() has made
  /// of the loop's: the process ends. Throws std::system_error if the operating system gives no
  /// epoll or eventfd.
  FANIN_API void run();
  void stop() { stopping_.store(true, std::memory_order_relaxed); }
  FANIN_API void wake(); ///< async-signal-safe
  /// True in a process that fork() has made of the loop's. There remove() does not change what the
  /// loop waits for, since both processes share that.
  [[nodiscard]] bool is_copy() const { return !process_.is_current(); }

private:
  friend class Timer;
  struct Waiter; // epoll; made on the first run()
  struct Earlier {
    bool operator()(const Timer& a, const Timer& b) const { return a.deadline_ < b.deadline_; }
  };

  bool poll_transports();
  void drop_events();
  bool poll_services();
  bool fire_timers();
  void make_waiter();
  void watch_descriptors();
  void wait();
  bool arm_all();
  template <class Watched>
  void remove_from(std::vector<Watched*>& list, std::vector<int>* descriptors, Watched* gone);
  template <class Watched>
  void compact(std::vector<Watched*>& list, std::vector<int>* descriptors);

  OwningProcess process_;
  const Clock& clock_;
  Resolver* resolver_ = nullptr;
  std::unique_ptr<Resolver> own_resolver_;
  const WaitPolicy policy_;
  Time now_;
  std::vector<Transport*> transports_;
  std::vector<Service*> services_;
  IndexedHeap<Timer, &Timer::heap_index_, Earlier> heap_;
  std::vector<Event> events_;
  std::unique_ptr<Waiter> waiter_;
  bool removed_in_turn_ = false; // entries of the lists are null now
  bool in_turn_ = false;
  std::atomic<int> wake_descriptor_ = -1;
  std::atomic<bool> stopping_ = false;
};

} // namespace fanin::net
