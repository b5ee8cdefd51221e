// What the parts of `fanin run` share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/json.hpp"
#include "fanin/base/log.hpp"
#include "fanin/base/result.hpp"
#include "fanin/executive/run_view.hpp"
#include "fanin/operation/controlled_run.hpp"
#include "terminal.hpp"

namespace fanin::command {

struct RunOptions {
  std::string program; // as the user called it
  std::vector<std::string> configurations;
  std::string node;
  std::string duration;
  std::string events;
  std::vector<std::string> overrides;
  std::vector<std::string> without; // sources
  std::string json;
  std::string log = "info";
  bool quiet = false;
  std::string hosts; // a list
  bool testbed = false;
  std::string assigned; // of a process that was started on a host of a list: HostList::addresses()
  bool one_of_several = false; // configurations, whose launcher is the parent
  std::optional<std::uint64_t> run_id; // run.number is reserved then
  bool shared_run_id = false; // by several configurations
  bool controlled = false; // by run control
  int report_descriptor = -1;
  int request_descriptor = -1;
  int control_descriptor = -1; // run control has started this: operation::ControlledRun
  std::string control_end; // likewise
  operation::ControlledRun* control = nullptr; // made from them
  json::Value texts; // of the configurations, by file, where run control has read them

  [[nodiscard]] Result<std::string> read_text(const std::string& file) const;
  std::uint64_t session = 0;

  [[nodiscard]] LogLevel shown() const; // the least important lines that are
};

// Of --duration and --events, which are the same.
[[nodiscard]] std::vector<std::string> end_overrides(const RunOptions& options);

// Where a run is shown.
class RunScreen {
public:
  virtual ~RunScreen() = default;
  virtual void log(LogLevel level, std::string_view text) = 0;
  // Of a node, or of the launcher. The view has it.
  virtual void on_report(const json::Value& report, const executive::RunView& view) = 0;
  // The end: the result and its text, which may be empty. Errors: it cannot be written.
  [[nodiscard]] virtual Result<> finish(const json::Value& result, std::string_view text) = 0;
};

// On the terminal and in the file of --json, which outlives it.
[[nodiscard]] std::unique_ptr<RunScreen> screen_on_terminal(const RunOptions& options,
                                                            OutputFile& json);
// Where this is one of several configurations: by the process that runs all of them.
[[nodiscard]] std::unique_ptr<RunScreen> screen_of_parent(int report_descriptor);

// Nothing is shown: run control does that.
[[nodiscard]] std::unique_ptr<RunScreen> screen_of_control();

// Several configurations; the exit status.
Result<int> run_several(const RunOptions& options);

} // namespace fanin::command
