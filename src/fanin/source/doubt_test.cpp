// A source that begins to count again in mid-run: which of its fragments are marked, since nobody
// knows to which event they belong.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/random.hpp"
#include "fanin/source/receive_decoder.hpp"
#include "fanin/source/testing/queue_fixture.hpp"
#include "fanin/source/testing/sender.hpp"

namespace fanin::source {
namespace {

using testing::bytes_of;
using testing::QueueFixture;
using wire::DropReason;
using SentBy = RestartJudge::Sender;

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
  [[nodiscard]] bool in_doubt() { return queue().numbers().in_doubt(); }
  // What follows comes over another connection.
  void connect(SentBy sender = SentBy::unknown) { queue().numbers().begin_sender(sender); }

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

TEST_F(Doubt, it_ends_when_a_new_sender_says_first_where_it_stands) {
  for (const SentBy sender : {SentBy::unknown, SentBy::other}) {
    queue().start_unnumbered();
    send(0, 300, 0);
    send(0, 310, 500);
    EXPECT_TRUE(in_doubt());
    connect(sender);
    ASSERT_TRUE(queue().skip_to(900));
    EXPECT_TRUE(in_doubt()) << "until it is there";
    send(900, 910, 900);
    EXPECT_FALSE(in_doubt());
    EXPECT_TRUE(marked(309));
    EXPECT_FALSE(marked(900) || marked(909));
  }
}

// All that a restarted source says later is in its new numbers.
TEST_F(Doubt, it_does_not_end_with_what_the_source_says_later) {
  queue().start(0);
  send(0, 300, 0);
  send(0, 310, 500);
  ASSERT_TRUE(queue().skip_to(900)); // no new sender
  send(900, 910, 1400);
  EXPECT_TRUE(marked(900));
  connect();
  send(910, 911, 1410);
  ASSERT_TRUE(queue().skip_to(2000)); // not the first that it says
  send(2000, 2010, 2500);
  EXPECT_TRUE(marked(2000));
  connect();
  ASSERT_TRUE(queue().skip_to(2100)); // it fell by 300, and is behind by so many at least
  send(2100, 2110, 2600);
  EXPECT_TRUE(marked(2100));
  connect(SentBy::again); // of the same program
  ASSERT_TRUE(queue().skip_to(9000));
  send(9000, 9010, 9500);
  EXPECT_TRUE(marked(9000));
  connect();
  ASSERT_TRUE(queue().skip_to(20000)); // it goes on below
  send(9010, 9020, 9510);
  send(20000, 20010, 20500);
  EXPECT_TRUE(in_doubt());
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

// One fragment of a slow source may be all that comes before it passes its last number.
TEST_F(Doubt, over_another_connection_one_fragment_with_other_data_is_enough) {
  for (const bool with_few : {false, true}) {
    queue().start_unnumbered();
    for (EventNumber event = 0; event <= (with_few ? 0U : 250U); event += 50)
      send_one(event, event);
    fixture_.end_held();
    ASSERT_EQ(queue().next_event(), with_few ? 1U : 251U);
    connect();
    send_one(with_few ? 0 : 220, 300); // where it has left numbers out last
    EXPECT_TRUE(in_doubt());
    send_one(280, 580);
    send_one(330, 630);
    fixture_.end_held();
    EXPECT_TRUE(marked(280) && marked(330));
  }
}

TEST_F(Doubt, three_numbers_that_rise_below_the_last_one_are_enough) {
  queue().start(0);
  for (EventNumber event = 0; event <= 300; event += 50) send_one(event, event);
  for (EventNumber event = 20; event <= 420; event += 100) send_one(event, event + 500);
  EXPECT_TRUE(in_doubt());
  queue().start_unnumbered();
  send(0, 300, 0);
  send(0, 3, 500);
  send(430, 440, 930); // and lost the others
  EXPECT_TRUE(marked(430) && marked(439));
}

// Nothing tells the fragments of one trigger from those of another one.
TEST(DoubtOfAlikeData, a_restart_is_known_by_its_sender_or_by_where_it_begins) {
  for (const bool checksum : {false, true}) {
    for (const std::size_t size : {0U, 8U}) {
      for (const SentBy sender : {SentBy::same, SentBy::unknown, SentBy::other, SentBy::again}) {
        for (const EventNumber from : {0U, 290U}) {
          QueueFixture fixture({.window = 1024, .checksum = checksum});
          FragmentQueue& queue = fixture.queue;
          queue.start(0);
          const auto send = [&](EventNumber event, EventNumber end) {
            for (; event < end; ++event)
              ASSERT_NE(queue.write(event, bytes_of(size, 1)), WriteOutcome::full);
          };
          send(0, 300);
          queue.numbers().begin_sender(sender);
          send(from, 310);
          const bool repeats = sender == SentBy::again || (from == 290 && sender != SentBy::other);
          EXPECT_EQ(queue.numbers().in_doubt(), !repeats)
              << checksum << size << static_cast<int>(sender) << from;
          EXPECT_EQ((queue.entry(305).flags() & wire::fragment_in_doubt) != 0, !repeats);
        }
      }
    }
  }
}

// All that it has sent so far, since it does not know what was lost.
TEST_F(Doubt, a_sender_that_sends_all_once_more_is_no_restart_where_data_differ) {
  queue().start(0);
  send(0, 300, 0);
  for (const SentBy sender : {SentBy::unknown, SentBy::again}) {
    connect(sender);
    send(0, 300, 0);
    EXPECT_FALSE(in_doubt());
  }
  send(300, 310, 300);
  EXPECT_FALSE(marked(305));
  connect(SentBy::other); // it does not know what the other one has sent
  send(0, 300, 0);
  EXPECT_TRUE(in_doubt());
}

// A program that has nothing to send yet.
TEST_F(Doubt, what_a_new_sender_says_to_skip_below_is_a_restart) {
  for (const SentBy sender : {SentBy::unknown, SentBy::other}) {
    queue().start_unnumbered();
    send(0, 300, 0);
    connect(sender);
    ASSERT_TRUE(queue().skip_to(300)); // where it stands
    EXPECT_FALSE(in_doubt());
    ASSERT_TRUE(queue().skip_to(10));
    EXPECT_TRUE(in_doubt());
  }
}

// Its number is known again if it lacks less than half of its range. Before the run has an event
// more might be a reset; but it falls to where the source has been.
TEST_F(Doubt, a_narrow_counter_that_lacks_more_than_half_of_its_range) {
  for (const CounterReset may : {CounterReset::yes, CounterReset::no}) {
    QueueFixture fixture({.window = 1024, .counter_bits = 8});
    FragmentQueue& queue = fixture.queue;
    queue.numbers().allow_reset(may);
    for (EventNumber event = 200; event < 1100; ++event) {
      if (event < 500 || event >= 640) (void)queue.write(event % 256, bytes_of(8, event));
    }
    EXPECT_TRUE(queue.numbers().in_doubt());
    for (EventNumber event = 200; event < queue.next_event(); ++event) {
      const bool doubt = (queue.entry(event).flags() & wire::fragment_in_doubt) != 0;
      EXPECT_EQ(doubt, event >= 500) << event;
    }
  }
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

// A source behind a sender of the `receive` format: dense, sparse or slow, with data that tell the
// triggers apart or do not.
class SentAtRandom {
public:
  explicit SentAtRandom(std::uint64_t seed) : random_(seed) {
    connect();
    queue().start(0);
  }

  // So many fragments; its front end counts right: the number is that of the trigger.
  void send_right(std::uint64_t fragments) {
    for (; fragments > 0; --fragments, number_ = following(number_)) {
      send(number_, number_);
      sent_.push_back(number_);
    }
    EXPECT_FALSE(in_doubt());
  }
  // Over another connection: the last fragments of a buffer that has fewer than half of them, or
  // all that was not acknowledged.
  void send_again() {
    disconnect();
    const EventNumber from = reliable_ ? acknowledged_ : sent_.back() / 2 + 1;
    if (reliable_) {
      acknowledged_ += random_.below(end() - acknowledged_ + 1);
      decoder_.leave_out_below(acknowledged_);
    }
    connect();
    for (const EventNumber number : sent_) {
      if (number >= from) send(number, number);
    }
    EXPECT_FALSE(in_doubt());
  }
  // Its front end counts from 0 again, with its program or alone. Some fragments come below its
  // last number, or all; then some above.
  void restart() {
    const EventNumber before = end();
    const bool alone = before > 20 * step_ && random_.below(3) == 0;
    const std::uint64_t behind = before + random_.below(1000);
    if (!alone) {
      disconnect();
      decoder_.begin_sender();
      connect();
    }
    const std::uint64_t lost_from =
        (alone ? 3 : 1) + random_.below(random_.below(2) == 0 ? 4 : 1000);
    number_ = random_.below(before / 4 + 1);
    for (std::uint64_t sent = 1, beyond = 0; beyond < 30; ++sent) {
      send(number_, number_ + behind);
      beyond += number_ >= before;
      const bool jumps = sent == lost_from && number_ < before;
      number_ = jumps ? before + random_.below(100) : following(number_);
    }
    EXPECT_TRUE(in_doubt());
  }
  [[nodiscard]] std::string what() const {
    return fmt::format("{} step {}, {} of 20 empty, {} data, {}, {}",
                       regular_ ? "regular" : "irregular", step_, empty_, alike_ ? "alike" : "all",
                       reliable_ ? "reliable" : "plain", checksum_ ? "checksums" : "no checksums");
  }

private:
  struct Fragment {
    EventNumber number = 0;
    std::uint64_t trigger = 0;
  };

  FragmentQueue& queue() { return fixture_.queue; }
  [[nodiscard]] bool in_doubt() { return queue().numbers().in_doubt(); }
  [[nodiscard]] EventNumber end() { return queue().numbers().last_accepted() + 1; }
  void connect() { decoder_.connect(reliable_); }
  void disconnect() { EXPECT_EQ(decoder_.disconnect(queue()), ReceiveFault::none); }
  EventNumber following(EventNumber number) {
    return number + (regular_ ? step_ : 1 + random_.below(2 * step_));
  }
  [[nodiscard]] testing::Bytes data_of(std::uint64_t trigger) const {
    if (mix_bits(trigger) % 20 < empty_) return {};
    return bytes_of(8, alike_ ? 0 : trigger);
  }
  void send(EventNumber number, std::uint64_t trigger) {
    testing::SenderBytes bytes(5);
    if (reliable_) bytes.reliable();
    bytes.fragment(number, data_of(trigger), checksum_);
    const bool above = queue().numbers().nothing_said() || number >= end();
    const auto taken = decoder_.take(bytes.bytes(), queue());
    ASSERT_EQ(taken.state, ReceiveDecoder::State::hungry);
    queue().numbers().set_others({.low = 0, .high = trigger + 1, .any = true});
    (void)queue().numbers().judge_held_again();
    check(held_);
    held_ = {number, above ? trigger : number};
    check(held_);
    if (random_.below(4) == 0) queue().release_until(queue().next_event());
  }
  // No event has fragments of two triggers, unless they are marked.
  void check(const Fragment& fragment) {
    const EventNumber number = fragment.number;
    if (number < queue().first_event() || number >= queue().next_event()) return;
    const wire::FragmentEntry entry = queue().entry(number);
    if (entry.absent() || (entry.flags() & wire::fragment_in_doubt) != 0) return;
    EXPECT_EQ(fragment.trigger, number);
  }

  Random random_;
  const EventNumber step_ = std::array<EventNumber, 4>{1, 3, 50, 937}[random_.below(4)];
  const bool regular_ = random_.below(2) == 0;
  const std::uint64_t empty_ = std::array<std::uint64_t, 3>{0, 19, 20}[random_.below(3)];
  const bool alike_ = empty_ == 0 && random_.below(2) == 0;
  const bool reliable_ = random_.below(2) == 0;
  const bool checksum_ = random_.below(2) == 0;
  QueueFixture fixture_{{.source = 5, .window = 8192, .checksum = checksum_}};
  ReceiveDecoder decoder_{5, true};
  EventNumber number_ = 0; // the next one
  std::vector<EventNumber> sent_;
  EventNumber acknowledged_ = 0;
  Fragment held_; // the last one, which may be held
};

TEST(DoubtOfSendersAtRandom, after_a_restart_no_event_of_two_triggers_is_unmarked) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    SentAtRandom source(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, source.what()));
    Random random(seed);
    source.send_right(random.below(3) == 0 ? 2 + random.below(5) : 20 + random.below(300));
    for (std::uint64_t again = random.below(3); again > 0; --again) {
      source.send_again();
      source.send_right(3 + random.below(50));
    }
    source.restart();
    if (::testing::Test::HasFailure()) return;
  }
}

} // namespace
} // namespace fanin::source
