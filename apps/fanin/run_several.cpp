// fanin run CONFIG CONFIG...: two stages, each configuration in a process that launches its nodes.
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/base/try.hpp"
#include "fanin/config/stages.hpp"
#include "fanin/executive/placement.hpp"
#include "fanin/executive/process.hpp"
#include "fanin/executive/report.hpp"
#include "fanin/executive/stage_launcher.hpp"
#include "fanin/executive/stages_view.hpp"
#include "fanin/executive/this_host.hpp"
#include "fanin/operation/recorded_run.hpp"
#include "fanin/storage/run_numbers.hpp"
#include "run.hpp"

namespace fanin::command {
namespace {

struct Several {
  std::vector<std::string> texts; // of the files
  std::vector<std::vector<std::string>> overrides; // of each
  std::vector<config::Configuration> configurations;
};

std::vector<std::string> overrides_of(const RunOptions& options, bool group) {
  std::vector<std::string> overrides = options.overrides;
  if (group) std::ranges::copy(end_overrides(options), std::back_inserter(overrides));
  return overrides;
}

Result<Several> read(const RunOptions& options) {
  Several several;
  for (const std::string& file : options.configurations) {
    auto text = FANIN_TRY(options.read_text(file));
    auto one = FANIN_TRY(config::parse(text, file, overrides_of(options, false)));
    if (one.forwards()) one = FANIN_TRY(config::parse(text, file, overrides_of(options, true)));
    several.texts.push_back(std::move(text));
    several.overrides.push_back(overrides_of(options, one.forwards()));
    several.configurations.push_back(std::move(one));
  }
  const auto without =
      FANIN_TRY(config::overrides_without(several.configurations, options.without));
  for (std::size_t i = 0; i < without.size(); ++i) {
    if (without[i].empty()) continue;
    std::ranges::copy(without[i], std::back_inserter(several.overrides[i]));
    several.configurations[i] =
        FANIN_TRY(config::parse(several.texts[i], options.configurations[i], several.overrides[i]));
  }
  for (auto& one : several.configurations) one.run.id = options.run_id; // its number is reserved
  return several;
}

Result<> check(const config::Configuration& configuration) {
  if (!executive::is_here(configuration.event_manager().host)) {
    return fail(ErrorKind::usage,
                fmt::format("{}:1: event_manager.host: of several configurations the event "
                            "managers run on this host: start this one by itself on {}",
                            configuration.file, configuration.event_manager().host));
  }
  std::vector<std::size_t> here;
  for (std::size_t i = 0; i < configuration.nodes.size(); ++i) {
    if (executive::is_here(configuration.nodes[i].host)) here.push_back(i);
  }
  FANIN_TRY(executive::check_here(configuration, here));
  return {};
}

Result<operation::ReservedRun> give_number(const Several& several, const config::Stages& stages,
                                           const RunOptions& options,
                                           const operation::RecordedRun* record,
                                           const LogFunction& log) {
  if (record != nullptr) return record->run();
  if (options.run_id) return operation::ReservedRun{stages.run.value_or(1), *options.run_id};
  std::vector<std::string> folders;
  for (const std::size_t slice : stages.slices) {
    const std::string& folder = several.configurations[slice].run.output;
    if (!folder.empty()) folders.push_back(folder);
  }
  return operation::ReservedRun{
      FANIN_TRY(storage::RunNumbers(std::move(folders), log).reserve(stages.run)),
      executive::new_run_id()};
}

std::vector<executive::StagedConfiguration> configurations_of(Several& several,
                                                              const executive::StagesView& view,
                                                              const RunOptions& options,
                                                              const operation::ReservedRun& given) {
  std::vector<executive::StagedConfiguration> staged;
  for (std::size_t i = 0; i < several.configurations.size(); ++i) {
    const bool group = several.configurations[i].forwards();
    executive::StagedConfiguration one{.name = view.name(i),
                                       .group = group,
                                       .command = {options.program, "run",
                                                   options.configurations[i], "--one-of-several",
                                                   "--run-id", fmt::format("{}", given.id)},
                                       .input = std::move(several.texts[i])};
    if (options.controlled) one.command.emplace_back("--controlled");
    auto overrides = several.overrides[i];
    overrides.push_back(fmt::format("run.number={}", given.number));
    for (std::string& assignment : overrides) {
      one.command.emplace_back("--set");
      one.command.push_back(std::move(assignment));
    }
    staged.push_back(std::move(one));
  }
  return staged;
}

Result<int> launch(Several several, const config::Stages& stages, const RunOptions& options,
                   operation::RecordedRun* record, OutputFile& json) {
  executive::StagesView view(several.configurations);
  Terminal terminal(options.shown());
  const bool shown = options.control == nullptr;
  operation::RunKeeper* const keeper =
      shown ? record : static_cast<operation::RunKeeper*>(options.control);
  const auto log = [&](LogLevel level, std::string_view text) {
    if (shown) terminal.log(level, text);
    if (keeper != nullptr) keeper->log(level, text);
  };
  const auto given = FANIN_TRY(give_number(several, stages, options, record, log));
  const auto on_report = [&](std::size_t index, const json::Value& report) {
    view.on_report(index, report);
    const std::string kind = report.at("report").text();
    if (kind == "log") {
      log(executive::log_level(report.at("level").text()),
          fmt::format("{:<7}  {}", view.name(index), report.at("text").text()));
    }
    if (keeper != nullptr) keeper->on_report(report, view.name(index));
    if (kind == "progress" && shown && !options.quiet && view.begins_round()) {
      terminal.progress(view.progress_line());
    }
  };
  std::size_t processes = 0;
  for (const auto& one : several.configurations) processes += one.processes.size();
  executive::share_cores(processes);
  FANIN_TRY(executive::run_stages(
      {.configurations = configurations_of(several, view, options, given),
       .on_report = on_report,
       .on_failure = [&](std::size_t index,
                         const std::string& why) { view.on_failure(index, why); },
       .requests =
           options.control == nullptr ? executive::TakeRequests{} : options.control->requests(),
       .log = log}));
  terminal.end_progress();
  const json::Value result = view.result();
  if (keeper != nullptr) complain_of(keeper->end(result));
  if (shown) terminal.show("\n" + executive::stages_text(result));
  FANIN_TRY(json.write_json(result));
  return executive::succeeded(result) ? status_done : status_failed;
}

} // namespace

Result<int> run_several(const RunOptions& options) {
  if (!options.node.empty() || !options.hosts.empty() || options.testbed) {
    return fail(ErrorKind::usage, "--node, --hosts and --testbed are for one configuration: give "
                                  "one, or leave the option out");
  }
  auto several = FANIN_TRY(read(options));
  const auto stages = FANIN_TRY(config::fit_stages(several.configurations));
  for (const auto& one : several.configurations) FANIN_TRY(check(one));
  auto json = FANIN_TRY(OutputFile::open("--json", options.json));
  const bool recorded =
      !options.run_id && std::ranges::any_of(several.configurations, [](const auto& one) {
        return !one.run.registry.empty();
      });
  std::unique_ptr<operation::RecordedRun> record;
  if (recorded) {
    std::vector<operation::UsedConfiguration> used;
    for (std::size_t i = 0; i < several.texts.size(); ++i)
      used.push_back({options.configurations[i], several.texts[i], several.overrides[i]});
    record = FANIN_TRY(operation::RecordedRun::begin(several.configurations, std::move(used)));
  }
  const auto status = launch(std::move(several), stages, options, record.get(), json);
  if (!status && record) complain_of(record->end_without_result(status.error().text));
  return status;
}

} // namespace fanin::command
