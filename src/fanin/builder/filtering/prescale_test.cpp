#include "fanin/builder/filtering/prescale.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

std::uint64_t kept_of(std::uint64_t events, std::uint32_t prescale, std::uint64_t step = 1) {
  std::uint64_t kept = 0;
  for (std::uint64_t i = 0; i < events; ++i) {
    if (prescale_keeps(7, i * step, 0, prescale)) ++kept;
  }
  return kept;
}

TEST(Prescale, keeps_its_share_whatever_the_rhythm_of_the_events) {
  for (const std::uint32_t prescale : {1U, 2U, 3U, 10U, 100U}) {
    for (const std::uint64_t step : {1U, 2U, 100U, 3564U}) {
      const double share = static_cast<double>(kept_of(100'000, prescale, step)) * prescale / 1e5;
      EXPECT_NEAR(share, 1, 0.1) << prescale << " of every " << step;
    }
  }
}

// Who repeats a run elsewhere has to get the same: the numbers are a part of the format.
TEST(Prescale, is_the_same_for_ever) {
  std::vector<EventNumber> kept;
  for (EventNumber event = 0; event < 60; ++event) {
    if (prescale_keeps(42, event, 1, 10)) kept.push_back(event);
  }
  EXPECT_EQ(kept, (std::vector<EventNumber>{15, 43, 46}));
}

TEST(Prescale, of_one_stream_or_run_says_nothing_of_another) {
  std::uint64_t both = 0;
  for (EventNumber event = 0; event < 100'000; ++event) {
    if (prescale_keeps(1, event, 0, 10) && prescale_keeps(1, event, 1, 10)) ++both;
    if (prescale_keeps(1, event, 0, 10) && prescale_keeps(2, event, 0, 10)) ++both;
  }
  EXPECT_NEAR(static_cast<double>(both), 2000, 300);
}

TEST(Prescale, is_asked_only_of_streams_that_want_the_event) {
  const std::vector<storage::StreamInfo> streams{{"a", 1, {}}, {"b", 1, {}}, {"c", 1'000'000, {}}};
  EXPECT_EQ(prescaled(streams, 1, 5, 0b001), 0b001U);
  EXPECT_EQ(prescaled(streams, 1, 5, 0b111), 0b011U);
  EXPECT_EQ(prescaled(streams, 1, 5, 0b1000), 0U); // there is no such stream
}

} // namespace
} // namespace fanin::builder
