#include "fanin/source/fragment_table.hpp"

#include <gtest/gtest.h>

#include <map>

#include "fanin/base/random.hpp"

namespace fanin::source {
namespace {

using wire::AbsentReason;

FragmentTable::Slot slot_of(EventNumber event) {
  return {event * 100,
          {static_cast<std::uint32_t>(event % 1000), static_cast<std::uint32_t>(event)}};
}

void add(FragmentTable& table, EventNumber event) {
  ASSERT_TRUE(table.has_room(event));
  if (event > table.next()) {
    ASSERT_TRUE(table.add_absent(event, event * 100, AbsentReason::none));
  }
  if (table.next() == table.room_end()) table.grow();
  table.next_slot() = slot_of(event);
  table.add_next();
}

TEST(FragmentTable, a_gap_of_any_size_takes_no_slot) {
  FragmentTable table(64);
  table.begin_at(0);
  for (EventNumber i = 0; i < 4; ++i) add(table, i * 1'000'000'000'000);
  EXPECT_EQ(table.room_end() - table.next(), 60U);
  for (EventNumber i = 0; i < 4; ++i) {
    EXPECT_EQ(table.entry(i * 1'000'000'000'000), slot_of(i * 1'000'000'000'000).entry);
  }
  EXPECT_TRUE(table.entry(999'999'999'999).absent());
  EXPECT_EQ(table.section(1).end, 1'000'000'000'000U);
}

TEST(FragmentTable, consecutive_gaps_of_one_reason_are_one) {
  FragmentTable table(64);
  table.begin_at(0);
  EventNumber end = 0;
  for (int i = 0; i < 100; ++i) {
    end += 1000;
    ASSERT_TRUE(table.add_absent(end, 0, AbsentReason::silent));
  }
  EXPECT_EQ(table.section(0).end, end);
  EXPECT_TRUE(table.has_room(end));
}

TEST(FragmentTable, is_full_of_fragments_or_of_gaps) {
  FragmentTable dense(64);
  dense.begin_at(7);
  for (EventNumber event = 7; event < 71; ++event) add(dense, event);
  EXPECT_FALSE(dense.has_room(71));
  dense.release_until(8);
  EXPECT_TRUE(dense.has_room(71));
  FragmentTable sparse(64);
  sparse.begin_at(0);
  EventNumber event = 0;
  while (sparse.has_room(event + 100)) add(sparse, event += 100);
  EXPECT_EQ(event, 400U); // a gap for 16 slots
  EXPECT_TRUE(sparse.has_room(401));
  sparse.release_until(100);
  EXPECT_TRUE(sparse.has_room(500));
}

// Any mixture of fragments, gaps of all sizes and releases agrees with a plain map.
void run_table_script(std::uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  Random random(seed);
  const std::uint32_t window = 16U << random.below(3);
  FragmentTable table(window);
  const EventNumber first = random.chance(1, 2) ? 0 : (EventNumber{1} << 40) - 3;
  table.begin_at(first);
  std::map<EventNumber, wire::FragmentEntry> model; // fragments
  std::map<EventNumber, std::pair<EventNumber, AbsentReason>> gaps; // by end: begin
  const auto look_at = [&](EventNumber event) {
    const auto found = model.find(event);
    if (found != model.end()) {
      ASSERT_EQ(table.entry(event), found->second) << event;
      ASSERT_EQ(table.position(event), event * 100);
    } else {
      const auto gap = gaps.upper_bound(event);
      ASSERT_NE(gap, gaps.end());
      ASSERT_EQ(table.entry(event), wire::FragmentEntry::make_absent(gap->second.second)) << event;
    }
    const auto section = table.section(event);
    ASSERT_GT(section.end, event);
    ASSERT_LE(section.end, table.next());
    if (section.gap != nullptr) {
      ASSERT_EQ(model.lower_bound(event), model.lower_bound(section.end));
    }
  };
  std::size_t held = 0;
  for (int step = 0; step < 3000; ++step) {
    const std::uint64_t action = random.below(9);
    const EventNumber next = table.next();
    if (action < 5) {
      if (!table.has_room(next)) continue;
      add(table, next);
      model[next] = slot_of(next).entry;
      held = std::max(held, model.size());
    } else if (action < 7) {
      const EventNumber count = 1 + random.below(random.chance(1, 2) ? 20 : 1'000'000'000);
      const auto why = static_cast<AbsentReason>(random.below(3));
      if (table.has_room(next + count)) {
        ASSERT_TRUE(table.add_absent(next + count, next * 100, why));
        gaps[next + count] = {next, why};
        ASSERT_TRUE(table.has_room(next + count)); // of the fragment behind it
      }
    } else if (action == 8 && next > table.base() + 1) {
      const EventNumber end = table.base() + 1 + random.below(next - table.base() - 1);
      table.cut_back(end);
      model.erase(model.lower_bound(end), model.end());
      const auto gap = gaps.upper_bound(end);
      if (gap != gaps.end() && gap->second.first < end) gaps[end] = gap->second;
      gaps.erase(gaps.upper_bound(end), gaps.end());
    } else if (action == 7 && next > table.base()) {
      const EventNumber base = table.base() + random.below(next - table.base() + 1);
      table.release_until(base);
      model.erase(model.begin(), model.lower_bound(base));
    }
    if (table.empty()) continue;
    const EventNumber base = table.base();
    ASSERT_NO_FATAL_FAILURE(look_at(base));
    ASSERT_NO_FATAL_FAILURE(look_at(table.next() - 1));
    ASSERT_NO_FATAL_FAILURE(look_at(base + random.below(table.next() - base)));
    if (!model.empty()) {
      ASSERT_NO_FATAL_FAILURE(look_at(model.begin()->first));
      ASSERT_NO_FATAL_FAILURE(look_at(std::prev(model.end())->first));
    }
  }
  EXPECT_LE(held, window);
}

TEST(FragmentTable, agrees_with_a_plain_map) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) ASSERT_NO_FATAL_FAILURE(run_table_script(seed));
}

} // namespace
} // namespace fanin::source
