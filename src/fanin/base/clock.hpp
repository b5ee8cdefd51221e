// Time as the application sees it: nanoseconds on a clock that comes in from outside, so that the
// same code runs in real and in virtual time. Nothing above base/ asks the operating system.
#pragma once

#include <chrono>
#include <cstdint>

namespace fanin {

using Duration = std::chrono::nanoseconds;

// Tag for time points of whichever Clock is in use; deliberately has no now().
struct LoopClock {
  using rep = Duration::rep;
  using period = Duration::period;
  using duration = Duration;
  using time_point = std::chrono::time_point<LoopClock, Duration>;
  static constexpr bool is_steady = true;
};
using Time = LoopClock::time_point;

// A time that never comes: "no deadline".
inline constexpr Time never = Time::max();

class Clock {
public:
  virtual ~Clock() = default;
  // Monotonic, nanosecond resolution; any thread.
  [[nodiscard]] virtual Time now() const = 0;
};

// CLOCK_MONOTONIC. Shared by all processes of one host, so their time stamps compare.
class MonotonicClock final : public Clock {
public:
  [[nodiscard]] Time now() const override;
};

// Stands still until it is told to move; for tests and simulation.
class VirtualClock final : public Clock {
public:
  [[nodiscard]] Time now() const override { return now_; }
  void advance_to(Time time) { now_ = time > now_ ? time : now_; }
  void advance(Duration step) { now_ += step; }

private:
  Time now_{};
};

} // namespace fanin
