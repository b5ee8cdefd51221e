#include "fanin/operation/run_text.hpp"

#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "fanin/base/printable.hpp"
#include "fanin/base/try.hpp"
#include "fanin/settings/tree.hpp"

namespace fanin::operation {
namespace {

constexpr std::int64_t ns_per_s = 1'000'000'000;
constexpr std::int64_t ns_per_ms = 1'000'000;

// What the result of one configuration has at its top, of the results of two stages: the groups
// read the fragments, the slices build the events.
void add_stages(json::Value& run, const json::Value& configurations) {
  json::Value fragments = json::Object{};
  json::Value sources = json::Object{};
  std::uint64_t bytes_built = 0;
  for (const auto& [name, one] : configurations.object()) {
    const bool group = one.at("stage").natural() == 1;
    if (!group) bytes_built += one.at("bytes_built").natural();
    if (group) {
      for (const auto& [key, number] : one.at("fragments").object())
        fragments[key] = fragments.at(key).natural() + number.natural();
    }
    for (const auto& [source, ledger] : one.at("sources").object()) {
      json::Value& row = sources[fmt::format("{}/{}", name, source)] = ledger;
      row["configuration"] = name;
    }
  }
  run["fragments"] = std::move(fragments);
  run["sources"] = std::move(sources);
  run["bytes_built"] = bytes_built;
}

} // namespace

std::string time_text(std::int64_t unix_ns) {
  if (unix_ns == 0) return "-";
  return fmt::format("{:%Y-%m-%d %H:%M:%S}",
                     fmt::gmtime(static_cast<std::time_t>(unix_ns / ns_per_s)));
}

double seconds_of(const RunEntry& run) {
  if (run.begun_ns == 0 || run.ended_ns == 0) return 0;
  return static_cast<double>(run.ended_ns - run.begun_ns) / static_cast<double>(ns_per_s);
}

std::string reason_of(const RunEntry& run) {
  return run.ended_ns == 0 ? "its end is not known" : run.reason;
}

json::Value to_json(const RunEntry& run) {
  json::Value value;
  value["run"] = run.number;
  value["run_id"] = fmt::format("{:016x}", run.id);
  value["kind"] = run.kind;
  value["who"] = run.who;
  value["host"] = run.host;
  value["reserved"] = time_text(run.reserved_ns);
  value["begin"] = time_text(run.begun_ns);
  value["end"] = time_text(run.ended_ns);
  value["reserved_ms"] = run.reserved_ns / ns_per_ms;
  value["begin_ms"] = run.begun_ns / ns_per_ms;
  value["end_ms"] = run.ended_ns / ns_per_ms;
  value["duration_s"] = seconds_of(run);
  value["reason"] = reason_of(run);
  for (const char* key : {"events", "fragments", "files", "manifest", "ok", "balanced"})
    value[key] = run.result.at(key);
  value["comment"] = run.comment;
  value["quality"] = name(run.quality);
  return value;
}

json::Value to_json(std::span<const LogLine> lines, RunNumber run) {
  json::Value list{json::List{}};
  for (const LogLine& line : lines)
    list.append(json::Object{{"unix_ms", line.unix_ns / ns_per_ms},
                             {"level", line.level},
                             {"node", ""},
                             {"text", line.text},
                             {"run", run}});
  return json::Object{{"lines", std::move(list)}};
}

Result<json::Value> details_of(Registry& registry, const RunEntry& run) {
  json::Value value = to_json(run);
  for (const char* key :
       {"sources", "bytes_built", "event_rate_hz", "throughput_bytes_per_s", "latency_us"})
    value[key] = run.result.at(key);
  const json::Value& configurations = run.result.at("configurations");
  if (!configurations.object().empty()) add_stages(value, configurations);
  value["transitions"] = json::List{};
  const auto changes = FANIN_TRY(registry.states(run.number));
  for (const StateChange& change : changes)
    value["transitions"].append(json::Object{{"unix_ms", change.unix_ns / ns_per_ms},
                                             {"from", change.from},
                                             {"to", change.to},
                                             {"command", change.command},
                                             {"who", change.who},
                                             {"why", change.why}});
  value["configurations"] = json::List{};
  const auto used = FANIN_TRY(registry.configurations(run.number));
  for (const UsedConfiguration& one : used)
    value["configurations"].append(json::Object{
        {"name", one.name}, {"overrides", json::List(one.overrides.begin(), one.overrides.end())}});
  const auto files = FANIN_TRY(registry.files(run.number));
  value["files"] = json::List(files.begin(), files.end());
  return value;
}

Result<std::string> configurations_of(Registry& registry, RunNumber run) {
  std::string text;
  const auto used = FANIN_TRY(registry.configurations(run));
  for (const UsedConfiguration& file : used) {
    auto root = FANIN_TRY(settings::parse_toml(file.text, file.name));
    std::uint32_t ordinal = 0;
    for (const std::string& override : file.overrides)
      FANIN_TRY(settings::override_value(root, override, ++ordinal));
    text += fmt::format("# run {}: {}\n{}", run, printable(file.name), settings::to_toml(root));
  }
  return text;
}

} // namespace fanin::operation
