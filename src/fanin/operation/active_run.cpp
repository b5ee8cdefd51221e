#include "fanin/operation/active_run.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace fanin::operation {
namespace {

constexpr Duration silence_named = std::chrono::seconds{10}; // a launcher reports twice a second
constexpr std::size_t error_shown = 4000; // bytes of what a launcher left on standard error

// The end of what a launcher and its nodes have written there: a crash says something.
std::string last_words(const std::string& file) {
  std::ifstream input(file, std::ios::ate);
  if (!input) return "";
  const auto size = static_cast<std::size_t>(input.tellg());
  input.seekg(static_cast<std::streamoff>(size - std::min(size, error_shown)));
  return {std::istreambuf_iterator<char>(input), {}};
}

} // namespace

ActiveRun ActiveRun::reserved(const ReservedRun& run, ReadSet read, const ConfigurationSet& set,
                              const RunChanges& changes, const std::string& who) {
  ActiveRun active;
  active.number = run.number;
  active.id = run.id;
  active.kind = read.configurations.front().run.kind;
  active.comment = read.configurations.front().run.comment;
  active.who = who;
  active.set = set.name;
  active.changes = changes;
  active.status = std::make_unique<RunStatus>(std::move(read));
  return active;
}

ActiveRun ActiveRun::recorded(const RunEntry& entry, RunState state) {
  ActiveRun active;
  active.number = entry.number;
  active.id = entry.id;
  active.kind = entry.kind;
  active.comment = entry.comment;
  active.who = entry.who;
  active.set = entry.control.at("set").text();
  active.changes = RunChanges::from(entry.control.at("changes"));
  active.begun_ns = entry.begun_ns;
  active.released =
      state == RunState::running || state == RunState::draining || entry.begun_ns != 0;
  return active;
}

std::vector<std::string> ActiveRun::arguments(const std::string& program,
                                              const ConfigurationSet& its_set,
                                              const std::vector<std::string>& hosts) const {
  std::vector<std::string> words{program, "run"};
  words.insert(words.end(), its_set.files.begin(), its_set.files.end());
  const auto options = changes.options();
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"--set", fmt::format("run.number={}", number), "--run-id",
                             fmt::format("{}", id), "--controlled"});
  words.insert(words.end(), hosts.begin(), hosts.end());
  return words;
}

std::vector<std::string> ActiveRun::alarms(RunState state, Time now, const RunFiles& files) const {
  std::vector<std::string> alarms;
  if (!alive()) return alarms;
  if (state == RunState::running || state == RunState::draining) {
    for (const std::string& node : status->missing_nodes())
      alarms.push_back(fmt::format("{} is gone: the log says why, and how to start it again; "
                                   "run.restart does it by itself",
                                   node));
  }
  for (const std::string& node : status->frozen_nodes())
    alarms.push_back(fmt::format("{} says nothing: it is frozen, or its host is overloaded; its "
                                 "launcher kills it after a minute",
                                 node));
  if (now - heard > silence_named)
    alarms.push_back(fmt::format("the launcher of run {} says nothing: it is frozen, or this host "
                                 "is overloaded; if it stays so, end it: pkill -KILL -f "
                                 "'control-end {}'",
                                 number, files.end_file(number)));
  return alarms;
}

json::Value ActiveRun::about() const {
  json::Value about;
  about["run"] = number;
  about["run_id"] = fmt::format("{:016x}", id);
  about["configuration"] = set;
  about["kind"] = kind;
  about["comment"] = comment;
  status->add_to(about, alive());
  return about;
}

void ActiveRun::add_to(json::Value& shown, RunState state, const RunRates& rates) const {
  shown["run"] = number;
  shown["run_id"] = fmt::format("{:016x}", id);
  shown["kind"] = kind;
  shown["comment"] = comment;
  shown["who"] = who;
  shown["begun_ms"] = begun_ns / 1'000'000;
  status->add_to(shown, alive());
  // While events are built, something is always waited for.
  const bool flows = state == RunState::running && rates.events_hz > 0;
  if (alive() && !flows) shown["waiting_for"] = status->waiting_for();
  shown["degraded"] = alive() && state == RunState::running && !status->missing_nodes().empty();
  shown["event_rate_hz"] = rates.events_hz;
  shown["incomplete_rate_hz"] = rates.incomplete_hz;
  shown["throughput_bytes_per_s"] = rates.bytes_per_s;
}

RunEnd ActiveRun::take_end(const RunFiles& files, const std::string& otherwise,
                           std::int64_t unix_ns, const RunLog& log) const {
  RunEnd ended;
  if (auto read = files.read_end(number)) {
    ended = std::move(*read);
  } else if (end) {
    ended = *end;
  } else {
    ended.ended_ns = unix_ns;
    ended.reason = otherwise;
    for (const ShownLine& line : log.lines()) {
      if (line.run == number) ended.log.push_back({line.unix_ns, line.level, line.whole()});
    }
  }
  if (const std::string words = last_words(files.error_file(number)); !words.empty())
    ended.log.push_back({ended.ended_ns, "error", "on standard error: " + words});
  if (!end_reason.empty()) {
    ended.reason = end_reason;
  } else if (!released && ended.begun_ns == 0) {
    ended.reason = "never started: " + ended.reason;
  }
  return ended;
}

} // namespace fanin::operation
