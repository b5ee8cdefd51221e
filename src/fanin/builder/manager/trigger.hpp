// The emulated trigger of the event manager: event n is due at start + n / rate, whatever happened
// before, so that latencies count from the intended time. Triggers are gathered until they fill a
// batch, and no longer than the latency allows.
#pragma once

#include <cstdint>

#include "fanin/base/clock.hpp"
#include "fanin/builder/system.hpp"

namespace fanin::builder {

// Without a rate it never triggers anything.
class Trigger {
public:
  // `system` must outlive it.
  explicit Trigger(const System& system) : system_(system) {}

  [[nodiscard]] bool enabled() const { return system_.trigger_rate_hz > 0; }
  void start(Time now) { start_ = now; }

  enum class Outcome : std::uint8_t {
    goes_on, // call it again at next_tick()
    full,    // as many events are open as may be; call it again when one is built
    last     // the run has all the events that it was to have
  };
  // Triggers what is due. `decided`: events below are built.
  [[nodiscard]] Outcome advance(Time now, EventNumber decided);
  // Events below were triggered.
  [[nodiscard]] EventNumber end() const { return end_; }
  // It was full, and is not any more.
  [[nodiscard]] bool has_room_again(EventNumber decided) const {
    return full_ && end_ < decided + system_.trigger_window;
  }
  // When to call it again. `bytes_per_event`: of the latest batch; 0: not known yet.
  [[nodiscard]] Time next_tick(Time now, std::uint64_t bytes_per_event) const;
  // When that event was due.
  [[nodiscard]] Time time_of(EventNumber event) const;

private:
  const System& system_;
  Time start_{};
  EventNumber end_ = 0;
  bool full_ = false;
};

} // namespace fanin::builder
