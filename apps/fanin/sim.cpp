// fanin sim: the event builder, or traffic alone, on a simulated network in virtual time.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "commands.hpp"
#include "fanin/base/clock.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/bench/plot.hpp"
#include "fanin/fabric/crossbar_theory.hpp"
#include "fanin/memory/arena.hpp"
#include "fanin/settings/tree.hpp"
#include "fanin/simulation/builder_run.hpp"
#include "fanin/simulation/nxn.hpp"
#include "fanin/simulation/settings.hpp"
#include "fanin/simulation/sweep.hpp"
#include "fanin/simulation/sweep_plot.hpp"
#include "fanin/simulation/traffic.hpp"
#include "terminal.hpp"

namespace fanin::command {
namespace {

using simulation::Outcome;
using simulation::Point;
using simulation::SweepResult;

struct SimArguments {
  std::string file;
  std::string traffic;
  std::string theory;
  std::vector<std::string> sweeps;
  std::vector<std::string> overrides;
  std::string json;
  std::string plot;
  bool quiet = false;
};

// The file with the values of a point.
simulation::ConfigurationFile file_at(const SimArguments& arguments, const std::string& text,
                                      const Point& point) {
  simulation::ConfigurationFile file{
      .text = text, .name = arguments.file, .overrides = arguments.overrides};
  for (std::string& override : simulation::overrides_of(point))
    file.overrides.push_back(std::move(override));
  return file;
}

constexpr const char* sockets_traffic = "nxn";
const std::map<std::string, simulation::Pattern> patterns{
    {"uniform", simulation::Pattern::uniform},
    {"stream", simulation::Pattern::stream},
    {"roundtrip", simulation::Pattern::roundtrip}};

Result<simulation::SimulationSettings> settings_of(const simulation::ConfigurationFile& file) {
  const auto root = FANIN_TRY(simulation::parse(file));
  return simulation::read_settings(root);
}

// Of traffic alone it is little.
Result<simulation::MemoryNeed> check(const SimArguments& arguments,
                                     const simulation::ConfigurationFile& file) {
  if (arguments.traffic.empty()) return simulation::check_event_builder(file);
  if (arguments.traffic == sockets_traffic) {
    FANIN_TRY(simulation::check_nxn(file));
  } else {
    const auto settings = FANIN_TRY(settings_of(file));
    FANIN_TRY(simulation::check_traffic(settings));
  }
  return simulation::MemoryNeed{};
}

// The largest ones may come together, one on each thread.
Result<> check_memory(std::vector<simulation::MemoryNeed> needs, std::uint64_t most) {
  std::ranges::sort(needs, std::ranges::greater{}, &simulation::MemoryNeed::bytes);
  const std::size_t together = simulation::threads_for(needs.size());
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < together; ++i) bytes += needs[i].bytes;
  auto possible = memory::check_arena(bytes, {});
  if (most > 0 && bytes > most)
    possible =
        fail(ErrorKind::exhausted, fmt::format("fabric.memory_max is {}", format_size(most)));
  if (possible) return {};
  return fail(
      ErrorKind::exhausted,
      fmt::format("the simulation needs about {}{}: {}; {}", format_size(bytes),
                  together == 1 ? "" : fmt::format(" for {} points at the same time", together),
                  needs.front().sum, possible.error().text));
}

Result<Outcome> simulate_one(const SimArguments& arguments,
                             const simulation::ConfigurationFile& file,
                             const simulation::Watch& watch) {
  if (arguments.traffic.empty()) return simulation::run_event_builder(file, watch);
  if (arguments.traffic == sockets_traffic) return simulation::run_nxn(file, watch);
  const auto settings = FANIN_TRY(settings_of(file));
  return simulation::run_traffic(settings, patterns.at(arguments.traffic), watch);
}

std::uint64_t peak_rss_bytes() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::uint64_t>(usage.ru_maxrss) * 1024
                                             : 0;
}

// What was set on the command line is not what the file says of it.
std::vector<simulation::Origin> origins_in(std::vector<simulation::Origin> origins,
                                           const SimArguments& arguments) {
  for (simulation::Origin& origin : origins) {
    const auto sets = [&](const std::string& one) { return one.starts_with(origin.key + "="); };
    if (std::ranges::any_of(arguments.overrides, sets) ||
        std::ranges::any_of(arguments.sweeps, sets))
      origin.text = "set on the command line";
  }
  return origins;
}

json::Value origins_of(const std::vector<simulation::Origin>& origins) {
  json::Value all{json::Object{}};
  for (const simulation::Origin& origin : origins) all[origin.key] = origin.text;
  return all;
}

std::string text_of(const std::vector<simulation::Origin>& origins) {
  std::string text;
  for (const simulation::Origin& origin : origins)
    text += fmt::format("  {:<24} {}\n", origin.key, origin.text);
  return text.empty() ? text : "Where the parameters come from:\n" + text;
}

// "fabric.nodes=2, traffic.size=64B: ", for messages.
std::string begin_of(const Point& point) {
  return point.empty() ? "" : fmt::format("{}: ", fmt::join(simulation::overrides_of(point), ", "));
}

std::string text_of(const std::vector<std::string>& notes) {
  return notes.empty() ? "" : fmt::format("In this simulation:\n  {}\n", fmt::join(notes, "\n  "));
}

// "12.5 ms of 20 ms of virtual time, 31 s, about 19 s to go".
std::string text_of(const simulation::SweepProgress& progress, Duration wall) {
  std::string text =
      progress.points == 1
          ? fmt::format("{} of {} of virtual time", format_duration(progress.first.now),
                        progress.first.end > Duration{} ? format_duration(progress.first.end) : "?")
          : fmt::format("{} of {} points", progress.results, progress.points);
  const double seconds = std::chrono::duration<double>(wall).count();
  text += fmt::format(", {:.0f} s", seconds);
  if (progress.share > 0.01)
    text += fmt::format(", about {:.0f} s to go", seconds * (1 / progress.share - 1));
  return text;
}

Result<int> simulate(const SimArguments& arguments) {
  auto file = FANIN_TRY(OutputFile::open("--json", arguments.json));
  auto drawing = FANIN_TRY(OutputFile::open("--plot", arguments.plot));
  FANIN_TRY(OutputFile::check_apart({&file, &drawing}));
  const auto text = FANIN_TRY(settings::read_text(arguments.file));
  const auto points = FANIN_TRY(simulation::points_of(arguments.sweeps));
  std::vector<simulation::MemoryNeed> needs;
  for (const Point& point : points) // all of them before the first is simulated
    needs.push_back(FANIN_TRY(check(arguments, file_at(arguments, text, point))));
  const auto settings = FANIN_TRY(settings_of(file_at(arguments, text, points.front())));
  FANIN_TRY(check_memory(std::move(needs), settings.memory_most));

  Terminal terminal(LogLevel::warning);
  const bool prints = arguments.json != "-" && arguments.plot != "-";
  const auto origins = origins_in(settings.origins, arguments);
  if (prints) print(text_of(origins) + simulation::table_head(points.front()));
  json::Value result;
  result["results"] = json::List{};
  simulation::SweepObserver observer;
  observer.on_result = [&](const SweepResult& one) {
    terminal.end_progress();
    if (!one.outcome) {
      complain({one.outcome.error().kind, begin_of(one.point) + one.outcome.error().text});
    } else if (prints) {
      print(simulation::table_line(one.point, *one.outcome));
    }
    std::fflush(stdout); // who ends the sweep keeps what is there
    result["results"].append(one.outcome ? simulation::to_json(one.point, *one.outcome)
                                         : simulation::to_json(one.point, one.outcome.error()));
  };
  const MonotonicClock clock;
  const Time began = clock.now();
  observer.on_progress = [&](const simulation::SweepProgress& progress) {
    if (!arguments.quiet) terminal.progress(text_of(progress, clock.now() - began));
  };
  const auto simulate_point = [&](const Point& point, const simulation::Watch& watch) {
    return simulate_one(arguments, file_at(arguments, text, point), watch);
  };
  const auto results = simulation::run_sweep(points, simulate_point, observer);
  terminal.end_progress();
  const std::uint64_t peak = peak_rss_bytes();
  if (prints) {
    if (results.front().outcome) print(text_of(results.front().outcome->notes));
    print(fmt::format("Memory: {} at most\n", format_size(peak)));
  }
  result["origins"] = origins_of(origins);
  result["peak_rss_bytes"] = peak;
  FANIN_TRY(file.write_json(result));
  if (!arguments.plot.empty())
    FANIN_TRY(drawing.write(bench::to_svg(simulation::plot_of(results))));
  if (settings.memory_most > 0 && peak > settings.memory_most)
    return fail(ErrorKind::exhausted,
                fmt::format("the simulation took {} of memory, and fabric.memory_max is {}",
                            format_size(peak), format_size(settings.memory_most)));
  const bool good = std::ranges::all_of(results, [](const SweepResult& one) {
    return one.outcome && simulation::is_good(*one.outcome);
  });
  return good ? status_done : status_failed;
}

Result<int> show_theory(const SimArguments& arguments) {
  auto file = FANIN_TRY(OutputFile::open("--json", arguments.json));
  json::Value result;
  std::string table = "N x N crossbar, input FIFOs always full: share of the links' rate\n";
  for (std::size_t ports = 1; ports <= fabric::crossbar_exact_max; ++ports) {
    const double saturation = fabric::crossbar_saturation(ports);
    table += fmt::format("{:>8} {:>8.2f} %\n", ports, 100 * saturation);
    result["results"].append(json::Object{{"ports", ports}, {"saturation", saturation}});
  }
  table += fmt::format("{:>8} {:>8.2f} %\n", "limit", 100 * fabric::crossbar_saturation_limit());
  result["limit"] = fabric::crossbar_saturation_limit();
  if (arguments.json != "-") print(table);
  FANIN_TRY(file.write_json(result));
  return status_done;
}

} // namespace

void add_sim(CLI::App& app, int& status) {
  auto arguments = std::make_shared<SimArguments>();
  CLI::App* command =
      app.add_subcommand("sim", "Simulate a run on a network of switches, in virtual time");
  CLI::Option* file =
      command->add_option("CONFIG", arguments->file, "Configuration (TOML), with [fabric]");
  CLI::Option* traffic =
      command
          ->add_option("--traffic", arguments->traffic,
                       "No event builder, but sources that always send: uniform (to all "
                       "destinations), stream (each to one of its own), roundtrip (and as much "
                       "back), nxn (as fanin bench nxn: fanin's message sockets, or carriers "
                       "in the order of shaping.policy)")
          ->check(CLI::IsMember({"uniform", "stream", "roundtrip", sockets_traffic}));
  CLI::Option* theory = command
                            ->add_option("--theory", arguments->theory,
                                         "crossbar: the exact throughput of an N x N crossbar")
                            ->check(CLI::IsMember({"crossbar"}))
                            ->excludes(file);
  command
      ->add_option("--sweep", arguments->sweeps,
                   "KEY=LIST: simulate with each value, as fabric.nodes=1,2,4..8")
      ->take_all()
      ->allow_extra_args(false)
      ->excludes(theory);
  command->add_option("--set", arguments->overrides, "KEY=VALUE: override one key")
      ->take_all()
      ->allow_extra_args(false)
      ->excludes(theory);
  traffic->excludes(theory);
  command->add_option("--json", arguments->json, "File for the result; - is standard output");
  command->add_option("--plot", arguments->plot,
                      "File for a drawing (SVG): throughput, latency, queues, busiest links");
  command->add_flag("-q,--quiet", arguments->quiet, "No progress");
  command->callback([arguments, &status] {
    if (!arguments->theory.empty()) {
      status = status_of(show_theory(*arguments));
    } else if (arguments->file.empty()) {
      status = complain({ErrorKind::usage, "sim: give a CONFIG, or --theory crossbar"});
    } else {
      status = status_of(simulate(*arguments));
    }
  });
}

} // namespace fanin::command
