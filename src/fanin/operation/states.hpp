// The states of run control, and which command leads from one to another: the only such table.
// docs/operations.md shows it, with the names that XDAQ's state machines have for it (seed 001).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fanin/base/identity.hpp"

namespace fanin::operation {

enum class RunState : std::uint8_t {
  halted, // no process runs
  configuring, // processes start, or those of the run before still end
  configured, // all are there, and the run can be started
  starting, // it waits for what it needs to begin
  running,
  draining, // it stops: what was read is built
  halting, // processes end
  error // something failed: somebody has to look
};
[[nodiscard]] std::string_view name(RunState state);
[[nodiscard]] std::optional<RunState> run_state_named(std::string_view name);
// It leads to another one by itself.
[[nodiscard]] bool is_transient(RunState state);

enum class Command : std::uint8_t { configure, start, stop, abort, halt, recover };
[[nodiscard]] std::string_view name(Command command);
[[nodiscard]] std::optional<Command> command_named(std::string_view name);
[[nodiscard]] std::span<const Command> all_commands();

struct Transition {
  RunState from;
  Command command;
  RunState via; // at once; `from`: nothing is to be done
  RunState to; // if all goes well
  std::string_view xdaq; // what XDAQ calls it
};
[[nodiscard]] std::span<const Transition> transitions();
// Null: the command is refused in that state.
[[nodiscard]] const Transition* find_transition(RunState from, Command command);
// Why a command would do nothing in that state; empty: it is allowed. `run`: the latest one.
[[nodiscard]] std::string why_not(RunState state, Command command, RunNumber run);

} // namespace fanin::operation
