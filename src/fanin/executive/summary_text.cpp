#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/printable.hpp"
#include "fanin/base/units.hpp"
#include "fanin/executive/run_view.hpp"

namespace fanin::executive {
namespace {

constexpr std::size_t gaps_shown = 8;
constexpr std::size_t missing_shown = 12;

std::uint64_t natural(const json::Value& value, std::string_view key) {
  return value.at(key).natural();
}

std::string of_microseconds(double value) {
  return format_duration(Duration{static_cast<Duration::rep>(value * 1e3)});
}

std::string events_text(const json::Value& result) {
  const json::Value& events = result.at("events");
  std::string text = fmt::format("events     {} built", natural(events, "built"));
  for (const char* kind : {"rejected", "undecided", "undelivered", "incomplete", "bad", "lost"}) {
    if (natural(events, kind) != 0) text += fmt::format(", {} {}", natural(events, kind), kind);
  }
  text += fmt::format("; {}, {}, {} in {:.3g} s\n", format_rate(result.at("event_rate_hz").real()),
                      format_bandwidth(result.at("throughput_bytes_per_s").real()),
                      format_size(natural(result, "bytes_built")), result.at("duration_s").real());
  return text;
}

std::string fragments_text(const json::Value& result) {
  const json::Value& fragments = result.at("fragments");
  const char* const verdict = result.at("balanced").boolean()     ? ""
                              : result.at("ledger").boolean(true) ? "   NOT BALANCED"
                                                                  : "   not checked: no ledger";
  const bool complete =
      fragments.find("lost") != nullptr; // else what some nodes counted is missing
  std::string text = fmt::format("fragments  {} read{} {} built", natural(fragments, "read"),
                                 complete ? " =" : ",", natural(fragments, "built"));
  if (complete) {
    text += fmt::format(" + {} late + {} dropped + {} lost", natural(fragments, "late"),
                        natural(fragments, "dropped"), natural(fragments, "lost"));
  }
  text += fmt::format("{}\n", verdict);
  for (const auto& [name, source] : result.at("sources").object()) {
    for (const auto& [reason, count] : source.at("dropped_by_reason").object()) {
      text += fmt::format("           source {}: {} dropped ({})\n", name, count.natural(), reason);
    }
    if (const auto& counters = source.at("counters").object(); !counters.empty()) {
      text += fmt::format("           source {}", name);
      std::string_view separator = ": ";
      for (const auto& [what, count] : counters) {
        text += fmt::format("{}{} {}", std::exchange(separator, ", "), printable(what),
                            count.natural());
      }
      text += '\n';
    }
    if (natural(source, "in_doubt") != 0) {
      text += fmt::format("           source {}: {} in doubt\n", name,
                          counted(natural(source, "in_doubt"), "fragment"));
    }
    if (natural(source, "missing") != 0) {
      text += fmt::format("           source {}: missing in {}{}\n", name,
                          counted(natural(source, "missing"), "event"),
                          source.at("required").boolean(true) ? "" : " (optional)");
    }
    if (natural(source, "lost") != 0) {
      text += fmt::format("           source {}: {} lost\n", name, natural(source, "lost"));
    }
  }
  return text;
}

std::string incomplete_text(const json::Value& result) {
  std::string text;
  const json::List& list = result.at("incomplete_events").list();
  for (std::size_t i = 0; i < std::min(list.size(), missing_shown); ++i) {
    const json::Value& run = list[i];
    const std::uint64_t first = natural(run, "first");
    const std::uint64_t count = natural(run, "count");
    text += fmt::format("           event{} {}: no fragment of source {} ({})\n",
                        count > 1 ? fmt::format("s {} to", first) : "", natural(run, "last"),
                        run.at("source").text(), run.at("reason").text());
  }
  if (list.size() > missing_shown) text += "           ... and more: --json lists them\n";
  return text;
}

std::string gaps_text(const json::Value& result) {
  const json::Value& gaps = result.at("gaps");
  if (natural(gaps, "count") == 0) return {};
  std::string text =
      fmt::format("gaps       {} that no source has:", counted(natural(gaps, "count"), "number"));
  const json::List& ranges = gaps.at("ranges").list();
  for (std::size_t i = 0; i < std::min(ranges.size(), gaps_shown); ++i) {
    const json::List& range = ranges[i].list();
    if (range.size() != 2) continue;
    const std::uint64_t first = range[0].natural();
    const std::uint64_t last = range[1].natural() - 1;
    text += first == last ? fmt::format(" {}", first) : fmt::format(" {}-{}", first, last);
  }
  return text + (ranges.size() > gaps_shown ? " ...\n" : "\n");
}

std::string nodes_table(const json::Value& result) {
  std::string text = fmt::format("{:<10} {:<13} {:>6} {:>12} {:>10} {:>9} {:>9} {:>9}\n", "node",
                                 "role", "starts", "events", "bytes", "throttled", "memory", "cpu");
  std::map<std::string, std::string> first_of; // node by process: memory and CPU stand once
  for (const auto& [name, node] : result.at("nodes").object()) {
    const std::string process = node.at("process").text();
    const auto [first, is_first] = first_of.try_emplace(process.empty() ? name : process, name);
    const std::string role = node.at("role").text();
    const bool counts = role == "builder" || role == "readout";
    text += fmt::format(
        "{:<10} {:<13} {:>6} {:>12} {:>10} {:>9} {:>9} {:>9}{}\n", name,
        role == "event_manager" ? "event manager" : role,
        node.find("starts") == nullptr ? "" : fmt::format("{}", natural(node, "starts")),
        node.find("events") == nullptr ? "" : fmt::format("{}", natural(node, "events")),
        counts ? format_size(natural(node, "bytes")) : "",
        role == "readout" ? fmt::format("{:.2f} s", node.at("throttled_s").real()) : "",
        node.find("peak_rss_bytes") == nullptr ? ""
        : is_first                             ? format_size(natural(node, "peak_rss_bytes"))
                                               : "as " + first->second,
        is_first && node.find("cpu_s") != nullptr ? fmt::format("{:.2f} s", node.at("cpu_s").real())
                                                  : "",
        node.find("exit") == nullptr ? "" : "  " + node.at("exit").text());
  }
  return text;
}

// What a readout unit had read and not announced died with it, and is in nobody's account.
std::string verdict(const json::Value& result) {
  if (!succeeded(result)) return "FAILED: " + printable(result.at("error").text());
  std::string text = "ended in good order, every fragment accounted for";
  if (const std::string died = dead_readout_units(result); !died.empty()) {
    text += fmt::format(" but those that were lost in {} before they were announced", died);
  }
  return text + dropped_text(natural(result.at("fragments"), "dropped"));
}

} // namespace

std::string dropped_text(std::uint64_t fragments) {
  return fragments == 0 ? "" : fmt::format(", {} dropped", counted(fragments, "fragment"));
}

std::string dead_readout_units(const json::Value& result) {
  std::string names;
  for (const auto& [name, node] : result.at("nodes").object()) {
    if (node.at("role").text() != "readout") continue;
    const bool died = node.find("exit") != nullptr || node.find("error") != nullptr ||
                      natural(node, "died") > 0 || natural(node, "starts") > 1;
    if (died) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

std::string summary_text(const json::Value& result) {
  if (natural(result, "run") == 0) { // it never began
    return fmt::format("run FAILED: {}\n", printable(result.at("error").text()));
  }
  std::string text = fmt::format("run {}      {}\n", natural(result, "run"), verdict(result));
  if (const std::uint64_t wanted = natural(result, "events_wanted"); wanted != 0)
    text += fmt::format("           ended by run.duration, before run.events = {}\n", wanted);
  text +=
      events_text(result) + incomplete_text(result) + fragments_text(result) + gaps_text(result);
  if (const json::Value& latency = result.at("latency_us"); !latency.is_null()) {
    text += fmt::format("latency    trigger to commit: p50 {}, p99 {}, p99.9 {}\n",
                        of_microseconds(latency.at("p50").real()),
                        of_microseconds(latency.at("p99").real()),
                        of_microseconds(latency.at("p999").real()));
  }
  text += "\n" + nodes_table(result);
  const json::List& files = result.at("files").list();
  if (const std::string manifest = result.at("manifest").text(); !manifest.empty()) {
    return text + fmt::format("\nmanifest   {}: {}\n", printable(manifest),
                              counted(files.size(), "run file"));
  }
  if (!files.empty()) text += "\n";
  for (const auto& file : files) text += fmt::format("file       {}\n", printable(file.text()));
  return text;
}

std::string nodes_text(const json::Value& nodes_result) {
  std::string text;
  for (const auto& [name, node] : nodes_result.at("nodes").object()) {
    if (node.find("fragments_read") != nullptr) {
      text += fmt::format("{:<10} {} read\n", name,
                          counted(natural(node, "fragments_read"), "fragment"));
    } else if (node.find("events_stored") != nullptr) {
      text += fmt::format("{:<10} {} of {} stored, {}\n", name,
                          counted(natural(node, "events_stored"), "event"),
                          counted(natural(node, "fragments_stored"), "fragment"),
                          format_size(natural(node, "bytes_stored")));
    }
  }
  for (const auto& file : nodes_result.at("files").list())
    text += fmt::format("file       {}\n", printable(file.text()));
  return text;
}

} // namespace fanin::executive
