#include "fanin/builder/recently_decided.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

TEST(RecentlyDecided, knows_a_batch_and_no_other_attempt_at_it) {
  RecentlyDecided decided;
  EXPECT_FALSE(decided.contains(0, 0));
  decided.note(0, 1);
  EXPECT_TRUE(decided.contains(0, 1));
  EXPECT_FALSE(decided.contains(0, 2));
  EXPECT_FALSE(decided.contains(1024, 1));
  decided.note(0, 2);
  EXPECT_FALSE(decided.contains(0, 1));
}

TEST(RecentlyDecided, knows_that_earlier_attempts_at_a_batch_are_over) {
  RecentlyDecided decided;
  EXPECT_FALSE(decided.contains_or_later(0, 0));
  decided.note(0, 2);
  for (Attempt over = 0; over < 3; ++over) EXPECT_TRUE(decided.contains_or_later(0, over));
  EXPECT_FALSE(decided.contains_or_later(0, 3));
  EXPECT_FALSE(decided.contains_or_later(1024, 1));
  decided.note(0, 1); // late news
  EXPECT_TRUE(decided.contains(0, 2));
}

TEST(RecentlyDecided, keeps_most_of_the_last_thousands_and_never_makes_one_up) {
  RecentlyDecided decided;
  constexpr EventNumber step = 1024;
  constexpr EventNumber noted = 100'000;
  for (EventNumber i = 0; i < noted; ++i) decided.note(i * step, 1);
  std::size_t known = 0;
  for (EventNumber i = noted - 2000; i < noted; ++i)
    if (decided.contains(i * step, 1)) ++known;
  EXPECT_GT(known, 1600U);
  for (EventNumber i = noted; i < 2 * noted; ++i) EXPECT_FALSE(decided.contains(i * step, 1));
}

} // namespace
} // namespace fanin::builder
