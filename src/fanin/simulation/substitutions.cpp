#include "fanin/simulation/substitutions.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/units.hpp"
#include "fanin/source/emulator.hpp"
#include "fanin/source/registry.hpp"

namespace fanin::simulation {
namespace {

constexpr const char* filter_type = "simulated";
constexpr std::uint64_t unknown_size = 2U << 10; // bytes of a fragment
constexpr double unknown_rate_hz = 1000;
constexpr std::uint16_t filter_port = 1000; // of a builder unit; below it are its rails

net::Url sim_url(const std::string& host, std::size_t port) {
  return {.scheme = "sim", .host = host, .port = static_cast<std::uint16_t>(port)};
}

// Its sizes are the expected bytes, at the rate of the trigger or, without one, in fragments of
// unknown_size.
std::map<std::string, settings::Setting> emulated(const config::Source& source,
                                                  double trigger_rate_hz) {
  const auto most = static_cast<double>(source.queue.fragment_max);
  double rate = trigger_rate_hz;
  double size = std::min(static_cast<double>(unknown_size), most);
  if (rate > 0 && source.expected_bytes_per_s) {
    size = *source.expected_bytes_per_s / rate;
  } else if (rate <= 0) {
    rate = source.expected_bytes_per_s ? *source.expected_bytes_per_s / size : unknown_rate_hz;
  }
  std::map<std::string, settings::Setting> values;
  const auto bytes = std::clamp(size, 1.0, most);
  values["size"].value = fmt::format("{}B", static_cast<std::uint64_t>(bytes));
  if (trigger_rate_hz <= 0) values["rate"].value = fmt::format("{}Hz", rate);
  return values;
}

void substitute_sources(config::Configuration& configuration, bool fills_payload,
                        std::vector<std::string>& notes) {
  const double trigger_rate_hz = configuration.system.trigger_rate_hz;
  std::map<std::string, std::vector<std::string>> replaced; // names, by what stands for them
  for (config::Source& source : configuration.sources) {
    source::SourceSettings& settings = source.settings;
    if (settings.type != "emulator") {
      settings.values = emulated(source, trigger_rate_hz);
      const auto rate = settings.values.find("rate");
      replaced[fmt::format("{}{}", settings.values["size"].value,
                           rate == settings.values.end() ? "" : " at " + rate->second.value)]
          .push_back(fmt::format("{} ({})", settings.name, settings.type));
    }
    settings.type = "emulator";
    settings.values["content"].value = fills_payload ? "pattern" : "untouched";
    source.queue.checksum = fills_payload;
  }
  for (const auto& [what, names] : replaced)
    notes.push_back(fmt::format("emulators of {} stand for {}", what, fmt::join(names, ", ")));
}

// Of one slice of two stages: what groups would send are fragments like others.
void substitute_stages(config::Configuration& configuration, std::vector<std::string>& notes) {
  bool merged = false;
  for (config::Source& source : configuration.sources)
    merged = !std::exchange(source.merged, {}).empty() || merged;
  for (builder::SourceInfo& source : configuration.system.sources) source.merged.clear();
  configuration.system.slice = {};
  if (merged) notes.push_back("each super-fragment is one fragment, with numbers without gaps");
}

void substitute_storage(config::Configuration& configuration, const NodeSettings& settings,
                        std::vector<std::string>& notes) {
  const std::string what = configuration.forwards()           ? "slices"
                           : !configuration.sink.type.empty() ? configuration.sink.type
                           : configuration.run.output.empty() ? "nothing"
                                                              : "files";
  if (settings.sink_rate > 0 || what != "nothing")
    notes.push_back(fmt::format("a sink of {} stands for {}",
                                settings.sink_rate > 0 ? format_bandwidth(settings.sink_rate)
                                                       : std::string("unlimited rate"),
                                what));
  configuration.forward = {};
  configuration.sink = {};
  configuration.run.output.clear();
}

// Addresses that are sim://, on no host of the real world.
void substitute_addresses(config::Configuration& configuration) {
  for (config::Node& node : configuration.nodes) {
    node.host.clear();
    node.cpus.clear();
    const std::size_t rails = node.urls.size();
    node.urls.clear();
    for (std::size_t i = 1; i <= rails; ++i) node.urls.push_back(sim_url(node.name, i));
    if (node.filter_url) node.filter_url = sim_url(node.name, filter_port);
    node.monitoring_url.reset();
    if (node.role == config::Role::filter) {
      node.type = filter_type;
      node.settings.clear();
    }
  }
}

void number_hosts(const config::Configuration& configuration, Hosts hosts, Substituted& to) {
  std::vector<std::string> of_node(configuration.nodes.size());
  for (std::size_t i = 0; i < of_node.size(); ++i) of_node[i] = configuration.nodes[i].name;
  if (hosts == Hosts::processes) {
    for (const config::Process& process : configuration.processes) {
      for (const std::size_t node : process.nodes) of_node[node] = process.name;
    }
  }
  for (std::size_t i = 0; i < of_node.size(); ++i) {
    if (configuration.nodes[i].role == config::Role::application) continue;
    auto known = std::ranges::find(to.host_names, of_node[i]);
    to.host_of_node.push_back(static_cast<std::uint32_t>(known - to.host_names.begin()));
    if (known == to.host_names.end()) to.host_names.push_back(of_node[i]);
  }
}

// The virtual node that runs at the moment is the one whose filter decides.
class TimedFilter final : public builder::Filter {
public:
  TimedFilter(const NodeSettings& settings, net::VirtualNode& host)
      : settings_(settings), host_(host) {}

  void decide(const builder::FilterEvent&, builder::Decision& decision) override {
    host_.spend(settings_.filter_time);
    if (seen_++ % settings_.filter_accepts_one_in == 0) decision.accept(0);
  }

private:
  const NodeSettings settings_;
  net::VirtualNode& host_;
  std::uint64_t seen_ = 0;
};

} // namespace

Substituted substitute(config::Configuration configuration, const NodeSettings& settings,
                       bool fills_payload) {
  Substituted result;
  number_hosts(configuration, settings.hosts, result);
  substitute_sources(configuration, fills_payload, result.notes);
  substitute_stages(configuration, result.notes);
  substitute_storage(configuration, settings, result.notes);
  substitute_addresses(configuration);
  if (!configuration.plugins.empty())
    result.notes.push_back("plug-ins are not opened, and applications do not run");
  configuration.plugins.clear();
  std::erase_if(configuration.nodes,
                [](const config::Node& node) { return node.role == config::Role::application; });
  if (configuration.filters() > 0)
    result.notes.push_back(fmt::format("filters that take {} for an event and accept one in {} "
                                       "stand for the configuration's",
                                       format_duration(settings.filter_time),
                                       settings.filter_accepts_one_in));
  if (configuration.monitoring.on()) result.notes.push_back("no event is published (monitoring)");
  configuration.monitoring = {};
  configuration.processes = {{.name = "simulation", .key = {}, .nodes = {}}};
  for (std::size_t i = 0; i < configuration.nodes.size(); ++i)
    configuration.processes[0].nodes.push_back(i);
  if (!fills_payload)
    result.notes.push_back("payload has no bytes: it is neither filled, copied nor checksummed");
  configuration.system.integrity = fills_payload;
  configuration.run.comment.clear();
  if (configuration.run.duration == Duration{} && configuration.system.events_max == 0) {
    configuration.run.duration = std::chrono::seconds{1};
    result.notes.push_back("the run lasts 1 s of virtual time: the configuration has no duration");
  }
  result.configuration = std::move(configuration);
  return result;
}

executive::Plugins simulated_plugins(const NodeSettings& settings, net::VirtualWorld& world) {
  executive::Plugins plugins;
  source::add_built_in_sources(plugins.sources);
  const auto make =
      [settings,
       &world](const builder::FilterSettings& filter) -> Result<std::unique_ptr<builder::Filter>> {
    return std::make_unique<TimedFilter>(settings, *world.find_node(filter.settings.name));
  };
  FANIN_ASSERT(plugins.filters.add(filter_type, make).has_value());
  return plugins;
}

} // namespace fanin::simulation
