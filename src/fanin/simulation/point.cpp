#include "fanin/simulation/point.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "fanin/base/units.hpp"

namespace fanin::simulation {
namespace {

constexpr std::size_t least_width = 8;

std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

double microseconds(const Histogram& histogram, double fraction) {
  return static_cast<double>(histogram.quantile(fraction).count()) * 1e-3;
}

double events_per_s(const Outcome& outcome) {
  return outcome.wall_s > 0 ? static_cast<double>(outcome.network_events) / outcome.wall_s : 0;
}

} // namespace

json::Value to_json(const Point& point, const Outcome& outcome) {
  json::Value result = outcome.run.is_object() ? outcome.run : json::Value(json::Object{});
  json::Value keys{json::Object{}};
  for (const auto& [key, value] : point) keys[key] = value;
  result["point"] = keys;
  result["saturation"] = outcome.saturation;
  result["per_node_bytes_per_s"] = outcome.per_node_bytes_per_s;
  json::Value& latency = result["latency_us"];
  latency["p50"] = microseconds(outcome.latency, 0.5);
  latency["p99"] = microseconds(outcome.latency, 0.99);
  latency["p999"] = microseconds(outcome.latency, 0.999);
  result["virtual_s"] = outcome.virtual_s;
  result["wall_s"] = outcome.wall_s;
  result["network_events"] = outcome.network_events;
  result["network_events_per_s"] = events_per_s(outcome);
  result["messages"] = outcome.messages;
  result["packets"] = outcome.packets;
  result["packets_dropped"] = outcome.dropped;
  result["packets_rerouted"] = outcome.rerouted;
  return result;
}

std::string table_head(const Point& point) {
  std::string line;
  for (const auto& [key, value] : point)
    line += fmt::format("{:>{}}  ", last_part(key), std::max(least_width, last_part(key).size()));
  return line +
         "saturation       a node  latency p50        p99   dropped  network events    wall\n";
}

std::string table_line(const Point& point, const Outcome& outcome) {
  std::string line;
  for (const auto& [key, value] : point)
    line += fmt::format("{:>{}}  ", value, std::max(least_width, last_part(key).size()));
  return line + fmt::format("{:>8.2f} %  {:>11}  {:>11}  {:>9}  {:>8}  {:>10.1f} M/s  {:>4.1f} s\n",
                            100 * outcome.saturation,
                            format_bandwidth(outcome.per_node_bytes_per_s),
                            format_duration(outcome.latency.quantile(0.5)),
                            format_duration(outcome.latency.quantile(0.99)), outcome.dropped,
                            1e-6 * events_per_s(outcome), outcome.wall_s);
}

} // namespace fanin::simulation
