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
      EXPECT_FALSE(watch_.find(now)) << wire::name(reason);
    }
  }
}

TEST_F(Refusals, are_a_dead_end_when_nothing_else_has_come_for_a_while) {
  for (Duration now = 0s; now < 3s; now += 250ms) {
    say(now, 20, 1, 1 + static_cast<std::uint64_t>(now / 1ms));
    EXPECT_FALSE(watch_.find(now)) << now / 1ms;
  }
  say(3250ms, 20, 1, 4000);
  const auto found = watch_.find(3250ms);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->source, 1U);
  EXPECT_EQ(found->last_refused, 5000U);
}

TEST_F(Refusals, are_none_while_a_source_goes_on) {
  for (Duration now = 0s; now < 10s; now += 250ms) {
    const auto count = static_cast<std::uint64_t>(now / 1ms);
    say(now, 20 + count / 1000, 0, count);
    EXPECT_FALSE(watch_.find(now)) << now / 1ms;
  }
}

TEST_F(Refusals, are_none_when_they_have_ended) {
  say(0s, 20, 0, 0);
  say(250ms, 20, 0, 500);
  for (Duration now = 500ms; now < 10s; now += 250ms) say(now, 20, 0, 500);
  EXPECT_FALSE(watch_.find(10s));
  say(10s, 20, 0, 501); // one now and then
  EXPECT_FALSE(watch_.find(10s));
}

TEST_F(Refusals, are_counted_anew_when_the_readout_unit_was_started_again) {
  say(0s, 20, 0, 500);
  say(250ms, 0, 0, 10);
  EXPECT_FALSE(watch_.find(250ms));
}

} // namespace
} // namespace fanin::builder
