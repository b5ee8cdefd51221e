// The policy for event numbers, case by case: which fragments a queue takes and which it drops.
#include "fanin/source/number_judge.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "fanin/base/random.hpp"
#include "fanin/source/testing/queue_fixture.hpp"

namespace fanin::source {
namespace {

using testing::bytes_of;
using testing::QueueFixture;

using Numbers = std::vector<EventNumber>;

// A source and the readout unit behind it, which takes out at once what it can.
class Sender {
public:
  explicit Sender(FragmentQueueOptions options = {.window = 256, .near = 256},
                  memory::PoolOptions pool = {.page_size = 4096, .pages = 4})
      : fixture_(options, pool) {}

  Sender& sends(const Numbers& numbers, std::size_t size = 10) {
    for (const EventNumber number : numbers) {
      while (queue().write(number, bytes_of(size, number)) == WriteOutcome::full) {
        const auto taken = numbers_.size();
        collect();
        if (taken == numbers_.size()) {
          ADD_FAILURE() << "number " << number << " is never taken";
          return *this;
        }
      }
    }
    collect();
    return *this;
  }
  Sender& sends_up_to(EventNumber first, EventNumber end) {
    for (; first < end; ++first) sends({first});
    return *this;
  }
  Sender& others_are_at(EventNumber low, EventNumber high) {
    queue().numbers().set_others({.low = low, .high = high, .any = true});
    (void)queue().numbers().judge_held_again();
    collect();
    return *this;
  }
  // `late`: half a deadline ago; `run`: so do all others.
  enum class End { now, late, run };
  Sender& ends(End at = End::run) {
    collect();
    queue().numbers().take_at_end();
    if (at == End::run || (at == End::late && queue().numbers().waits_at_end()))
      queue().numbers().end_held();
    (void)queue().numbers().judge_held_again();
    collect();
    return *this;
  }
  Sender& is_given_up_until(EventNumber event) {
    collect();
    while (!queue().give_up_until(event)) collect();
    collect();
    return *this;
  }
  FragmentQueue& queue() { return fixture_.queue; }
  memory::PagePool& pool() { return *fixture_.pool; }
  [[nodiscard]] const Numbers& taken() const { return numbers_; }
  [[nodiscard]] std::uint64_t jumps() {
    return queue().numbers().dropped(wire::DropReason::number_jump);
  }

private:
  void collect() {
    if (!queue().numbered()) return;
    EventNumber event = queue().first_event();
    for (; (event = queue().sent_from(event)) < queue().next_event(); ++event) {
      if (queue().entry(event).absent()) continue;
      EXPECT_EQ(testing::payload_of(queue(), event),
                bytes_of(queue().entry(event).size(), queue().numbers().counter_of(event)));
      numbers_.push_back(event);
    }
    queue().release_until(queue().next_event());
  }

  QueueFixture fixture_;
  Numbers numbers_;
};

TEST(Numbers, the_first_is_held_until_the_second_confirms_it) {
  Sender sender;
  sender.sends({1000});
  EXPECT_EQ(sender.taken(), (Numbers{}));
  EXPECT_EQ(sender.queue().numbers().held(), 1000U);
  sender.sends({1001});
  EXPECT_EQ(sender.taken(), (Numbers{1000, 1001}));
}

TEST(Numbers, a_flipped_bit_costs_its_fragment_only) {
  for (int bit = 0; bit < 63; ++bit) {
    for (const EventNumber at : {1003U, 1017U}) {
      Sender sender;
      sender.others_are_at(1000, 1001);
      sender.sends_up_to(1000, at);
      sender.sends({at ^ EventNumber{1} << bit}).sends_up_to(at + 1, 1040).ends();
      Numbers good;
      for (EventNumber event = 1000; event < 1040; ++event) {
        if (event != at) good.push_back(event);
      }
      EXPECT_EQ(sender.taken(), good) << "bit " << bit << " of " << at;
      EXPECT_EQ(sender.jumps() + sender.queue().numbers().dropped(wire::DropReason::number_back) +
                    sender.queue().numbers().dropped(wire::DropReason::number_repeat),
                1U);
    }
  }
}

TEST(Numbers, a_flipped_bit_in_the_first_or_second_number_costs_no_other) {
  for (int bit = 0; bit < 63; ++bit) {
    for (const EventNumber at : {1000U, 1001U}) {
      Sender sender;
      sender.others_are_at(1000, 1002);
      for (EventNumber event = 1000; event < 1040; ++event) {
        sender.sends({event == at ? event ^ EventNumber{1} << bit : event});
      }
      std::uint64_t good = 0;
      for (const auto event : sender.taken()) good += event >= 1000 && event < 1040 && event != at;
      EXPECT_EQ(good, 39U) << "bit " << bit << " of " << at;
    }
  }
}

TEST(Numbers, a_flipped_bit_in_the_last_number_is_dropped_at_the_end_if_it_is_far_from_the_others) {
  Sender sender;
  sender.others_are_at(0, 20);
  sender.sends_up_to(0, 20).sends({20 ^ 1U << 15}).ends();
  EXPECT_EQ(sender.taken().size(), 20U);
  EXPECT_EQ(sender.jumps(), 1U);
}

TEST(Numbers, a_number_held_at_the_end_is_taken_near_the_others_or_where_there_are_none) {
  Sender alone;
  alone.sends({7}).ends();
  EXPECT_EQ(alone.taken(), (Numbers{7}));
  Sender near;
  near.others_are_at(0, 20);
  near.sends_up_to(0, 10).sends({15}).ends();
  EXPECT_EQ(near.taken().back(), 15U);
}

TEST(Numbers, a_prescaled_source_is_taken_at_once_from_its_fourth_number_on) {
  Sender sender;
  sender.sends({0, 100});
  EXPECT_EQ(sender.taken(), (Numbers{0}));
  sender.sends({200}); // confirms the one before
  EXPECT_EQ(sender.taken(), (Numbers{0, 100}));
  sender.sends({300}); // the step is known now
  EXPECT_EQ(sender.taken(), (Numbers{0, 100, 200, 300}));
  sender.sends({400});
  EXPECT_EQ(sender.taken().back(), 400U);
}

TEST(Numbers, a_loss_is_no_prescale) {
  Sender sender;
  sender.sends_up_to(0, 344).sends({345, 347 /* 346, a bit flipped */, 347, 348, 349});
  EXPECT_EQ(sender.taken().size(), 344U + 4);
  EXPECT_EQ(sender.jumps(), 1U);
}

TEST(Numbers, a_sparse_source_is_taken_as_soon_as_others_reach_it) {
  Sender sender;
  sender.others_are_at(0, 30);
  sender.sends({0, 20, 50});
  EXPECT_EQ(sender.taken(), (Numbers{0, 20}));
  sender.others_are_at(0, 50);
  EXPECT_EQ(sender.taken(), (Numbers{0, 20}));
  sender.others_are_at(0, 51);
  EXPECT_EQ(sender.taken(), (Numbers{0, 20, 50}));
}

TEST(Numbers, a_sparse_source_far_ahead_of_the_others_keeps_all_it_has) {
  Sender sender{{.window = 256}};
  sender.others_are_at(0, 10);
  sender.sends({0, 100, 150'000, 199'999});
  sender.ends(Sender::End::late);
  EXPECT_EQ(sender.taken(), (Numbers{0, 100, 150'000, 199'999}));
  EXPECT_EQ(sender.jumps(), 0U);
}

TEST(Numbers, a_stray_first_number_holds_nobody_back) {
  Sender sender; // 5, then 300000...
  sender.others_are_at(0, 1);
  sender.sends({5, 300'000}).sends_up_to(300'001, 300'010);
  EXPECT_EQ(sender.taken().front(), 5U);
  EXPECT_EQ(sender.taken().size(), 11U);
}

TEST(Numbers, garbage_before_the_first_number_is_dropped_where_it_is_known) {
  Sender sender{{.window = 256, .near = 256, .first = 0}};
  sender.sends({5000, 5001, 5002});
  EXPECT_TRUE(sender.queue().numbers().waits_for_first());
  sender.sends({0});
  EXPECT_EQ(sender.taken(), (Numbers{0})); // at once
  sender.sends({1, 2});
  EXPECT_EQ(sender.taken(), (Numbers{0, 1, 2}));
  EXPECT_EQ(sender.queue().numbers().dropped(wire::DropReason::before_first), 3U);
}

TEST(Numbers, a_source_that_lacks_its_first_number_begins_with_one_of_the_next) {
  for (const Numbers& numbers : {Numbers{99, 101, 102}, Numbers{99, 115, 116, 140},
                                 Numbers{(1U << 20) + 100, 101, 102, 103}}) {
    QueueFixture fixture({.window = 256, .near = 256, .first = 100});
    FragmentQueue& queue = fixture.queue;
    for (const EventNumber event : numbers) (void)queue.write(event, {});
    (void)queue.write(numbers.back() + 1, {});
    EXPECT_EQ(queue.first_event(), numbers[1]);
    EXPECT_EQ(queue.next_event(), numbers.back() + 2);
    EXPECT_FALSE(queue.numbers().waits_for_first());
    EXPECT_EQ(queue.numbers().dropped(wire::DropReason::before_first), 1U);
  }
}

// The counter may stand there before it is reset, also where another source has begun.
TEST(Numbers, where_nothing_came_before_only_the_first_number_begins) {
  QueueFixture fixture({.window = 256, .near = 256, .first = 1});
  FragmentQueue& queue = fixture.queue;
  queue.numbers().set_others({.low = 0, .high = 20, .any = true, .go_on = true});
  for (const EventNumber event : {6U, 7U, 8U, 12U}) {
    EXPECT_EQ(queue.write(event, {}), WriteOutcome::rejected);
  }
  for (EventNumber event = 1; event < 20; ++event) {
    EXPECT_EQ(queue.write(event, {}), WriteOutcome::ok);
  }
  EXPECT_EQ(queue.numbers().written(), 19U);
}

TEST(Numbers, too_large_a_fragment_may_be_the_first_too) {
  QueueFixture fixture({.window = 256, .fragment_max = 10, .near = 256, .first = 100});
  FragmentQueue& queue = fixture.queue;
  for (const EventNumber event : {99U, 115U, 116U, 117U}) {
    (void)queue.write(event, bytes_of(event == 115 ? 20 : 5, event));
  }
  EXPECT_FALSE(queue.numbers().waits_for_first());
  EXPECT_EQ(queue.write(200, {}), WriteOutcome::ok);
}

TEST(Numbers, what_is_too_far_to_be_the_first_does_not_take_the_place_of_a_number_that_might_be) {
  QueueFixture fixture({.window = 8, .near = 8, .first = 100});
  FragmentQueue& queue = fixture.queue;
  for (const EventNumber event : {99U, 115U, 130U, 131U}) (void)queue.write(event, {});
  EXPECT_NE(queue.numbers().held(), 130U);
  EXPECT_NE(queue.numbers().held(), 131U);
}

// It was given up before its first number came: this one is of no event that is still waited for.
TEST(Numbers, the_first_number_is_not_taken_for_what_follows_where_the_source_was_given_up) {
  for (const auto fall : {CounterReset::no, CounterReset::ask}) {
    QueueFixture fixture({.window = 256, .near = 256, .first = 100});
    FragmentQueue& queue = fixture.queue;
    queue.numbers().allow_reset(fall);
    EXPECT_TRUE(queue.give_up_until(5000, wire::AbsentReason::silent));
    (void)queue.write(100, bytes_of(5, 100));
    EXPECT_EQ(queue.next_event(), 5000U);
    EXPECT_EQ(queue.numbers().written(), 0U);
  }
}

TEST(Numbers, what_nothing_confirms_does_not_take_the_place_of_the_first_number) {
  Sender sender{{.window = 256, .near = 256, .first = 100}};
  sender.sends({99, 105, 100, 101});
  EXPECT_EQ(sender.taken(), (Numbers{100, 101}));
}

TEST(Numbers, what_came_right_before_the_first_number_is_absent_as_dropped) {
  for (const EventNumber early : {10U, 5000U}) {
    QueueFixture fixture({.window = 64, .near = 64, .first = 20});
    FragmentQueue& queue = fixture.queue;
    for (EventNumber event = early; event < early + 10; ++event) {
      EXPECT_EQ(queue.write(event, {}), WriteOutcome::rejected);
    }
    EXPECT_EQ(queue.write(20, {}), WriteOutcome::ok);
    const auto reason = early == 10 ? wire::AbsentReason::dropped : wire::AbsentReason::none;
    for (const EventNumber event : {10U, 19U}) {
      EXPECT_EQ(static_cast<wire::AbsentReason>(queue.entry(event).crc32c), reason);
    }
  }
}

TEST(Numbers, a_counter_that_is_reset_before_the_run_begins_starts_afresh) {
  QueueFixture fixture({.window = 256, .near = 256}, {.page_size = 4096, .pages = 4});
  FragmentQueue& queue = fixture.queue;
  queue.numbers().allow_reset(CounterReset::yes);
  for (const EventNumber event : Numbers{5000, 5001, 5002, 0, 1, 2}) {
    ASSERT_EQ(queue.write(event, bytes_of(2000, event)), WriteOutcome::ok) << event;
  }
  EXPECT_EQ(queue.first_event(), 0U);
  EXPECT_EQ(queue.next_event(), 3U);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_jump), 3U);
  EXPECT_EQ(queue.numbers().written(), 3U);
  for (EventNumber event = 0; event < 3; ++event) {
    EXPECT_EQ(testing::payload_of(queue, event), bytes_of(2000, event));
  }
}

TEST(Numbers, wrong_numbers_before_the_run_begins_cost_nothing_that_came_before_them) {
  for (const auto may : {CounterReset::yes, CounterReset::ask}) {
    QueueFixture fixture({.window = 256, .near = 256}, {.page_size = 4096, .pages = 4});
    FragmentQueue& queue = fixture.queue;
    queue.numbers().allow_reset(may);
    for (const EventNumber event : Numbers{0, 1, 2, 3, 130, 150, 6}) {
      ASSERT_EQ(queue.write(event, bytes_of(10, event)), WriteOutcome::ok) << event;
    }
    if (may == CounterReset::ask) {
      EXPECT_EQ(queue.write(7, bytes_of(10, 7)), WriteOutcome::full);
      queue.numbers().allow_reset(CounterReset::yes);
    }
    for (EventNumber event = 7; event < 200; ++event) {
      ASSERT_EQ(queue.write(event, bytes_of(10, event)), WriteOutcome::ok) << event;
    }
    EXPECT_EQ(queue.first_event(), 0U);
    EXPECT_EQ(queue.next_event(), 200U);
    EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_jump), 2U);
    for (EventNumber event = 0; event < 200; ++event) {
      const bool lost = event == 4 || event == 5;
      ASSERT_EQ(queue.entry(event).absent(), lost) << event;
      if (lost) continue;
      ASSERT_EQ(testing::payload_of(queue, event), bytes_of(10, event)) << event;
    }
  }
}

TEST(Numbers, a_wrong_number_behind_two_others_is_no_reset) {
  QueueFixture fixture({.window = 256, .near = 256});
  FragmentQueue& queue = fixture.queue;
  queue.numbers().allow_reset(CounterReset::yes);
  for (const EventNumber event : Numbers{0, 1, 2, 3, 130, 150, 2, 7, 8, 9}) {
    ASSERT_EQ(queue.write(event, {}), WriteOutcome::ok) << event;
  }
  EXPECT_EQ(queue.first_event(), 0U);
  EXPECT_EQ(queue.next_event(), 10U);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_jump), 2U);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_repeat), 1U);
  EXPECT_EQ(queue.numbers().written(), 7U);
}

// Time stamps: no number is near another one.
TEST(Numbers, a_counter_with_large_steps_is_reset_though_only_one_number_came_before) {
  QueueFixture fixture({.window = 256, .near = 256});
  FragmentQueue& queue = fixture.queue;
  queue.numbers().allow_reset(CounterReset::yes);
  for (const EventNumber event : Numbers{500'000, 600'000, 10'000, 20'000, 30'000}) {
    ASSERT_EQ(queue.write(event, {}), WriteOutcome::ok) << event;
  }
  EXPECT_EQ(queue.first_event(), 10'000U);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_jump), 2U);
}

// Before the run has an event, numbers above `first` are taken, and may be dropped again.
TEST(Numbers, first_number_is_a_reset_of_what_was_taken_before_it) {
  for (const auto& sent : {Numbers{20, 21, 1, 2, 3}, Numbers{20, 21, 22, 1, 1000, 2000},
                           Numbers{20, 21, 0, 1, 1, 2}, Numbers{20, 21, 2, 3, 4}}) {
    QueueFixture fixture({.window = 256, .near = 256, .first = 1});
    FragmentQueue& queue = fixture.queue;
    queue.numbers().allow_reset(CounterReset::yes);
    for (const EventNumber event : sent) {
      (void)queue.write(event, {});
      EXPECT_EQ(queue.numbers().early(), queue.numbered() && queue.first_event() == 20U) << event;
    }
    const auto begins = static_cast<std::uint64_t>(std::ranges::count(sent, EventNumber{1}));
    EXPECT_EQ(queue.first_event(), begins == 0 ? 2U : 1U);
    EXPECT_GE(queue.numbers().dropped(wire::DropReason::before_first), 2U);
    EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_jump), 0U);
  }
}

TEST(Numbers, what_was_taken_before_the_first_number_is_kept_or_dropped) {
  for (const bool keep : {true, false}) {
    QueueFixture fixture({.window = 256, .near = 256, .first = 1});
    FragmentQueue& queue = fixture.queue;
    queue.numbers().allow_reset(CounterReset::yes);
    for (const EventNumber event : Numbers{20, 21, 22, 40}) {
      ASSERT_EQ(queue.write(event, bytes_of(10, event)), WriteOutcome::ok);
    }
    ASSERT_TRUE(queue.numbers().early());
    keep ? queue.numbers().take_early() : queue.numbers().refuse_early();
    EXPECT_FALSE(queue.numbers().early());
    EXPECT_EQ(queue.numbered(), keep);
    EXPECT_EQ(queue.numbers().dropped(wire::DropReason::before_first), keep ? 0U : 4U);
    EXPECT_EQ(queue.write(41, bytes_of(10, 41)), keep ? WriteOutcome::ok : WriteOutcome::rejected);
    EXPECT_EQ(queue.numbers().written(), keep ? 5U : 0U);
    if (keep) continue;
    ASSERT_EQ(queue.write(1, bytes_of(10, 1)), WriteOutcome::ok);
    EXPECT_EQ(testing::payload_of(queue, 1), bytes_of(10, 1));
  }
}

// They must not keep it from being read.
TEST(Numbers, what_comes_before_the_first_number_never_fills_the_queue) {
  for (const auto& [size, step] : {std::pair{8000U, 1U}, {100U, 1U}, {100U, 20U}}) {
    QueueFixture fixture({.window = 1U << 10, .near = 256, .first = 1});
    FragmentQueue& queue = fixture.queue;
    queue.numbers().allow_reset(CounterReset::yes);
    for (EventNumber i = 20; i < 2000; ++i)
      ASSERT_NE(queue.write(i * step, bytes_of(size, i)), WriteOutcome::full) << i;
    ASSERT_EQ(queue.write(1, bytes_of(10, 1)), WriteOutcome::ok);
    ASSERT_EQ(queue.write(2, bytes_of(10, 2)), WriteOutcome::ok);
    EXPECT_EQ(queue.first_event(), 1U);
    EXPECT_EQ(queue.numbers().dropped(wire::DropReason::before_first), 1980U);
  }
}

TEST(Numbers, fragments_count_from_where_the_counter_was_reset) {
  QueueFixture fixture({.window = 256, .near = 256});
  FragmentQueue& queue = fixture.queue;
  queue.numbers().allow_reset(CounterReset::yes);
  for (const EventNumber event : Numbers{5000, 5001, 900'000, 900'001}) {
    ASSERT_EQ(queue.write(event, {}), WriteOutcome::ok) << event;
  }
  EXPECT_EQ(queue.numbers().since_begin(), 4U);
  EXPECT_EQ(queue.numbers().in_a_row(), 2U);
  for (const EventNumber event : Numbers{1, 2, 3}) {
    ASSERT_EQ(queue.write(event, {}), WriteOutcome::ok) << event;
  }
  EXPECT_EQ(queue.numbers().since_begin(), 3U);
  EXPECT_EQ(queue.numbers().in_a_row(), 3U);
}

TEST(Numbers, a_counter_that_is_reset_to_a_number_it_had_starts_afresh) {
  QueueFixture fixture({.window = 256, .near = 256});
  FragmentQueue& queue = fixture.queue;
  queue.numbers().allow_reset(CounterReset::yes);
  for (const EventNumber event : Numbers{0, 1, 2, 3, 4, 2, 3}) {
    ASSERT_EQ(queue.write(event, {}), WriteOutcome::ok) << event;
  }
  EXPECT_EQ(queue.first_event(), 2U);
  EXPECT_EQ(queue.next_event(), 4U);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_jump), 5U);
}

// They look like a counter that was reset, so what came before them is dropped; later they are
// dropped themselves.
TEST(Numbers, two_wrong_numbers_that_fall_and_follow_each_other_are_a_reset_before_the_run_begins) {
  for (const bool begun : {false, true}) {
    QueueFixture fixture({.window = 256, .near = 256});
    FragmentQueue& queue = fixture.queue;
    if (!begun) queue.numbers().allow_reset(CounterReset::yes);
    for (const EventNumber event : Numbers{5000, 5001, 5002, 3, 4, 5005, 5006, 5007}) {
      const bool taken = !begun || event >= 5000;
      ASSERT_EQ(queue.write(event, {}), taken ? WriteOutcome::ok : WriteOutcome::rejected) << event;
    }
    EXPECT_EQ(queue.first_event(), begun ? 5000U : 3U);
    EXPECT_EQ(queue.next_event(), 5008U);
    EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_jump), begun ? 0U : 3U);
    EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_back), begun ? 2U : 0U);
    EXPECT_EQ(queue.numbers().written(), begun ? 6U : 5U);
  }
}

TEST(Numbers, a_flipped_bit_is_no_reset) {
  QueueFixture fixture({.window = 256, .near = 256});
  FragmentQueue& queue = fixture.queue;
  queue.numbers().allow_reset(CounterReset::yes);
  for (const EventNumber event : Numbers{5, 6, 7, 0, 9, 10}) {
    ASSERT_EQ(queue.write(event, {}), WriteOutcome::ok) << event;
  }
  EXPECT_EQ(queue.first_event(), 5U);
  EXPECT_EQ(queue.next_event(), 11U);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_jump), 1U);
}

TEST(Numbers, two_jumps_in_a_row_of_a_dense_source_cost_their_fragments_only) {
  for (const bool alone : {false, true}) {
    Sender sender;
    if (!alone) sender.others_are_at(0, 20);
    sender.sends_up_to(0, 20).sends({20 ^ 1U << 7, 1U << 30}).sends_up_to(22, 40).ends();
    EXPECT_EQ(sender.taken().size(), 38U);
    EXPECT_EQ(sender.jumps(), 2U);
  }
}

TEST(Numbers, a_source_alone_that_jumps_again_and_again_loses_one_fragment) {
  Sender sender;
  sender.sends_up_to(0, 20);
  for (EventNumber event = 1; event <= 20; ++event) sender.sends({event * 1'000'000 + event});
  sender.ends();
  EXPECT_EQ(sender.taken().size(), 39U);
  EXPECT_EQ(sender.jumps(), 1U);
}

// A dense source up to 20, and a number a million ahead of which others are asked.
class AskedNumbers : public ::testing::Test {
protected:
  AskedNumbers() { begin(); }
  void begin(EventNumber held = jump) {
    queue().start_unnumbered();
    judge_again(20);
    for (EventNumber event = 0; event < 20; ++event) {
      EXPECT_EQ(queue().write(event, {}), WriteOutcome::ok);
    }
    queue().release_until(20);
    EXPECT_EQ(queue().write(held, {}), WriteOutcome::ok);
  }
  FragmentQueue& queue() { return fixture_.queue; }
  bool judge_again(EventNumber high, bool go_on = true) {
    queue().numbers().set_others({.low = 0, .high = high, .any = true, .go_on = go_on});
    return queue().numbers().judge_held_again();
  }
  void expect_waits(EventNumber following) {
    EXPECT_EQ(queue().write(following, {}), WriteOutcome::full);
    EXPECT_TRUE(queue().numbers().unclear());
    EXPECT_TRUE(queue().throttled());
    EXPECT_FALSE(judge_again(20));
    EXPECT_EQ(queue().write(following, {}), WriteOutcome::full);
  }
  [[nodiscard]] bool taken() { return queue().next_event() == jump + 1; }
  static constexpr EventNumber jump = 1'000'000;

private:
  QueueFixture fixture_{{.window = 256, .near = 256, .asks_others = true}};
};

TEST_F(AskedNumbers, a_jump_is_taken_when_others_confirm_it_or_have_been_there) {
  expect_waits(2 * jump);
  EXPECT_TRUE(queue().numbers().confirm_held());
  EXPECT_TRUE(taken());
  begin();
  expect_waits(2 * jump);
  EXPECT_TRUE(judge_again(jump + 1));
  EXPECT_TRUE(taken());
}

TEST_F(AskedNumbers, a_jump_is_dropped_when_others_go_on_without_it) {
  expect_waits(2 * jump);
  EXPECT_FALSE(judge_again(20 + lost_before_jump_max)); // it may have lost so many
  EXPECT_TRUE(judge_again(21 + lost_before_jump_max));
  EXPECT_EQ(queue().numbers().dropped(wire::DropReason::number_jump), 1U);
  EXPECT_EQ(queue().next_event(), 20U);
  EXPECT_EQ(queue().write(2 * jump, {}), WriteOutcome::ok); // held in its place
  EXPECT_EQ(queue().write(22, {}), WriteOutcome::ok);
  EXPECT_EQ(queue().numbers().dropped(wire::DropReason::number_jump), 2U);
  EXPECT_EQ(queue().write(23, {}), WriteOutcome::ok);
  EXPECT_EQ(queue().next_event(), 24U);
}

TEST_F(AskedNumbers, others_are_asked_about_a_small_step_before_a_jump) {
  std::uint64_t before = 0;
  const auto hold = [&](EventNumber number) {
    begin(number);
    before = queue().numbers().dropped(wire::DropReason::number_jump);
    EXPECT_EQ(queue().write(jump, {}), WriteOutcome::full);
    EXPECT_FALSE(judge_again(20));
    EXPECT_EQ(queue().numbers().jump(), jump);
  };
  const auto expect_taken = [&](bool right) {
    EXPECT_EQ(queue().next_event(), right ? 24U : 20U);
    EXPECT_EQ(queue().numbers().dropped(wire::DropReason::number_jump) - before, right ? 0U : 1U);
  };
  hold(23);
  EXPECT_TRUE(queue().numbers().confirm_held());
  expect_taken(true);
  hold(23);
  EXPECT_FALSE(judge_again(22));
  EXPECT_TRUE(judge_again(24)); // others have been there
  expect_taken(true);
  hold(23);
  queue().numbers().decide_unclear(); // all wait
  expect_taken(true);
  hold(23);
  EXPECT_TRUE(judge_again(20, false)); // nobody else lives
  expect_taken(false);
  hold(200);
  EXPECT_FALSE(judge_again(150));
  queue().numbers().decide_unclear(); // others have gone on without it
  expect_taken(false);
}

TEST_F(AskedNumbers, a_jump_is_judged_by_what_follows_where_nobody_goes_on_or_says_anything) {
  for (const bool deadline : {false, true}) {
    expect_waits(2 * jump);
    if (deadline) {
      queue().numbers().decide_unclear();
    } else {
      EXPECT_TRUE(judge_again(20, false));
    }
    EXPECT_EQ(queue().numbers().dropped(wire::DropReason::number_jump),
              deadline ? 2U : 1U); // it has every number
    EXPECT_EQ(queue().write(2 * jump, {}), WriteOutcome::ok);
    EXPECT_EQ(queue().write(2 * jump + 1, {}), WriteOutcome::ok); // and this is the next one
    EXPECT_EQ(queue().next_event(), 2 * jump + 2);
    begin();
  }
}

TEST_F(AskedNumbers, a_lower_number_drops_a_jump_at_once) {
  EXPECT_EQ(queue().write(21, {}), WriteOutcome::ok);
  EXPECT_EQ(queue().numbers().dropped(wire::DropReason::number_jump), 1U);
}

TEST(Numbers, what_is_dropped_first_or_last_is_absent_with_that_reason) {
  QueueFixture fixture({.window = 64, .fragment_max = 100, .near = 64});
  FragmentQueue& queue = fixture.queue;
  const auto reason = [&](EventNumber event) {
    return static_cast<wire::AbsentReason>(queue.entry(event).crc32c);
  };
  for (const EventNumber event : Numbers{1 << 20, 1, 2, 1 << 20}) {
    ASSERT_EQ(queue.write(event, {}), WriteOutcome::ok);
  }
  queue.numbers().set_others({.low = 0, .high = 4, .any = true});
  queue.numbers().end_held();
  EXPECT_TRUE(queue.give_up_until(4, wire::AbsentReason::none));
  EXPECT_EQ(queue.first_event(), 1U);
  EXPECT_EQ(reason(0), wire::AbsentReason::dropped);
  EXPECT_EQ(reason(3), wire::AbsentReason::dropped);
  queue.start_unnumbered();
  EXPECT_EQ(queue.write(7, bytes_of(101, 1)), WriteOutcome::rejected);
  EXPECT_EQ(queue.write(8, {}), WriteOutcome::ok);
  EXPECT_EQ(queue.write(9, {}), WriteOutcome::ok);
  EXPECT_EQ(queue.first_event(), 7U);
  EXPECT_EQ(queue.sent_from(7), 7U);
  EXPECT_EQ(reason(7), wire::AbsentReason::dropped);
}

TEST(Numbers, one_loss_makes_no_source_sparse) {
  Sender sender;
  sender.others_are_at(0, 100);
  sender.sends_up_to(0, 20).sends({21, 54 /* 22, a bit flipped */}).sends_up_to(23, 40).ends();
  EXPECT_EQ(sender.taken().size(), 38U);
  EXPECT_EQ(sender.jumps(), 1U);
}

TEST(Numbers, a_number_held_beyond_the_last_event_holds_nothing_up) {
  QueueFixture fixture({.window = 256, .near = 256});
  FragmentQueue& queue = fixture.queue;
  queue.numbers().set_limit(10, true);
  for (const EventNumber event : Numbers{0, 1, 200, 201}) {
    EXPECT_NE(queue.write(event, bytes_of(10, event)), WriteOutcome::rejected);
  }
  for (EventNumber event = 2; event < 10; ++event) {
    EXPECT_EQ(queue.write(event, bytes_of(10, event)), WriteOutcome::ok);
  }
  EXPECT_EQ(queue.next_event(), 10U);
  EXPECT_EQ(queue.write(10, {}), WriteOutcome::full);
}

TEST(Numbers, a_number_that_is_not_triggered_yet_and_that_nothing_confirms_holds_nothing_up) {
  for (const Numbers& before : {Numbers{}, Numbers{0, 1}}) { // a first one, and another one
    QueueFixture fixture({.window = 64, .near = 64, .triggered = true});
    FragmentQueue& queue = fixture.queue;
    queue.numbers().set_limit(5);
    queue.numbers().set_others({.low = 0, .high = 5, .any = true});
    for (const EventNumber event : before) EXPECT_EQ(queue.write(event, {}), WriteOutcome::ok);
    for (const EventNumber event : Numbers{20, EventNumber{1} << 40, 2, 3, 4}) {
      EXPECT_EQ(queue.write(event, {}), WriteOutcome::ok) << event;
    }
    EXPECT_EQ(queue.next_event(), 5U);
    EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_jump), 2U);
  }
}

TEST(Numbers, what_is_confirmed_and_never_triggered_is_dropped) {
  QueueFixture fixture({.window = 64, .near = 64, .triggered = true});
  FragmentQueue& queue = fixture.queue;
  queue.numbers().set_limit(3);
  for (const EventNumber event : Numbers{20, 21}) {
    EXPECT_EQ(queue.write(event, {}), event == 20 ? WriteOutcome::ok : WriteOutcome::full);
  }
  EXPECT_TRUE(queue.numbers().unclear());
  queue.numbers().decide_unclear();
  EXPECT_FALSE(queue.numbers().held());
  EXPECT_EQ(queue.write(21, {}), WriteOutcome::ok); // held in its place
  EXPECT_EQ(queue.write(1, {}), WriteOutcome::ok);
  EXPECT_EQ(queue.write(2, {}), WriteOutcome::ok);
  EXPECT_EQ(queue.next_event(), 3U);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_jump), 2U);
}

// All fragments between two wrong numbers are dropped, and none of them confirms the second one.
TEST(Numbers, a_lower_number_drops_what_is_held_though_it_is_dropped_itself) {
  QueueFixture fixture({.window = 64, .near = 64});
  FragmentQueue& queue = fixture.queue;
  for (const EventNumber event : Numbers{10, 11, 12, 40}) {
    ASSERT_EQ(queue.write(event, {}), WriteOutcome::ok) << event;
  }
  EXPECT_EQ(queue.write(11, {}), WriteOutcome::rejected);
  EXPECT_FALSE(queue.numbers().held());
  EXPECT_EQ(queue.write(60, {}), WriteOutcome::ok); // near the dropped one, which does not count
  EXPECT_EQ(queue.write(13, {}), WriteOutcome::ok);
  EXPECT_EQ(queue.next_event(), 14U);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_jump), 2U);
}

TEST(Numbers, a_source_comes_nearer_with_what_is_late_and_not_with_what_is_back) {
  QueueFixture fixture({.window = 64, .near = 64});
  FragmentQueue& queue = fixture.queue;
  for (const EventNumber event : Numbers{10, 11, 12}) {
    ASSERT_EQ(queue.write(event, {}), WriteOutcome::ok);
  }
  EXPECT_EQ(queue.numbers().reached_end(), 13U);
  ASSERT_TRUE(queue.give_up_until(30));
  EXPECT_EQ(queue.write(5, {}), WriteOutcome::rejected);
  EXPECT_EQ(queue.numbers().reached_end(), 13U);
  for (const EventNumber event : Numbers{14, 20, 15}) {
    EXPECT_EQ(queue.write(event, {}), WriteOutcome::rejected);
  }
  EXPECT_EQ(queue.numbers().reached_end(), 21U);
  EXPECT_TRUE(queue.skip_to(25));
  EXPECT_EQ(queue.numbers().reached_end(), 25U);
  EXPECT_EQ(queue.write(30, {}), WriteOutcome::ok);
  EXPECT_EQ(queue.numbers().reached_end(), 31U);
  queue.start_unnumbered();
  EXPECT_EQ(queue.numbers().reached_end(), 0U);
}

TEST(Numbers, a_counter_that_was_reset_waits_where_it_has_to_ask_whether_it_may) {
  for (const auto answer : {CounterReset::yes, CounterReset::no}) {
    QueueFixture fixture({.window = 256, .near = 256}, {.page_size = 4096, .pages = 4});
    FragmentQueue& queue = fixture.queue;
    queue.numbers().allow_reset(CounterReset::ask);
    for (const EventNumber event : Numbers{5000, 5001, 5002, 0}) {
      ASSERT_EQ(queue.write(event, bytes_of(10, event)), WriteOutcome::ok) << event;
    }
    EXPECT_FALSE(
        queue.numbers().confirm_held()); // though another source has fallen to the same number
    EXPECT_EQ(queue.write(1, {}), WriteOutcome::full);
    EXPECT_TRUE(queue.numbers().requests_reset());
    queue.numbers().allow_reset(answer);
    const bool yes = answer == CounterReset::yes;
    EXPECT_EQ(queue.write(1, {}), yes ? WriteOutcome::ok : WriteOutcome::rejected);
    EXPECT_EQ(queue.first_event(), yes ? 0U : 5000U);
    EXPECT_EQ(queue.next_event(), yes ? 2U : 5003U);
    EXPECT_FALSE(queue.numbers().requests_reset());
  }
}

TEST(Numbers, a_counter_that_is_reset_when_all_pages_are_full_costs_its_first_fragment_only) {
  QueueFixture fixture({.window = 256, .fragment_max = 4096, .near = 256},
                       {.page_size = 4096, .pages = 2});
  FragmentQueue& queue = fixture.queue;
  queue.numbers().allow_reset(CounterReset::yes);
  for (const EventNumber event : Numbers{5000, 5001}) {
    ASSERT_EQ(queue.write(event, bytes_of(4000, event)), WriteOutcome::ok) << event;
  }
  EXPECT_EQ(queue.write(0, bytes_of(4000, 0)), WriteOutcome::rejected);
  EXPECT_EQ(queue.write(1, bytes_of(4000, 1)), WriteOutcome::ok);
  EXPECT_EQ(queue.first_event(), 0U);
  EXPECT_EQ(queue.next_event(), 2U);
  EXPECT_TRUE(queue.entry(0).absent());
  EXPECT_EQ(testing::payload_of(queue, 1), bytes_of(4000, 1));
}

TEST(Numbers, many_missing_numbers_are_skipped_at_once) {
  for (const EventNumber gap : {10U, 200U, 1'000'000U}) {
    Sender sender;
    sender.others_are_at(0, 20);
    sender.sends_up_to(0, 20).sends_up_to(20 + gap, 40 + gap);
    EXPECT_EQ(sender.taken().size(), 40U);
    EXPECT_EQ(sender.queue().next_event(), 40 + gap);
    EXPECT_EQ(sender.jumps(), 0U);
  }
  Sender sender;
  constexpr EventNumber far = 1'000'000'000'000;
  sender.sends_up_to(0, 20).sends({far, far + 1});
  EXPECT_EQ(sender.taken().size(), 22U);
  EXPECT_TRUE(sender.queue().entry(far - 1).absent());
}

TEST(Numbers, a_jump_waits_for_nothing_that_lies_below) {
  QueueFixture fixture({.window = 64, .near = 64});
  FragmentQueue& queue = fixture.queue;
  ASSERT_EQ(queue.write(0, {}), WriteOutcome::ok);
  ASSERT_EQ(queue.write(1, {}), WriteOutcome::ok);
  ASSERT_EQ(queue.write(1000, {}), WriteOutcome::ok);
  EXPECT_EQ(queue.write(1001, {}), WriteOutcome::ok);
  EXPECT_FALSE(queue.throttled());
  EXPECT_EQ(queue.first_event(), 0U);
  EXPECT_EQ(queue.next_event(), 1002U);
  EXPECT_EQ(queue.sent_from(2), 1000U);
}

// Time stamps: their steps lie above the window, and fragments are missing in both sources.
TEST(Numbers, a_source_whose_steps_are_large_asks_the_others_once_only) {
  Random random(3);
  for (int round = 0; round < 20; ++round) {
    QueueFixture fixture({.window = 256, .near = 256, .asks_others = true},
                         {.page_size = 4096, .pages = 4});
    FragmentQueue& queue = fixture.queue;
    EventNumber event = 1'000'000'000;
    int asked = 0;
    for (int i = 0; i < 200; ++i) {
      event += (1000 + random.below(30'000)) * (random.chance(1, 10) ? 3 : 1);
      queue.numbers().set_others({.low = 0, .high = 1'000'000'000, .any = true, .go_on = true});
      while (queue.write(event, {}) == WriteOutcome::full) {
        ASSERT_TRUE(queue.numbers().unclear());
        ++asked;
        queue.numbers().decide_unclear(); // they say nothing
      }
      if (queue.numbered()) queue.release_until(queue.next_event());
    }
    EXPECT_LE(asked, 4) << round;
    EXPECT_LE(queue.numbers().dropped(wire::DropReason::number_jump), jumps_dropped_max) << round;
    EXPECT_GE(queue.numbers().written(), 196U) << round;
  }
}

TEST(Numbers, a_repetition_of_a_sparse_source_costs_no_other) {
  Sender sender;
  sender.sends({0, 100, 230, 310, 310, 440, 500}).ends();
  EXPECT_EQ(sender.taken(), (Numbers{0, 100, 230, 310, 440, 500}));
  EXPECT_EQ(sender.queue().numbers().dropped(wire::DropReason::number_repeat), 1U);
}

TEST(Numbers, a_flipped_bit_costs_its_fragment_only_where_steps_are_large) {
  for (int bit = 0; bit < 63; ++bit) {
    Numbers good;
    for (EventNumber i = 0; i < 60; ++i) {
      good.push_back(1'000'000'000 + i * 1'000'000 + i * i % 7 * 10'000);
    }
    Numbers sent = good;
    sent[40] ^= EventNumber{1} << bit;
    good.erase(good.begin() + 40);
    // Among the others it looks like one of them.
    const bool between = sent[40] > sent[38] && sent[40] < sent[41];
    Sender sender;
    sender.sends(sent).ends();
    std::size_t taken = 0;
    for (const EventNumber event : good) taken += std::ranges::count(sender.taken(), event) == 1;
    EXPECT_GE(taken, good.size() - (between ? 1 : 0)) << "bit " << bit;
    EXPECT_EQ(sender.taken().size() - taken, between ? 1U : 0U) << "bit " << bit;
  }
}

TEST(Numbers, one_jump_between_small_steps_makes_no_large_steps_usual) {
  Sender sender;
  for (const EventNumber first : {EventNumber{0}, EventNumber{1'000'000}, EventNumber{5'000'000}}) {
    for (EventNumber i = 0; i < 10; ++i) sender.sends({first + 2 * i});
    EXPECT_EQ(sender.queue().numbers().in_a_row(), 10U); // each of them is a jump
  }
}

// Two losses near each other make it sparse for a moment, and two wrong numbers follow.
TEST(Numbers, large_steps_are_forgotten_by_a_source_that_has_every_number_since) {
  Sender sender;
  EventNumber event = 0;
  for (; event < 200'000'000; event += 10'000'000) sender.sends({event});
  sender.sends_up_to(event, event + 1000).sends({event + 1001, event + 1003});
  event += 1004;
  sender.others_are_at(event - 10, event + 10);
  sender.sends({event + 8'000'000, event + 16'000'000}).sends_up_to(event, event + 20);
  EXPECT_EQ(sender.queue().next_event(), event + 20);
  EXPECT_EQ(sender.jumps(), 2U);
}

TEST(Numbers, a_late_source_begins_where_the_others_are) {
  Sender sender; // ten minutes late
  sender.is_given_up_until(600'000);
  sender.others_are_at(600'000, 600'100);
  sender.sends_up_to(599'990, 600'010);
  EXPECT_EQ(sender.taken().front(), 600'000U);
  EXPECT_EQ(sender.taken().size(), 10U);
  EXPECT_EQ(sender.queue().numbers().dropped(wire::DropReason::late), 10U);
}

TEST(Numbers, a_constant_offset_is_taken_away) {
  Sender sender{{.window = 256, .near = 256, .offset = -1000}};
  sender.sends_up_to(1000, 1010);
  EXPECT_EQ(sender.queue().next_event(), 10U);
  EXPECT_EQ(sender.queue().numbers().counter_of(10), 1010U);
  Sender up{{.window = 256, .near = 256, .offset = 5}};
  up.sends_up_to(0, 10);
  EXPECT_EQ(up.queue().next_event(), 15U);
}

TEST(Numbers, a_counter_wraps_with_a_loss_there) {
  constexpr EventNumber turn = EventNumber{1} << 16;
  Sender sender{{.window = 256, .near = 256, .counter_bits = 16}};
  const auto send = [&](EventNumber event) {
    while (sender.queue().write(event % turn, bytes_of(10, event)) == WriteOutcome::full) {
    }
  };
  for (EventNumber event = turn - 5; event < turn + 5; ++event) {
    if (event != turn - 1 && event != turn) send(event);
  }
  EXPECT_EQ(sender.queue().first_event(), turn - 5);
  EXPECT_EQ(sender.queue().next_event(), turn + 5);
  EXPECT_TRUE(sender.queue().entry(turn).absent());
  EXPECT_EQ(sender.queue().numbers().written(), 8U);
}

TEST(Numbers, a_narrow_counter_that_is_given_up_for_turns_goes_on_where_it_was) {
  QueueFixture fixture({.window = 4096, .near = 64, .counter_bits = 8});
  FragmentQueue& queue = fixture.queue;
  const auto send = [&](EventNumber first, EventNumber end) {
    for (; first < end; ++first) {
      (void)queue.write(first % 256, bytes_of(8, first));
      if (queue.numbered()) queue.release_until(queue.next_event() - 1);
    }
  };
  for (const EventNumber ahead : {100U, 130U, 256U, 1600U}) {
    queue.start_unnumbered();
    const std::uint64_t late = queue.numbers().dropped(wire::DropReason::late);
    const std::uint64_t written = queue.numbers().written();
    send(0, 700);
    ASSERT_TRUE(queue.give_up_until(700 + ahead));
    send(700, 700 + ahead); // what piled up meanwhile
    EXPECT_EQ(queue.next_event(), 700 + ahead);
    EXPECT_EQ(queue.numbers().written() - written, 700U);
    EXPECT_EQ(queue.numbers().dropped(wire::DropReason::late) - late, ahead);
    send(700 + ahead, 3000);
    EXPECT_EQ(queue.next_event(), 3000U);
    EXPECT_EQ(queue.numbers().written() - written, 3000U - ahead);
    EXPECT_EQ(testing::payload_of(queue, 2999), bytes_of(8, 2999));
  }
}

TEST(Numbers, a_flipped_bit_of_a_narrow_counter_leaves_the_source_no_turn_behind) {
  QueueFixture fixture({.window = 256, .near = 256, .counter_bits = 24});
  FragmentQueue& queue = fixture.queue;
  constexpr EventNumber start = (1U << 24) - 100;
  for (EventNumber event = start; event < start + 200; ++event) {
    const EventNumber sent = event == start + 50 ? event ^ 1U << 23 : event;
    (void)queue.write(sent & 0xffffff, bytes_of(8, event));
  }
  EXPECT_EQ(queue.next_event(), start + 200);
  EXPECT_EQ(queue.numbers().written(), 199U);
}

TEST(Numbers, a_slow_source_that_is_given_up_keeps_what_others_have_reached) {
  Sender sender; // 1 Hz beside 10 kHz
  sender.others_are_at(0, 10'000);
  sender.sends({0}).is_given_up_until(5000);
  EXPECT_EQ(sender.taken(), (Numbers{0}));
  sender.sends({10'000});
  EXPECT_EQ(sender.taken(), (Numbers{0}));
  sender.is_given_up_until(9000); // others have not got there: it stays held
  EXPECT_EQ(sender.queue().numbers().held(), 10'000U);
  sender.is_given_up_until(11'000);
  EXPECT_EQ(sender.taken(), (Numbers{0, 10'000}));
}

TEST(Numbers, a_held_fragment_of_the_largest_size_needs_no_page_of_the_next) {
  constexpr std::size_t largest = 3 * 4096;
  for (const EventNumber bad : {EventNumber{1} << 40, EventNumber{50}}) {
    Sender sender{{.window = 256, .fragment_max = largest, .near = 256}};
    sender.sends({0, 1, bad, 2, 3, 4}, largest);
    EXPECT_EQ(sender.taken(), (Numbers{0, 1, 2, 3, 4}));
  }
}

TEST(Numbers, numbers_of_dropped_fragments_are_absent_with_that_reason) {
  QueueFixture fixture({.window = 64, .fragment_max = 100});
  FragmentQueue& queue = fixture.queue;
  const auto reason = [&](EventNumber event) {
    EXPECT_TRUE(queue.entry(event).absent());
    return static_cast<wire::AbsentReason>(queue.entry(event).crc32c);
  };
  for (const EventNumber event : Numbers{0, 1, 1 << 20, 3, 4, 6, 7}) {
    ASSERT_EQ(queue.write(event, {}), WriteOutcome::ok);
  }
  EXPECT_EQ(queue.write(8, bytes_of(101, 1)), WriteOutcome::rejected);
  EXPECT_EQ(queue.write(9, {}), WriteOutcome::ok);
  EXPECT_TRUE(queue.give_up_until(12));
  EXPECT_EQ(queue.next_event(), 12U);
  EXPECT_EQ(reason(2), wire::AbsentReason::dropped);
  EXPECT_EQ(reason(5), wire::AbsentReason::none);
  EXPECT_EQ(reason(8), wire::AbsentReason::dropped);
  EXPECT_EQ(reason(10), wire::AbsentReason::silent);
}

TEST(Numbers, a_skip_is_judged_as_a_number_is) {
  QueueFixture fixture({.window = 64});
  FragmentQueue& queue = fixture.queue;
  ASSERT_EQ(queue.write(0, {}), WriteOutcome::ok);
  ASSERT_EQ(queue.write(1, {}), WriteOutcome::ok);
  EXPECT_TRUE(queue.skip_to(3)); // one number: the next
  EXPECT_EQ(queue.next_event(), 3U);
  EXPECT_TRUE(queue.skip_to(1U << 30));
  EXPECT_EQ(queue.next_event(), 3U);
  ASSERT_EQ(queue.write(3, {}), WriteOutcome::ok);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_jump), 1U);
  EXPECT_TRUE(queue.skip_to(10));
  EXPECT_EQ(queue.next_event(), 4U);
  ASSERT_EQ(queue.write(10, {}), WriteOutcome::ok);
  EXPECT_EQ(queue.next_event(), 11U);
}

// Of a source that has nothing more to send for now.
TEST(Numbers, a_skip_to_the_next_number_confirms_the_one_that_is_held) {
  Sender sender;
  FragmentQueue& queue = sender.queue();
  sender.sends({5}); // its first one, and nobody else has begun
  EXPECT_FALSE(queue.numbered());
  EXPECT_TRUE(queue.skip_to(6));
  EXPECT_EQ(queue.next_event(), 6U);
  sender.sends({8});
  EXPECT_EQ(queue.next_event(), 6U);
  EXPECT_TRUE(queue.skip_to(9));
  EXPECT_EQ(queue.next_event(), 9U);
  // A jump may be wrong: the source repeats it.
  sender.others_are_at(9, 10).sends({1U << 30});
  EXPECT_TRUE(queue.skip_to((1U << 30) + 1));
  EXPECT_EQ(queue.next_event(), 9U);
  sender.sends({9, 10});
  EXPECT_EQ(sender.taken(), (Numbers{5, 8, 9, 10}));
  EXPECT_EQ(sender.jumps(), 1U);
}

TEST(Numbers, a_skip_to_the_next_number_confirms_a_first_one_that_is_near_the_others) {
  for (const EventNumber others : {100U, 10000U}) {
    Sender sender;
    sender.others_are_at(others, others + 1).sends({90});
    EXPECT_TRUE(sender.queue().skip_to(91));
    EXPECT_EQ(sender.queue().numbered(), others == 100);
  }
}

// As docs/plugins.md says.
TEST(Numbers, a_skip_before_each_fragment_crosses_the_window_at_each_step) {
  constexpr EventNumber step = 300;
  Sender sender;
  sender.others_are_at(0, 1);
  Numbers sent;
  for (EventNumber event = 0; event < 10 * step; event += step) {
    ASSERT_TRUE(sender.queue().skip_to(event));
    sender.sends({event});
    sent.push_back(event);
  }
  EXPECT_EQ(sender.taken(), sent);
  EXPECT_EQ(sender.jumps(), 0U);
}

// Whatever a front end does to single numbers, what it sends in between is taken.
TEST(Numbers, random_flips_losses_and_jumps_cost_no_good_fragment) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random{seed};
    Sender sender{{.window = 256, .near = 256}};
    EventNumber event = random.below(1000);
    Numbers good;
    EventNumber safe = event + 3; // the first ones have nothing before them
    sender.others_are_at(event, event + 1);
    for (int i = 0; i < 300; ++i, ++event) {
      if (event >= safe && random.chance(1, 40)) { // lost, a few or very many
        event += 1 + random.below(random.chance(1, 4) ? 1'000'000 : 5);
        sender.others_are_at(event, event + 1);
        safe = std::max(safe, event + 2); // a number after a loss is held, and its successor judges
      }
      if (event >= safe && random.chance(1, 30)) {
        sender.sends({event ^ EventNumber{1} << random.below(63)});
        safe = event + 3; // two in a row confirm each other
        ++event;
      }
      sender.sends({event});
      good.push_back(event);
    }
    sender.ends();
    for (const EventNumber number : good) {
      EXPECT_TRUE(std::ranges::find(sender.taken(), number) != sender.taken().end()) << number;
    }
  }
}

// A device that sends each fragment twice, or one number for ever.
TEST(EventNumbers, what_comes_again_before_the_run_has_an_event_is_a_repeat) {
  for (const bool always_one : {false, true}) {
    testing::QueueFixture fixture({.source = 5, .window = 1024});
    FragmentQueue& queue = fixture.queue;
    queue.numbers().allow_reset(CounterReset::yes);
    for (EventNumber i = 0; i < 200; ++i) {
      const auto payload = testing::bytes_of(8, i / 2);
      EXPECT_NE(queue.write(always_one ? 7 : i / 2, payload), WriteOutcome::full);
    }
    fixture.end_held();
    EXPECT_EQ(queue.numbers().written(), always_one ? 1U : 100U);
    EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_repeat), always_one ? 199U : 100U);
    EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_jump), 0U);
  }
}

} // namespace
} // namespace fanin::source
