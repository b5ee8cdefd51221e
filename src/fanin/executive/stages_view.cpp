#include "fanin/executive/stages_view.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/printable.hpp"
#include "fanin/base/units.hpp"
#include "fanin/executive/run_view.hpp"

namespace fanin::executive {
namespace {

// The slices know nothing of an event that no group could send them.
std::string undelivered_text(const json::Value& result) {
  std::string text;
  for (const auto& [name, one] : result.at("configurations").object()) {
    const std::uint64_t events = one.at("events").at("undelivered").natural();
    if (one.at("stage").natural() != 1 || events == 0) continue;
    text += text.empty() ? "           " : ", ";
    text += fmt::format("{} of group '{}'", counted(events, "event"), printable(name));
  }
  if (text.empty()) return text;
  return text + " did not reach their slice: it was not connected for too long, or had built them "
                "already\n";
}

// Which stage lost events: they were announced there, and not built.
std::string lost_text(const json::Value& result) {
  std::string text;
  for (const auto& [name, one] : result.at("configurations").object()) {
    const std::uint64_t events = one.at("events").at("lost").natural();
    if (events == 0) continue;
    text += fmt::format("{}{} in {} '{}'", text.empty() ? "           lost: " : ", ", events,
                        one.at("stage").natural() == 1 ? "group" : "slice", printable(name));
  }
  return text.empty() ? text : text + "\n";
}

} // namespace

StagesView::StagesView(std::span<const config::Configuration> configurations) {
  const auto stem = [](const config::Configuration& one) {
    return std::filesystem::path(one.file).stem().string();
  };
  std::map<std::string, int> count;
  for (const auto& one : configurations) ++count[stem(one)];
  for (const auto& one : configurations) {
    Entry entry;
    entry.name = count[stem(one)] == 1 ? stem(one) : one.file;
    entry.configuration = &one;
    entries_.push_back(std::move(entry));
  }
}

void StagesView::on_report(std::size_t index, const json::Value& report) {
  Entry& of = entries_[index];
  const std::string kind = report.at("report").text();
  if (kind == "progress") {
    of.earlier = std::move(of.progress);
    of.progress = report;
    if (!round_.insert(index).second) round_ = {index};
  } else if (kind == "result") {
    of.result = report;
  }
}

void StagesView::on_failure(std::size_t index, std::string why) {
  entries_[index].failure = std::move(why);
  if (!first_failed_) first_failed_ = index;
}

std::string StagesView::progress_line() const {
  struct Sum {
    std::uint64_t count = 0;
    std::uint64_t events = 0;
    std::uint64_t incomplete = 0;
    double rate = 0;
    double bytes_rate = 0;
  };
  Sum slices;
  double time = 0;
  std::uint64_t groups = 0;
  std::uint64_t events_of_groups = 0; // of the slowest one: each has all events
  for (const Entry& entry : entries_) {
    const std::uint64_t events = entry.progress.at("events").natural();
    time = std::max(time, entry.progress.at("time_s").real());
    if (entry.configuration->forwards()) {
      if (entry.progress.is_null()) continue;
      events_of_groups = groups++ == 0 ? events : std::min(events_of_groups, events);
      continue;
    }
    const double step = entry.progress.at("time_s").real() - entry.earlier.at("time_s").real();
    const auto rate = [&](std::string_view key) {
      return step > 0 ? (entry.progress.at(key).real() - entry.earlier.at(key).real()) / step : 0.0;
    };
    ++slices.count;
    slices.events += events;
    slices.incomplete += entry.progress.at("incomplete").natural();
    slices.rate += rate("events");
    slices.bytes_rate += rate("bytes_built");
    if (!entry.progress.at("ready").boolean()) {
      const std::string line = entry.progress.at("line").text();
      return fmt::format("{}: {}", entry.name, line.empty() ? "starting" : line);
    }
  }
  if (groups == 0) return "the groups start";
  return fmt::format("{:6.1f} s  {:>9}  {:>9}  {} events  {} incomplete in {}; {} in each "
                     "of {}",
                     time, format_rate(std::max(slices.rate, 0.0)),
                     format_bandwidth(std::max(slices.bytes_rate, 0.0)), slices.events,
                     slices.incomplete, counted(slices.count, "slice"), events_of_groups,
                     counted(groups, "group")) +
         waiting_text();
}

// One that makes no progress stops all others. A group knows for which slice it waits, and a slice
// what it lacks itself. Who lacks a node is the reason, and the others wait for it.
std::string StagesView::waiting_text() const {
  std::string of_group;
  std::string of_slice;
  for (const bool reason : {true, false}) {
    for (const Entry& entry : entries_) {
      std::string& text = entry.configuration->forwards() ? of_group : of_slice;
      if (text.empty() && lacks_node(entry) == reason) text = waiting_text(entry);
    }
  }
  return of_group + of_slice;
}

bool StagesView::lacks_node(const Entry& entry) {
  return entry.progress.at("readouts").natural() < entry.configuration->readouts() ||
         entry.progress.at("builders").natural() < entry.configuration->builders();
}

std::string StagesView::waiting_text(const Entry& entry) {
  if (!entry.result.is_null()) return {}; // it has ended
  const json::Value& now = entry.progress;
  if (now.at("state").text() == "waiting" && !entry.configuration->forwards())
    return fmt::format("  {} {}", entry.name, now.at("line").text());
  const std::string wanted = now.at("waiting_for").text();
  const bool stands = now.at("open").natural() > 0 && !entry.earlier.is_null() &&
                      now.at("events").natural() == entry.earlier.at("events").natural();
  if (!stands || wanted.empty()) return {};
  return fmt::format("  {} waiting for {}", entry.name, wanted);
}

json::Value StagesView::result_of(const Entry& entry) const {
  json::Value result{json::Object{}};
  result["file"] = entry.configuration->file;
  result["stage"] = entry.configuration->forwards() ? 1 : 2;
  for (const auto& [key, value] : entry.result.object()) {
    if (key != "report" && key != "node") result[key] = value;
  }
  const bool never_started = entry.result.is_null() && entry.failure.empty();
  if (never_started && !first_failed_) { // the user stopped all before
    result["ok"] = true;
    result["balanced"] = true;
  } else if (entry.result.is_null() || (!entry.failure.empty() && result.at("ok").boolean())) {
    result["ok"] = false;
    result["error"] = never_started ? "it was not started" : entry.failure;
  }
  return result;
}

json::Value StagesView::result() const {
  json::Value configurations{json::Object{}};
  json::Value events{json::Object{}}; // of the slices: those in files
  bool ledgers = true; // each slice has one; else nobody knows what is lost
  std::uint64_t undelivered = 0; // by the group with the most: the slices lack these events
  std::uint64_t known = 0; // to the group with the most: each has all events
  json::Value files{json::List{}};
  std::string error;
  std::uint64_t run = 0;
  double duration = 0;
  bool balanced = true;
  for (const Entry& entry : entries_) {
    json::Value one = result_of(entry);
    const bool failed = first_failed_ ? &entry == &entries_[*first_failed_] : !succeeded(one);
    if (failed && error.empty()) error = fmt::format("{}: {}", entry.name, one.at("error").text());
    balanced = balanced && one.at("balanced").boolean();
    duration = std::max(duration, one.at("duration_s").real());
    run = std::max(run, one.at("run").natural());
    for (const auto& file : one.at("files").list()) files.append(file);
    if (entry.configuration->forwards()) {
      undelivered = std::max(undelivered, one.at("events").at("undelivered").natural());
      known = std::max(known, one.at("events").at("built").natural() +
                                  one.at("events").at("lost").natural());
    } else {
      ledgers = ledgers && one.at("ledger").boolean(true);
      for (const auto& [kind, count] : one.at("events").object())
        events[kind] = events.at(kind).natural() + count.natural();
    }
    configurations[entry.name] = std::move(one);
  }
  events["undelivered"] = undelivered;
  // Both stages may have lost the same event, and a slice may have built one that a group has lost,
  // from the other groups: so what is not built counts.
  const std::uint64_t accounted = events.at("built").natural() + undelivered;
  events["lost"] = std::max(events.at("lost").natural(), known - std::min(known, accounted));
  if (!ledgers) events = json::Object{{"built", events.at("built")}};
  return json::Object{{"run", run},
                      {"duration_s", duration},
                      {"events", std::move(events)},
                      {"balanced", balanced},
                      {"ok", error.empty()},
                      {"error", error},
                      {"files", std::move(files)},
                      {"configurations", std::move(configurations)}};
}

std::string stages_text(const json::Value& result) {
  std::string text;
  std::uint64_t groups = 0;
  std::uint64_t slices = 0;
  std::uint64_t dropped = 0;
  std::string died;
  for (const auto& [name, one] : result.at("configurations").object()) {
    const bool group = one.at("stage").natural() == 1;
    ++(group ? groups : slices);
    text += fmt::format("{} ({}, {})\n", printable(name), group ? "group" : "slice",
                        printable(one.at("file").text()));
    if (one.find("events") != nullptr) {
      text += summary_text(one);
    } else if (one.at("ok").boolean()) {
      text += "not started: it was stopped before\n";
    } else {
      text += fmt::format("FAILED: {}\n", printable(one.at("error").text()));
    }
    text += "\n";
    if (const std::string units = dead_readout_units(one); !units.empty())
      died += fmt::format("{}{} of {}", died.empty() ? "" : ", ", units, printable(name));
    dropped += one.at("fragments").at("dropped").natural();
  }
  const json::Value& events = result.at("events");
  const std::uint64_t undelivered = events.at("undelivered").natural();
  std::string in_order = "ended in good order, every fragment accounted for";
  if (undelivered != 0) {
    in_order =
        fmt::format("ended in good order, at least {} undelivered", counted(undelivered, "event"));
  }
  if (!died.empty()) {
    in_order += fmt::format("{} lost in {} before they were announced",
                            undelivered == 0 ? " but those that were" : ", and fragments", died);
  }
  in_order += dropped_text(dropped);
  text += fmt::format(
      "run {}      {}, {}: {}\n", result.at("run").natural(), counted(groups, "group"),
      counted(slices, "slice"),
      result.at("ok").boolean() ? in_order : "FAILED: " + printable(result.at("error").text()));
  text += fmt::format("events     {} built by the slices", events.at("built").natural());
  if (events.find("lost") != nullptr) {
    text += fmt::format(", {} incomplete, {} lost", events.at("incomplete").natural(),
                        events.at("lost").natural());
  }
  return text + "\n" + lost_text(result) + undelivered_text(result);
}

} // namespace fanin::executive
