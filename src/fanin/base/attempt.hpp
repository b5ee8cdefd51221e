// Attempts of a batch wrap: one that is handed back each second gets there within a day.
#pragma once

#include <limits>

#include "fanin/base/identity.hpp"

namespace fanin {

// The one after this. 0 is the first attempt alone.
[[nodiscard]] constexpr Attempt next_attempt(Attempt attempt) {
  return attempt == std::numeric_limits<Attempt>::max() ? Attempt{1}
                                                        : static_cast<Attempt>(attempt + 1);
}

// Whether `one` was made after `other`; they are less than 2^15 attempts apart.
[[nodiscard]] constexpr bool is_later(Attempt one, Attempt other) {
  const auto ahead = static_cast<Attempt>(one - other);
  return ahead != 0 && ahead <= std::numeric_limits<Attempt>::max() / 2;
}

} // namespace fanin
