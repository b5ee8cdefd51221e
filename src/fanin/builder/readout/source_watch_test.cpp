#include "fanin/builder/readout/source_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A source with a queue that has begun at 0, and a deadline of 100 ms.
class Watched : public ::testing::Test {
protected:
  Watched() { queue_.start(0); }
  static System with_deadline() {
    System system;
    system.event_deadline = 100ms;
    system.event_window = 1000;
    return system;
  }
  void write(EventNumber event) {
    const std::array<std::byte, 8> payload{};
    (void)queue_.write(event, payload);
  }
  // One turn, in which the others are at `horizon`. True: it is behind, and not given up now.
  bool watch(Duration now, EventNumber horizon, bool busy = false) {
    watch_.note_progress(queue_, busy, ends_, now);
    return watch_.watch_silence(queue_, horizon, busy, now);
  }
  bool watch_slow(Duration now, EventNumber horizon) {
    const bool behind = watch(now, horizon);
    if (behind) watch_.watch_slow(queue_, horizon, "all others", now);
    return behind;
  }
  void make_silent() { // up to event 10
    (void)watch(1s, 10);
    (void)watch(1s + 100ms, 20);
    ASSERT_TRUE(watch_.silent());
    ASSERT_EQ(queue_.next_event(), 10U);
    logged_.clear();
  }

  System system_ = with_deadline();
  std::unique_ptr<memory::PagePool> pool_ =
      memory::PagePool::make(
          {.page_size = 4096, .pages = 16, .arena = {.huge_pages = memory::HugePages::off}})
          .value();
  source::FragmentQueue queue_{{.source = 1, .window = 4096, .fragment_max = 1024}, *pool_};
  bool ends_ = false;
  std::vector<std::string> logged_;
  SourceWatch watch_{system_, "s1",
                     [this](LogLevel, std::string_view text) { logged_.emplace_back(text); }};
};

TEST_F(Watched, source_that_keeps_up_has_no_deadline) {
  write(0);
  EXPECT_FALSE(watch(1s, 1));
  EXPECT_FALSE(watch_.has_deadline());
  EXPECT_FALSE(watch(10s, 1));
  EXPECT_FALSE(watch_.silent());
}

TEST_F(Watched, source_that_is_behind_for_the_deadline_is_given_up_where_the_others_were) {
  EXPECT_TRUE(watch(1s, 10));
  EXPECT_TRUE(watch_.has_deadline());
  EXPECT_TRUE(watch(1s + 99ms, 30));
  EXPECT_FALSE(watch_.silent());
  EXPECT_FALSE(watch(1s + 100ms, 40));
  EXPECT_TRUE(watch_.silent());
  EXPECT_EQ(queue_.next_event(), 10U);
  EXPECT_THAT(logged_, ElementsAre("source s1 is silent: given up until event 10 "
                                   "(event.deadline is 100 ms)"));
}

TEST_F(Watched, source_that_is_silent_is_given_up_again_without_a_word) {
  make_silent();
  EXPECT_FALSE(watch(2s, 50));
  EXPECT_EQ(queue_.next_event(), 20U);
  EXPECT_TRUE(watch(2s + 99ms, 55));
  EXPECT_FALSE(watch(2s + 100ms, 60));
  EXPECT_EQ(queue_.next_event(), 50U);
  EXPECT_THAT(logged_, IsEmpty());
}

TEST_F(Watched, each_event_waits_for_a_silent_source_for_one_deadline) {
  const auto events_by = [](Duration now) {
    return static_cast<EventNumber>((now - 1s) / 1ms) + 1;
  };
  for (Duration now = 1s; now < 3s; now += 5ms) {
    (void)watch(now, events_by(now));
    const Duration longest = 100ms + 100ms / 8 + 5ms; // a mark each eighth, and a turn
    if (now - longest >= 1s) {
      EXPECT_GE(queue_.next_event(), events_by(now - longest));
    }
    if (now - 100ms >= 1s) {
      EXPECT_LE(queue_.next_event(), events_by(now - 100ms));
    }
  }
}

TEST_F(Watched, source_is_not_given_up_beyond_numbers_that_fell_meanwhile) {
  EXPECT_TRUE(watch(1s, 5000));
  EXPECT_TRUE(watch(1s + 50ms, 5010));
  EXPECT_TRUE(watch(1s + 90ms, 3));
  EXPECT_TRUE(watch(1s + 99ms, 20));
  EXPECT_FALSE(watch(1s + 100ms, 30));
  EXPECT_EQ(queue_.next_event(), 3U);
}

TEST_F(Watched, each_event_waits_for_a_source_that_pauses_for_one_latency) {
  system_.latency = 16ms;
  for (EventNumber horizon = 1; horizon < 200; ++horizon) { // one more each millisecond
    const Duration now = 1s + horizon * 1ms;
    watch_.note_progress(queue_, false, ends_, now);
    watch_.pass_paused(queue_, horizon, now);
    EXPECT_LE(queue_.next_event() + 16, std::max<EventNumber>(16, horizon));
    EXPECT_GE(queue_.next_event() + 16 + 3, horizon); // a mark each eighth, and a turn
  }
}

TEST_F(Watched, source_that_catches_up_gets_the_whole_deadline_for_what_follows) {
  EXPECT_TRUE(watch(1s, 2));
  write(0);
  write(1);
  EXPECT_TRUE(watch(1s + 90ms, 10));
  EXPECT_TRUE(watch(1s + 189ms, 10));
  EXPECT_FALSE(watch_.silent());
}

TEST_F(Watched, source_of_which_a_fragment_was_taken_within_the_deadline_is_not_silent) {
  EXPECT_TRUE(watch(1s, 10));
  write(0);
  EXPECT_TRUE(watch(1s + 90ms, 10));
  EXPECT_TRUE(watch(1s + 189ms, 10));
  EXPECT_FALSE(watch(1s + 190ms, 10));
  EXPECT_TRUE(watch_.silent());
}

TEST_F(Watched, source_that_could_have_given_more_is_not_silent) {
  EXPECT_TRUE(watch(1s, 10));
  EXPECT_FALSE(watch(1s + 90ms, 10, true));
  EXPECT_FALSE(watch_.has_deadline());
  EXPECT_EQ(watch_.moved_at(), 1s + 90ms);
  EXPECT_TRUE(watch(1s + 100ms, 10));
  EXPECT_FALSE(watch_.silent());
}

TEST_F(Watched, source_that_was_given_up_is_back_when_a_fragment_of_it_is_taken) {
  make_silent();
  write(5); // late
  write(10);
  (void)watch(2s, 20);
  EXPECT_FALSE(watch_.silent());
  EXPECT_THAT(logged_, ElementsAre("source s1 is back at event 10; 1 of its fragments were late"));
}

TEST_F(Watched, source_that_goes_on_less_than_a_window_below_is_waited_for_again) {
  make_silent();
  write(5);
  (void)watch(2s, 20);
  EXPECT_FALSE(watch_.silent());
  EXPECT_THAT(logged_, ElementsAre(HasSubstr("sends event 5, which is late: waiting for it")));
  (void)watch(3s, 20);
  EXPECT_TRUE(watch_.silent()); // again, which is nothing new
  EXPECT_EQ(logged_.size(), 1U);
}

TEST_F(Watched, source_that_goes_on_further_below_stays_given_up) {
  (void)watch(1s, 3000);
  (void)watch(1s + 100ms, 3000);
  logged_.clear();
  write(5);
  (void)watch(2s, 3100);
  EXPECT_TRUE(watch_.silent());
  EXPECT_THAT(logged_, ElementsAre(HasSubstr("which is too late")));
}

TEST_F(Watched, source_that_alone_holds_others_back_is_slow_and_people_are_told_once) {
  for (Duration now = 1s; now < 2s; now += 50ms) {
    write(queue_.next_event());
    EXPECT_TRUE(watch_slow(now, queue_.next_event() + 10));
    EXPECT_EQ(watch_.slow(), now >= 1s + 100ms);
  }
  EXPECT_FALSE(watch_.silent());
  EXPECT_THAT(logged_, ElementsAre(HasSubstr("is slow: at event 3 it holds all others back")));
  watch_.watch_slow(queue_, 100, "", 2s);
  EXPECT_FALSE(watch_.slow());
}

TEST_F(Watched, source_that_is_slow_is_given_up_where_that_is_wanted_and_not_waited_for_again) {
  system_.event_give_up_slow = 300ms;
  EXPECT_TRUE(watch_slow(1s, 100));
  for (Duration now = 1s + 50ms; now <= 1s + 300ms; now += 50ms) {
    write(queue_.next_event());
    EXPECT_TRUE(watch_slow(now, 100));
  }
  EXPECT_EQ(queue_.next_event(), 100U);
  EXPECT_FALSE(watch_.silent()); // it sends
  EXPECT_EQ(logged_.back(),
            "source s1 is slow: given up until event 100 (event.give_up_slow is 300 ms)");
  write(50);
  (void)watch(1s + 350ms, 200);
  (void)watch(1s + 450ms, 200); // what it sends is late: it is silent now
  EXPECT_TRUE(watch_.silent());
  write(60);
  (void)watch(1s + 460ms, 300);
  EXPECT_TRUE(watch_.silent());
  write(queue_.next_event());
  (void)watch(1s + 470ms, 300);
  EXPECT_FALSE(watch_.silent());
}

TEST_F(Watched, time_in_which_a_source_pauses_is_not_counted_as_slow) {
  system_.event_deadline = 1h;
  system_.event_give_up_slow = 1s;
  EXPECT_TRUE(watch_slow(1s, 1));
  write(0);
  watch_.note_progress(queue_, false, false, 1s + 10ms);
  watch_.pass_paused(queue_, 1, 1s + 10ms);
  EXPECT_TRUE(watch_slow(10s, 2));
  EXPECT_EQ(queue_.next_event(), 1U);
  EXPECT_THAT(logged_, IsEmpty());
}

TEST_F(Watched, new_incarnation_is_neither_silent_nor_behind) {
  make_silent();
  EXPECT_FALSE(watch(2s, 50));
  EXPECT_TRUE(watch(2s, 50));
  watch_.begin();
  EXPECT_FALSE(watch_.silent());
  EXPECT_FALSE(watch_.has_deadline());
}

TEST_F(Watched, jump_that_nobody_confirms_is_judged_after_half_of_the_deadline) {
  source::FragmentQueue queue{
      {.source = 1, .window = 64, .fragment_max = 1024, .near = 100, .asks_others = true}, *pool_};
  queue.start(0);
  const std::array<std::byte, 8> payload{};
  for (const EventNumber event : {0U, 5000U, 10000U}) (void)queue.write(event, payload);
  ASSERT_TRUE(queue.numbers().unclear());
  watch_.watch_unclear(queue, false, 1s);
  EXPECT_TRUE(watch_.has_deadline());
  watch_.watch_unclear(queue, false, 1s + 49ms);
  EXPECT_TRUE(queue.numbers().unclear());
  watch_.watch_unclear(queue, false, 1s + 50ms);
  EXPECT_FALSE(queue.numbers().unclear());
  EXPECT_FALSE(watch_.has_deadline());
}

} // namespace
} // namespace fanin::builder
