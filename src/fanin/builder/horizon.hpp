// Up to where numbers exist, as far as several agree.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fanin/base/identity.hpp"

namespace fanin::builder {

// Given the ends of all that have begun: the furthest of `ends` that is not more than `window`
// ahead of all others. A further one counts when another one comes there. Sorts `ends`.
[[nodiscard]] inline EventNumber horizon_of(std::span<EventNumber> ends, std::uint64_t window) {
  if (ends.empty()) return 0;
  std::ranges::sort(ends);
  std::size_t i = ends.size() - 1;
  while (i > 0 && ends[i] - ends[i - 1] > window) --i;
  return ends[i];
}

} // namespace fanin::builder
