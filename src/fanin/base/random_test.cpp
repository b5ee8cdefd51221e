#include "fanin/base/random.hpp"

#include <gtest/gtest.h>

namespace fanin {
namespace {

// Golden numbers: a seed written down in a failing test must mean the same on every platform.
TEST(RandomStream, gives_the_same_numbers_everywhere) {
  Random random(0);
  EXPECT_EQ(random.next(), 0x53175d61490b23dfU);
  EXPECT_EQ(random.next(), 0x61da6f3dc380d507U);
  EXPECT_EQ(random.next(), 0x5c0fdf91ec9a7bfcU);
}

TEST(RandomStream, seeds_differ) {
  Random a(1);
  Random b(2);
  EXPECT_NE(a.next(), b.next());
}

TEST(RandomStream, below_stays_below_and_reaches_every_value) {
  Random random(7);
  unsigned seen = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto value = random.below(8);
    ASSERT_LT(value, 8U);
    seen |= 1U << value;
  }
  EXPECT_EQ(seen, 0xffU);
  EXPECT_EQ(random.below(0), 0U);
  EXPECT_EQ(random.below(1), 0U);
}

TEST(RandomStream, unit_is_in_its_interval_with_the_right_mean) {
  Random random(11);
  double sum = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double value = random.unit();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / 100'000, 0.5, 0.005);
}

TEST(RandomStream, chance_follows_its_odds) {
  Random random(13);
  int hits = 0;
  for (int i = 0; i < 100'000; ++i) hits += random.chance(1, 4) ? 1 : 0;
  EXPECT_NEAR(hits, 25'000, 600);
  EXPECT_FALSE(random.chance(0, 4));
  EXPECT_TRUE(random.chance(4, 4));
}

} // namespace
} // namespace fanin
