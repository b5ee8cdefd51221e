#include "fanin/builder/manager/trigger.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using Outcome = Trigger::Outcome;

constexpr Time start{1s};

System at_rate(double hz) {
  System system;
  system.trigger_rate_hz = hz;
  system.latency = Duration{0};
  system.batch_events = 16;
  return system;
}

TEST(Trigger, events_are_due_at_the_rate_from_the_start_on) {
  const System system = at_rate(1000);
  Trigger trigger{system};
  trigger.start(start);
  EXPECT_EQ(trigger.advance(start, 0), Outcome::goes_on);
  EXPECT_EQ(trigger.end(), 1U);
  EXPECT_EQ(trigger.next_tick(start, 0), start + 1ms);
  EXPECT_EQ(trigger.advance(start + 10ms + 1us, 0), Outcome::goes_on); // late: all that is due
  EXPECT_EQ(trigger.end(), 11U);
  EXPECT_EQ(trigger.time_of(10), start + 10ms);
}

TEST(Trigger, waits_when_too_many_events_are_open) {
  System system = at_rate(1000);
  system.trigger_window = 5;
  Trigger trigger{system};
  trigger.start(start);
  EXPECT_EQ(trigger.advance(start + 1s, 0), Outcome::full);
  EXPECT_EQ(trigger.end(), 5U);
  EXPECT_FALSE(trigger.has_room_again(0));
  EXPECT_TRUE(trigger.has_room_again(1));
  EXPECT_EQ(trigger.advance(start + 1s, 3), Outcome::full);
  EXPECT_EQ(trigger.end(), 8U);
  EXPECT_EQ(trigger.advance(start + 1s, 999), Outcome::goes_on);
  EXPECT_EQ(trigger.end(), 1001U);
  EXPECT_FALSE(trigger.has_room_again(1001));
}

TEST(Trigger, says_once_that_the_last_event_is_triggered) {
  System system = at_rate(1000);
  system.events_max = 3;
  Trigger trigger{system};
  trigger.start(start);
  EXPECT_EQ(trigger.advance(start + 1ms + 1us, 0), Outcome::goes_on);
  EXPECT_EQ(trigger.advance(start + 1s, 0), Outcome::last);
  EXPECT_EQ(trigger.end(), 3U);
}

TEST(Trigger, gathers_a_batch_or_three_quarters_of_the_latency) {
  System system = at_rate(1000);
  system.latency = 8ms;
  Trigger trigger{system};
  trigger.start(start);
  (void)trigger.advance(start, 0);
  EXPECT_EQ(trigger.next_tick(start, 0), start + 7ms + 1us); // 6 ms after event 1
  system.latency = 1s;
  EXPECT_EQ(trigger.next_tick(start, 0), start + 15ms + 1us); // the last one of the batch
  system.batch_size = 400;
  EXPECT_EQ(trigger.next_tick(start, 100), start + 5ms + 1us); // four events have so many bytes
}

TEST(Trigger, looks_no_more_often_than_every_50_us) {
  const System system = at_rate(1e6);
  Trigger trigger{system};
  trigger.start(start);
  (void)trigger.advance(start, 0);
  EXPECT_EQ(trigger.next_tick(start, 0), start + 50us);
}

} // namespace
} // namespace fanin::builder
