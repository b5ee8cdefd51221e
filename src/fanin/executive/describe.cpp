#include "fanin/executive/describe.hpp"

#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/units.hpp"

namespace fanin::executive {
namespace {

using config::Configuration;

std::string pool_text(std::string_view what, const PoolPlan& pool) {
  return fmt::format("    {:<10} {:>5} x {:>7} = {}\n", what, pool.pages,
                     format_size(pool.page_size), format_size(pool.bytes()));
}

std::string source_text(const Configuration& configuration, const config::Source& source,
                        const PoolPlan& pool) {
  const double rate = expected_rate(configuration, source);
  return fmt::format("    source     {} ({}, id {:#x}{}): {} x {} = {}, fragments up to {}{}\n",
                     source.settings.name, source.settings.type, source.settings.id,
                     source.required ? "" : ", optional", pool.pages, format_size(pool.page_size),
                     format_size(pool.bytes()), format_size(source.queue.fragment_max),
                     rate > 0 ? ", about " + format_bandwidth(rate)
                              : ", rate unknown: its memory is not checked (set expected)");
}

std::string place_text(const Configuration& configuration, std::size_t index) {
  const config::Node& node = configuration.nodes[index];
  std::string text;
  if (!node.host.empty()) text += fmt::format(" on {}", node.host);
  for (const net::Url& url : node.urls)
    text += fmt::format("{} {}", &url == node.urls.data() ? ", listens at" : " and", url.text());
  if (node.filter_url) {
    const net::Url& url = *node.filter_url;
    text += fmt::format(", filter units at {}", url.host.empty() ? url.scheme + "://" : url.text());
  }
  if (node.monitoring_url)
    text += fmt::format(", publishes events at {}", node.monitoring_url->text());
  if (!node.cpus.empty()) text += fmt::format(", CPU {}", fmt::join(node.cpus, ","));
  if (node.numa_node >= 0) text += fmt::format(", NUMA node {}", node.numa_node);
  return text;
}

std::string node_text(const Configuration& configuration, std::size_t index, const NodePlan& plan) {
  static constexpr std::string_view roles[] = {"event manager", "readout unit", "builder unit",
                                               "application", "filter unit"};
  const config::Node& node = configuration.nodes[index];
  std::string text =
      fmt::format("  {} ({}){}\n", node.name, roles[static_cast<std::size_t>(node.role)],
                  place_text(configuration, index));
  if (node.role == config::Role::readout) {
    const std::size_t first = configuration.sources_of(index - 1).first;
    const std::size_t rails = configuration.system.rails;
    if (plan.sources.size() < rails) {
      text += fmt::format("    rails      {} of {} at a time, as it has fewer sources than rails\n",
                          plan.sources.size(), rails);
    }
    for (std::size_t i = 0; i < plan.sources.size(); ++i) {
      text += source_text(configuration, configuration.sources[first + i], plan.sources[i]);
    }
    text += pool_text("metadata", plan.metadata);
  }
  if (node.role == config::Role::builder) text += pool_text("building", plan.receive);
  if (plan.published.pages != 0) {
    text += pool_text("published", plan.published) + pool_text("readers", plan.readers);
    text +=
        fmt::format("    queues     up to {} for readers of events\n", format_size(plan.queues));
  }
  if (node.role == config::Role::filter) text += pool_text("events", plan.receive);
  if (node.role == config::Role::application) return text;
  text += pool_text("control", plan.control);
  text += fmt::format("    memory     {}", format_size(plan.total()));
  if (plan.bytes_per_s > 0) {
    text += fmt::format(
        "; {} for {} need {} of its {}", format_bandwidth(plan.bytes_per_s),
        format_duration(node.role == config::Role::readout
                            ? hold_time(configuration)
                            : configuration.buffers.hold + filter_latency(configuration)),
        format_size(plan.needed), format_size(plan.payload()));
  }
  return text + "\n";
}

std::string output_text(const Configuration& configuration) {
  const config::Run& run = configuration.run;
  const std::string& sink = configuration.sink.type;
  if (!sink.empty()) {
    return fmt::format("built events go to the sink \"{}\"{}", sink,
                       run.output.empty() ? "" : ", the manifest to " + run.output);
  }
  if (configuration.forwards())
    return "built events go to " + counted(configuration.forward.urls.size(), "slice");
  return run.output.empty() ? "built events are discarded"
                            : fmt::format("run files go to {}", run.output);
}

// What the run is without.
std::string left_out_text(const Configuration& configuration) {
  constexpr std::size_t named = 8;
  const auto& sources = configuration.sources_left_out;
  if (sources.empty()) return {};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < sources.size() && i < named; ++i)
    names.push_back(sources[i].settings.name);
  const auto& units = configuration.readouts_left_out;
  return fmt::format("without {} ({}{}){}\n", counted(sources.size(), "source"),
                     fmt::join(names, ", "), sources.size() > named ? ", ..." : "",
                     units.empty()
                         ? std::string()
                         : fmt::format(" and {} ({})", counted(units.size(), "readout unit"),
                                       fmt::join(units, ", ")));
}

std::string head_text(const Configuration& configuration) {
  const builder::System& system = configuration.system;
  std::string text = fmt::format("{}: 1 event manager, {}, {}, {}\n", configuration.file,
                                 counted(configuration.readouts(), "readout unit"),
                                 counted(configuration.builders(), "builder unit"),
                                 counted(configuration.sources.size(), "source"));
  text += fmt::format(
      "protocol {}, {}, integrity {}, deadline {}, window {}\n", name(system.protocol),
      system.trigger_rate_hz > 0 ? fmt::format("trigger at {}", format_rate(system.trigger_rate_hz))
                                 : "no trigger",
      system.integrity ? "crc32c" : "none", format_duration(system.event_deadline),
      system.event_window);
  if (const auto& shaping = system.shaping; shaping.on()) {
    text += fmt::format("shaping {}, carrier {}, window {}", builder::shaping::name(shaping.policy),
                        format_size(shaping.carrier), format_size(shaping.window));
    if (shaping.policy == builder::shaping::Policy::tokens)
      text += ", " + counted(shaping.tokens, "token");
    text += "\n";
  }
  text += left_out_text(configuration);
  const config::Run& run = configuration.run;
  text += output_text(configuration);
  if (run.duration > Duration{0}) text += fmt::format(", for {}", format_duration(run.duration));
  if (system.events_max > 0) text += ", up to " + counted(system.events_max, "event");
  return text + "\n\n";
}

} // namespace

std::string unknown_rates(const Configuration& configuration) {
  constexpr std::size_t named = 5;
  std::vector<std::string> names;
  std::size_t count = 0;
  for (const config::Source& source : configuration.sources) {
    if (expected_rate(configuration, source) > 0 || ++count > named) continue;
    names.push_back(source.settings.name);
  }
  if (count == 0) return {};
  return fmt::format("the rate of {} ({}{}) is not known, so it was not checked whether {} "
                     "memory is enough: set expected",
                     counted(count, "source"), fmt::join(names, ", "), count > named ? ", ..." : "",
                     count == 1 ? "its" : "their");
}

std::string describe(const Configuration& configuration, std::span<const NodePlan> plans) {
  std::string text = head_text(configuration);
  std::map<std::string, std::uint64_t> memory; // by host
  for (const config::Process& process : configuration.processes) {
    text += fmt::format("process {}\n", process.name);
    for (const std::size_t node : process.nodes) {
      text += node_text(configuration, node, plans[node]);
      memory[configuration.nodes[node].host] += plans[node].total();
    }
  }
  text += "\n";
  for (const auto& [host, bytes] : memory) {
    text +=
        fmt::format("total memory{}: {}\n", host.empty() ? "" : " on " + host, format_size(bytes));
  }
  return text;
}

} // namespace fanin::executive
