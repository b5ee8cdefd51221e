// How fast a readout unit announces while the run drains.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "fanin/base/identity.hpp"
#include "fanin/builder/control/node_environment.hpp"

namespace fanin::builder {

// Time is that of the readout unit, which sends a status in each `status_period` in which it runs:
// neither a pause of a host nor a slow path makes a source slow. Where it is held back it waits for
// others, or for builder units, and its pace is not known.
class DrainPace {
public:
  // Measured over as many statuses, so that a pause within one of them does not count for much.
  static constexpr std::uint32_t statuses_least = 4;

  // A status has come. `end`: it has announced up to there; `held_back`: it was, at any moment
  // since the status before. How long it will take to announce up to `until`; nothing: it is there,
  // it is not known yet, or it does not move, which is silence and not slowness.
  [[nodiscard]] std::optional<Duration> needed(EventNumber end, bool held_back, EventNumber until) {
    if (!begun_ || held_back) {
      begin(end);
      return {};
    }
    if (++statuses_ < statuses_least) return {};
    const EventNumber moved = end - std::min(end, begun_at_);
    const double time = static_cast<double>(statuses_) * static_cast<double>(status_period.count());
    begin(end);
    if (end >= until || moved == 0) return {};
    const double needed = static_cast<double>(until - end) / static_cast<double>(moved) * time;
    return Duration{static_cast<Duration::rep>(std::min(needed, 1e18))};
  }

private:
  void begin(EventNumber end) {
    begun_ = true;
    begun_at_ = end;
    statuses_ = 0;
  }

  bool begun_ = false;
  EventNumber begun_at_ = 0; // announced up to there, when it was measured first
  std::uint32_t statuses_ = 0; // since then
};

} // namespace fanin::builder
