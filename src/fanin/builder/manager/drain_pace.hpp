// How fast a readout unit announces while the run drains.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "fanin/base/identity.hpp"
#include "fanin/builder/control/node_environment.hpp"

namespace fanin::builder {

// Time is that of the readout unit, which sends a status in each `status_period` in which it runs,
// without the time in which it was held up, since it waited for others or for builder units. So
// neither a pause of a host, nor a slow path, nor a full disk makes a source slow.
class DrainPace {
public:
  // Measured over so many statuses between which it was not held up all the time, so that a pause
  // within one of them does not count for much.
  static constexpr std::uint32_t statuses_least = 4;

  // A status has come. `end`: it has announced up to there; `held_up_us`: its counter. How long
  // it will take to announce up to `until`; nothing: it is there, it is not known yet, or it does
  // not move, which is silence and not slowness.
  [[nodiscard]] std::optional<Duration> needed(EventNumber end, std::uint32_t held_up_us,
                                               EventNumber until) {
    const std::uint32_t held_us = held_up_us - std::exchange(held_up_us_, held_up_us);
    if (!begun_) {
      begin(end);
      return {};
    }
    const Duration held = std::min<Duration>(std::chrono::microseconds{held_us}, status_period);
    if (held == status_period) return {};
    time_ += status_period - held;
    if (++statuses_ < statuses_least) return {};
    const EventNumber moved = end - std::min(end, begun_at_);
    const double time = static_cast<double>(time_.count());
    begin(end);
    if (end >= until || moved == 0) return {};
    const double needed = static_cast<double>(until - end) / static_cast<double>(moved) * time;
    return Duration{static_cast<Duration::rep>(std::min(needed, 1e18))};
  }

private:
  void begin(EventNumber end) {
    begun_ = true;
    begun_at_ = end;
    time_ = {};
    statuses_ = 0;
  }

  bool begun_ = false;
  EventNumber begun_at_ = 0; // announced up to there, when it was measured first
  std::uint32_t statuses_ = 0; // since then
  Duration time_{}; // likewise
  std::uint32_t held_up_us_ = 0; // of the status before
};

} // namespace fanin::builder
