// Run control: configures, starts and stops runs, and keeps each in the registry. The run itself is
// led by its launcher (RunProcess) and its event manager; this process may die at any moment and
// come back, and the run goes on.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/log.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/operation/active_run.hpp"
#include "fanin/operation/configuration_set.hpp"
#include "fanin/operation/event_sampler.hpp"
#include "fanin/operation/history.hpp"
#include "fanin/operation/hooks.hpp"
#include "fanin/operation/late_writes.hpp"
#include "fanin/operation/registry.hpp"
#include "fanin/operation/run_files.hpp"
#include "fanin/operation/run_log.hpp"
#include "fanin/operation/states.hpp"

namespace fanin::operation {

struct RunControlOptions {
  std::vector<ConfigurationSet> sets; // at least one
  std::string program; // as the user called it
  std::vector<std::string> hosts; // options of `fanin run`: --hosts LIST
  bool repeat = false; // a run that has stopped is followed by the next one
  std::map<HookMoment, std::string> hooks; // programs
  Duration hook_limit = std::chrono::seconds{30};
  std::function<std::int64_t()> unix_ns; // this host's clock
  std::function<void()> on_change; // of what status() says; at once
  std::function<void(const ShownLine&)> on_line; // of the log
  std::function<void()> on_ended; // after end_with_run()
};

// Who asks for what.
struct CommandRequest {
  Command command{};
  std::string who;
  std::optional<std::uint64_t> version; // of the state that was seen
  std::string configuration; // a set's name; empty: the one of before, or the first
  std::optional<RunChanges> changes; // none: those of before
  std::string kind; // of start; empty: as configured
  std::optional<std::string> comment; // likewise
};

// Why a command is refused.
struct CommandRefusal {
  enum class Kind : std::uint8_t {
    not_now, // this state does not allow it, or it has changed
    wrong, // what was asked for is wrong
    unable // the registry or this host cannot do it
  };
  Kind kind{};
  std::string text;
};

// It stays one type of more than 400 lines, since each command and each report may change the
// state. Thread: its loop. The registry and `files` outlive it.
class RunControl {
public:
  RunControl(net::Loop& loop, Registry& registry, const RunFiles& files, RunControlOptions options);
  ~RunControl();

  // Finds what an earlier run control has left: takes the ends of runs into the registry, and leads
  // the run that still lives. Errors: those of the registry.
  [[nodiscard]] Result<> take_over();

  [[nodiscard]] std::optional<CommandRefusal> ask(const CommandRequest& request);
  // What was asked for, for the registry.
  void record(const AskedCommand& command) {
    writes_.add([command](Registry& registry) { return registry.add_command(command); });
  }
  // Somebody has changed the comment of a run in the registry.
  void commented(RunNumber number, const std::string& text);
  // Stops the run, or halts, and calls on_ended: for ^C. The second time it aborts.
  void end_with_run();

  [[nodiscard]] RunState state() const { return state_; }
  [[nodiscard]] std::uint64_t version() const { return version_; }
  [[nodiscard]] RunNumber run() const { return run_ ? run_->number : 0; }
  [[nodiscard]] json::Value status() const;
  [[nodiscard]] json::Value history() const;
  [[nodiscard]] json::Value node(std::string_view name) const;
  [[nodiscard]] std::vector<EventPlace> event_places() const; // where events are published
  [[nodiscard]] std::string source_name(SourceId source) const;
  [[nodiscard]] const std::deque<ShownLine>& lines() const { return log_.lines(); }

private:
  // What is done when the launcher has ended.
  enum class Next : std::uint8_t { decide, halt, configure, start };
  struct LastRun {
    RunNumber number = 0;
    std::string reason;
    bool ok = false;
  };

  [[nodiscard]] std::optional<CommandRefusal> obey(const CommandRequest& request);
  [[nodiscard]] std::optional<CommandRefusal> configure(const CommandRequest& request,
                                                        bool and_start);
  [[nodiscard]] std::optional<CommandRefusal> start(const CommandRequest& request);
  [[nodiscard]] Result<> begin_run(ReadSet read, const ConfigurationSet& set,
                                   const RunChanges& changes, const std::string& who);
  void begin_next(bool and_start);
  void fail_configuration(const std::string& why);
  void release();
  void release_now();
  void stop(Next next);
  [[nodiscard]] json::Value about() const; // for hooks
  void tell_hook(HookMoment moment, const std::function<void()>& done = {});
  void end_run(executive::Request request, RunState via, Next next, const std::string& reason);
  [[nodiscard]] Result<> adopt(const RunEntry& entry, RunState state);
  [[nodiscard]] RunProcess::Handlers handlers();
  void on_report(const json::Value& report);
  void on_end(const std::string& how);
  [[nodiscard]] RunEnd import_end(const std::string& otherwise);
  void decide_next(const RunEnd& end);
  void enter(RunState state, const std::string& why = {});
  void on_second();
  void log(LogLevel level, std::string text);
  void changed();
  [[nodiscard]] const ConfigurationSet* find_set(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> alarms() const;
  [[nodiscard]] bool alive() const { return run_ && run_->alive(); }

  net::Loop& loop_;
  Registry& registry_;
  const RunFiles& files_;
  RunControlOptions options_;
  RunLog log_;
  LateWrites writes_;
  Hooks hooks_;
  RunState state_ = RunState::halted;
  std::int64_t since_ns_ = 0;
  std::uint64_t version_; // another one in each process
  std::string command_; // that led here, and who gave it
  std::string who_;
  std::string error_; // of state error
  std::string vetoed_; // why the last start was refused by a hook
  std::string set_; // the chosen one
  RunChanges changes_; // of the last configure
  std::string kind_; // of the start that is under way
  std::optional<std::string> comment_;
  std::string starter_; // who gave it; empty: nobody yet
  std::optional<ActiveRun> run_; // also when it has ended
  std::unique_ptr<RunProcess> ended_; // of the run before, until another one has ended
  std::optional<LastRun> last_;
  Next next_ = Next::decide;
  bool start_when_configured_ = false;
  bool ending_ = false; // end_with_run()
  bool unsure_ = false; // whether an earlier run control has started the run
  History history_;
  Time second_at_{}; // of the last one
  net::Timer second_;
};

} // namespace fanin::operation
