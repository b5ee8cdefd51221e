// Ends this process if something that it watches takes too long: the `time_limit` of a filter unit
// for one event. The kernel does it, so no thread and no working loop is needed. The launcher
// starts the process again.
#pragma once

#include <ctime>
#include <utility>

#include "fanin/base/clock.hpp"
#include "fanin/base/result.hpp"

namespace fanin::executive {

class TimeLimit {
public:
  // Errors: exhausted.
  [[nodiscard]] static Result<TimeLimit> make(Duration limit);
  TimeLimit(TimeLimit&& other) noexcept
      : timer_(std::exchange(other.timer_, timer_t{})),
        limit_(other.limit_),
        made_(std::exchange(other.made_, false)) {}
  TimeLimit& operator=(TimeLimit&&) = delete;
  ~TimeLimit();

  // True: SIGALRM ends this process, unless it is called again within the limit. False: no more.
  void watch(bool on);

private:
  TimeLimit(timer_t timer, Duration limit) : timer_(timer), limit_(limit), made_(true) {}

  timer_t timer_{};
  Duration limit_;
  bool made_ = false;
};

} // namespace fanin::executive
