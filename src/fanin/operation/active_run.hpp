// The run that run control leads, from its number to its end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/json.hpp"
#include "fanin/operation/configuration_set.hpp"
#include "fanin/operation/history.hpp"
#include "fanin/operation/registry.hpp"
#include "fanin/operation/reserve_run.hpp"
#include "fanin/operation/run_files.hpp"
#include "fanin/operation/run_log.hpp"
#include "fanin/operation/run_process.hpp"
#include "fanin/operation/run_status.hpp"
#include "fanin/operation/states.hpp"

namespace fanin::operation {

// Thread: one.
struct ActiveRun {
  RunNumber number = 0;
  std::uint64_t id = 0;
  std::string kind;
  std::string comment;
  std::string who;
  std::string set; // name
  RunChanges changes;
  std::int64_t begun_ns = 0;
  bool released = false; // it was started
  std::string end_reason; // what somebody asked for; empty: the launcher says it
  std::optional<RunEnd> end; // as its launcher has said it, since it could not write it
  std::int64_t log_until_ns = 0; // lines up to there are known
  std::int64_t log_again_ns = 0; // after a new connection these come again
  std::unique_ptr<RunStatus> status;
  std::unique_ptr<RunProcess> process; // null: it has ended, or was not found
  Time heard{}; // the last report

  [[nodiscard]] static ActiveRun reserved(const ReservedRun& run, ReadSet read,
                                          const ConfigurationSet& set, const RunChanges& changes,
                                          const std::string& who);
  // One of an earlier run control, without its status.
  [[nodiscard]] static ActiveRun recorded(const RunEntry& entry, RunState state);

  [[nodiscard]] bool alive() const { return process != nullptr; }
  // The words that start its launcher, beside those of RunProcess.
  [[nodiscard]] std::vector<std::string> arguments(const std::string& program,
                                                   const ConfigurationSet& its_set,
                                                   const std::vector<std::string>& hosts) const;
  // What is wrong with it now: sentences with a remedy.
  [[nodiscard]] std::vector<std::string> alarms(RunState state, Time now,
                                                const RunFiles& files) const;
  // For programs that are told of it (hooks.hpp).
  [[nodiscard]] json::Value about() const;
  // The keys of the API's status that are the run's.
  void add_to(json::Value& shown, RunState state, const RunRates& rates) const;
  // How it ended: from the file that its launcher has left. `otherwise`: the reason, if it has left
  // none; `log`: then its lines are taken from here.
  [[nodiscard]] RunEnd take_end(const RunFiles& files, const std::string& otherwise,
                                std::int64_t unix_ns, const RunLog& log) const;
};

} // namespace fanin::operation
