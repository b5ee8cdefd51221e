#include "fanin/executive/recent_latency.hpp"

#include <algorithm>
#include <cstdint>

#include <gtest/gtest.h>

namespace fanin::executive {
namespace {

using namespace std::chrono_literals;

TEST(RecentLatency, forgets_what_is_ten_seconds_old_and_knows_what_is_five) {
  RecentLatency recent;
  Histogram all;
  for (std::uint64_t second = 1; second < 60; ++second) { // a value each second
    all.add(Duration{1000});
    const std::uint64_t count = recent.in(all, Time{100s + std::chrono::seconds{second}}).count();
    EXPECT_GE(count, std::min<std::uint64_t>(second, 5)) << second;
    EXPECT_LE(count, 10U) << second;
  }
  (void)recent.in(all, Time{200s});
  EXPECT_EQ(recent.in(all, Time{210s}).count(), 0U);
}

} // namespace
} // namespace fanin::executive
