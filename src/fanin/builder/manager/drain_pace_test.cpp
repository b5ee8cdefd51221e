#include "fanin/builder/manager/drain_pace.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;

TEST(DrainPace, is_measured_over_some_statuses) {
  DrainPace pace;
  EXPECT_EQ(pace.needed(100, false, 1000), std::nullopt); // from here on
  EXPECT_EQ(pace.needed(110, false, 1000), std::nullopt);
  EXPECT_EQ(pace.needed(120, false, 1000), std::nullopt);
  EXPECT_EQ(pace.needed(130, false, 1000), std::nullopt);
  EXPECT_EQ(pace.needed(140, false, 1000), 21'500ms); // 40 in a second, 860 are left
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pace.needed(500, false, 1000), std::nullopt);
  EXPECT_EQ(pace.needed(540, false, 1000), 1'150ms); // 400 in the next one
}

TEST(DrainPace, one_that_was_held_back_is_measured_afresh) {
  DrainPace pace;
  for (const EventNumber end : {0U, 1000U, 1001U, 1001U}) {
    EXPECT_EQ(pace.needed(end, false, 9000), std::nullopt);
  }
  EXPECT_EQ(pace.needed(1002, true, 9000), std::nullopt);
  for (const EventNumber end : {2000U, 3000U, 4000U}) {
    EXPECT_EQ(pace.needed(end, false, 9000), std::nullopt);
  }
  EXPECT_EQ(pace.needed(5002, false, 9000), 999'500us);
}

TEST(DrainPace, one_that_is_there_or_does_not_move_needs_nothing) {
  DrainPace pace;
  for (int i = 0; i < 12; ++i) EXPECT_EQ(pace.needed(100, false, 1000), std::nullopt);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(pace.needed(1000, false, 1000), std::nullopt);
}

TEST(DrainPace, hours_beyond_all_counters_are_long) {
  DrainPace pace;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(pace.needed(0, false, event_number_end), std::nullopt);
  EXPECT_GT(pace.needed(1, false, event_number_end).value(), 24h * 365);
}

} // namespace
} // namespace fanin::builder
