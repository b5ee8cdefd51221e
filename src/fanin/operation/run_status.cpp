#include "fanin/operation/run_status.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "fanin/settings/tree.hpp"

namespace fanin::operation {
namespace {

constexpr std::array<std::string_view, 5> roles{"event_manager", "readout", "builder",
                                                "application", "filter"};
constexpr Duration usage_missed = std::chrono::seconds{5}; // a node reports it every second
constexpr std::array fragment_keys{"read", "built", "late", "dropped", "lost"};

std::string_view role_of(const config::Node& node) {
  return roles[static_cast<std::size_t>(node.role)];
}

void add_numbers(json::Value& sum, const json::Value& more) {
  for (const auto& [key, value] : more.object()) sum[key] = sum.at(key).natural() + value.natural();
}

using Kind = settings::Value::Kind;

// As written, with the overrides.
void add_keys(json::Value& keys, const settings::Value& value, const std::string& key) {
  if (value.kind == Kind::table) {
    for (const settings::Entry& entry : value.entries)
      add_keys(keys, entry.value, fmt::format("{}.{}", key, entry.key));
  } else if (value.kind == Kind::list) {
    for (std::size_t i = 0; i < value.items.size(); ++i)
      add_keys(keys, value.items[i], fmt::format("{}.{}", key, i));
  } else {
    keys[key] = value.text;
  }
}

// Those of the node's own table, and of the tables that are for all nodes.
json::Value keys_of(const config::Configuration& configuration, const config::Node& node) {
  json::Value keys = json::Object{};
  for (const settings::Entry& entry : configuration.written.entries) {
    if (entry.value.kind == Kind::table) add_keys(keys, entry.value, entry.key);
    const auto& items = entry.value.items;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const std::string key = fmt::format("{}.{}", entry.key, i);
      if (key == node.key) add_keys(keys, items[i], key);
    }
  }
  return keys;
}

} // namespace

RunStatus::RunStatus(ReadSet read) : read_(std::move(read)) {
  for (std::size_t i = 0; i < read_.configurations.size(); ++i) {
    builders_.emplace_back();
    builders_.back().configuration = &read_.configurations[i];
    builders_.back().name = read_.names[i];
  }
}

RunStatus::Builder* RunStatus::find(std::string_view configuration) {
  const auto found = std::ranges::find(builders_, configuration, &Builder::name);
  return found == builders_.end() ? nullptr : &*found;
}

void RunStatus::on_report(const json::Value& report, Time now) {
  latest_ = now;
  Builder* const builder = find(report.at("configuration").text());
  if (builder == nullptr) return;
  const std::string kind = report.at("report").text();
  const std::string node = report.at("node").text();
  if (kind == "progress") {
    builder->progress = report;
    builder->frozen.clear();
  } else if (kind == "frozen") {
    builder->frozen = node;
  } else if (kind == "summary") {
    builder->summary = report;
  } else if (kind == "usage") {
    Usage& usage = builder->usage[node];
    usage.before = std::exchange(usage.latest, report);
    usage.before_at = std::exchange(usage.at, now);
  }
}

// --- the life of the run -------------------------------------------------------------------------

bool RunStatus::known() const {
  return std::ranges::none_of(builders_,
                              [](const Builder& builder) { return builder.progress.is_null(); });
}

bool RunStatus::held() const {
  return std::ranges::any_of(
      builders_, [](const Builder& builder) { return builder.progress.at("held").boolean(); });
}

bool RunStatus::ready() const {
  return std::ranges::all_of(builders_, [](const Builder& builder) {
    return builder.progress.at("ready").boolean() && builder.progress.at("held").boolean();
  });
}

bool RunStatus::begun() const {
  return std::ranges::all_of(builders_, [](const Builder& builder) {
    const std::string state = builder.progress.at("state").text();
    return !state.empty() && state != "waiting";
  });
}

bool RunStatus::stopping() const {
  return std::ranges::any_of(builders_, [](const Builder& builder) {
    return builder.progress.at("state").text() == "stopping";
  });
}

std::vector<std::string> RunStatus::missing_nodes() const {
  std::vector<std::string> missing;
  for (const Builder& builder : builders_) {
    for (const auto& [name, node] : builder.summary.at("nodes").object()) {
      if (!node.at("alive").boolean(true)) missing.push_back(whole_name(builder, name));
    }
  }
  return missing;
}

std::vector<std::string> RunStatus::frozen_nodes() const {
  std::vector<std::string> frozen;
  for (const Builder& builder : builders_) {
    if (!builder.frozen.empty()) frozen.push_back(whole_name(builder, builder.frozen));
  }
  return frozen;
}

std::string RunStatus::waiting_for() const {
  for (const Builder& builder : builders_) {
    const std::string text = builder.progress.at("waiting_for").text();
    if (text.empty()) continue;
    return builder.name.empty() ? text : fmt::format("{}: {}", builder.name, text);
  }
  return "";
}

// --- what is counted -----------------------------------------------------------------------------

// Of two stages the slices build events, and the groups read the fragments.
bool RunStatus::counts_events(const Builder& builder) const {
  return builders_.size() == 1 || !builder.configuration->forwards();
}

RunCounts RunStatus::counts() const {
  RunCounts counts;
  for (const Builder& builder : builders_) {
    if (!counts_events(builder)) continue;
    counts.events += builder.progress.at("events").natural();
    counts.incomplete += builder.progress.at("incomplete").natural();
    counts.bytes += builder.progress.at("bytes_built").natural();
  }
  return counts;
}

std::string RunStatus::whole_name(const Builder& builder, std::string_view name) {
  return builder.name.empty() ? std::string(name) : fmt::format("{}/{}", builder.name, name);
}

json::Value RunStatus::node_of(const Builder& builder, const config::Node& node, bool alive) const {
  json::Value value = builder.summary.at("nodes").at(node.name);
  value["configuration"] = builder.name;
  value["role"] = role_of(node);
  value["host"] = node.host;
  const bool known = value.find("alive") != nullptr;
  const auto found = builder.usage.find(node.name);
  // The event manager does not know applications and filter units, nor itself.
  const bool reports = found != builder.usage.end() && latest_ - found->second.at < usage_missed;
  value["alive"] = alive && (known ? value.at("alive").boolean() : reports);
  if (found == builder.usage.end()) return value;
  const Usage& usage = found->second;
  for (const char* key : {"rss_bytes", "process", "monitoring_url"}) {
    if (const json::Value* it = usage.latest.find(key)) value[key] = *it;
  }
  const double seconds = std::chrono::duration<double>(usage.at - usage.before_at).count();
  const double used = usage.latest.at("cpu_s").real() - usage.before.at("cpu_s").real();
  if (alive && !usage.before.is_null() && seconds > 0 && used >= 0) value["cpu"] = used / seconds;
  return value;
}

void RunStatus::add_sources(const Builder& builder, json::Value& sources) const {
  for (const auto& [name, ledger] : builder.summary.at("sources").object()) {
    json::Value& source = sources[whole_name(builder, name)];
    source = ledger;
    source["configuration"] = builder.name;
    const auto usage = builder.usage.find(ledger.at("readout").text());
    if (usage == builder.usage.end()) continue;
    const json::Value& counted = usage->second.latest.at("sources").at(name);
    source["bytes"] = counted.at("bytes");
    source["counters"] = counted.at("counters");
  }
}

void RunStatus::add_to(json::Value& status, bool alive) const {
  json::Value events = json::Object{};
  json::Value fragments = json::Object{};
  json::Value nodes = json::Object{};
  json::Value sources = json::Object{};
  const bool groups = std::ranges::any_of(
      builders_, [](const Builder& builder) { return builder.configuration->forwards(); });
  for (const Builder& builder : builders_) {
    if (counts_events(builder)) {
      add_numbers(events, builder.summary.at("events"));
      if (const json::Value* latency = builder.summary.find("latency_us"))
        status["latency_us"] = *latency;
    }
    if (builder.configuration->forwards() == groups)
      add_numbers(fragments, builder.summary.at("fragments"));
    for (const config::Node& node : builder.configuration->nodes)
      nodes[whole_name(builder, node.name)] = node_of(builder, node, alive);
    add_sources(builder, sources);
  }
  const RunCounts now = counts(); // twice as often as the summary
  events["built"] = std::max(now.events, events.at("built").natural());
  for (const char* key : fragment_keys) fragments[key] = fragments.at(key).natural();
  status["events"] = std::move(events);
  status["fragments"] = std::move(fragments);
  status["bytes_built"] = now.bytes;
  status["nodes"] = std::move(nodes);
  status["sources"] = std::move(sources);
}

std::vector<EventPlace> RunStatus::event_places() const {
  std::vector<EventPlace> places;
  for (const Builder& builder : builders_) {
    for (const auto& [node, usage] : builder.usage) {
      const std::string url = usage.latest.at("monitoring_url").text();
      if (!url.empty()) places.push_back({whole_name(builder, node), url});
    }
  }
  return places;
}

std::string RunStatus::source_name(SourceId source) const {
  for (const Builder& builder : builders_) {
    const builder::System& system = builder.configuration->system;
    for (const auto& one : system.sources) {
      if (one.id == source) return one.name;
    }
  }
  return fmt::format("{:#x}", source);
}

json::Value RunStatus::node(std::string_view name) const {
  for (const Builder& builder : builders_) {
    for (const config::Node& node : builder.configuration->nodes) {
      if (whole_name(builder, node.name) != name) continue;
      return json::Object{{"name", name},
                          {"role", role_of(node)},
                          {"configuration", builder.name},
                          {"keys", keys_of(*builder.configuration, node)},
                          {"counters", node_of(builder, node, true)}};
    }
  }
  return {};
}

} // namespace fanin::operation
