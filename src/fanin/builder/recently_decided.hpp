// Remembers which batches were decided lately, and at which attempt, so that what still arrives for
// one of them, or for an earlier attempt at it, is known to be late and not taken for the beginning
// of a new one. Its size is fixed. Of two batches that share a slot the older one is forgotten;
// what comes for it then waits until the deadline and is dropped.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "fanin/base/attempt.hpp"
#include "fanin/base/identity.hpp"

namespace fanin::builder {

class RecentlyDecided {
public:
  RecentlyDecided() : slots_(size) {}

  // The latest attempt counts.
  void note(EventNumber first, Attempt attempt) {
    auto& noted = slots_[slot(first)];
    if (noted.first == first + 1 && is_later(noted.second, attempt)) return;
    noted = {first + 1, attempt};
  }
  [[nodiscard]] bool contains(EventNumber first, Attempt attempt) const {
    return slots_[slot(first)] == std::pair{first + 1, attempt};
  }
  // It, or a later attempt: on a slow link much of the earlier ones is still under way.
  [[nodiscard]] bool contains_or_later(EventNumber first, Attempt attempt) const {
    const auto& noted = slots_[slot(first)];
    return noted.first == first + 1 && !is_later(attempt, noted.second);
  }

private:
  static constexpr std::size_t size = 8192;
  static std::size_t slot(EventNumber first) {
    return static_cast<std::size_t>((first * 0x9e3779b97f4a7c15U) >> 51) % size;
  }
  std::vector<std::pair<EventNumber, Attempt>> slots_; // first + 1; 0: an empty slot
};

} // namespace fanin::builder
