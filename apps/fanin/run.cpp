// fanin run CONFIG: a whole event builder on this host or on those of a list, or one node of it.
// (Several configurations: run_several.cpp.)
#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <deque>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/base/home.hpp"
#include "fanin/base/thrown.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/executive/describe.hpp"
#include "fanin/executive/host_list.hpp"
#include "fanin/executive/launcher.hpp"
#include "fanin/executive/placement.hpp"
#include "fanin/executive/process.hpp"
#include "fanin/executive/report.hpp"
#include "fanin/executive/report_pipe.hpp"
#include "fanin/executive/run_view.hpp"
#include "fanin/executive/this_host.hpp"
#include "fanin/operation/recorded_run.hpp"
#include "fanin/settings/tree.hpp"
#include "plugin_end_report.hpp"
#include "run.hpp"

namespace fanin::command {
namespace {

std::vector<std::string> all_overrides(const RunOptions& options) {
  std::vector<std::string> overrides = options.overrides;
  for (const std::string& source : options.without)
    overrides.push_back("run.without+=" + settings::quoted(source));
  std::ranges::copy(end_overrides(options), std::back_inserter(overrides));
  return overrides;
}

// The list that was given, if one was.
Result<std::optional<executive::HostList>> read_hosts(const RunOptions& options) {
  if (options.hosts.empty() && !options.testbed) return std::nullopt;
  return FANIN_TRY(options.testbed ? executive::testbed_hosts()
                                   : executive::load_hosts(expand_home(options.hosts)));
}

using Plans = std::vector<executive::NodePlan>;

// Shows the run to the user: the log, the live line, and at the end the result.
class Show {
public:
  // `decides`: the event manager is here, and with it the result.
  // `keeper`: of the run; may be null, and outlives this.
  Show(const config::Configuration& configuration, const Plans& plans, const RunOptions& options,
       bool decides, operation::RunKeeper* keeper, OutputFile& json)
      : decides_(decides),
        keeper_(keeper),
        view_(configuration, plans),
        screen_(options.one_of_several       ? screen_of_parent(options.report_descriptor)
                : options.control != nullptr ? screen_of_control()
                                             : screen_on_terminal(options, json)) {
    if (const auto unknown = executive::unknown_rates(configuration); !unknown.empty())
      log(LogLevel::info, unknown);
  }

  [[nodiscard]] executive::RunView& view() { return view_; }
  void log(LogLevel level, std::string_view text) {
    screen_->log(level, text);
    if (keeper_ != nullptr) keeper_->log(level, text);
  }

  // Of a report that the view has seen.
  void on_report(const json::Value& report) {
    const std::string kind = report.at("report").text();
    const std::string node = report.at("node").text();
    if (kind == "log") {
      const LogLevel level = executive::log_level(report.at("level").text());
      const std::string line = fmt::format("{:<7}  {}", node, report.at("text").text());
      if (level == LogLevel::error) remember(line);
      log(level, line);
    } else if (kind == "listening" && !report.at("url").text().starts_with("inproc:")) {
      std::string rails = report.at("url").text(); // a line each
      for (std::size_t at = 0; (at = rails.find('\n', at)) != std::string::npos;)
        rails.replace(at, 1, " and ");
      screen_->log(LogLevel::info, fmt::format("{:<8} listens at {}", node, rails));
    } else if (kind == "end" && !report.at("ok").boolean()) {
      on_failed_end(node, report.at("error").text(), report.at("too_late").boolean());
    }
    json::Value more = report;
    if (kind == "progress") {
      more["line"] = view_.progress_line();
      more["ready"] = view_.only_senders_missing();
    }
    if (keeper_ != nullptr) keeper_->on_report(more, "");
    screen_->on_report(more, view_);
  }

  // The table and the JSON object; the exit status.
  Result<int> finish() {
    const json::Value result = decides_ ? view_.result() : view_.nodes_result();
    const bool good = decides_ ? executive::succeeded(result) : result.at("ok").boolean();
    const std::string text = decides_ ? "\n" + executive::summary_text(result)
                             : good   ? ""
                                      : "\n" + executive::nodes_text(result);
    if (keeper_ != nullptr) complain_of(keeper_->end(result));
    FANIN_TRY(screen_->finish(result, text));
    return good ? status_done : status_failed;
  }

private:
  // Who came too late for the run has nothing to complain about.
  void on_failed_end(const std::string& node, const std::string& error, bool too_late) {
    const std::string line = fmt::format("{:<7}  {}", node, error);
    const bool known = view_.has_result() || std::ranges::find(errors_, line) != errors_.end();
    log(too_late ? LogLevel::info : known ? LogLevel::debug : LogLevel::error, line);
    remember(line);
  }
  void remember(std::string line) {
    errors_.push_back(std::move(line));
    if (errors_.size() > errors_max) errors_.pop_front();
  }

  static constexpr std::size_t errors_max = 16;

  bool decides_;
  operation::RunKeeper* keeper_;
  std::deque<std::string> errors_; // the last that were shown
  executive::RunView view_;
  std::unique_ptr<RunScreen> screen_;
};

// Of several configurations, a group may be ended by itself. A slice ends after the groups.
executive::SignalsFrom signals_from(const config::Configuration& configuration,
                                    const RunOptions& options) {
  if (!options.one_of_several) return executive::SignalsFrom::anyone;
  return configuration.forwards() ? executive::SignalsFrom::launcher_or_first
                                  : executive::SignalsFrom::launcher;
}

std::vector<std::size_t> nodes_of(const config::Configuration& configuration,
                                  const std::vector<std::size_t>& processes) {
  std::vector<std::size_t> nodes;
  for (const std::size_t process : processes) {
    const auto& more = configuration.processes[process].nodes;
    nodes.insert(nodes.end(), more.begin(), more.end());
  }
  return nodes;
}

bool has_event_manager(const std::vector<std::size_t>& nodes) {
  return std::ranges::find(nodes, 0U) != nodes.end();
}

// Of the launcher that has started this process.
executive::TakeRequests requests_of(const RunOptions& options) {
  if (options.control != nullptr) return options.control->requests();
  if (options.request_descriptor < 0) return {};
  return executive::requests_from(options.request_descriptor);
}

// Runs nodes in this process; an error if they did not come so far as to say so themselves, or if
// an application or a transport of a plug-in throws.
Result<bool> run_here(const config::Configuration& configuration,
                      executive::ProcessOptions options) try {
  auto plugins = FANIN_TRY(executive::Plugins::load(configuration));
  auto process = FANIN_TRY(executive::Process::make(configuration, plugins, std::move(options)));
  FANIN_TRY(process->run());
  return process->succeeded();
} catch (...) {
  return fail(ErrorKind::internal, fmt::format("a node of this process: {}", thrown().text));
}

// A child of the launcher: everything goes through the pipe.
int run_as_child(const config::Configuration& configuration, const std::vector<std::size_t>& nodes,
                 const RunOptions& options) {
  executive::ReportPipe pipe(options.report_descriptor);
  const auto done =
      run_here(configuration, {.nodes = nodes,
                               .report = [&pipe](const json::Value& report) { pipe.write(report); },
                               .attended = false,
                               .signals_from = executive::SignalsFrom::launcher,
                               .session = options.session,
                               .requests = requests_of(options)});
  if (done) return *done ? status_done : status_failed;
  for (const std::size_t node : nodes) {
    pipe.write(json::Object{{"report", "end"},
                            {"node", configuration.nodes[node].name},
                            {"ok", false},
                            {"started", false},
                            {"error", done.error().text}});
  }
  return done.error().kind == ErrorKind::usage ? status_usage : status_failed;
}

// Nodes that a user has started in this process, all of them or one.
Result<int> run_alone(const config::Configuration& configuration, const Plans& plans,
                      const std::vector<std::size_t>& nodes, const RunOptions& options,
                      operation::RunKeeper* keeper, OutputFile& json) {
  Show show(configuration, plans, options, has_event_manager(nodes), keeper, json);
  const auto report = [&show](const json::Value& message) {
    show.view().on_report(message);
    show.on_report(message);
  };
  FANIN_TRY(run_here(configuration, {.nodes = nodes,
                                     .report = report,
                                     .signals_from = signals_from(configuration, options),
                                     .requests = requests_of(options)}));
  return show.finish();
}

// `file`: the text of the configuration, whose file may be changed for the next run while this one
// lasts.
Result<int> launch(const config::Configuration& configuration, const Plans& plans, std::string file,
                   const std::vector<std::size_t>& processes, const executive::HostList* hosts,
                   const RunOptions& options, operation::RunKeeper* keeper, OutputFile& json) {
  Show show(configuration, plans, options, has_event_manager(nodes_of(configuration, processes)),
            keeper, json);
  executive::LauncherOptions launcher;
  launcher.command = {options.program, "run", options.configurations.front()};
  for (const auto& assignment : all_overrides(options)) {
    launcher.command.emplace_back("--set");
    launcher.command.push_back(assignment);
  }
  if (configuration.run.id) {
    launcher.command.insert(launcher.command.end(),
                            {"--run-id", fmt::format("{}", *configuration.run.id), "--set",
                             fmt::format("run.number={}", *configuration.run.number)});
  }
  if (configuration.run.id_is_shared) launcher.command.emplace_back("--shared-run-id");
  launcher.by_hand = launcher.command;
  if (configuration.run.controlled) launcher.command.emplace_back("--controlled");
  if (hosts != nullptr) {
    launcher.command.insert(launcher.command.end(), {"--assigned", hosts->addresses()});
    launcher.by_hand.emplace_back(options.testbed ? "--testbed" : "--hosts");
    if (!options.testbed) launcher.by_hand.push_back(options.hosts);
    launcher.hosts = hosts;
  } else {
    executive::share_cores(processes.size());
  }
  launcher.input = std::move(file);
  launcher.processes = processes;
  launcher.signals_from = signals_from(configuration, options);
  launcher.requests = requests_of(options);
  launcher.on_report = [&show](const json::Value& report) { show.on_report(report); };
  launcher.log = [&show](LogLevel level, std::string_view text) { show.log(level, text); };
  FANIN_TRY(executive::run_processes(configuration, show.view(), std::move(launcher)));
  return show.finish();
}

// As ps and top show it. The kernel takes 15 characters; names of many nodes differ at their ends.
void name_process(const std::string& name) {
  constexpr std::size_t shown = 9;
  const std::string title = "fanin:" + name.substr(name.size() - std::min(name.size(), shown));
  prctl(PR_SET_NAME, title.c_str());
}

// Where a list says where nodes run.
Result<> assign(config::Configuration& configuration,
                const std::optional<executive::HostList>& hosts, const RunOptions& options) {
  if (hosts) return executive::assign_hosts(configuration, *hosts);
  if (options.assigned.empty()) return {};
  const auto assigned = FANIN_TRY(executive::parse_hosts(options.assigned, "--assigned"));
  return executive::assign_hosts(configuration, assigned);
}

Result<int> run(const RunOptions& options) {
  std::signal(SIGXFSZ, SIG_IGN); // a file may not grow (ulimit -f): another one is begun
  // Children read what their launcher has read.
  const bool started = options.report_descriptor >= 0;
  const bool child = started && !options.one_of_several;
  const std::string& file = options.configurations.front();
  auto text = FANIN_TRY(started ? settings::read_text("/proc/self/fd/0") : options.read_text(file));
  auto configuration = FANIN_TRY(config::parse(text, file, all_overrides(options)));
  configuration.run.id = options.run_id;
  configuration.run.id_is_shared = options.one_of_several || options.shared_run_id;
  configuration.run.controlled = options.controlled;
  const auto hosts = FANIN_TRY(read_hosts(options));
  FANIN_TRY(assign(configuration, hosts, options));
  const auto processes =
      FANIN_TRY(hosts ? executive::processes_elsewhere(configuration, options.node)
                      : executive::processes_here(configuration, options.node));
  const auto nodes = nodes_of(configuration, processes);
  const bool alone = processes.size() == 1 && !hosts && options.control == nullptr;
  if (options.one_of_several) {
    name_process(std::filesystem::path(file).stem());
  } else if (alone) {
    name_process(configuration.processes[processes.front()].name);
  }
  if (child) return run_as_child(configuration, nodes, options);
  // What the other hosts can do shows there.
  const auto plans =
      FANIN_TRY(executive::check_here(configuration, hosts ? std::vector<std::size_t>{} : nodes));
  auto json = FANIN_TRY(OutputFile::open("--json", options.json));
  std::unique_ptr<operation::RecordedRun> record;
  if (!configuration.run.id && has_event_manager(nodes) && !configuration.run.registry.empty()) {
    record = FANIN_TRY(
        operation::RecordedRun::begin({&configuration, 1}, {{file, text, all_overrides(options)}}));
    configuration.run.number = record->run().number;
    configuration.run.id = record->run().id;
  }
  operation::RunKeeper* const keeper = options.control != nullptr
                                           ? static_cast<operation::RunKeeper*>(options.control)
                                           : record.get();
  const auto status = alone ? run_alone(configuration, plans, nodes, options, keeper, json)
                            : launch(configuration, plans, std::move(text), processes,
                                     hosts ? &*hosts : nullptr, options, keeper, json);
  if (!status && record) complain_of(record->end_without_result(status.error().text));
  return status;
}

Result<int> run_any(RunOptions options) {
  std::signal(SIGPIPE, SIG_IGN); // who reads the log may go before the run ends
  const PluginEndReport end_report;
  const auto chosen = [&] {
    return options.configurations.size() > 1 ? run_several(options) : run(options);
  };
  if (options.control_descriptor < 0) return chosen();
  operation::ControlledRun control(Descriptor(options.control_descriptor), options.control_end);
  options.control = &control;
  const auto texts = settings::read_text("/proc/self/fd/0");
  if (texts) options.texts = json::Value::parse(*texts).value_or(json::Value{});
  auto status = chosen();
  if (!status) complain_of(control.end_without_result(status.error().text));
  return status;
}

// For CLI11: empty, or what is wrong.
std::string wrong_duration(const std::string& text) {
  const auto duration = parse_duration(text);
  if (!duration) return duration.error().text;
  return *duration > Duration{0} ? "" : "is zero; leave it out to run until stopped";
}

std::string wrong_count(const std::string& text) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  const bool good = digits && text.size() < 19 && text.find_first_not_of('0') != std::string::npos;
  return good ? "" : fmt::format("\"{}\" is not a whole number from 1 to 999999999999999999", text);
}

} // namespace

LogLevel RunOptions::shown() const { return quiet ? LogLevel::warning : executive::log_level(log); }

Result<std::string> RunOptions::read_text(const std::string& file) const {
  if (const json::Value* text = texts.find(file)) return text->text();
  return settings::read_text(file);
}

std::vector<std::string> end_overrides(const RunOptions& options) {
  std::vector<std::string> overrides;
  if (!options.duration.empty()) overrides.push_back("run.duration=" + options.duration);
  if (!options.events.empty()) overrides.push_back("run.events=" + options.events);
  return overrides;
}

void add_run(CLI::App& app, const std::string& program, int& status) {
  auto options = std::make_shared<RunOptions>();
  options->program = program;
  CLI::App* command =
      app.add_subcommand("run", "Run an event builder here or on several hosts, or one node of it");
  command
      ->add_option("CONFIG", options->configurations,
                   "Configuration (TOML); several: two stages of event building")
      ->required();
  command->add_option("--node", options->node, "Only this node, or this [[process]]");
  auto* duration = command->add_option("--duration", options->duration, "Stop after this time: 10s")
                       ->check(wrong_duration);
  command->add_option("--events", options->events, "Stop after so many events")
      ->excludes(duration)
      ->check(wrong_count);
  command
      ->add_option("--set", options->overrides,
                   "KEY=VALUE: override one key, dotted: run.output=/data")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--without", options->without, "Leave this source out, as with run.without")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--json", options->json,
                      "Write the result to this file; - is standard output");
  command->add_option("--log", options->log, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  command->add_flag("--quiet", options->quiet, "Only warnings and the result");
  auto* hosts = command->add_option("--hosts", options->hosts,
                                    "List of hosts: runs a process on each, in their order");
  command->add_flag("--testbed", options->testbed, "The same on the hosts of ./dev testbed")
      ->excludes(hosts);
  command->add_option("--assigned", options->assigned)->group(""); // of the launcher's
  command->add_flag("--one-of-several", options->one_of_several)
      ->group(""); // likewise, of several configurations
  command->add_option("--run-id", options->run_id)->group(""); // likewise
  command->add_flag("--shared-run-id", options->shared_run_id)->group(""); // likewise
  command->add_flag("--controlled", options->controlled)->group(""); // likewise
  command->add_option("--report-fd", options->report_descriptor)->group(""); // likewise
  command->add_option("--request-fd", options->request_descriptor)->group(""); // likewise
  command->add_option("--control-fd", options->control_descriptor)->group(""); // of run control's
  command->add_option("--control-end", options->control_end)->group(""); // likewise
  command->add_option("--session", options->session)->group(""); // likewise
  command->callback([options, &status] { status = status_of(run_any(*options)); });
}

} // namespace fanin::command
