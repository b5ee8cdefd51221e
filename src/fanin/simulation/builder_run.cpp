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
// Measured, rounded up: memory of a node, and what the two ends of a pair of units take.
constexpr std::uint64_t node_memory = 1536U << 10;
constexpr std::uint64_t pair_memory = 8U << 10;
constexpr std::uint64_t shaped_pair_memory = 144U << 10;

struct Prepared {
  SimulationSettings settings;
  Substituted substituted;
};

Result<Prepared> prepare(const ConfigurationFile& file) {
  const auto root = FANIN_TRY(parse(file));
  Prepared prepared;
  prepared.settings = FANIN_TRY(read_settings(root));
  auto configuration = FANIN_TRY(parse_run(file, root, prepared.settings.nodes));
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

MemoryNeed need_of(const config::Configuration& configuration) {
  const std::uint64_t nodes = configuration.nodes.size();
  const std::uint64_t pairs = configuration.readouts() * configuration.builders();
  const std::uint64_t of_pair =
      configuration.system.shaping.on() ? shaped_pair_memory : pair_memory;
  return {nodes * node_memory + pairs * of_pair,
          fmt::format("{} for each of {} nodes and {} for each of {} pairs of a readout and a "
                      "builder unit",
                      format_size(node_memory), nodes, format_size(of_pair), pairs)};
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

Outcome outcome_of(const Prepared& prepared, System& system, const FabricCarrier& carrier,
                   const NetworkState& at_begin) {
  const builder::RunSummary& summary = system.summary();
  Outcome outcome;
  // Of few events the first and the last may be close.
  const bool by_events = system.configuration().system.events_max != 0;
  outcome.virtual_s =
      seconds(by_events ? summary.duration
                        : std::max(summary.duration, system.configuration().run.duration));
  if (outcome.virtual_s > 0) {
    outcome.saturation = saturation(prepared, carrier.network(), outcome.virtual_s);
    outcome.per_node_bytes_per_s = static_cast<double>(summary.bytes_built) / outcome.virtual_s /
                                   static_cast<double>(system.builders());
  }
  outcome.latency = summary.latency;
  add_network(outcome, carrier.network(), at_begin,
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
    if (watch) watch({passed, duration});
  }
  return {};
}

} // namespace

Result<MemoryNeed> check_event_builder(const ConfigurationFile& file) {
  const auto prepared = FANIN_TRY(prepare(file));
  FANIN_TRY(fabric::Fabric::make(prepared.settings.fabric));
  const config::Configuration& configuration = prepared.substituted.configuration;
  net::VirtualWorld world(1, {});
  executive::Plugins plugins = simulated_plugins(prepared.settings.node, world);
  System::add_transport(plugins);
  FANIN_TRY(executive::plan_memory(configuration, plugins.transports));
  for (const config::Source& source : configuration.sources)
    FANIN_TRY(plugins.sources.make(source.settings));
  return need_of(configuration);
}

Result<Outcome> run_event_builder(const ConfigurationFile& file, const Watch& watch) {
  const MonotonicClock clock;
  const Time began = clock.now();
  const auto prepared = FANIN_TRY(prepare(file));
  const Substituted& substituted = prepared.substituted;
  auto network = FANIN_TRY(fabric::Fabric::make(prepared.settings.fabric));
  FabricCarrier carrier(std::move(network), substituted.host_of_node);
  const NetworkState at_begin(carrier.network());
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
  Outcome outcome = ran ? outcome_of(prepared, system, carrier, at_begin) : Outcome{};
  system.destroy_nodes();
  world.reset(); // before the pools: its messages hold their pages
  if (!ran) return std::unexpected(ran.error());
  outcome.wall_s = seconds(clock.now() - began);
  return outcome;
}

} // namespace fanin::simulation
