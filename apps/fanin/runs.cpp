// fanin runs: lists the runs of a registry, shows one, and keeps what people say of it.
#include <ctime>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/base/printable.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/executive/run_output.hpp"
#include "fanin/executive/run_view.hpp"
#include "fanin/operation/registry.hpp"
#include "fanin/operation/reserve_run.hpp"
#include "fanin/operation/run_text.hpp"
#include "terminal.hpp"

namespace fanin::command {
namespace {

using operation::reason_of;
using operation::Registry;
using operation::RunEntry;
using operation::seconds_of;
using operation::time_text;
using Access = operation::Database::Access;

constexpr std::int64_t ns_per_s = 1'000'000'000;

struct RunsArguments {
  std::string registry = Registry::usual_path();
  std::string kind;
  std::string quality;
  std::string since;
  std::uint64_t last = 0;
  std::string json;
  std::string csv;
  RunNumber run = 0;
  bool configuration = false;
  bool log = false;
  std::string text;
};

// A day, or a day and a time, in UTC.
Result<std::int64_t> parse_time(const std::string& text) {
  for (const char* format : {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"}) {
    std::tm time{};
    const char* const end = strptime(text.c_str(), format, &time);
    if (end != nullptr && *end == '\0') return std::int64_t{timegm(&time)} * ns_per_s;
  }
  return fail(
      ErrorKind::usage,
      fmt::format("--since {}: write a day, as 2026-11-29, or 2026-11-29T18:00 (UTC)", text));
}

std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2)
    text.insert(at, 1, '"');
  return '"' + text + '"';
}

std::string to_csv(const std::vector<RunEntry>& runs) {
  std::string csv = "run,run_id,kind,who,begin,end,duration_s,events_built,events_incomplete,"
                    "events_lost,quality,reason,comment\n";
  for (const RunEntry& run : runs) {
    const json::Value& events = run.result.at("events");
    csv += fmt::format("{},{:016x},{},{},{},{},{:.3f},{},{},{},{},{},{}\n", run.number, run.id,
                       run.kind, quoted(run.who), time_text(run.begun_ns), time_text(run.ended_ns),
                       seconds_of(run), events.at("built").natural(),
                       events.at("incomplete").natural(), events.at("lost").natural(),
                       operation::name(run.quality), quoted(reason_of(run)), quoted(run.comment));
  }
  return csv;
}

void print_table(const std::vector<RunEntry>& runs) {
  print(fmt::format("{:>8}  {:<8} {:<19}  {:>10}  {:>12}  {:>10}  {:<8} {}\n", "run", "kind",
                    "begin (UTC)", "duration", "events", "incomplete", "quality",
                    "why it ended; comment"));
  for (const RunEntry& run : runs) {
    const json::Value& events = run.result.at("events");
    const std::string comment = run.comment.empty() ? "" : "; " + run.comment;
    print(fmt::format("{:>8}  {:<8} {:<19}  {:>8.1f} s  {:>12}  {:>10}  {:<8} {}\n", run.number,
                      run.kind, time_text(run.begun_ns == 0 ? run.reserved_ns : run.begun_ns),
                      seconds_of(run), events.at("built").natural(),
                      events.at("incomplete").natural(), operation::name(run.quality),
                      printable(reason_of(run) + comment)));
  }
}

Result<int> list(const RunsArguments& arguments) {
  auto json = FANIN_TRY(OutputFile::open("--json", arguments.json));
  auto csv = FANIN_TRY(OutputFile::open("--csv", arguments.csv));
  FANIN_TRY(OutputFile::check_apart({&json, &csv}));
  operation::RunFilter filter{.kind = arguments.kind, .quality = {}, .last = arguments.last};
  if (!arguments.quality.empty()) filter.quality = operation::quality_named(arguments.quality);
  if (!arguments.since.empty()) filter.since_ns = FANIN_TRY(parse_time(arguments.since));
  auto registry = FANIN_TRY(Registry::open(arguments.registry, Access::read));
  const auto runs = FANIN_TRY(registry.list(filter));
  if (arguments.json != "-" && arguments.csv != "-") print_table(runs);
  json::Value result;
  result["runs"] = json::List{};
  for (const RunEntry& run : runs) result["runs"].append(operation::to_json(run));
  FANIN_TRY(json.write_json(result));
  if (!arguments.csv.empty()) FANIN_TRY(csv.write(to_csv(runs)));
  return status_done;
}

Result<int> show(const RunsArguments& arguments) {
  auto json = FANIN_TRY(OutputFile::open("--json", arguments.json));
  auto registry = FANIN_TRY(Registry::open(arguments.registry, Access::read));
  const auto run = FANIN_TRY(registry.find(arguments.run));
  if (arguments.configuration) {
    print(FANIN_TRY(operation::configurations_of(registry, run.number)));
    return status_done;
  }
  const auto lines = FANIN_TRY(registry.log(run.number));
  if (arguments.log) {
    for (const operation::LogLine& line : lines)
      print(
          fmt::format("{} {:<7} {}\n", time_text(line.unix_ns), line.level, printable(line.text)));
    return status_done;
  }
  if (arguments.json != "-") {
    print(fmt::format(
        "run {} ({}), by {} on {}, {} to {} UTC\nwhy it ended: {}\nquality: {}\n{}", run.number,
        run.kind, printable(run.who), printable(run.host), time_text(run.begun_ns),
        time_text(run.ended_ns), printable(reason_of(run)), operation::name(run.quality),
        run.comment.empty() ? "" : fmt::format("comment: {}\n", printable(run.comment))));
    if (!run.result.is_null()) print("\n" + executive::summary_text(run.result));
  }
  const auto details = FANIN_TRY(operation::details_of(registry, run));
  FANIN_TRY(json.write_json(details));
  return status_done;
}

Result<int> comment(const RunsArguments& arguments) {
  auto registry = FANIN_TRY(Registry::open(arguments.registry, Access::write));
  FANIN_TRY(registry.set_comment(arguments.run, arguments.text,
                                 {operation::user_name(), executive::unix_ns()}));
  return status_done;
}

Result<int> set_quality(const RunsArguments& arguments) {
  auto registry = FANIN_TRY(Registry::open(arguments.registry, Access::write));
  const auto quality =
      operation::quality_named(arguments.text).value_or(operation::Quality::unknown);
  FANIN_TRY(
      registry.set_quality(arguments.run, quality, {operation::user_name(), executive::unix_ns()}));
  return status_done;
}

} // namespace

void add_runs(CLI::App& app, int& status) {
  auto arguments = std::make_shared<RunsArguments>();
  const CLI::IsMember qualities({"good", "bad", "unknown"});
  CLI::App* command = app.add_subcommand("runs", "List the runs of a registry (run.registry)");
  command->add_option("--registry", arguments->registry, "Its file")->capture_default_str();
  command->add_option("--kind", arguments->kind, "physics or test: only such runs")
      ->check(CLI::IsMember({"physics", "test"}));
  command->add_option("--quality", arguments->quality, "good, bad or unknown: only such runs")
      ->check(qualities);
  command->add_option("--since", arguments->since,
                      "A day, or a day and a time (UTC): 2026-11-29T18:00");
  command->add_option("--last", arguments->last, "Only the last so many");
  command->add_option("--json", arguments->json, "File for the list; - is standard output");
  command->add_option("--csv", arguments->csv, "The same as a table with commas");
  command->require_subcommand(0, 1);
  const auto with_run = [&](CLI::App* one) {
    one->add_option("RUN", arguments->run, "Its number")->required();
    one->add_option("--registry", arguments->registry, "Its file")->capture_default_str();
  };
  CLI::App* one = command->add_subcommand("show", "One run");
  with_run(one);
  one->add_flag("--configuration", arguments->configuration,
                "The configuration that reproduces it, and nothing else");
  one->add_flag("--log", arguments->log, "The last lines of its log, and nothing else");
  one->add_option("--json", arguments->json, "File for what is known; - is standard output");
  one->callback([arguments, &status] { status = status_of(show(*arguments)); });
  CLI::App* note = command->add_subcommand("comment", "Set its comment");
  with_run(note);
  note->add_option("TEXT", arguments->text, "The comment")->required();
  note->callback([arguments, &status] { status = status_of(comment(*arguments)); });
  CLI::App* flag = command->add_subcommand("quality", "Set its quality");
  with_run(flag);
  flag->add_option("QUALITY", arguments->text, "good, bad or unknown")
      ->required()
      ->check(qualities);
  flag->callback([arguments, &status] { status = status_of(set_quality(*arguments)); });
  command->callback([arguments, command, &status] {
    if (command->get_subcommands().empty()) status = status_of(list(*arguments));
  });
}

} // namespace fanin::command
