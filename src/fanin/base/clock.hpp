/// \file
/// Time as the application sees it: nanoseconds of a clock that the application is given, so that
/// the same code runs in real and in virtual time. No code above base/ asks the operating system
/// for the time.
#pragma once

#include <chrono>
#include <cstdint>

#include "fanin/base/export.hpp"

namespace fanin {

using Duration = std::chrono::nanoseconds;

/// Tag for the time points of all clocks. It has no now() on purpose.
struct LoopClock {
  using rep = Duration::rep;
  using period = Duration::period;
  using duration = Duration;
  using time_point = std::chrono::time_point<LoopClock, Duration>;
  static constexpr bool is_steady = true;
};
using Time = LoopClock::time_point;

/// A time that never comes: "no deadline".
inline constexpr Time never = Time::max();

class Clock {
public:
  virtual ~Clock() = default;
  /// A monotonic clock with nanosecond resolution. now() may be called from any thread.
  [[nodiscard]] virtual Time now() const = 0;
};

/// CLOCK_MONOTONIC. All processes of one host share it, so their time stamps can be compared.
class FANIN_API MonotonicClock final : public Clock {
public:
  [[nodiscard]] Time now() const override;
};

/// A clock that moves only when it is set; for tests and simulation.
class VirtualClock final : public Clock {
public:
  [[nodiscard]] Time now() const override { return now_; }
  void advance_to(Time time) { now_ = time > now_ ? time : now_; }
  void advance(Duration step) { now_ += step; }

private:
  Time now_{};
};

} // namespace fanin
