#include "fanin/executive/report.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"
#include "fanin/executive/child.hpp"
#include "fanin/source/fragment_queue.hpp"

namespace fanin::executive {
namespace {

using Microseconds = std::chrono::duration<double, std::micro>;

constexpr std::array<std::string_view, 4> level_names{"debug", "info", "warning", "error"};

json::Value dropped_by_reason(const builder::SourceResult& source) {
  json::Value reasons{json::Object{}};
  for (const auto& [reason, count] : source.dropped_by_reason()) reasons[reason] = count;
  return reasons;
}

json::Value sources_of(const builder::RunSummary& summary, const builder::System& system) {
  json::Value sources{json::Object{}};
  for (const auto& result : summary.sources) {
    json::Value& source = sources[result.source.name];
    source = to_json(result.ledger);
    source["id"] = result.source.id;
    source["readout"] = system.readout_units[result.source.readout_unit];
    source["required"] = result.source.required;
    source["missing"] = summary.events_built - std::min(summary.events_built, result.ledger.built);
    source["dropped_by_reason"] = dropped_by_reason(result);
    source["in_doubt"] = result.in_doubt;
  }
  return sources;
}

// Batches are built out of order, and a gap may cross them.
json::Value gaps_of(const builder::RunSummary& summary, const wire::Slice& slice) {
  std::vector<EventRange> gaps = summary.gap_list;
  std::ranges::sort(gaps, {}, &EventRange::first);
  json::Value ranges{json::List{}};
  for (std::size_t i = 0; i < gaps.size();) {
    EventRange whole = gaps[i++];
    while (i < gaps.size() && gaps[i].first == whole.end) whole.end = gaps[i++].end;
    whole = slice.detector_range(whole);
    ranges.append(json::List{whole.first, whole.end});
  }
  return json::Object{{"count", summary.gaps}, {"ranges", std::move(ranges)}};
}

json::Value incomplete_of(const builder::RunSummary& summary, const builder::System& system) {
  auto runs = summary.incomplete_list;
  std::ranges::sort(runs, {},
                    [](const auto& run) { return std::pair{run.events.first, run.source}; });
  json::Value list{json::List{}};
  for (const auto& run : runs) {
    list.append(json::Object{{"first", system.slice.detector_number(run.events.first)},
                             {"last", system.slice.detector_number(run.events.end - 1)},
                             {"count", run.events.count()},
                             {"source", system.name_of(run.source)},
                             {"reason", wire::name(run.reason)}});
  }
  return list;
}

void add_totals(json::Value& report, const builder::RunSummary& summary) {
  report["events"] = json::Object{{"built", summary.events_built},
                                  {"incomplete", summary.events_incomplete},
                                  {"rejected", summary.events_rejected},
                                  {"undecided", summary.events_undecided},
                                  {"lost", summary.events_lost},
                                  {"bad", summary.events_bad},
                                  {"undelivered", summary.events_undelivered}};
  report["fragments"] = to_json(summary.fragments);
  report["bytes_built"] = summary.bytes_built;
}

void add_latency(json::Value& report, const Histogram& latency) {
  if (latency.count() == 0) return;
  report["latency_us"] = json::Object{{"p50", Microseconds(latency.quantile(0.5)).count()},
                                      {"p99", Microseconds(latency.quantile(0.99)).count()},
                                      {"p999", Microseconds(latency.quantile(0.999)).count()}};
}

json::Value nodes_of(const builder::RunSummary& summary) {
  json::Value nodes{json::Object{}};
  for (const auto& result : summary.nodes) {
    json::Value& node = nodes[result.name];
    node["role"] = result.role;
    node["starts"] = result.incarnations;
    node["alive"] = result.alive;
    if (result.role == "builder") node["events"] = result.events;
    node["bytes"] = result.bytes;
    if (result.role == "builder") node["stored_bytes"] = result.stored_bytes;
    node["messages"] = result.messages;
    node["stale"] = result.stale;
    node["late"] = result.late;
    if (result.role == "readout")
      node["throttled_s"] = static_cast<double>(result.throttled_us) * 1e-6;
    node["pages"] = result.pages;
    node["pages_in_use"] = result.pages_in_use;
  }
  return nodes;
}

} // namespace

std::string_view name(LogLevel level) { return level_names[static_cast<std::size_t>(level)]; }

LogLevel log_level(std::string_view name) {
  for (std::size_t i = 0; i < level_names.size(); ++i) {
    if (level_names[i] == name) return static_cast<LogLevel>(i);
  }
  return LogLevel::info;
}

json::Value to_json(const builder::SourceLedger& ledger) {
  return json::Object{{"read", ledger.read},
                      {"built", ledger.built},
                      {"late", ledger.late},
                      {"dropped", ledger.dropped},
                      {"lost", ledger.lost}};
}

std::string not_in_order(const builder::RunSummary& summary) {
  std::vector<std::string> lines;
  for (const auto& [source, ledger, dropped, missing, in_doubt, not_fitting] : summary.sources) {
    if (in_doubt != 0) {
      lines.push_back(
          fmt::format("source {} began to count again in mid-run: {} in doubt, and marked so",
                      source.name, counted(in_doubt, "fragment")));
    }
    if (ledger.read != 0 && ledger.read == ledger.late + ledger.dropped) {
      lines.push_back(fmt::format("source {}: nothing that it sent was built ({} late, {} dropped)",
                                  source.name, ledger.late, ledger.dropped));
    }
  }
  for (const auto& [slice, events, undelivered] : summary.slices) {
    if (events != 0 && events == undelivered) {
      lines.push_back(fmt::format("{} got none of its {}: the log says why not", slice,
                                  counted(events, "event")));
    }
  }
  return fmt::format("{}", fmt::join(lines, "; "));
}

namespace {
// Why a run has not ended in good order; empty: it has.
std::string failure_of(const builder::RunSummary& summary) {
  if (!summary.error.empty()) return summary.error;
  if (summary.forced) return "stopped before all that was read was built";
  if (summary.balanced) return not_in_order(summary);
  const auto& sum = summary.fragments;
  return fmt::format("the ledger does not balance: {} fragments were read, and {} were built, {} "
                     "late, {} dropped, {} lost. This is a fault of fanin; please report it with "
                     "the log of the run",
                     sum.read, sum.built, sum.late, sum.dropped, sum.lost);
}
} // namespace

json::Value to_json(const builder::RunSummary& summary, const builder::System& system) {
  json::Value result;
  const double duration_s = std::chrono::duration<double>(summary.duration).count();
  const double rate = duration_s > 0 ? 1 / duration_s : 0;
  result["run"] = summary.run;
  result["duration_s"] = duration_s;
  add_totals(result, summary);
  result["event_rate_hz"] = static_cast<double>(summary.events_built) * rate;
  result["throughput_bytes_per_s"] = static_cast<double>(summary.bytes_built) * rate;
  result["balanced"] = summary.balanced;
  const std::string failure = failure_of(summary);
  result["ok"] = failure.empty();
  result["error"] = failure;
  result["gaps"] = gaps_of(summary, system.slice);
  result["incomplete_events"] = incomplete_of(summary, system);
  add_latency(result, summary.latency);
  result["files"] = json::List(summary.files.begin(), summary.files.end());
  result["protocol"] = name(system.protocol);
  result["sources"] = sources_of(summary, system);
  result["nodes"] = nodes_of(summary);
  return result;
}

json::Value summary_report(const builder::RunSummary& summary, const builder::System& system,
                           const Histogram& latency) {
  json::Value report = json::Object{{"report", "summary"}};
  add_totals(report, summary);
  add_latency(report, latency);
  report["sources"] = sources_of(summary, system);
  report["nodes"] = nodes_of(summary);
  return report;
}

json::Value gone_report(const std::string& file, const std::string& what) {
  return json::Object{{"report", "gone"}, {"file", file}, {"what", what}};
}

json::Value progress_of(const builder::RunSummary& summary) {
  std::uint64_t pages = 0;
  std::uint64_t in_use = 0;
  std::uint64_t readouts = 0;
  std::uint64_t builders = 0;
  for (const auto& node : summary.nodes) {
    if (!node.alive) continue;
    (node.role == "readout" ? readouts : builders) += 1;
    pages += node.pages;
    in_use += node.pages_in_use;
  }
  return json::Object{{"run", summary.run},
                      {"events", summary.events_built},
                      {"incomplete", summary.events_incomplete},
                      {"rejected", summary.events_rejected},
                      {"open", summary.open_events},
                      {"bytes_built", summary.bytes_built},
                      {"buffers", json::Object{{"pages", pages}, {"in_use", in_use}}},
                      {"readouts", readouts},
                      {"builders", builders}};
}

void add_resources(json::Value& report) {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return;
  report["peak_rss_bytes"] = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  report["cpu_s"] = cpu_seconds(usage);
}

void add_usage(json::Value& report) {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) report["cpu_s"] = cpu_seconds(usage);
  std::uint64_t pages = 0;
  std::uint64_t resident = 0;
  if (std::ifstream("/proc/self/statm") >> pages >> resident)
    report["rss_bytes"] = resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

} // namespace fanin::executive
