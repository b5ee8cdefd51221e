#include "fanin/builder/overtaking.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "fanin/base/random.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using RunEnd = Overtaking::End;

class Ends : public ::testing::Test {
protected:
  // Those of whom people are told.
  std::vector<std::size_t> update(Duration now) {
    std::vector<std::size_t> behind;
    for (const auto& pair : overtaking_.update(ends_, now)) behind.push_back(pair.behind);
    return behind;
  }
  std::vector<RunEnd> ends_{{.next = 100, .follows = true}, {.next = 100, .follows = true}};
  Overtaking overtaking_{2, 1000, 200ms, 60ms};
};

TEST_F(Ends, within_the_window_of_each_other_nobody_is_overtaken) {
  ends_[1] = {.next = 1100, .moved_at = 10ms, .follows = true, .leads = true};
  EXPECT_TRUE(update(10s).empty());
  EXPECT_FALSE(overtaking_.any());
  EXPECT_FALSE(overtaking_.ahead_of(0));
}

TEST_F(Ends, quiet_end_is_reported_once_and_passed_over_after_the_deadline) {
  ends_[1] = {.next = 5000, .moved_at = 1s, .follows = true, .leads = true};
  EXPECT_TRUE(update(1s).empty());
  EXPECT_EQ(overtaking_.ahead_of(0), 1U);
  EXPECT_EQ(update(1s + 60ms), std::vector<std::size_t>{0});
  EXPECT_TRUE(update(1s + 199ms).empty());
  EXPECT_FALSE(overtaking_.passed_over(0));
  EXPECT_TRUE(update(1s + 200ms).empty());
  EXPECT_TRUE(overtaking_.passed_over(0));
  overtaking_.moved(0);
  EXPECT_FALSE(overtaking_.passed_over(0));
  ends_[0] = {.next = 4500, .moved_at = 1s + 210ms, .follows = true};
  EXPECT_TRUE(update(1s + 220ms).empty());
  EXPECT_FALSE(overtaking_.any());
}

TEST_F(Ends, end_that_moves_while_it_is_behind_is_not_passed_over) {
  ends_[1] = {.next = 5000, .moved_at = 1s, .follows = true, .leads = true};
  for (Duration now = 1s; now < 3s; now += 50ms) {
    ends_[0].moved_at = ends_[1].moved_at = now;
    (void)update(now);
    EXPECT_FALSE(overtaking_.passed_over(0));
  }
}

TEST_F(Ends, one_number_far_ahead_overtakes_nobody) {
  ends_[1] = {.next = 5000, .moved_at = 1s, .follows = true, .leads = false};
  (void)update(1s);
  EXPECT_TRUE(update(9s).empty());
}

TEST_F(Ends, leader_that_died_long_before_overtakes_nobody) {
  ends_[0].moved_at = 9s;
  ends_[1] = {.next = 5000, .moved_at = 1s, .follows = true, .leads = true};
  (void)update(9s);
  EXPECT_FALSE(overtaking_.any());
}

TEST(Overtaking, finds_who_is_overtaken_as_comparing_all_pairs_would) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random{seed};
    std::vector<RunEnd> ends(1 + random.below(12));
    for (RunEnd& end : ends) {
      end = {random.below(20), Duration{static_cast<Duration::rep>(random.below(20))},
             random.chance(2, 3), random.chance(2, 3)};
    }
    constexpr std::uint64_t window = 5;
    constexpr Duration deadline{6};
    Overtaking overtaking{ends.size(), window, deadline, 1s};
    (void)overtaking.update(ends, 20ns);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const bool expected = ends[i].follows && std::ranges::any_of(ends, [&](const RunEnd& other) {
                              return other.leads && other.next > ends[i].next + window &&
                                     other.moved_at + deadline >= ends[i].moved_at;
                            });
      ASSERT_EQ(overtaking.ahead_of(i).has_value(), expected) << i;
      if (!expected) continue;
      const RunEnd& ahead = ends[*overtaking.ahead_of(i)];
      ASSERT_TRUE(ahead.leads && ahead.next > ends[i].next + window);
    }
  }
}

} // namespace
} // namespace fanin::builder
