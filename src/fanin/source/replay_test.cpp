#include "fanin/source/replay.hpp"

#include <gtest/gtest.h>

namespace fanin::source {
namespace {

std::vector<EventNumber> pass_over(ReplayNumbers& numbers, const std::vector<std::uint64_t>& keys) {
  std::vector<EventNumber> result;
  result.reserve(keys.size());
  for (const std::uint64_t key : keys) result.push_back(numbers.number(key));
  return result;
}

TEST(ReplayNumbers, passes_follow_each_other_and_keep_their_gaps) {
  ReplayNumbers numbers({.loops = 3}, 24);
  numbers.start(0);
  EXPECT_EQ(pass_over(numbers, {1, 3}), (std::vector<EventNumber>{1, 3}));
  EXPECT_TRUE(numbers.next_pass());
  EXPECT_EQ(pass_over(numbers, {1, 3}), (std::vector<EventNumber>{4, 6}));
  EXPECT_TRUE(numbers.next_pass());
  EXPECT_EQ(pass_over(numbers, {1, 3}), (std::vector<EventNumber>{7, 9}));
  EXPECT_FALSE(numbers.next_pass());
}

TEST(ReplayNumbers, a_flipped_bit_of_the_counter_moves_nothing) {
  ReplayNumbers numbers({}, 24);
  numbers.start(0);
  (void)pass_over(numbers, {0xfffff0, 0xfffff1});
  (void)numbers.number(0x7ffff2);
  EXPECT_TRUE(numbers.is_jump());
  EXPECT_EQ(numbers.number(0xfffff3), 0xfffff3U);
  EXPECT_FALSE(numbers.is_jump());
  EXPECT_EQ(numbers.number(1), 0x1000001U);
  (void)numbers.number(0x200000); // a real jump goes on where it went
  EXPECT_EQ(numbers.number(0x200001), 0x1200001U);
  EXPECT_FALSE(numbers.is_jump());
}

TEST(ReplayNumbers, what_is_no_number_moves_nothing_wherever_it_is_in_the_file) {
  ReplayNumbers numbers({.loops = 2}, 64);
  numbers.start(0);
  for (const EventNumber shift : {0U, 2U}) {
    EXPECT_GE(numbers.number(~std::uint64_t{0}), event_number_end);
    EXPECT_TRUE(numbers.is_jump());
    EXPECT_EQ(numbers.number(7), 7 + shift);
    EXPECT_FALSE(numbers.is_jump());
    EXPECT_EQ(numbers.number(8), 8 + shift);
    EXPECT_EQ(numbers.next_pass(), shift == 0);
  }
}

TEST(ReplayNumbers, a_span_can_be_given) {
  ReplayNumbers numbers({.loops = 0, .span = 1000}, 64);
  numbers.start(0);
  EXPECT_EQ(numbers.number(5), 5U);
  EXPECT_TRUE(numbers.next_pass());
  EXPECT_EQ(numbers.number(5), 1005U);
}

TEST(ReplayNumbers, passes_below_what_is_wanted_are_left_out) {
  ReplayNumbers numbers({.loops = 0}, 64);
  numbers.start(1000); // passes of 10 numbers: 10..19, 20..29, ...
  EXPECT_FALSE(numbers.wanted(numbers.number(10)));
  EXPECT_FALSE(numbers.wanted(numbers.number(19)));
  EXPECT_TRUE(numbers.next_pass());
  EXPECT_EQ(numbers.number(10), 1000U);
  for (const EventNumber wanted : {1005U, 1009U, 1010U}) {
    numbers.start(wanted);
    EXPECT_EQ(numbers.number(10), wanted / 10 * 10);
  }
}

TEST(ReplayNumbers, what_is_wanted_may_lie_after_the_last_pass) {
  ReplayNumbers numbers({.loops = 2}, 64);
  numbers.start(0);
  (void)pass_over(numbers, {1, 2, 3});
  EXPECT_TRUE(numbers.next_pass());
  EXPECT_FALSE(numbers.exhausted());
  numbers.start(6);
  EXPECT_FALSE(numbers.exhausted());
  numbers.start(7);
  EXPECT_TRUE(numbers.exhausted());
}

TEST(Pacer, high_rates_do_not_wake_the_loop_for_every_event) {
  using namespace std::chrono_literals;
  Pacer pacer(1e6);
  pacer.start(Time{});
  EXPECT_TRUE(pacer.due(0, Time{}));
  EXPECT_FALSE(pacer.due(1, Time{}));
  EXPECT_GE(pacer.wake(1, Time{}), Time{50us});
  EXPECT_TRUE(pacer.due(99, Time{100us}));
}

TEST(Pacer, time_stands_still_until_the_run_begins) {
  using namespace std::chrono_literals;
  Pacer pacer(1000);
  pacer.start(Time{});
  for (const Time waiting : {Time{}, Time{5s}, Time{9s}}) {
    pacer.wait_for_run(false, waiting);
    EXPECT_TRUE(pacer.due(70, waiting));
    EXPECT_FALSE(pacer.due(71, waiting));
  }
  pacer.wait_for_run(true, Time{20s});
  EXPECT_TRUE(pacer.due(70, Time{20s}));
  EXPECT_FALSE(pacer.due(71, Time{20s}));
  EXPECT_EQ(pacer.wake(71, Time{20s}), Time{20s + 1ms + 1ns});
  pacer.wait_for_run(true, Time{21s});
  EXPECT_TRUE(pacer.due(1070, Time{21s}));
  EXPECT_FALSE(pacer.due(1071, Time{21s}));
}

TEST(Pacer, sources_that_started_together_stay_in_step) {
  using namespace std::chrono_literals;
  Pacer one(1000);
  Pacer other(1000);
  one.start(Time{});
  other.start(Time{});
  one.wait_for_run(true, Time{5300us});
  other.wait_for_run(true, Time{5700us});
  EXPECT_TRUE(one.due(3, Time{5700us}));
  EXPECT_TRUE(other.due(3, Time{5700us}));
  EXPECT_EQ(one.wake(4, Time{5700us}), other.wake(4, Time{5700us}));
}

TEST(Pacer, an_event_in_the_far_future_is_never_due) {
  Pacer pacer(1e-3);
  pacer.start(Time{});
  ASSERT_TRUE(pacer.due(0, Time{}));
  EXPECT_EQ(pacer.wake(~EventNumber{0}, Time{}), never);
}

} // namespace
} // namespace fanin::source
