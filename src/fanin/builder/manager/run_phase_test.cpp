#include "fanin/builder/manager/run_phase.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

TEST(RunPhase, goes_through_a_whole_run) {
  RunPhase phase;
  EXPECT_TRUE(phase.is(Phase::waiting));
  EXPECT_FALSE(phase.building());
  phase.run();
  EXPECT_TRUE(phase.building());
  phase.pause();
  phase.drain();
  EXPECT_TRUE(phase.building());
  phase.finish();
  EXPECT_FALSE(phase.building());
  phase.end();
  EXPECT_TRUE(phase.is(Phase::ended));
}

TEST(RunPhase, never_goes_back) {
  for (int before = 0; before <= static_cast<int>(Phase::ended); ++before) {
    for (int next = 0; next <= before; ++next) {
      EXPECT_FALSE(may_follow(static_cast<Phase>(before), static_cast<Phase>(next)));
    }
  }
}

TEST(RunPhase, may_end_at_any_time_and_finish_only_when_drained_or_not_begun) {
  for (const Phase phase :
       {Phase::waiting, Phase::running, Phase::pausing, Phase::draining, Phase::finishing}) {
    EXPECT_TRUE(may_follow(phase, Phase::ended));
  }
  EXPECT_TRUE(may_follow(Phase::waiting, Phase::finishing));
  EXPECT_FALSE(may_follow(Phase::running, Phase::finishing));
  EXPECT_FALSE(may_follow(Phase::pausing, Phase::finishing));
  EXPECT_FALSE(may_follow(Phase::waiting, Phase::draining));
}

TEST(RunPhaseDeathTest, refuses_a_wrong_step) {
  RunPhase phase;
  EXPECT_DEATH(phase.drain(), "state 3 may not follow state 0.*Phase");
}

} // namespace
} // namespace fanin::builder
