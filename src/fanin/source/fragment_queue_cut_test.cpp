// Cutting runs of events out of the queue, fragments that stay open, and a random script against a
// plain model.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "fanin/base/random.hpp"
#include "fanin/source/fragment_queue.hpp"
#include "fanin/source/testing/queue_fixture.hpp"

namespace fanin::source {
namespace {

using testing::Bytes;
using testing::bytes_of;
using testing::payload_of;
using testing::QueueFixture;

constexpr memory::PoolOptions eight_small_pages{.page_size = 4096, .pages = 8};

// Opens a fragment and puts in a part of it.
void begin_part(FragmentQueue& queue, EventNumber event, std::uint32_t size, std::uint32_t part) {
  ASSERT_EQ(queue.begin(event, size), WriteOutcome::ok);
  for (std::uint32_t done = 0; done < part;) {
    const auto count =
        std::min<std::uint32_t>(part - done, static_cast<std::uint32_t>(queue.room().size()));
    std::fill_n(queue.room().data(), count, std::byte{0xee});
    queue.advance(count);
    done += count;
  }
}

TEST(FragmentQueueCut, a_whole_run_in_one_page_is_one_piece) {
  QueueFixture fixture({.window = 64}, eight_small_pages);
  FragmentQueue& queue = fixture.queue;
  for (EventNumber event = 0; event < 10; ++event) {
    if (event != 4) {
      ASSERT_EQ(queue.write(event, bytes_of(100, event)), WriteOutcome::ok);
    }
  }
  std::array<wire::FragmentEntry, 16> table;
  Cursor cursor{0, 0};
  const Piece piece = queue.cut(cursor, 10, 1U << 20, 16, table.data());
  EXPECT_EQ(piece.range, (EventRange{0, 10}));
  EXPECT_EQ(piece.payload.size, 900U);
  EXPECT_FALSE(piece.partial);
  EXPECT_TRUE(table[4].absent());
  EXPECT_EQ(table[9].crc32c, wire::crc32c(bytes_of(100, 9)));
  EXPECT_EQ(cursor.event, 10U);
}

TEST(FragmentQueueCut, pieces_end_at_pages_at_the_payload_limit_and_at_the_table_limit) {
  QueueFixture fixture({.window = 64}, eight_small_pages);
  FragmentQueue& queue = fixture.queue;
  for (EventNumber event = 0; event < 10; ++event) {
    ASSERT_EQ(queue.write(event, bytes_of(1000, event)), WriteOutcome::ok); // four a page
  }
  std::array<wire::FragmentEntry, 16> table;
  const auto ends = [&](std::uint32_t payload_max, std::uint32_t entries_max) {
    std::vector<EventNumber> result;
    for (Cursor cursor{0, 0}; cursor.event < 10;) {
      const Piece piece = queue.cut(cursor, 10, payload_max, entries_max, table.data());
      EXPECT_EQ(piece.payload.size, piece.range.count() * 1000);
      result.push_back(piece.range.end);
    }
    return result;
  };
  EXPECT_EQ(ends(1U << 20, 16), (std::vector<EventNumber>{4, 8, 10}));
  EXPECT_EQ(ends(2999, 16), (std::vector<EventNumber>{2, 4, 6, 8, 10}));
  EXPECT_EQ(ends(1U << 20, 3), (std::vector<EventNumber>{3, 4, 7, 8, 10}));
}

TEST(FragmentQueueCut, a_fragment_over_the_payload_limit_comes_in_parts) {
  QueueFixture fixture({.window = 64}, eight_small_pages);
  FragmentQueue& queue = fixture.queue;
  queue.start(7);
  ASSERT_EQ(queue.write(7, bytes_of(2500, 7)), WriteOutcome::ok);
  Cursor cursor{7, 0};
  std::vector<std::uint32_t> offsets;
  Bytes bytes;
  while (cursor.event == 7) {
    wire::FragmentEntry entry;
    const Piece piece = queue.cut(cursor, 8, 1000, 16, &entry);
    EXPECT_TRUE(piece.partial);
    EXPECT_EQ(entry.size(), 2500U);
    offsets.push_back(piece.payload_offset);
    const auto part = piece.payload.bytes();
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  EXPECT_EQ(offsets, (std::vector<std::uint32_t>{0, 1000, 2000}));
  EXPECT_EQ(bytes, bytes_of(2500, 7));
}

TEST(FragmentQueueCut, events_before_the_first_are_absent) {
  QueueFixture fixture({.window = 64}, eight_small_pages);
  FragmentQueue& queue = fixture.queue;
  queue.start(10);
  ASSERT_EQ(queue.write(10, bytes_of(5, 1)), WriteOutcome::ok);
  std::array<wire::FragmentEntry, 16> table;
  Cursor cursor{8, 0};
  const Piece piece = queue.cut(cursor, 11, 1000, 16, table.data());
  EXPECT_EQ(piece.range, (EventRange{8, 11}));
  EXPECT_TRUE(table[0].absent());
  EXPECT_TRUE(table[1].absent());
  EXPECT_EQ(table[2].size(), 5U);
}

TEST(FragmentQueueOpen, an_open_fragment_keeps_its_pages_while_earlier_events_are_released) {
  QueueFixture fixture({.window = 64}, eight_small_pages);
  FragmentQueue& queue = fixture.queue;
  ASSERT_EQ(queue.write(0, bytes_of(100, 0)), WriteOutcome::ok);
  begin_part(queue, 1, 10000, 9000); // over three pages
  queue.release_until(1);
  const auto taken = fixture.pool->take(); // would be a page of the open fragment
  std::fill_n(taken.data(), 4096, std::byte{0x11});
  std::fill_n(queue.room().data(), 1000, std::byte{0xee});
  queue.advance(1000);
  queue.end();
  EXPECT_EQ(payload_of(queue, 1), Bytes(10000, std::byte{0xee}));
}

TEST(FragmentQueueOpen, an_open_fragment_whose_event_is_given_up_is_late) {
  QueueFixture fixture({.window = 64}, eight_small_pages);
  FragmentQueue& queue = fixture.queue;
  ASSERT_EQ(queue.write(0, bytes_of(100, 0)), WriteOutcome::ok);
  begin_part(queue, 1, 5000, 4500);
  EXPECT_TRUE(queue.give_up_until(3));
  EXPECT_LE(queue.position(1), queue.position(2));
  EXPECT_LE(queue.position(2), queue.position(3));
  queue.advance(500);
  queue.end();
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::late), 1U);
  EXPECT_EQ(queue.next_event(), 3U);
  EXPECT_TRUE(queue.entry(1).absent());
  ASSERT_EQ(queue.write(3, bytes_of(100, 3)), WriteOutcome::ok);
  EXPECT_EQ(payload_of(queue, 3), bytes_of(100, 3));
}

TEST(FragmentQueueOpen, a_fragment_that_is_late_when_it_ends_is_the_last_one_decided) {
  QueueFixture fixture({.window = 64}, eight_small_pages);
  FragmentQueue& queue = fixture.queue;
  for (EventNumber event = 0; event < 10; ++event)
    ASSERT_EQ(queue.write(event, bytes_of(100, 0)), WriteOutcome::ok);
  begin_part(queue, 10, 100, 50);
  EXPECT_TRUE(queue.give_up_until(11));
  queue.advance(50);
  queue.end();
  EXPECT_EQ(queue.numbers().last_decided(), 10U);
}

TEST(FragmentQueueOpen, a_cancelled_fragment_may_come_again) {
  QueueFixture fixture({.window = 64}, eight_small_pages);
  FragmentQueue& queue = fixture.queue;
  ASSERT_EQ(queue.write(0, bytes_of(100, 0)), WriteOutcome::ok);
  for (int again = 0; again < 100; ++again) { // and costs no page
    begin_part(queue, 1, 3000, 2000);
    queue.cancel();
  }
  begin_part(queue, 1, 9000, 8999);
  queue.cancel();
  ASSERT_EQ(queue.write(1, bytes_of(200, 1)), WriteOutcome::ok);
  EXPECT_EQ(payload_of(queue, 0), bytes_of(100, 0));
  EXPECT_EQ(payload_of(queue, 1), bytes_of(200, 1));
  queue.release_until(2);
  EXPECT_EQ(fixture.pool->available(), 7U);
}

TEST(FragmentQueueOpen, cancelled_fragments_do_not_use_up_the_pool) {
  QueueFixture fixture({.window = 64}, eight_small_pages);
  for (int again = 0; again < 50; ++again) {
    begin_part(fixture.queue, 0, 12000, 11000);
    fixture.queue.cancel();
  }
  EXPECT_EQ(fixture.queue.write(0, bytes_of(200, 1)), WriteOutcome::ok);
}

// Any mixture of writing, skipping, giving up, cutting and releasing agrees with a plain map.
void run_script(std::uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  Random random(seed);
  QueueFixture fixture({.window = 32}, {.page_size = 4096, .pages = 6});
  FragmentQueue& queue = fixture.queue;
  std::map<EventNumber, Bytes> model;
  EventNumber released = 5;
  EventNumber next = 5;
  queue.start(5);
  std::optional<std::pair<EventNumber, Bytes>> held; // not the next number; others confirm it
  const auto decide = [&] {
    (void)queue.numbers().confirm_held();
    if (held && !queue.numbers().held()) {
      model[held->first] = std::move(held->second);
      held.reset();
      next = queue.next_event();
    }
  };
  for (int step = 0; step < 3000; ++step) {
    const std::uint64_t action = random.below(10);
    if (action < 6) {
      const EventNumber event = next + (random.chance(1, 8) ? random.below(4) : 0);
      const std::size_t size = random.chance(1, 10) ? random.below(12000) : random.below(600);
      if (queue.write(event, bytes_of(size, event)) == WriteOutcome::ok) {
        if (queue.numbers().held()) {
          held = {event, bytes_of(size, event)};
        } else {
          model[event] = bytes_of(size, event);
          next = event + 1;
        }
      }
      decide();
    } else if (action == 6) {
      (void)queue.give_up_until(next + random.below(3));
      next = queue.next_event();
      decide();
    } else if (action < 9 && released < next) {
      const EventNumber event = released + random.below(next - released);
      const auto found = model.find(event);
      ASSERT_EQ(queue.entry(event).absent(), found == model.end());
      if (found != model.end()) {
        ASSERT_EQ(payload_of(queue, event), found->second);
      }
    } else {
      released += random.below(next - released + 1);
      queue.release_until(released);
      model.erase(model.begin(), model.lower_bound(released));
      decide();
    }
    ASSERT_EQ(queue.next_event(), next);
    for (EventNumber event = released; event < next; ++event) {
      ASSERT_LE(queue.position(event), queue.position(event + 1));
      ASSERT_GE(queue.position(event + 1) - queue.position(event), queue.entry(event).size());
    }
  }
}

TEST(FragmentQueueScript, agrees_with_a_plain_model) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) ASSERT_NO_FATAL_FAILURE(run_script(seed));
}

} // namespace
} // namespace fanin::source
