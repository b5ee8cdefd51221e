#include "fanin/simulation/point.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/units.hpp"

namespace fanin::simulation {
namespace {

constexpr std::size_t least_width = 8;
constexpr std::size_t busiest_shown = 5;

double microseconds(const Histogram& histogram, double fraction) {
  return static_cast<double>(histogram.quantile(fraction).count()) * 1e-3;
}

json::Value keys_of(const Point& point) {
  json::Value keys{json::Object{}};
  for (const auto& [key, value] : point) keys[key] = value;
  return keys;
}

std::string begin_of_line(const Point& point) {
  std::string line;
  for (const auto& [key, value] : point)
    line += fmt::format("{:>{}}  ", value, std::max(least_width, key.size()));
  return line;
}

std::string latency_text(const Outcome& outcome, double fraction) {
  return outcome.latency.count() == 0 ? "-" : format_duration(outcome.latency.quantile(fraction));
}

// What a run lacks, behind its line.
std::string losses_of(const Outcome& outcome) {
  std::string text;
  if (!outcome.run.is_object()) return text;
  const json::Value& events = outcome.run.at("events");
  for (const char* what : {"incomplete", "lost"}) {
    const std::uint64_t count = events.at(what).natural();
    if (count > 0) text += fmt::format("  {} {}", counted(count, "event"), what);
  }
  const std::string error = outcome.run.at("error").text();
  return error.empty() ? text : text + "  " + error;
}

double events_per_s(const Outcome& outcome) {
  return outcome.wall_s > 0 ? static_cast<double>(outcome.network_events) / outcome.wall_s : 0;
}

} // namespace

NetworkState::NetworkState(const fabric::Fabric& network) : counters(network.counters()) {
  for (std::uint32_t link = 0; link < network.topology().links().size(); ++link)
    bytes.push_back(network.bytes_over(link));
}

void add_network(Outcome& outcome, const fabric::Fabric& network, const NetworkState& before,
                 fabric::Picoseconds time) {
  const fabric::FabricCounters& counters = network.counters();
  outcome.network_events = counters.events;
  outcome.messages = counters.messages - before.counters.messages;
  outcome.packets = counters.packets - before.counters.packets;
  outcome.dropped = counters.dropped - before.counters.dropped;
  outcome.rerouted = counters.rerouted - before.counters.rerouted;
  outcome.queue_most = counters.queue_most;
  const auto bytes = [&](std::uint32_t link) {
    return network.bytes_over(link) - before.bytes[link];
  };
  std::vector<std::uint32_t> links(network.topology().links().size());
  std::iota(links.begin(), links.end(), 0U);
  const std::size_t count = std::min(busiest_shown, links.size());
  std::ranges::partial_sort(links, links.begin() + static_cast<std::ptrdiff_t>(count),
                            std::ranges::greater{}, bytes);
  for (const std::uint32_t link : std::span(links).first(count)) {
    const fabric::Picoseconds used = network.link_rate().time_of(bytes(link));
    outcome.busiest.push_back({.name = network.topology().name(link),
                               .share = static_cast<double>(used) / static_cast<double>(time)});
  }
}

json::Value to_json(const Point& point, const Outcome& outcome) {
  json::Value result = outcome.run.is_object() ? outcome.run : json::Value(json::Object{});
  result["point"] = keys_of(point);
  result["saturation"] = outcome.saturation;
  result["per_node_bytes_per_s"] = outcome.per_node_bytes_per_s;
  json::Value& latency = result["latency_us"];
  latency = {};
  if (outcome.latency.count() > 0) {
    latency["p50"] = microseconds(outcome.latency, 0.5);
    latency["p99"] = microseconds(outcome.latency, 0.99);
    latency["p999"] = microseconds(outcome.latency, 0.999);
  }
  result["virtual_s"] = outcome.virtual_s;
  result["wall_s"] = outcome.wall_s;
  result["network_events"] = outcome.network_events;
  result["network_events_per_s"] = events_per_s(outcome);
  result["messages"] = outcome.messages;
  result["packets"] = outcome.packets;
  result["packets_dropped"] = outcome.dropped;
  result["packets_rerouted"] = outcome.rerouted;
  result["queue_most_bytes"] = outcome.queue_most;
  json::Value& links = result["busiest_links"];
  links = json::List{};
  for (const LinkLoad& link : outcome.busiest)
    links.append(json::Object{{"name", link.name}, {"share", link.share}});
  return result;
}

json::Value to_json(const Point& point, const Error& error) {
  json::Value result;
  result["point"] = keys_of(point);
  result["ok"] = false;
  result["error"] = error.text;
  return result;
}

bool is_good(const Outcome& outcome) {
  return !outcome.run.is_object() || outcome.run.at("ok").boolean();
}

std::string table_head(const Point& point) {
  std::string line;
  for (const auto& [key, value] : point)
    line += fmt::format("{:>{}}  ", key, std::max(least_width, key.size()));
  return line +
         "saturation       a node  latency p50        p99   dropped  network events    wall\n";
}

std::string table_line(const Point& point, const Outcome& outcome) {
  return begin_of_line(point) +
         fmt::format("{:>8.2f} %  {:>11}  {:>11}  {:>9}  {:>8}  {:>10.1f} M/s  {:>4.1f} s{}\n",
                     100 * outcome.saturation, format_bandwidth(outcome.per_node_bytes_per_s),
                     latency_text(outcome, 0.5), latency_text(outcome, 0.99), outcome.dropped,
                     1e-6 * events_per_s(outcome), outcome.wall_s, losses_of(outcome));
}

} // namespace fanin::simulation
