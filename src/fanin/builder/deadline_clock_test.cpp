#include "fanin/builder/deadline_clock.hpp"

#include <gtest/gtest.h>

#include "fanin/base/random.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;

class Deadlines : public ::testing::Test {
protected:
  // The time that has passed for deadlines since this was asked last, `later`.
  Duration after(Duration later, bool held_up = false) {
    now_ += later;
    const Duration time = clock_.read(now_, held_up);
    return time - std::exchange(time_, time);
  }
  Time now_ = Time{} + 1h;
  DeadlineClock clock_{100ms};
  Duration time_ = clock_.read(now_, false);
};

TEST_F(Deadlines, time_passes_while_the_clock_is_read_within_the_period) {
  EXPECT_EQ(after(100ms), 100ms);
  EXPECT_EQ(after(30ms), 30ms);
  EXPECT_EQ(after(0ms), 0ms);
}

TEST_F(Deadlines, what_a_read_is_late_does_not_count_and_of_a_long_pause_nothing) {
  EXPECT_EQ(after(101ms), 100ms);
  EXPECT_EQ(after(200ms), 100ms);
  EXPECT_EQ(after(200ms + 1ns), 0ms);
  EXPECT_EQ(after(1h), 0ms);
  EXPECT_EQ(after(100ms), 100ms); // it goes on as before
}

TEST_F(Deadlines, time_stands_still_from_when_the_owner_is_held_up_until_it_is_not) {
  EXPECT_EQ(after(50ms, true), 50ms);
  EXPECT_EQ(after(50ms, true), 0ms);
  EXPECT_EQ(after(50ms), 0ms);
  EXPECT_EQ(after(50ms), 50ms);
}

TEST_F(Deadlines, a_pause_while_the_owner_is_held_up_counts_once) {
  EXPECT_EQ(after(50ms, true), 50ms);
  EXPECT_EQ(after(10s, true), 0ms);
  EXPECT_EQ(after(10s), 0ms);
  EXPECT_EQ(after(100ms), 100ms);
}

TEST_F(Deadlines, time_without_deadlines_is_no_pause_of_the_owner) {
  clock_.pause();
  EXPECT_EQ(after(1h), 1h);
  EXPECT_EQ(after(1h), 0h); // read again
}

TEST_F(Deadlines, the_clock_never_goes_back_and_never_by_more_than_a_period) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random{seed};
    for (int i = 0; i < 500; ++i) {
      const Duration later{static_cast<Duration::rep>(random.below(300'000'000))};
      const Duration passed = after(later, random.chance(1, 3));
      ASSERT_GE(passed, 0ns);
      ASSERT_LE(passed, std::min<Duration>(later, 100ms));
    }
  }
}

TEST(PauseClock, tells_the_pauses_since_it_was_read_and_the_time_without_them) {
  Time now = Time{} + 1h;
  PauseClock clock{100ms};
  EXPECT_EQ(clock.read(now), 0s); // not started: there is nothing to compare with
  now += 1h;
  clock.start(now);
  const Duration begin = clock.running_time();
  EXPECT_EQ(clock.read(now += 100ms), 0ms);
  EXPECT_EQ(clock.read(now += 130ms), 30ms);
  EXPECT_EQ(clock.read(now += 3s), 3s);
  EXPECT_EQ(clock.read(now), 0ms);
  EXPECT_EQ(clock.running_time() - begin, 200ms);
}

} // namespace
} // namespace fanin::builder
