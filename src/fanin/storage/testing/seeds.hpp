// For tests: random runs, each of which can be replayed.
#pragma once

#include <cstdint>
#include <cstdlib>

#include <gtest/gtest.h>

#include "fanin/base/random.hpp"

namespace fanin::storage::testing {

// One seed after the other, until a test fails.
template <class Run>
void for_each_seed(Run run) {
  const char* const given = std::getenv("FANIN_SEED");
  const char* const wanted = std::getenv("FANIN_SEEDS");
  const std::uint64_t first = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  const std::uint64_t seeds = wanted != nullptr  ? std::strtoull(wanted, nullptr, 10)
                              : given != nullptr ? 1
                                                 : 50;
  for (std::uint64_t seed = first; seed < first + seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "replay with FANIN_SEED=" << seed);
    run(Random(seed));
  }
}

} // namespace fanin::storage::testing
