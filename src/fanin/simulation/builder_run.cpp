#include "fanin/simulation/builder_run.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/executive/report.hpp"
#include "fanin/simulation/fabric_carrier.hpp"
#include "fanin/simulation/paced_sink.hpp"
#include "fanin/simulation/settings.hpp"
#include "fanin/simulation/substitutions.hpp"
#include "fanin/simulation/system.hpp"

namespace fanin::simulation {
namespace {

constexpr Duration step = std::chrono::microseconds{200}; // of virtual time, between two looks
constexpr Duration patience = std::chrono::seconds{60}; // of virtual time, after the run's duration

struct Prepared {
  SimulationSettings settings;
  Substituted substituted;
};

// fabric.nodes is the number of readout units, and that of builder units.
Result<std::vector<std::string>> with_nodes(const settings::Value& root, std::uint32_t nodes,
                                            std::vector<std::string> overrides) {
  if (nodes == 0) return overrides;
  for (const char* table : {"readout", "builder"}) {
    const settings::Value* const found = root.find(table);
    if (found == nullptr)
      return fail(ErrorKind::usage,
                  fmt::format("there is no [[{}]]: a run needs one; the network alone is simulated "
                              "with --traffic",
                              table));
    if (found->items.size() != 1)
      return fail(ErrorKind::usage,
                  fmt::format("fabric.nodes needs one [[{}]], whose count it is: leave it out "
                              "where there are several",
                              table));
    overrides.push_back(fmt::format("{}.0.count={}", table, nodes));
  }
  return overrides;
}

Result<Prepared> prepare(const RunFile& file) {
  const auto root = FANIN_TRY(parse(file));
  Prepared prepared;
  prepared.settings = FANIN_TRY(read_settings(root));
  const auto overrides = FANIN_TRY(with_nodes(root, prepared.settings.nodes, file.overrides));
  auto configuration = FANIN_TRY(config::parse(file.text, file.name, overrides));
  prepared.substituted =
      substitute(std::move(configuration), prepared.settings.node, file.fills_payload);
  const Substituted& substituted = prepared.substituted;
  prepared.settings.fabric.topology.host_names = substituted.host_names;
  std::vector<bool> receives(substituted.host_names.size());
  for (std::size_t i = 0; i < substituted.configuration.builders(); ++i)
    receives[substituted.host_of_node[substituted.configuration.builder_node(i)]] = true;
  FANIN_TRY(place_hosts(prepared.settings, receives));
  return prepared;
}

class PacedOutput final : public executive::RunOutput {
public:
  explicit PacedOutput(double bytes_per_s) : bytes_per_s_(bytes_per_s) {}
  Result<std::unique_ptr<storage::EventSink>>
  make_sink(const executive::SinkOwner& owner) override {
    return std::make_unique<PacedSink>(*owner.loop, bytes_per_s_);
  }

private:
  double bytes_per_s_;
};

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

// Over the links to the builder units.
double saturation(const Prepared& prepared, const fabric::Fabric& network, double duration_s) {
  const config::Configuration& configuration = prepared.substituted.configuration;
  const fabric::Topology& topology = network.topology();
  double bytes = 0;
  std::vector<std::uint32_t> hosts;
  for (std::size_t i = 0; i < configuration.builders(); ++i)
    hosts.push_back(prepared.substituted.host_of_node[configuration.builder_node(i)]);
  std::ranges::sort(hosts);
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  for (const std::uint32_t host : hosts) {
    for (std::uint32_t port = 0; port < topology.ports(); ++port)
      bytes +=
          static_cast<double>(network.bytes_over(topology.link_to(host * topology.ports() + port)));
  }
  const double links = static_cast<double>(hosts.size() * topology.ports());
  return bytes / (prepared.settings.fabric.topology.link_rate * duration_s * links);
}

Outcome outcome_of(const Prepared& prepared, System& system, const FabricCarrier& carrier) {
  const builder::RunSummary& summary = system.summary();
  Outcome outcome;
  // Of few events the first and the last may be close.
  outcome.virtual_s = seconds(std::max(summary.duration, system.configuration().run.duration));
  if (outcome.virtual_s > 0) {
    outcome.saturation = saturation(prepared, carrier.network(), outcome.virtual_s);
    outcome.per_node_bytes_per_s = static_cast<double>(summary.bytes_built) / outcome.virtual_s /
                                   static_cast<double>(system.builders());
  }
  outcome.latency = summary.latency;
  outcome.messages = carrier.network().counters().messages;
  add_network(outcome, carrier.network(),
              fabric::to_picoseconds(system.world().now().time_since_epoch()));
  outcome.run = executive::to_json(summary, system.configuration().system);
  outcome.notes = prepared.substituted.notes;
  outcome.trace_hash = system.world().trace_hash();
  return outcome;
}

// Until the event manager has ended.
Result<> run(System& system, const Watch& watch) {
  const Duration duration = system.configuration().run.duration;
  const Duration limit = duration + patience;
  while (!system.manager().ended()) {
    const Duration passed = system.world().now().time_since_epoch();
    if (passed > limit)
      return fail(ErrorKind::refused,
                  fmt::format("the run has not ended after {} of virtual time: {}",
                              format_duration(passed), system.manager().waiting_for()));
    system.world().run_until(system.world().now() + step);
    const double done = duration > Duration{} ? seconds(passed) / seconds(duration) : 0;
    if (watch) watch(std::min(done, 1.0));
  }
  return {};
}

} // namespace

Result<settings::Value> parse(const RunFile& file) {
  settings::Value root = FANIN_TRY(settings::parse_toml(file.text, file.name));
  std::uint32_t ordinal = 0;
  for (const std::string& override : file.overrides)
    FANIN_TRY(settings::override_value(root, override, ++ordinal));
  return root;
}

Result<> check_event_builder(const RunFile& file) {
  const auto prepared = FANIN_TRY(prepare(file));
  FANIN_TRY(fabric::Fabric::make(prepared.settings.fabric));
  const config::Configuration& configuration = prepared.substituted.configuration;
  net::VirtualWorld world(1, {});
  executive::Plugins plugins = simulated_plugins(prepared.settings.node, world);
  System::add_transport(plugins);
  FANIN_TRY(executive::plan_memory(configuration, plugins.transports));
  for (const config::Source& source : configuration.sources)
    FANIN_TRY(plugins.sources.make(source.settings));
  return {};
}

Result<Outcome> run_event_builder(const RunFile& file, const Watch& watch) {
  const MonotonicClock clock;
  const Time began = clock.now();
  const auto prepared = FANIN_TRY(prepare(file));
  const Substituted& substituted = prepared.substituted;
  auto network = FANIN_TRY(fabric::Fabric::make(prepared.settings.fabric));
  FabricCarrier carrier(std::move(network), substituted.host_of_node);
  PacedOutput output(prepared.settings.node.sink_rate);

  auto world = std::make_unique<net::VirtualWorld>(substituted.configuration.run.seed,
                                                   world_options(prepared.settings, carrier));
  System system(*world);
  SystemParts parts;
  parts.configuration = substituted.configuration;
  parts.plugins = simulated_plugins(prepared.settings.node, *world);
  System::add_transport(parts.plugins);
  parts.plans = FANIN_TRY(executive::plan_memory(parts.configuration, parts.plugins.transports));
  parts.output = &output;
  parts.blank_payload = !file.fills_payload;
  parts.log = [](const std::string&, LogLevel, std::string_view) {}; // the result says it
  FANIN_TRY(system.make(std::move(parts)));
  const Result<> ran = [&]() -> Result<> {
    FANIN_TRY(system.start_all());
    return run(system, watch);
  }();
  Outcome outcome = ran ? outcome_of(prepared, system, carrier) : Outcome{};
  system.destroy_nodes();
  world.reset(); // before the pools: its messages hold their pages
  if (!ran) return std::unexpected(ran.error());
  outcome.wall_s = seconds(clock.now() - began);
  return outcome;
}

} // namespace fanin::simulation
