#include "fanin/simulation/settings.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "fanin/settings/reader.hpp"

namespace fanin::simulation {
namespace {

using settings::Problems;
using settings::TableReader;

constexpr std::uint32_t nodes_most = fabric::hosts_most / 2;

std::uint32_t natural(TableReader& reader, std::string_view key, std::uint32_t fallback,
                      std::uint32_t least, std::uint32_t most) {
  return static_cast<std::uint32_t>(reader.integer(key, fallback, least, most));
}

constexpr Duration longest = std::chrono::hours{1};
constexpr double slowest = 1000; // bytes per second

Duration read_time(TableReader& reader, const char* key, Duration fallback) {
  const Duration time = reader.duration(key, fallback);
  if (time > longest) reader.reject(key, "must be at most 1 h");
  return time;
}

// 0: there is no limit.
double read_rate(TableReader& reader, const char* key) {
  const double rate = reader.bandwidth(key, 0);
  if (rate > 0 && rate < slowest) reader.reject(key, "must be at least 1 kB/s");
  return rate;
}

void read_topology(TableReader& reader, fabric::TopologyOptions& to) {
  const std::size_t shape = reader.choice("topology", {"crossbar", "clos"});
  to.shape = static_cast<fabric::Shape>(shape);
  to.ports = natural(reader, "ports", to.ports, 1, 64);
  to.switch_ports = natural(reader, "switch_ports", 0, 0, fabric::hosts_most);
  to.uplinks = natural(reader, "uplinks", to.uplinks, 1, 1024);
  to.spines = natural(reader, "spines", to.spines, 1, 1024);
  to.leaves = natural(reader, "leaves", 0, 0, fabric::hosts_most);
  to.link_rate = reader.bandwidth("rate", to.link_rate);
  to.link_latency = read_time(reader, "latency", to.link_latency);
}

void read_switches(TableReader& reader, fabric::FabricOptions& to) {
  const auto queues = reader.choice("queues", {"input-fifo", "virtual-output", "output"}, 2);
  to.queueing = static_cast<fabric::Queueing>(queues);
  to.when_full = static_cast<fabric::WhenFull>(reader.choice("when_full", {"pause", "drop"}));
  to.buffer = reader.size("buffer", to.buffer);
  const auto routing = reader.choice("routing", {"static", "table", "dispersive", "adaptive"});
  to.routing = static_cast<fabric::Routing>(routing);
  to.reroute_after = read_time(reader, "reroute_after", to.reroute_after);
  to.resend_after = read_time(reader, "resend_after", to.resend_after);
  to.packet =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(reader.size("packet", to.packet), ~0U));
  to.packet_header = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(reader.size("packet_header", to.packet_header), ~0U));
  to.seed = reader.integer("seed", to.seed);
}

void read_interfaces(TableReader& reader, fabric::FabricOptions& to) {
  to.nic_out = read_rate(reader, "nic_out");
  to.nic_in = read_rate(reader, "nic_in");
  to.nic_shared = reader.boolean("nic_shared", false);
  to.message_cost = read_time(reader, "message_cost", {});
  to.queue_for_each_destination = reader.choice("nic_queues", {"fifo", "destinations"}) == 1;
}

void read_nodes(TableReader& reader, NodeSettings& to) {
  to.hosts = static_cast<Hosts>(reader.choice("hosts", {"units", "processes"}));
  to.turn = read_time(reader, "cpu_turn", to.turn);
  if (to.turn <= Duration{}) reader.reject("cpu_turn", "a turn takes some time, as 500ns");
  to.message = read_time(reader, "cpu_message", to.message);
  to.processor_rate = read_rate(reader, "cpu_rate");
  to.sink_rate = read_rate(reader, "sink_rate");
  to.filter_time = read_time(reader, "filter_time", to.filter_time);
  to.filter_accepts_one_in =
      natural(reader, "filter_accepts_one_in", to.filter_accepts_one_in, 1, ~0U);
}

// [fabric.origin]: a key of [fabric] or [traffic], and where its value comes from.
void read_origins(TableReader& of, std::string_view table, std::vector<Origin>& to) {
  TableReader reader = of.table("origin");
  static constexpr std::array<std::string_view, 3> kinds{"published", "assumed", "fitted"};
  if (reader.value() == nullptr) return;
  for (const settings::Entry& entry : reader.value()->entries) {
    const std::string text = reader.text(entry.key, "");
    const bool has_kind =
        std::ranges::any_of(kinds, [&](std::string_view kind) { return text.starts_with(kind); });
    if (!has_kind)
      reader.reject(entry.key,
                    "says whether the value is \"published\", \"assumed\" or \"fitted\", "
                    "and then from where");
    if (of.value()->find(entry.key) == nullptr)
      reader.reject(entry.key, fmt::format("there is no such key in [{}]", table));
    to.push_back({.key = std::string(table) + "." + entry.key, .text = text});
  }
  reader.finish();
}

void read_traffic(TableReader reader, SimulationSettings& settings) {
  TrafficSettings& to = settings.traffic;
  constexpr std::uint64_t size_most = 1U << 30;
  const std::uint64_t size = reader.size("size", 16U << 10);
  const std::uint64_t sigma = reader.size("size_sigma", 0);
  if (size == 0 || size > size_most) reader.reject("size", "must be 1 B to 1 GiB");
  if (sigma > 100 * size) reader.reject("size_sigma", "must be at most 100 times the size");
  if (sigma == 0) {
    to.size = source::FixedSize{static_cast<std::uint32_t>(size)};
  } else {
    to.size = source::LogNormalSize{static_cast<double>(size), static_cast<double>(sigma)};
  }
  to.destinations =
      static_cast<Destinations>(reader.choice("destinations", {"random", "round-robin", "pairs"}));
  to.warm_up = read_time(reader, "warm_up", to.warm_up);
  to.duration = reader.duration("duration", to.duration);
  if (to.duration <= Duration{} || to.duration > longest)
    reader.reject("duration", "must be more than 0 and at most 1 h");
  to.seed = reader.integer("seed", to.seed);
  read_origins(reader, "traffic", settings.origins);
  reader.finish();
}

// What is wrong with several keys together, of a network with two hosts.
void check_together(TableReader& reader, fabric::FabricOptions options, Problems& problems) {
  if (problems.first) return;
  options.topology.leaves = 0;
  options.topology.switch_ports = 0;
  const auto made = fabric::Fabric::make(options);
  if (!made) problems.add(reader.place(), "fabric", made.error().text);
}

} // namespace

Result<SimulationSettings> read_settings(const settings::Value& root) {
  SimulationSettings settings;
  Problems problems;
  TableReader whole(&root, "", problems);
  TableReader reader = whole.table("fabric");
  settings.nodes = natural(reader, "nodes", 0, 1, nodes_most);
  read_topology(reader, settings.fabric.topology);
  settings.placement = static_cast<Placement>(reader.choice("placement", {"in-order", "apart"}));
  read_switches(reader, settings.fabric);
  read_interfaces(reader, settings.fabric);
  read_nodes(reader, settings.node);
  settings.memory_most = reader.size("memory_max", 0);
  read_origins(reader, "fabric", settings.origins);
  reader.finish();
  read_traffic(whole.table("traffic"), settings);
  check_together(reader, settings.fabric, problems);
  if (problems.first) return std::unexpected(*problems.first);
  return settings;
}

std::vector<bool> senders_and_receivers(std::uint32_t nodes) {
  std::vector<bool> receives(nodes, false);
  receives.resize(2 * std::size_t{nodes}, true);
  return receives;
}

Result<> place_hosts(SimulationSettings& settings, const std::vector<bool>& receives) {
  fabric::TopologyOptions& to = settings.fabric.topology;
  to.hosts = static_cast<std::uint32_t>(receives.size());
  if (settings.placement == Placement::in_order) return {};
  if (to.shape != fabric::Shape::clos)
    return fail(ErrorKind::usage, "fabric.placement = \"apart\" is about the leaves of a Clos "
                                  "network: set fabric.topology = \"clos\"");
  if (to.switch_ports == 0) to.switch_ports = fabric::leaf_ports_default;
  const auto receivers = static_cast<std::uint32_t>(std::ranges::count(receives, true));
  const std::uint32_t largest = std::max(receivers, to.hosts - receivers);
  const std::uint32_t leaves_of_group = (largest + to.switch_ports - 1) / to.switch_ports;
  if (to.leaves == 0) to.leaves = 2 * to.ports * leaves_of_group;
  std::uint32_t placed[2] = {0, 0};
  for (const bool receiver : receives) {
    const std::uint32_t leaf = placed[receiver ? 1 : 0]++ / to.switch_ports;
    for (std::uint32_t port = 0; port < to.ports; ++port)
      to.leaf_of_port.push_back(((receiver ? to.ports : 0) + port) * leaves_of_group + leaf);
  }
  return {};
}

} // namespace fanin::simulation
