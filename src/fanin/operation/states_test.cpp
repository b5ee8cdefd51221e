#include "fanin/operation/states.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace fanin::operation {
namespace {

constexpr std::array all_states{RunState::halted,   RunState::configuring, RunState::configured,
                                RunState::starting, RunState::running,     RunState::draining,
                                RunState::halting,  RunState::error};

TEST(States, each_state_but_halted_can_be_aborted) {
  for (const RunState state : all_states)
    EXPECT_EQ(find_transition(state, Command::abort) != nullptr, state != RunState::halted)
        << name(state);
}

TEST(States, a_command_passes_through_a_transient_state_to_one_that_lasts) {
  for (const Transition& row : transitions()) {
    EXPECT_FALSE(is_transient(row.to)) << name(row.from) << " " << name(row.command);
    EXPECT_TRUE(is_transient(row.via) || row.via == row.from);
    EXPECT_EQ(find_transition(row.from, row.command), &row) << "there is one such row";
  }
}

TEST(States, a_refused_command_has_a_reason) {
  for (const RunState state : all_states) {
    for (const Command command : all_commands()) {
      if (find_transition(state, command) != nullptr) continue;
      EXPECT_NE(why_not(state, command, 7), "") << name(state) << " " << name(command);
    }
  }
  EXPECT_EQ(why_not(RunState::running, Command::halt, 7),
            "run 7 is running: stop or abort it first");
}

TEST(States, names_are_read_back) {
  for (const RunState state : all_states) EXPECT_EQ(run_state_named(name(state)), state);
  for (const Command command : all_commands()) EXPECT_EQ(command_named(name(command)), command);
  EXPECT_FALSE(command_named("pause"));
}

} // namespace
} // namespace fanin::operation
