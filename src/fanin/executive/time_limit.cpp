#include "fanin/executive/time_limit.hpp"

#include <cerrno>
#include <csignal>

#include "fanin/base/assert.hpp"

namespace fanin::executive {

Result<TimeLimit> TimeLimit::make(Duration limit) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGALRM;
  timer_t timer{};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
    return fail_errno(ErrorKind::exhausted, "timer_create", errno);
  return TimeLimit(timer, limit);
}

TimeLimit::~TimeLimit() {
  if (made_) timer_delete(timer_);
}

void TimeLimit::watch(bool on) {
  constexpr Duration::rep second = 1'000'000'000;
  itimerspec when{};
  if (on) {
    when.it_value.tv_sec = limit_.count() / second;
    when.it_value.tv_nsec = limit_.count() % second;
  }
  const int outcome = timer_settime(timer_, 0, &when, nullptr);
  FANIN_ASSERT(outcome == 0);
}

} // namespace fanin::executive
