#include "fanin/net/loop.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <system_error>

#include "fanin/base/assert.hpp"
#include "fanin/base/descriptor.hpp"
#include "fanin/net/resolver.hpp"

namespace fanin::net {
namespace {

// Events taken from one transport per turn: bounds how long control traffic waits behind data.
constexpr std::size_t events_per_poll = 64;

constexpr int turns_until_yield = 64;
constexpr int patience_min = 1;
constexpr int patience_max = 32;

// Where something cannot wake the loop: it looks this often.
constexpr Duration longest_blind_sleep = std::chrono::milliseconds{1};

// Sleeps until the epoll descriptor is readable or `timeout` (null: for ever) is over.
// Milliseconds, as epoll_wait has them, would break deadlines of 50 to 200 us.
void sleep_on(int epoll, const timespec* timeout) {
  epoll_event ignored[1];
  if (epoll_pwait2(epoll, ignored, 1, timeout, nullptr) >= 0) return;
  FANIN_ASSERT(errno != EBADF && errno != EINVAL); // a plug-in has closed what is not its own
  if (errno != ENOSYS && errno != EPERM) return;
  pollfd descriptor{epoll, POLLIN,
                    0}; // kernels before 5.11, and containers that do not know the call
  (void)ppoll(&descriptor, 1, timeout, nullptr);
}

timespec to_timespec(Duration duration) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration);
  return {static_cast<time_t>(seconds.count()), static_cast<long>((duration - seconds).count())};
}

// The kernel may delay a wake-up of an ordinary thread by its timer slack, 50 us by default: as
// long as the deadlines here. Restored afterwards, since the thread is the caller's.
class ShortTimerSlack {
public:
  ShortTimerSlack() : before_(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0)) {
    if (before_ > 0) (void)prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
  }
  ~ShortTimerSlack() {
    if (before_ > 0) (void)prctl(PR_SET_TIMERSLACK, before_, 0, 0, 0);
  }
  ShortTimerSlack(const ShortTimerSlack&) = delete;
  ShortTimerSlack& operator=(const ShortTimerSlack&) = delete;

private:
  int before_;
};

} // namespace

void Timer::start(Loop& loop, Time deadline) {
  cancel();
  loop_ = &loop;
  deadline_ = deadline;
  loop.heap_.add(*this);
}

void Timer::cancel() {
  if (loop_ != nullptr) std::exchange(loop_, nullptr)->heap_.remove(*this);
}

void Timer::set(Loop& loop, Time deadline) {
  if (deadline == never) {
    cancel();
  } else if (!active() || deadline_ != deadline) {
    start(loop, deadline);
  }
}

struct Loop::Waiter {
  Descriptor epoll{epoll_create1(EPOLL_CLOEXEC)};
  Descriptor wake{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  // The descriptors in the epoll set, parallel to transports_ and services_; -1: none.
  std::vector<int> transports;
  std::vector<int> services;
  bool all_watched = true;

  Waiter() {
    // Edge triggered: each wake() ends one wait, and nobody has to read the counter.
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.fd = wake.get()}};
    if (!epoll || !wake || epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0)
      throw std::system_error(errno, std::generic_category(), "event loop");
  }

  // False: the kernel cannot, now (no memory, no watches left) or ever (a file).
  [[nodiscard]] bool watch(int& watched, int descriptor) {
    if (watched == descriptor) return true;
    if (watched >= 0)
      (void)epoll_ctl(epoll.get(), EPOLL_CTL_DEL, watched, nullptr); // or closed already
    watched = -1;
    if (descriptor < 0) return true;
    epoll_event event{.events = EPOLLIN, .data = {.fd = descriptor}};
    if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) return false;
    watched = descriptor;
    return true;
  }
};

Loop::Loop(const Clock& clock, WaitPolicy policy)
    : clock_(clock), policy_(policy), now_(clock.now()), events_(events_per_poll) {}

Loop::~Loop() {
  for (Timer* timer : heap_.all()) timer->loop_ = nullptr;
}

Resolver& Loop::resolver() {
  if (resolver_ != nullptr) return *resolver_;
  if (!own_resolver_) own_resolver_ = std::make_unique<BlockingResolver>(resolve_host);
  return *own_resolver_;
}

void Loop::add(Transport& transport) { transports_.push_back(&transport); }

void Loop::add(Service& service) { services_.push_back(&service); }

// `descriptors`: those in the epoll set, parallel to the list; shorter for what was added lately.
template <class Watched>
void Loop::remove_from(std::vector<Watched*>& list, std::vector<int>* descriptors, Watched* gone) {
  const auto found = std::find(list.begin(), list.end(), gone);
  if (found == list.end()) return;
  const auto index = static_cast<std::size_t>(found - list.begin());
  if (descriptors != nullptr && index < descriptors->size() && !is_copy())
    (void)waiter_->watch((*descriptors)[index], -1);
  *found = nullptr; // a turn may be walking the list
  if (in_turn_) {
    removed_in_turn_ = true;
  } else {
    compact(list, descriptors);
  }
}

template <class Watched>
void Loop::compact(std::vector<Watched*>& list, std::vector<int>* descriptors) {
  for (std::size_t i = list.size(); i-- > 0;) {
    if (list[i] != nullptr) continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    list.erase(list.begin() + at);
    if (descriptors != nullptr && i < descriptors->size())
      descriptors->erase(descriptors->begin() + at);
  }
}

void Loop::remove(Transport& transport) {
  remove_from(transports_, waiter_ ? &waiter_->transports : nullptr, &transport);
}

void Loop::remove(Service& service) {
  remove_from(services_, waiter_ ? &waiter_->services : nullptr, &service);
}

bool Loop::turn() {
  FANIN_ASSERT(!in_turn_ && "turn() or run() in a callback: return, and go on in on_writable");
  now_ = clock_.now();
  in_turn_ = true;
  bool worked = poll_transports();
  worked |= poll_services();
  worked |= fire_timers();
  for (std::size_t i = 0; i < transports_.size(); ++i) {
    if (transports_[i] != nullptr) transports_[i]->flush();
  }
  in_turn_ = false;
  if (removed_in_turn_) {
    removed_in_turn_ = false;
    compact(transports_, waiter_ ? &waiter_->transports : nullptr);
    compact(services_, waiter_ ? &waiter_->services : nullptr);
  }
  return worked;
}

bool Loop::poll_transports() {
  bool worked = false;
  for (std::size_t i = 0; i < transports_.size(); ++i) {
    if (transports_[i] == nullptr) continue;
    Transport& transport = *transports_[i];
    const std::size_t count = transport.poll(events_);
    if (count == 0) continue;
    worked = true;
    transport.dispatching(std::span(events_).first(count));
    for (std::size_t k = 0; k < count; ++k) {
      Handler* const handler = std::exchange(events_[k].handler, nullptr);
      if (handler == nullptr) continue; // withdrawn by a handler before it
      handler->on_event(transport, events_[k]);
      events_[k].message = {};
      events_[k].rest = {};
      if (transports_[i] == nullptr) break; // removed by the handler, and perhaps gone
    }
    if (transports_[i] == nullptr) {
      drop_events();
    } else {
      transport.dispatching({});
    }
  }
  return worked;
}

void Loop::drop_events() {
  for (Event& event : events_) event = Event{};
}

bool Loop::poll_services() {
  bool worked = false;
  for (std::size_t i = 0; i < services_.size(); ++i) { // grows and gets holes meanwhile
    if (services_[i] != nullptr && services_[i]->poll()) worked = true;
  }
  return worked;
}

bool Loop::fire_timers() {
  bool worked = false;
  // A timer that restarts itself in the past fires again next turn, not for ever in this one.
  std::size_t budget = heap_.size();
  while (budget-- > 0 && !heap_.empty() && heap_.front().deadline_ <= now_) {
    Timer& timer = heap_.front();
    timer.cancel();
    if (timer.callback_) timer.callback_();
    worked = true;
  }
  return worked;
}

Time Loop::next_deadline() const { return heap_.empty() ? never : heap_.front().deadline_; }

void Loop::run() {
  FANIN_ASSERT(!is_copy() && "run() after fork(): make a loop in this process");
  const ShortTimerSlack slack;
  make_waiter();
  // How many idle turns come before sleeping. To fall asleep and be woken costs more than a few
  // turns, so in a stream it pays to look again; whether it did last time decides how long to look
  // next time, and an idle process ends up at one turn. The core is not given away in between:
  // where others compute, that would cost a whole slice of theirs, milliseconds, and being woken
  // does not.
  int patience = patience_min;
  int idle = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (turn()) {
      if (idle > 0) patience = std::min(2 * patience, patience_max);
      idle = 0;
    } else if (policy_ == WaitPolicy::poll) {
      // Processes that poll share the cores of a small machine; but an answer may be near.
      if (++idle > turns_until_yield) sched_yield();
    } else if (idle < patience) {
      ++idle;
    } else {
      patience = std::max(patience / 2, patience_min);
      idle = 0;
      wait();
    }
  }
  stopping_.store(false, std::memory_order_relaxed);
}

void Loop::wake() {
  const int descriptor = wake_descriptor_.load(std::memory_order_relaxed);
  if (descriptor < 0) return; // not running yet: run() looks at stopping_ first
  const int saved_errno = errno;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(descriptor, &one, sizeof one);
  errno = saved_errno;
}

void Loop::make_waiter() {
  if (waiter_) return;
  waiter_ = std::make_unique<Waiter>();
  wake_descriptor_.store(waiter_->wake.get(), std::memory_order_relaxed);
}

void Loop::watch_descriptors() {
  bool all = true;
  waiter_->transports.resize(transports_.size(), -1);
  waiter_->services.resize(services_.size(), -1);
  for (std::size_t i = 0; i < transports_.size(); ++i) {
    all &= waiter_->watch(waiter_->transports[i], transports_[i]->descriptor());
  }
  for (std::size_t i = 0; i < services_.size(); ++i) {
    all &= waiter_->watch(waiter_->services[i], services_[i]->descriptor());
  }
  waiter_->all_watched = all;
}

void Loop::wait() {
  watch_descriptors();
  if (!arm_all() || stopping_.load(std::memory_order_relaxed)) return;
  Time deadline = next_deadline();
  if (!waiter_->all_watched) deadline = std::min(deadline, clock_.now() + longest_blind_sleep);
  if (deadline == never) {
    sleep_on(waiter_->epoll.get(), nullptr);
    return;
  }
  const Duration left = deadline - clock_.now();
  if (left <= Duration::zero()) return;
  const timespec timeout = to_timespec(left);
  sleep_on(waiter_->epoll.get(), &timeout);
}

bool Loop::arm_all() {
  for (Transport* transport : transports_) {
    if (!transport->arm()) return false;
  }
  for (Service* service : services_) {
    if (!service->arm()) return false;
  }
  return true;
}

} // namespace fanin::net
