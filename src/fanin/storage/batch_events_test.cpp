#include "fanin/storage/batch_events.hpp"

#include <gtest/gtest.h>

#include "fanin/storage/testing/batch_maker.hpp"

namespace fanin::storage {
namespace {

using testing::FragmentPlan;

TEST(BatchEvents, have_fragments_ascending_by_source_also_those_that_lie_in_several_messages) {
  testing::BatchMaker maker(testing::make_sources(3), 64, 4096);
  const auto plan = [](EventNumber event, SourceId source) -> FragmentPlan {
    if (event == 11 && source == 20) return {.absent = true};
    return {.size = event == 12 && source == 30 ? 10'000U : 100U};
  };
  BatchEvents events({.sources = maker.sources(), .merged = {}, .slice = {}});
  for (int turn = 0; turn < 2; ++turn) { // it keeps nothing of the batch before
    const BuiltBatch batch = maker.make(1, {10, 14}, plan);
    events.read(batch);
    ASSERT_EQ(events.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
      const EventNumber number = 10 + i;
      EXPECT_EQ(events.number(i), number);
      const BuiltEvent event = events.event(i);
      EXPECT_EQ(event.number, number);
      EXPECT_EQ(event.flags, number == 11 ? event_incomplete : 0U);
      ASSERT_EQ(event.fragments.size(), number == 11 ? 2U : 3U);
      ASSERT_EQ(event.missing.size(), number == 11 ? 1U : 0U);
      if (number == 11) {
        EXPECT_EQ(event.missing[0].source, 20U);
      }
      SourceId before = 0;
      for (const EventFragment& fragment : event.fragments) {
        EXPECT_LT(std::exchange(before, fragment.source), fragment.source);
        const auto expected =
            testing::payload_of(number, fragment.source, plan(number, fragment.source).size);
        EXPECT_TRUE(std::ranges::equal(fragment.payload, expected))
            << "event " << number << ", source " << fragment.source;
      }
    }
  }
}

TEST(BatchEvents, leave_out_gaps_and_show_what_was_rejected_without_fragments) {
  testing::BatchMaker maker(testing::make_sources(1));
  BuiltBatch batch =
      maker.make(1, {5, 7}, [](EventNumber, SourceId) -> FragmentPlan { return {.size = 8}; });
  batch.range.end = 10;
  batch.gaps = {{8, 10}};
  batch.streams = {1, 2, 0, 0, 0};
  BatchEvents events({.sources = maker.sources(), .merged = {}, .slice = {}});
  events.read(batch);
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events.event(0).streams, 1U);
  EXPECT_EQ(events.event(1).streams, 2U);
  EXPECT_EQ(events.event(2).number, 7U);
  EXPECT_EQ(events.event(2).flags, event_rejected);
  EXPECT_TRUE(events.event(2).fragments.empty());
}

} // namespace
} // namespace fanin::storage
