#include "fanin/builder/manager/drain_pace.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t event_window = 65'536;

TEST(DrainPace, is_measured_over_some_statuses) {
  DrainPace pace{5s, event_window};
  EXPECT_EQ(pace.too_long(100, 0, 1000), std::nullopt); // from here on
  EXPECT_EQ(pace.too_long(110, 0, 1000), std::nullopt);
  EXPECT_EQ(pace.too_long(120, 0, 1000), std::nullopt);
  EXPECT_EQ(pace.too_long(130, 0, 1000), std::nullopt);
  EXPECT_EQ(pace.too_long(140, 0, 1000), 21'500ms); // 40 in a second, 860 are left
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pace.too_long(500, 0, 1000), std::nullopt);
  EXPECT_EQ(pace.too_long(540, 0, 1000), std::nullopt); // 400 in the next one
}

TEST(DrainPace, time_in_which_it_was_held_up_does_not_count) {
  DrainPace pace{5s, event_window};
  std::uint32_t held_us = ~std::uint32_t{0}; // the counter wraps
  EXPECT_EQ(pace.too_long(0, held_us, 9000), std::nullopt);
  for (EventNumber i = 1; i < 4; ++i) { // half of it
    EXPECT_EQ(pace.too_long(i * 125, held_us += 125'000, 9000), std::nullopt);
  }
  EXPECT_EQ(pace.too_long(500, held_us += 125'000, 9000), 8500ms); // 500 in half a second
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(pace.too_long(501, held_us += 250'000, 9000), std::nullopt);
  }
}

TEST(DrainPace, one_that_is_hardly_ever_not_held_up_is_measured_all_the_same) {
  DrainPace pace{60s, event_window};
  std::uint32_t held_us = 0;
  for (EventNumber end = 0; end < 4; ++end) {
    EXPECT_EQ(pace.too_long(end, held_us += 249'900, event_number_end), std::nullopt);
  }
  EXPECT_GT(pace.too_long(4, held_us += 249'900, event_number_end).value(), 24h);
}

TEST(DrainPace, one_that_is_always_held_up_is_judged_late_and_only_if_it_is_far_behind) {
  for (const EventNumber until : {event_window + 250, event_window + 260}) {
    DrainPace pace{60s, event_window};
    std::uint32_t held_us = 0;
    for (EventNumber end = 0; end < 240; ++end) {
      EXPECT_EQ(pace.too_long(end, held_us += 250'100, until), std::nullopt) << end;
    }
    EXPECT_EQ(pace.too_long(250, held_us += 250'100, until).has_value(),
              until > event_window + 250);
  }
}

TEST(DrainPace, one_that_is_there_or_does_not_move_needs_nothing) {
  DrainPace pace{1s, event_window};
  for (int i = 0; i < 12; ++i) EXPECT_EQ(pace.too_long(100, 0, 1000), std::nullopt);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(pace.too_long(1000, 0, 1000), std::nullopt);
}

TEST(DrainPace, hours_beyond_all_counters_are_long) {
  DrainPace pace{60s, event_window};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(pace.too_long(0, 0, event_number_end), std::nullopt);
  EXPECT_GT(pace.too_long(1, 0, event_number_end).value(), 24h * 365);
}

} // namespace
} // namespace fanin::builder
