// A source that begins to count again in mid-run: which of its fragments are marked, since nobody
// knows to which event they belong.
#include <gtest/gtest.h>

#include "fanin/base/random.hpp"
#include "fanin/source/testing/queue_fixture.hpp"

namespace fanin::source {
namespace {

using testing::bytes_of;
using testing::QueueFixture;
using wire::DropReason;

// A source in a run that has its events.
class Doubt : public ::testing::Test {
protected:
  // Fragments of these numbers. `trigger`: those of different ones have different data.
  void send(EventNumber first, EventNumber end, std::uint64_t trigger) {
    for (EventNumber event = first; event < end; ++event) send_one(event, trigger++);
  }
  void send_one(EventNumber event, std::uint64_t trigger) {
    ASSERT_NE(queue().write(event, bytes_of(20 + trigger % 3, trigger)), WriteOutcome::full);
  }
  // The events below are stored.
  void release() { queue().release_until(queue().next_event()); }
  [[nodiscard]] bool marked(EventNumber event) {
    return (queue().entry(event).flags() & wire::fragment_in_doubt) != 0;
  }
  [[nodiscard]] std::uint64_t dropped(DropReason reason) {
    return queue().numbers().dropped(reason);
  }
  FragmentQueue& queue() { return fixture_.queue; }

  QueueFixture fixture_{{.window = 1024}};
};

TEST_F(Doubt, what_follows_after_a_restart_is_marked) {
  queue().start(0);
  send(0, 300, 0);
  send(0, 320, 500);
  EXPECT_EQ(dropped(DropReason::number_back) + dropped(DropReason::number_repeat), 300U);
  EXPECT_FALSE(marked(299));
  for (EventNumber event = 300; event < 320; ++event) EXPECT_TRUE(marked(event)) << event;
}

TEST_F(Doubt, the_same_after_its_events_were_released) {
  queue().start(0);
  send(0, 300, 0);
  release();
  send(0, 320, 500);
  EXPECT_TRUE(marked(300));
}

// Wrong numbers are few in a row, but they do not go on where they ended.
TEST_F(Doubt, a_restart_at_one_of_the_last_numbers) {
  queue().start(0);
  send(0, 300, 0);
  send(297, 310, 500);
  EXPECT_TRUE(marked(300));
}

TEST_F(Doubt, wrong_numbers_are_dropped_and_nothing_is_marked) {
  queue().start(0);
  send(0, 300, 0);
  send(17, 19, 300);
  send(302, 310, 302);
  send_one(300, 310);
  send(311, 320, 311);
  EXPECT_EQ(dropped(DropReason::number_back), 3U);
  for (EventNumber event = 302; event < 320; ++event) EXPECT_FALSE(marked(event)) << event;
}

TEST_F(Doubt, what_is_sent_once_more_is_a_repeat) {
  queue().start(0);
  send(0, 300, 0);
  for (const bool released : {false, true}) {
    if (released) release();
    send(100, 300, 100);
    send(290, 300, 290);
  }
  EXPECT_EQ(dropped(DropReason::number_repeat), 420U);
  send(300, 310, 300);
  EXPECT_FALSE(marked(300) || marked(309));
}

// Most fragments of all triggers are empty, and alike.
TEST_F(Doubt, a_restart_of_a_source_that_has_little_to_say) {
  for (const std::uint64_t full : {2U, 5U, 10U, 20U}) {
    SCOPED_TRACE(full);
    queue().start_unnumbered();
    const auto send_few = [&](EventNumber end, std::uint64_t trigger) {
      for (EventNumber event = 0; event < end; ++event, ++trigger) {
        const bool has_some = mix_bits(trigger) % 100 < full;
        ASSERT_NE(queue().write(event, bytes_of(has_some ? 12 : 0, trigger)), WriteOutcome::full);
      }
    };
    send_few(900, 1);
    send_few(910, 5000);
    EXPECT_TRUE(marked(905));
    release();
  }
}

TEST_F(Doubt, each_number_sent_twice_is_a_repeat) {
  queue().start(0);
  for (EventNumber event = 0; event < 200; ++event) {
    send_one(event, event);
    send_one(event, event);
    EXPECT_FALSE(marked(event));
  }
  EXPECT_EQ(dropped(DropReason::number_repeat), 200U);
}

TEST_F(Doubt, it_ends_when_the_source_says_where_it_stands) {
  queue().start(0);
  send(0, 300, 0);
  send(0, 310, 500);
  EXPECT_TRUE(queue().numbers().in_doubt());
  ASSERT_TRUE(queue().skip_to(100)); // below: nothing that is not known
  EXPECT_TRUE(queue().numbers().in_doubt());
  ASSERT_TRUE(queue().skip_to(900));
  send(900, 910, 900);
  EXPECT_FALSE(queue().numbers().in_doubt());
  EXPECT_TRUE(marked(309));
  EXPECT_FALSE(marked(900) || marked(909));
}

TEST_F(Doubt, it_ends_with_the_run_and_not_when_the_readout_unit_joins_it_again) {
  queue().start(0);
  send(0, 300, 0);
  send(0, 310, 500);
  queue().start(400);
  send(400, 410, 900);
  EXPECT_TRUE(marked(400));
  queue().start_unnumbered();
  send(0, 10, 0);
  EXPECT_FALSE(marked(0));
}

// Two wrong numbers confirmed each other. What follows is where the source has been all the time.
TEST_F(Doubt, numbers_below_a_jump_say_nothing) {
  queue().start(0);
  send(0, 300, 0);
  send(100'000, 100'002, 300);
  send(302, 400, 302);
  EXPECT_EQ(dropped(DropReason::number_back), 98U);
  send(100'002, 100'010, 400);
  EXPECT_FALSE(marked(100'002));
}

TEST_F(Doubt, of_fragments_that_are_late) {
  queue().start(0);
  send(0, 300, 0);
  ASSERT_TRUE(queue().give_up_until(400));
  send(297, 420, 500);
  EXPECT_EQ(dropped(DropReason::late), 100U);
  EXPECT_TRUE(marked(400));
}

// Random runs: what is sent is a restart, the same data once more, wrong numbers, or nothing else.
TEST(DoubtAtRandom, a_fragment_is_marked_if_and_only_if_its_source_counted_again) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    QueueFixture fixture({.window = 8192});
    FragmentQueue& queue = fixture.queue;
    const EventNumber step = random.below(3) == 0 ? 937 : 1; // time stamps, or counted triggers
    std::uint64_t count = 0; // the source's next number, in steps
    std::uint64_t trigger = 0; // the true one
    std::vector<std::uint64_t> sent; // trigger of each number
    bool restarted = false;
    const auto send = [&](std::uint64_t number, std::uint64_t data) {
      if (step != 1 && number % 32 == 0) queue.release_until(queue.next_event());
      ASSERT_NE(queue.write(step * number, bytes_of(8, data)), WriteOutcome::full) << number;
    };
    const auto go_on = [&](std::uint64_t fragments) {
      for (; fragments > 0; --fragments, ++count, ++trigger) {
        send(count, trigger);
        if (count < sent.size()) continue;
        sent.push_back(trigger);
        const EventNumber event = step * count;
        if (event < queue.first_event() || event >= queue.next_event()) continue; // it is held
        EXPECT_EQ((queue.entry(event).flags() & wire::fragment_in_doubt) != 0, restarted)
            << "number " << count;
      }
    };
    queue.start(0);
    go_on(20 + random.below(300));
    for (int act = 0; act < 6; ++act) {
      if (random.below(2) == 0) queue.release_until(queue.next_event());
      const std::uint64_t back = 8 + random.below(sent.size() - 8);
      switch (random.below(4)) {
      case 0:
        count = sent.size() - back;
        restarted = true;
        break;
      case 1:
        for (std::uint64_t i = restarted ? sent.size() : sent.size() - back; i < sent.size(); ++i) {
          send(i, sent[i]);
        }
        break;
      case 2:
        if (restarted) break;
        send(count - back, trigger + 1'000'000);
        break;
      default: break;
      }
      go_on(random.below(2) == 0 ? random.below(20) : 400 + random.below(100));
    }
  }
}

} // namespace
} // namespace fanin::source
