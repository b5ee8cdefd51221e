#include "fanin/source/fragment_queue.hpp"

#include <gtest/gtest.h>

#include "fanin/base/random.hpp"
#include "fanin/source/testing/queue_fixture.hpp"

namespace fanin::source {
namespace {

using testing::Bytes;
using testing::bytes_of;
using testing::payload_of;
using testing::QueueFixture;

constexpr memory::PoolOptions four_small_pages{.page_size = 4096, .pages = 4};

TEST(FragmentQueue, numbering_begins_with_the_first_fragment) {
  QueueFixture fixture({.window = 64, .first = 50002});
  FragmentQueue& queue = fixture.queue;
  EXPECT_FALSE(queue.numbered());
  EXPECT_EQ(queue.write(50002, bytes_of(10, 1)), WriteOutcome::ok);
  EXPECT_TRUE(queue.numbered());
  EXPECT_EQ(queue.next_event(), 50003U);
  EXPECT_TRUE(queue.entry(50001).absent()); // before the first
  EXPECT_EQ(payload_of(queue, 50002), bytes_of(10, 1));
}

TEST(FragmentQueue, what_was_given_up_before_the_first_number_is_absent_for_that_reason) {
  for (const auto why : {wire::AbsentReason::silent, wire::AbsentReason::none}) {
    QueueFixture fixture({.window = 64});
    fixture.queue.start_unnumbered();
    ASSERT_TRUE(fixture.queue.give_up_until(29, why));
    EXPECT_EQ(fixture.queue.entry(3), wire::FragmentEntry::make_absent(why));
  }
}

TEST(FragmentQueue, what_a_source_had_while_its_readout_unit_was_dead_is_not_known) {
  QueueFixture fixture({.window = 64});
  FragmentQueue& queue = fixture.queue;
  queue.start(100);
  queue.numbers().join_after_death();
  for (const EventNumber event : {105U, 106U, 108U, 109U})
    ASSERT_EQ(queue.write(event, bytes_of(10, 1)), WriteOutcome::ok);
  EXPECT_EQ(queue.entry(102), wire::FragmentEntry::make_absent(wire::AbsentReason::unread));
  EXPECT_EQ(queue.entry(107), wire::FragmentEntry::make_absent(wire::AbsentReason::none));
}

TEST(FragmentQueue, entries_hold_size_and_checksum) {
  QueueFixture fixture({.window = 64});
  const Bytes payload = bytes_of(333, 7);
  fixture.queue.start(0);
  ASSERT_EQ(fixture.queue.write(0, payload, wire::fragment_truncated), WriteOutcome::ok);
  const wire::FragmentEntry entry = fixture.queue.entry(0);
  EXPECT_EQ(entry.size(), 333U);
  EXPECT_EQ(entry.flags(), wire::fragment_truncated);
  EXPECT_EQ(entry.crc32c, wire::crc32c(payload));
}

TEST(FragmentQueue, without_integrity_checksums_are_zero) {
  QueueFixture fixture({.window = 64, .checksum = false});
  fixture.queue.start(0);
  ASSERT_EQ(fixture.queue.write(0, bytes_of(333, 7)), WriteOutcome::ok);
  EXPECT_EQ(fixture.queue.entry(0).crc32c, 0U);
}

TEST(FragmentQueue, skipped_numbers_are_absent_and_a_zero_length_fragment_is_not) {
  QueueFixture fixture({.window = 64});
  FragmentQueue& queue = fixture.queue;
  ASSERT_EQ(queue.write(10, {}), WriteOutcome::ok);
  ASSERT_EQ(queue.write(13, bytes_of(4, 1)), WriteOutcome::ok);
  ASSERT_TRUE(queue.numbers().confirm_held());
  EXPECT_FALSE(queue.entry(10).absent());
  EXPECT_EQ(queue.entry(10).size(), 0U);
  EXPECT_TRUE(queue.entry(11).absent());
  EXPECT_TRUE(queue.entry(12).absent());
  EXPECT_FALSE(queue.entry(13).absent());
  EXPECT_EQ(queue.numbers().written(), 2U);
}

TEST(FragmentQueue, numbers_that_go_back_repeat_or_jump_are_counted_drops) {
  QueueFixture fixture({.window = 64});
  FragmentQueue& queue = fixture.queue;
  queue.start(100);
  ASSERT_EQ(queue.write(100, bytes_of(8, 1)), WriteOutcome::ok);
  EXPECT_EQ(queue.write(100, bytes_of(8, 2)), WriteOutcome::rejected);
  EXPECT_EQ(queue.write(99, bytes_of(8, 2)), WriteOutcome::rejected);
  EXPECT_EQ(queue.write(0, bytes_of(8, 2)), WriteOutcome::rejected);
  EXPECT_EQ(queue.write(101 + 64, bytes_of(8, 2)), WriteOutcome::ok); // held
  EXPECT_EQ(queue.write(~EventNumber{0} - 1, bytes_of(8, 2)), WriteOutcome::rejected);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_repeat), 1U);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_back), 2U);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_jump), 1U);
  EXPECT_EQ(queue.next_event(), 101U);
  EXPECT_EQ(queue.write(101, bytes_of(8, 3)), WriteOutcome::ok);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_jump),
            2U); // the first is held by then
  EXPECT_EQ(payload_of(queue, 100), bytes_of(8, 1));
}

TEST(FragmentQueue, a_fragment_over_the_maximum_is_a_counted_drop) {
  QueueFixture fixture({.window = 64, .fragment_max = 1000});
  FragmentQueue& queue = fixture.queue;
  EXPECT_EQ(queue.write(1, bytes_of(1001, 1)), WriteOutcome::rejected);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::oversize), 1U);
  EXPECT_EQ(queue.write(1, bytes_of(1000, 1)), WriteOutcome::ok);
}

TEST(FragmentQueue, below_a_given_start_a_fragment_is_late) {
  QueueFixture fixture({.window = 64});
  FragmentQueue& queue = fixture.queue;
  queue.start(10);
  EXPECT_EQ(queue.write(9, bytes_of(8, 1)), WriteOutcome::rejected);
  EXPECT_EQ(queue.write(2, bytes_of(8, 1)), WriteOutcome::rejected);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::late), 2U);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_repeat), 0U);
  EXPECT_EQ(queue.write(10, bytes_of(8, 1)), WriteOutcome::ok);
}

TEST(FragmentQueue, what_comes_after_its_event_was_given_up_is_late) {
  QueueFixture fixture({.window = 64});
  FragmentQueue& queue = fixture.queue;
  ASSERT_EQ(queue.write(0, bytes_of(8, 1)), WriteOutcome::ok);
  EXPECT_TRUE(queue.give_up_until(5));
  EXPECT_EQ(queue.write(3, bytes_of(8, 1)), WriteOutcome::rejected);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::late), 1U);
  EXPECT_TRUE(queue.entry(3).absent());
  EXPECT_EQ(queue.write(5, bytes_of(8, 1)), WriteOutcome::ok);
}

TEST(FragmentQueue, a_full_window_holds_the_source_back) {
  QueueFixture fixture({.window = 8});
  FragmentQueue& queue = fixture.queue;
  for (EventNumber event = 0; event < 8; ++event) {
    ASSERT_EQ(queue.write(event, bytes_of(8, event)), WriteOutcome::ok);
  }
  EXPECT_EQ(queue.write(8, bytes_of(8, 8)), WriteOutcome::full);
  EXPECT_TRUE(queue.throttled());
  queue.release_until(1);
  EXPECT_EQ(queue.write(8, bytes_of(8, 8)), WriteOutcome::ok);
  EXPECT_FALSE(queue.throttled());
  EXPECT_EQ(queue.write(9, bytes_of(8, 9)), WriteOutcome::full);
  for (EventNumber event = 1; event < 9; ++event) {
    EXPECT_EQ(payload_of(queue, event), bytes_of(8, event));
  }
}

TEST(FragmentQueue, no_page_left_holds_the_source_back) {
  QueueFixture fixture({.window = 64}, four_small_pages);
  FragmentQueue& queue = fixture.queue;
  EventNumber event = 0;
  while (queue.write(event, bytes_of(3000, event)) == WriteOutcome::ok) ++event;
  EXPECT_EQ(event, 4U); // one a page
  EXPECT_TRUE(queue.throttled());
  queue.release_until(1);
  EXPECT_EQ(queue.write(4, bytes_of(3000, 4)), WriteOutcome::ok);
  for (EventNumber held = 1; held <= 4; ++held) {
    EXPECT_EQ(payload_of(queue, held), bytes_of(3000, held));
  }
}

TEST(FragmentQueue, numbers_that_are_not_wanted_yet_wait_without_throttle) {
  QueueFixture fixture({.window = 64});
  FragmentQueue& queue = fixture.queue;
  queue.numbers().set_limit(2);
  EXPECT_EQ(queue.write(0, bytes_of(8, 0)), WriteOutcome::ok);
  EXPECT_EQ(queue.write(1, bytes_of(8, 1)), WriteOutcome::ok);
  EXPECT_EQ(queue.write(2, bytes_of(8, 2)), WriteOutcome::full);
  EXPECT_FALSE(queue.throttled());
  queue.numbers().set_limit(3);
  EXPECT_EQ(queue.write(2, bytes_of(8, 2)), WriteOutcome::ok);
}

// Every third number: none of those that are wanted follows, which has to be known.
TEST(FragmentQueue, a_number_beyond_the_limit_answers_for_all_below) {
  for (const bool triggered : {false, true}) {
    QueueFixture fixture({.window = 64, .triggered = triggered});
    FragmentQueue& queue = fixture.queue;
    queue.numbers().set_limit(8);
    for (const EventNumber event : {0U, 3U, 6U}) {
      EXPECT_EQ(queue.write(event, bytes_of(8, event)), WriteOutcome::ok);
      (void)queue.numbers().confirm_held();
    }
    EXPECT_EQ(queue.write(9, bytes_of(8, 9)), WriteOutcome::full);
    EXPECT_EQ(queue.next_event(), triggered ? 7U : 8U) << "what is triggered later may be wrong";
    EXPECT_FALSE(queue.throttled());
    queue.numbers().set_limit(10);
    EXPECT_EQ(queue.write(9, bytes_of(8, 9)), WriteOutcome::ok);
    EXPECT_EQ(queue.next_event(), 10U);
  }
}

// Each number of a sparse source is held until the next one comes; here both are of no event.
TEST(FragmentQueue, held_numbers_beyond_the_last_event_answer_for_all_below) {
  for (const bool triggered : {false, true}) {
    for (const bool skips : {false, true}) {
      QueueFixture fixture({.window = 64, .near = 64, .triggered = triggered});
      FragmentQueue& queue = fixture.queue;
      for (const EventNumber event : {0U, 2U, 5U}) {
        EXPECT_EQ(queue.write(event, bytes_of(8, event)), WriteOutcome::ok);
        EXPECT_TRUE(queue.numbers().confirm_held());
      }
      queue.numbers().set_limit(10, true);
      if (skips) {
        EXPECT_TRUE(queue.skip_to(14));
      } else {
        EXPECT_EQ(queue.write(13, bytes_of(8, 13)), WriteOutcome::ok);
      }
      EXPECT_EQ(queue.next_event(), 6U);
      EXPECT_NE(queue.write(30, bytes_of(8, 30)), WriteOutcome::rejected);
      EXPECT_EQ(queue.next_event(), 10U);
      EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_jump), 0U);
    }
  }
}

TEST(FragmentQueue, a_dense_source_that_goes_on_beyond_the_last_event_answers_for_all_below) {
  QueueFixture fixture({.window = 64, .near = 64});
  FragmentQueue& queue = fixture.queue;
  for (EventNumber event = 0; event < 6; ++event) {
    EXPECT_EQ(queue.write(event, bytes_of(8, event)), WriteOutcome::ok);
  }
  queue.numbers().set_limit(10, true);
  for (const EventNumber event : {30U, 31U, 32U, 6U}) { // wrong ones
    EXPECT_EQ(queue.write(event, bytes_of(8, event)), WriteOutcome::ok);
  }
  for (EventNumber event = 12; event < 20; ++event) {
    EXPECT_EQ(queue.next_event(), 7U) << "it may go on there, behind wrong numbers";
    EXPECT_EQ(queue.write(event, bytes_of(8, event)), WriteOutcome::ok);
  }
  EXPECT_EQ(queue.write(20, bytes_of(8, 20)), WriteOutcome::ok);
  EXPECT_EQ(queue.next_event(), 10U);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_jump), 1U);
}

TEST(FragmentQueue, skip_to_answers_numbers_however_many_they_are) {
  QueueFixture fixture({.window = 16});
  FragmentQueue& queue = fixture.queue;
  EXPECT_TRUE(queue.skip_to(5));
  EXPECT_TRUE(queue.skip_to(6));
  EXPECT_TRUE(queue.skip_to(8));
  EXPECT_TRUE(queue.numbers().confirm_held());
  EXPECT_TRUE(queue.entry(6).absent());
  EXPECT_TRUE(queue.skip_to(1'000'000));
  EXPECT_TRUE(queue.numbers().confirm_held());
  EXPECT_FALSE(queue.throttled());
  EXPECT_EQ(queue.next_event(), 1'000'000U);
  EXPECT_EQ(queue.write(1'000'000, bytes_of(8, 1)), WriteOutcome::ok);
}

TEST(FragmentQueue, numbers_end_where_event_numbers_do) {
  QueueFixture fixture({.window = 64});
  FragmentQueue& queue = fixture.queue;
  EXPECT_EQ(queue.write(event_number_end, {}), WriteOutcome::rejected);
  EXPECT_EQ(queue.write(~EventNumber{0}, {}), WriteOutcome::rejected);
  EXPECT_TRUE(queue.skip_to(event_number_end));
  EXPECT_FALSE(queue.numbered());
  queue.start(event_number_end - 1);
  EXPECT_EQ(queue.write(event_number_end - 1, {}), WriteOutcome::ok);
  EXPECT_EQ(queue.write(event_number_end, {}), WriteOutcome::rejected);
  EXPECT_TRUE(queue.skip_to(event_number_end));
  EXPECT_EQ(queue.next_event(), event_number_end);
}

// Without what is dropped, and without the ends of pages that the next fragment does not fit into.
TEST(FragmentQueue, bytes_of_payload_are_counted_from_start_to_start) {
  QueueFixture fixture({.window = 64, .fragment_max = 8192}, four_small_pages);
  FragmentQueue& queue = fixture.queue;
  std::uint64_t sum = 0;
  EventNumber event = 0;
  for (int start = 0; start < 3; ++start) {
    if (start == 1) queue.start(event);
    if (start == 2) queue.start_unnumbered();
    // Where nothing has confirmed its number, a fragment is taken for a first one once more.
    const EventNumber unconfirmed = start == 1 ? event_number_end : event;
    for (const std::size_t size : {3000U, 3000U, 0U, 5000U, 100U, 4096U, 700U, 8192U}) {
      queue.release_until(event);
      ASSERT_EQ(queue.write(event, bytes_of(size, event)), WriteOutcome::ok) << size;
      const auto again = event == unconfirmed ? WriteOutcome::ok : WriteOutcome::rejected;
      EXPECT_EQ(queue.write(event, bytes_of(size, event)), again) << size;
      EXPECT_EQ(queue.write(event + 1, bytes_of(8193, event)), WriteOutcome::rejected) << size;
      sum += size;
      event += 2;
      EXPECT_EQ(queue.numbers().payload_bytes(), sum) << size;
    }
  }
  EXPECT_EQ(queue.numbers().written(), 24U);
}

TEST(FragmentQueue, bytes_of_fragments_that_a_reset_of_the_counter_drops_do_not_count) {
  QueueFixture fixture({.window = 64});
  FragmentQueue& queue = fixture.queue;
  queue.start_unnumbered();
  queue.numbers().allow_reset(CounterReset::yes);
  for (EventNumber event = 5000; event < 5010; ++event)
    ASSERT_EQ(queue.write(event, bytes_of(100, event)), WriteOutcome::ok);
  for (EventNumber event = 0; event < 3; ++event)
    ASSERT_EQ(queue.write(event, bytes_of(10, event)), WriteOutcome::ok);
  EXPECT_EQ(queue.numbers().written(), 3U);
  EXPECT_EQ(queue.numbers().payload_bytes(), 30U);
}

TEST(FragmentQueue, a_fragment_longer_than_a_page_is_chained) {
  QueueFixture fixture({.window = 64}, {.page_size = 4096, .pages = 8});
  FragmentQueue& queue = fixture.queue;
  const Bytes small = bytes_of(100, 1);
  const Bytes large = bytes_of(10000, 2);
  ASSERT_EQ(queue.write(0, small), WriteOutcome::ok);
  ASSERT_EQ(queue.write(1, large), WriteOutcome::ok);
  ASSERT_EQ(queue.write(2, small), WriteOutcome::ok);
  EXPECT_EQ(queue.entry(1).size(), 10000U);
  EXPECT_EQ(queue.entry(1).crc32c, wire::crc32c(large));
  EXPECT_EQ(payload_of(queue, 0), small);
  EXPECT_EQ(payload_of(queue, 1), large);
  EXPECT_EQ(payload_of(queue, 2), small);
  queue.release_until(3);
  EXPECT_EQ(fixture.pool->available(), 7U); // all but the page being filled
}

TEST(FragmentQueue, a_fragment_may_need_every_page_of_the_pool) {
  QueueFixture fixture({.window = 64}, four_small_pages);
  FragmentQueue& queue = fixture.queue;
  ASSERT_EQ(queue.write(0, bytes_of(100, 0)), WriteOutcome::ok);
  const Bytes whole = bytes_of(4 * 4096, 1);
  EXPECT_EQ(queue.write(1, whole), WriteOutcome::full);
  queue.release_until(1);
  ASSERT_EQ(queue.write(1, whole), WriteOutcome::ok);
  EXPECT_EQ(payload_of(queue, 1), whole);
  EXPECT_EQ(queue.write(2, bytes_of(4 * 4096 + 1, 2)), WriteOutcome::rejected);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::oversize), 1U);
}

TEST(FragmentQueue, pages_live_on_in_the_views_that_were_cut) {
  QueueFixture fixture({.window = 64}, four_small_pages);
  FragmentQueue& queue = fixture.queue;
  queue.start(0);
  ASSERT_EQ(queue.write(0, bytes_of(4000, 1)), WriteOutcome::ok);
  Cursor cursor{0, 0};
  wire::FragmentEntry entry;
  Piece piece = queue.cut(cursor, 1, 1U << 20, 1, &entry);
  ASSERT_EQ(queue.write(1, bytes_of(4000, 2)), WriteOutcome::ok);
  queue.release_until(2);
  EXPECT_EQ(fixture.pool->available(), 2U);
  EXPECT_EQ(Bytes(piece.payload.bytes().begin(), piece.payload.bytes().end()), bytes_of(4000, 1));
  piece = {};
  EXPECT_EQ(fixture.pool->available(), 3U);
}

TEST(FragmentQueue, a_fragment_of_which_a_piece_was_cut_goes_on_however_much_is_taken_next) {
  QueueFixture fixture({.window = 64}, four_small_pages);
  FragmentQueue& queue = fixture.queue;
  queue.start(0);
  ASSERT_EQ(queue.write(0, bytes_of(1000, 1)), WriteOutcome::ok);
  Cursor cursor{0, 0};
  wire::FragmentEntry entry;
  EXPECT_EQ(queue.cut(cursor, 1, 300, 1, &entry).payload.size, 300U);
  const Piece rest = queue.cut(cursor, 1, 4000, 1, &entry);
  EXPECT_EQ(rest.payload_offset, 300U);
  EXPECT_EQ(rest.payload.size, 700U);
  EXPECT_EQ(cursor.event, 1U);
}

TEST(FragmentQueue, start_forgets_everything) {
  QueueFixture fixture({.window = 64}, four_small_pages);
  FragmentQueue& queue = fixture.queue;
  for (EventNumber event = 0; event < 4; ++event) {
    ASSERT_EQ(queue.write(event, bytes_of(3000, event)), WriteOutcome::ok);
  }
  queue.start(1000);
  EXPECT_EQ(fixture.pool->available(), 4U);
  EXPECT_EQ(queue.next_event(), 1000U);
  EXPECT_EQ(queue.write(1000, bytes_of(3000, 5)), WriteOutcome::ok);
  EXPECT_EQ(payload_of(queue, 1000), bytes_of(3000, 5));
}

TEST(FragmentQueue, a_number_that_is_forgotten_holds_its_source_back_no_more) {
  QueueFixture fixture({.window = 16, .near = 1000});
  FragmentQueue& queue = fixture.queue;
  for (EventNumber event = 0; event < 16; ++event) {
    ASSERT_EQ(queue.write(event, bytes_of(10, event)), WriteOutcome::ok);
  }
  ASSERT_EQ(queue.write(400, bytes_of(10, 400)), WriteOutcome::ok);
  EXPECT_FALSE(queue.numbers().confirm_held()); // it is right, and the window has no room for it
  EXPECT_TRUE(queue.throttled());
  queue.numbers().set_limit(300, true);
  EXPECT_TRUE(queue.numbers().judge_held_again());
  EXPECT_FALSE(queue.throttled());
}

TEST(FragmentQueue, holds_as_many_fragments_however_far_they_are_apart) {
  for (const EventNumber step : {EventNumber{100}, EventNumber{1'000'000'000'000}}) {
    QueueFixture fixture({.window = 256});
    FragmentQueue& queue = fixture.queue;
    EventNumber event = 0;
    std::uint64_t held = 0;
    for (; queue.write(event, bytes_of(8, event)) == WriteOutcome::ok; event += step) ++held;
    EXPECT_EQ(held, 17U); // a gap for each sixteen of the window, and the first one
    EXPECT_TRUE(queue.throttled());
    EXPECT_TRUE(queue.entry(step / 2).absent());
    EXPECT_EQ(queue.alike_until(1), step);
    EXPECT_EQ(payload_of(queue, 3 * step), bytes_of(8, 3 * step));
    queue.release_until(step + 1);
    EXPECT_EQ(queue.write(event, bytes_of(8, event)), WriteOutcome::ok);
    EXPECT_EQ(payload_of(queue, 3 * step), bytes_of(8, 3 * step));
  }
}

} // namespace
} // namespace fanin::source
