/// \file
/// Says when an event is due at a given rate, by its number. So sources with equal rates stay
/// together, whichever numbers each of them leaves out.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fanin/base/clock.hpp"
#include "fanin/base/identity.hpp"

namespace fanin::source {

class Pacer {
public:
  explicit Pacer(double rate_hz) : rate_hz_(rate_hz) {} ///< 0: every event is due at once
  [[nodiscard]] bool paced() const { return rate_hz_ > 0; }

  /// The first number that is asked for afterwards is due at `now`.
  void start(Time now) {
    from_ = now;
    waited_ = 0;
    numbered_ = running_ = false;
  }
  /// To be called before each read. Until the queue is numbered no number but the first is due: a
  /// source may have to wait long for the run.
  void wait_for_run(bool numbered, Time now) {
    if (running_) return;
    running_ = numbered;
    waited_ = periods(now); // whole ones: sources that started together stay in step
    numbered_ = false;
  }
  /// Events that were missed while the source was held back are due at once. They are not skipped,
  /// so that sources that were held back for different times come together again.
  [[nodiscard]] bool due(EventNumber event, Time now) { return event < due_until(event, now); }
  /// Numbers below this one are due, where `next` is asked for.
  [[nodiscard]] EventNumber due_until(EventNumber next, Time now) {
    if (rate_hz_ <= 0) return ~EventNumber{0};
    if (!numbered_) {
      numbered_ = true;
      first_ = next - waited_;
    }
    return first_ + periods(now) + 1;
  }
  /// When to ask again for `event`, which is not due yet. The time is not too short, so that a high
  /// rate does not wake the loop for every event.
  [[nodiscard]] Time wake(EventNumber event, Time now) const {
    const double after_ns = static_cast<double>(event - first_) * 1e9 / rate_hz_;
    if (after_ns > 9e18) return never;
    const Time due = from_ + Duration{static_cast<Duration::rep>(after_ns) + 1};
    return std::max(due, now + wake_interval_min);
  }

private:
  [[nodiscard]] std::uint64_t periods(Time now) const {
    const auto elapsed_ns = static_cast<double>(std::max(now - from_, Duration{0}).count());
    return static_cast<std::uint64_t>(elapsed_ns * rate_hz_ * 1e-9);
  }

  static constexpr Duration wake_interval_min = std::chrono::microseconds{100};

  double rate_hz_;
  Time from_{};
  EventNumber first_ = 0; // the number that was due then; below 0 it wraps
  std::uint64_t waited_ = 0; // periods
  bool numbered_ = false; // first_ is known
  bool running_ = false;
};

} // namespace fanin::source
