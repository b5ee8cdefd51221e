#include "fanin/builder/manager/refusal_watch.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;

class Refusals : public ::testing::Test {
protected:
  // A status of the readout unit of both sources.
  void say(Duration now, std::uint64_t accepted, std::uint64_t dropped_first,
           std::uint64_t dropped_second) {
    std::array<wire::SourceCounters, 2> counters;
    counters[0].accepted = accepted;
    counters[0].last_refused = dropped_first;
    dropped(counters[0], wire::DropReason::number_back) = dropped_first;
    dropped(counters[1], wire::DropReason::late) = dropped_second;
    counters[1].last_refused = 1000 + dropped_second;
    watch_.count(0, counters, now);
  }
  static std::uint64_t& dropped(wire::SourceCounters& counters, wire::DropReason reason) {
    return counters.dropped[static_cast<std::size_t>(reason)];
  }
  RefusalWatch watch_{2};
};

// A counter is reset later, the data come once more, or the limit is too low.
TEST_F(Refusals, for_other_reasons_do_not_end_the_run) {
  using enum wire::DropReason;
  for (const wire::DropReason reason : {before_first, number_repeat, oversize}) {
    for (Duration now = 0s; now < 10s; now += 250ms) {
      wire::SourceCounters counters;
      dropped(counters, reason) = static_cast<std::uint64_t>(now / 1ms);
      watch_.count(0, {&counters, 1}, now);
      EXPECT_FALSE(watch_.find()) << wire::name(reason);
    }
  }
}

TEST_F(Refusals, are_a_dead_end_when_nothing_else_has_come_for_a_while) {
  for (Duration now = 0s; now < 3s; now += 250ms) {
    say(now, 20, 1, 1 + static_cast<std::uint64_t>(now / 1ms));
    EXPECT_FALSE(watch_.find()) << now / 1ms;
  }
  say(3250ms, 20, 1, 4000);
  const auto found = watch_.find();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->source, 1U);
  EXPECT_EQ(found->last_refused, 5000U);
}

// The first one has given what is left over from an earlier run.
TEST_F(Refusals, name_a_source_of_which_something_was_accepted) {
  for (Duration now = 0s; now < 4s; now += 250ms) {
    const auto count = static_cast<std::uint64_t>(now / 1ms);
    say(now, 20, 1 + count, 2 * count);
  }
  ASSERT_TRUE(watch_.find());
  EXPECT_EQ(watch_.find()->source, 0U);
}

// Fragments come in spills, or less than once a second.
TEST_F(Refusals, are_a_dead_end_however_long_the_pauses_between_them_are) {
  say(0s, 20, 0, 0);
  std::uint64_t refused = 0;
  for (const Duration spill : {10s, 20s, 40s}) {
    EXPECT_FALSE(watch_.find()) << spill / 1s;
    for (Duration now = spill; now < spill + 500ms; now += 250ms) say(now, 20, 0, refused += 100);
  }
  EXPECT_TRUE(watch_.find());
}

TEST_F(Refusals, are_no_dead_end_as_long_as_they_are_few) {
  for (std::uint64_t refused = 1; refused < 8; ++refused) {
    say(std::chrono::minutes{refused}, 20, 0, refused);
    EXPECT_FALSE(watch_.find()) << refused;
  }
  say(1h, 20, 0, 8);
  EXPECT_TRUE(watch_.find());
}

// The last fragments of a spill are late, and so are the first ones of the next.
TEST_F(Refusals, are_no_dead_end_around_a_pause) {
  std::uint64_t accepted = 20;
  std::uint64_t refused = 0;
  for (Duration spill = 0s; spill < 10min; spill += 1min) {
    for (Duration now = spill; now < spill + 500ms; now += 250ms) {
      say(now, accepted, 0, refused += 100);
      EXPECT_FALSE(watch_.find()) << now / 1ms;
    }
    say(spill + 500ms, ++accepted, 0, refused);
    for (Duration now = spill + 1s; now < spill + 2s; now += 250ms) {
      say(now, accepted, 0, refused += 100);
      EXPECT_FALSE(watch_.find()) << now / 1ms;
    }
  }
}

TEST_F(Refusals, are_none_while_a_source_goes_on) {
  for (Duration now = 0s; now < 10s; now += 250ms) {
    const auto count = static_cast<std::uint64_t>(now / 1ms);
    say(now, 20 + count / 1000, 0, count);
    EXPECT_FALSE(watch_.find()) << now / 1ms;
  }
}

TEST_F(Refusals, are_none_when_they_have_ended) {
  say(0s, 20, 0, 0);
  say(250ms, 20, 0, 500);
  for (Duration now = 500ms; now < 10s; now += 250ms) say(now, 20, 0, 500);
  EXPECT_FALSE(watch_.find());
  say(10s, 20, 0, 501); // one now and then
  EXPECT_FALSE(watch_.find());
}

TEST_F(Refusals, are_counted_anew_when_the_readout_unit_was_started_again) {
  say(0s, 20, 0, 500);
  say(250ms, 0, 0, 10);
  EXPECT_FALSE(watch_.find());
}

} // namespace
} // namespace fanin::builder
