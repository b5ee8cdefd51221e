#include "fanin/operation/states.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace fanin::operation {
namespace {

using enum RunState;

constexpr std::array states{
    std::pair{halted, "halted"},         std::pair{configuring, "configuring"},
    std::pair{configured, "configured"}, std::pair{starting, "starting"},
    std::pair{running, "running"},       std::pair{draining, "draining"},
    std::pair{halting, "halting"},       std::pair{error, "error"}};

constexpr std::array commands{
    std::pair{Command::configure, "configure"}, std::pair{Command::start, "start"},
    std::pair{Command::stop, "stop"},           std::pair{Command::abort, "abort"},
    std::pair{Command::halt, "halt"},           std::pair{Command::recover, "recover"}};

constexpr std::array command_list{Command::configure, Command::start, Command::stop,
                                  Command::abort,     Command::halt,  Command::recover};

constexpr std::array table{
    Transition{halted, Command::configure, configuring, configured, "Configure"},
    Transition{halted, Command::start, configuring, running, "Configure, Enable"},
    Transition{configuring, Command::start, configuring, running, "Enable"},
    Transition{configuring, Command::halt, halting, halted, "Halt"},
    Transition{configuring, Command::abort, halting, halted, "Halt"},
    Transition{configured, Command::configure, configuring, configured, "Halt, Configure"},
    Transition{configured, Command::start, starting, running, "Enable"},
    Transition{configured, Command::halt, halting, halted, "Halt"},
    Transition{configured, Command::abort, halting, halted, "Halt"},
    Transition{starting, Command::stop, draining, configured, "Stop"},
    Transition{starting, Command::abort, halting, halted, "Halt"},
    Transition{running, Command::start, running, running, ""},
    Transition{running, Command::stop, draining, configured, "Stop"},
    Transition{running, Command::abort, halting, halted, "Halt"},
    Transition{draining, Command::stop, draining, configured, ""},
    Transition{draining, Command::halt, draining, halted, "Stop, Halt"},
    Transition{draining, Command::abort, halting, halted, "Halt"},
    Transition{halting, Command::halt, halting, halted, ""},
    Transition{halting, Command::abort, halting, halted, ""},
    Transition{error, Command::recover, halting, halted, "Reset"},
    Transition{error, Command::abort, halting, halted, "Reset"}};

template <class Enum, std::size_t count>
std::string_view name_in(const std::array<std::pair<Enum, const char*>, count>& names, Enum value) {
  return std::ranges::find(names, value, &std::pair<Enum, const char*>::first)->second;
}

template <class Enum, std::size_t count>
std::optional<Enum> value_in(const std::array<std::pair<Enum, const char*>, count>& names,
                             std::string_view name) {
  for (const auto& [value, its_name] : names) {
    if (name == its_name) return value;
  }
  return std::nullopt;
}

} // namespace

std::string_view name(RunState state) { return name_in(states, state); }
std::optional<RunState> run_state_named(std::string_view name) { return value_in(states, name); }

bool is_transient(RunState state) {
  return state == configuring || state == starting || state == draining || state == halting;
}

std::string_view name(Command command) { return name_in(commands, command); }
std::optional<Command> command_named(std::string_view name) { return value_in(commands, name); }
std::span<const Command> all_commands() { return command_list; }

std::span<const Transition> transitions() { return table; }

const Transition* find_transition(RunState from, Command command) {
  const auto* const found = std::ranges::find_if(
      table, [&](const Transition& row) { return row.from == from && row.command == command; });
  return found == table.end() ? nullptr : found;
}

std::string why_not(RunState state, Command command, RunNumber run) {
  const Transition* const row = find_transition(state, command);
  if (row != nullptr && (row->via != state || state == configuring || row->to == halted)) return "";
  switch (state) {
  case halted: return command == Command::halt ? "nothing is configured" : "no run is there";
  case configuring:
  case configured:
    return command == Command::recover     ? "there is no error"
           : command == Command::configure ? "the run before it is being configured: wait, or halt"
                                           : "no run has been started";
  case starting: return fmt::format("run {} starts: stop or abort it first", run);
  case running:
    return fmt::format("run {} is running{}", run,
                       command == Command::start ? "" : ": stop or abort it first");
  case draining: return fmt::format("run {} is stopping", run);
  case halting: return "processes are ending";
  case error:
    return command == Command::halt || command == Command::stop ? "no run is there: recover"
                                                                : "recover first";
  }
  return "";
}

} // namespace fanin::operation
