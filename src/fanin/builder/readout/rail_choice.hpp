// Which rails to a builder unit carry a readout unit's data: as many as it has sources for, of
// those that live. A rail on which a connection was lost is left out, and tried again now and then.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/base/clock.hpp"

namespace fanin::builder {

// Knows no connection; time comes in.
class RailChoice {
public:
  // How long after its loss a rail is tried again; twice as long after each failure.
  static constexpr Duration patience_least = std::chrono::seconds{1};
  static constexpr Duration patience_most = std::chrono::minutes{1};

  RailChoice() = default;
  // `first`: the rail that is taken first, for an even load where there are more rails than lanes.
  RailChoice(std::size_t rails, std::size_t first, std::size_t lanes)
      : rails_(rails), first_(first % rails), lanes_(std::min(lanes, rails)) {}

  // The rails of the next connection, one for each lane. If all rails are lost, all except the one
  // that was lost last count as alive again.
  [[nodiscard]] std::vector<std::size_t> choose() {
    if (living() == 0) {
      for (Rail& rail : rails_) rail.lost = rail.lost_at == last_loss_ && rails_.size() > 1;
    }
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < rails_.size() && chosen.size() < lanes_; ++i) {
      const std::size_t rail = (first_ + i) % rails_.size();
      if (!rails_[rail].lost) chosen.push_back(rail);
    }
    return chosen;
  }

  void lost(std::size_t index, Time now) {
    Rail& rail = rails_[index];
    if (rail.lost) return;
    const bool held = now - rail.back_since > 4 * rail.patience; // it was worth the try
    rail.patience = held ? patience_least : std::min(2 * rail.patience, patience_most);
    rail.lost = true;
    rail.lost_at = last_loss_ = std::max(now, last_loss_ + Duration{1}); // each its own
    rail.try_at = now + rail.patience;
  }
  [[nodiscard]] bool is_lost(std::size_t index) const { return rails_[index].lost; }

  // When the next lost rail is to be tried; never: none would be used.
  [[nodiscard]] Time next_try() const {
    return living() >= lanes_ ? never : rails_[to_try()].try_at;
  }
  // Which one that is.
  [[nodiscard]] std::size_t to_try() const {
    std::size_t next = rails_.size();
    for (std::size_t i = 0; i < rails_.size(); ++i) {
      if (rails_[i].lost && (next == rails_.size() || rails_[i].try_at < rails_[next].try_at))
        next = i;
    }
    FANIN_ASSERT(next < rails_.size());
    return next;
  }
  // It is tried now, and again later if it does not answer.
  void tried(std::size_t index, Time now) {
    Rail& rail = rails_[index];
    rail.patience = std::min(2 * rail.patience, patience_most);
    rail.try_at = now + rail.patience;
  }
  void back(std::size_t index, Time now) {
    rails_[index].lost = false;
    rails_[index].back_since = now;
  }

private:
  struct Rail {
    bool lost = false;
    Time lost_at{};
    Time back_since{};
    Time try_at{};
    Duration patience{};
  };
  [[nodiscard]] std::size_t living() const {
    return static_cast<std::size_t>(std::ranges::count(rails_, false, &Rail::lost));
  }

  std::vector<Rail> rails_;
  std::size_t first_ = 0;
  std::size_t lanes_ = 0;
  Time last_loss_{};
};

} // namespace fanin::builder
