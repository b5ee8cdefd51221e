// The numbers of attempts wrap: those of a batch that is handed back each second do so within a
// day.
#pragma once

#include <limits>

#include "fanin/base/identity.hpp"

namespace fanin {

// The number after this one. Only the first attempt has the number 0.
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
