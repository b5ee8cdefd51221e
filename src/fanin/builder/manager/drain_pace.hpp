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

// Time is that of the readout unit, which sends a status in each `status_period` in which it runs:
// neither a pause of a host nor a slow path makes a source slow. Neither do others, or builder
// units that take little (a full disk): the time in which they hold it up does not count. In one
// case the whole time counts: if a readout unit is held up for long, and is further behind than
// data on their way can be. Then a wrong number has set the end.
class DrainPace {
public:
  // Measured over so many statuses between which it was not held up all the time, so that a pause
  // within one of them does not count for much.
  static constexpr std::uint32_t statuses_least = 4;

  // `patience`: run.drain; `window`: how far data that are on their way can be behind the end.
  DrainPace(Duration patience, std::uint64_t window) : patience_(patience), window_(window) {}

  // A status has come. `end`: it has announced up to there; `held_up_us`: its counter. How long
  // it will take to announce up to `until`, if that is more than `patience`. (One that does not
  // move is silent, not slow.)
  [[nodiscard]] std::optional<Duration> too_long(EventNumber end, std::uint32_t held_up_us,
                                                 EventNumber until) {
    const std::uint32_t held_us = held_up_us - std::exchange(held_up_us_, held_up_us);
    const Duration held = std::min<Duration>(std::chrono::microseconds{held_us}, status_period);
    if (!std::exchange(begun_, true)) {
      all_ = not_held_up_ = {.end = end};
      return {};
    }
    all_.add(status_period);
    if (held < status_period) not_held_up_.add(status_period - held);
    Duration needed{};
    if (not_held_up_.statuses >= statuses_least)
      needed = std::exchange(not_held_up_, {.end = end}).needed(end, until);
    if (all_.time >= patience_) {
      const Duration at_this_rate = std::exchange(all_, {.end = end}).needed(end, until);
      if (end < until && until - end > window_) needed = std::max(needed, at_this_rate);
    }
    return needed > patience_ ? std::optional{needed} : std::nullopt;
  }

private:
  struct Span {
    EventNumber end = 0; // announced up to there when it began
    std::uint32_t statuses = 0;
    Duration time{};
    void add(Duration more) {
      ++statuses;
      time += more;
    }
    // At the pace of this span. 0: it is there, or did not move.
    [[nodiscard]] Duration needed(EventNumber now, EventNumber until) const {
      if (now >= until || now <= end) return {};
      const double rest = static_cast<double>(until - now) / static_cast<double>(now - end);
      return Duration{
          static_cast<Duration::rep>(std::min(rest * static_cast<double>(time.count()), 1e18))};
    }
  };

  Duration patience_;
  std::uint64_t window_;
  bool begun_ = false;
  Span not_held_up_; // only the time in which it was not
  Span all_;
  std::uint32_t held_up_us_ = 0; // of the status before
};

} // namespace fanin::builder
