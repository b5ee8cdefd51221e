#include "fanin/simulation/nxn.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/bench/processes.hpp"
#include "fanin/bench/shaped_nxn.hpp"
#include "fanin/bench/sockets_process.hpp"
#include "fanin/simulation/fabric_carrier.hpp"
#include "fanin/simulation/traffic.hpp"

namespace fanin::simulation {
namespace {

constexpr std::uint32_t pages_least = 16;
constexpr Duration nxn_step = std::chrono::microseconds{100}; // of virtual time, between two looks

using Pool = std::unique_ptr<memory::PagePool>;

constexpr memory::ArenaOptions reserve_only{.huge_pages = memory::HugePages::off,
                                            .reserve_only = true};

Result<Pool> make_pool(std::uint32_t page_size, std::uint32_t pages) {
  return memory::PagePool::make({.page_size = page_size, .pages = pages, .arena = reserve_only});
}

// A process of the benchmark. Its pools outlive the world, whose messages hold their pages.
struct Member {
  Pool send_pool;
  Pool receive_pool;
  bench::ShapedPools shaped_pools;
  net::TransportSet transports;
  bench::ProcessStats stats;
  std::unique_ptr<message::Context> context; // null with shaping
  std::unique_ptr<bench::Role> role;

  Result<> make_context(net::VirtualNode& host, std::uint32_t peers) {
    constexpr std::uint32_t page = message::ContextOptions::send_page;
    send_pool = FANIN_TRY(make_pool(page, pages_least));
    receive_pool = FANIN_TRY(make_pool(2 * page, pages_least + 2 * peers));
    transports.add("sim", host.transport());
    context =
        std::make_unique<message::Context>(message::ContextParts{.loop = host.loop(),
                                                                 .transports = transports,
                                                                 .send_pool = *send_pool,
                                                                 .receive_pool = *receive_pool,
                                                                 .seed = 1});
    return {};
  }
};

// Who sends and who receives, as `spec` says.
class Nxn {
public:
  Nxn(const bench::Spec& spec, net::VirtualWorld& world)
      : spec_(spec), world_(world), roles_(bench::nxn_roles(spec)) {}

  Result<> make() {
    for (std::size_t i = 0; i < spec_.senders; ++i) world_.add_node(fmt::format("sender{}", i));
    std::vector<net::Url> urls;
    for (std::size_t i = 0; i < spec_.receivers; ++i) {
      const std::string name = fmt::format("receiver{}", i);
      net::Url url{.scheme = "sim", .host = name};
      Member& receiver = receivers_.emplace_back();
      FANIN_TRY(listen(receiver, world_.add_node(name), i, url));
      urls.push_back(url);
    }
    for (std::size_t i = 0; i < spec_.senders; ++i)
      FANIN_TRY(
          connect(senders_.emplace_back(), *world_.find_node(fmt::format("sender{}", i)), i, urls));
    return {};
  }

  // Before the world ends.
  void take_down() {
    for (auto* const members : {&senders_, &receivers_}) {
      for (Member& member : *members) {
        member.role.reset();
        member.context.reset();
      }
    }
  }

  [[nodiscard]] std::uint64_t bytes() const { // taken by receivers
    return std::accumulate(
        receivers_.begin(), receivers_.end(), std::uint64_t{0},
        [](std::uint64_t sum, const Member& receiver) { return sum + receiver.stats.bytes.get(); });
  }

private:
  Result<> listen(Member& member, net::VirtualNode& host, std::size_t index, net::Url& url) {
    if (spec_.shaping.on()) {
      member.shaped_pools = FANIN_TRY(bench::ShapedPools::of_receiver(spec_, reserve_only, false));
      member.role = FANIN_TRY(bench::shaped_receiver(
          {host.loop(), host.transport(), member.shaped_pools}, spec_, url, member.stats));
    } else {
      FANIN_TRY(member.make_context(host, static_cast<std::uint32_t>(spec_.senders)));
      member.role = FANIN_TRY(roles_.listen(*member.context, index, url, member.stats));
    }
    return {};
  }

  Result<> connect(Member& member, net::VirtualNode& host, std::size_t index,
                   const std::vector<net::Url>& urls) {
    if (spec_.shaping.on()) {
      member.shaped_pools = FANIN_TRY(bench::ShapedPools::of_sender(spec_, reserve_only, false));
      member.role = FANIN_TRY(bench::shaped_sender(
          {host.loop(), host.transport(), member.shaped_pools}, spec_, index, urls, member.stats));
    } else {
      FANIN_TRY(member.make_context(host, static_cast<std::uint32_t>(spec_.receivers)));
      member.role = FANIN_TRY(roles_.connect(*member.context, index, urls, member.stats));
    }
    return {};
  }

  const bench::Spec& spec_;
  net::VirtualWorld& world_;
  const bench::Roles roles_;
  std::deque<Member> senders_;
  std::deque<Member> receivers_;
};

std::uint64_t bytes_in(const fabric::Fabric& network, const SimulationSettings& settings) {
  const std::uint32_t ports = network.topology().ports();
  std::uint64_t bytes = 0;
  for (std::uint32_t i = settings.nodes * ports; i < 2 * settings.nodes * ports; ++i)
    bytes += network.bytes_over(network.topology().link_to(i));
  return bytes;
}

void run_until(net::VirtualWorld& world, Time until, Time end, const Watch& watch) {
  while (world.now() < until) {
    world.run_until(std::min(until, world.now() + nxn_step));
    if (watch) watch({world.now().time_since_epoch(), end.time_since_epoch()});
  }
}

struct PreparedNxn {
  SimulationSettings settings;
  bench::Spec spec;
};

Result<PreparedNxn> prepare_nxn(const ConfigurationFile& file) {
  const auto root = FANIN_TRY(parse(file));
  PreparedNxn prepared;
  prepared.settings = FANIN_TRY(read_settings(root));
  FANIN_TRY(check_traffic(prepared.settings));
  const auto* const size = std::get_if<source::FixedSize>(&prepared.settings.traffic.size);
  if (size == nullptr)
    return fail(ErrorKind::usage, "traffic.size_sigma: messages of --traffic nxn have one size");
  FANIN_TRY(place_hosts(prepared.settings, senders_and_receivers(prepared.settings.nodes)));
  bench::Spec& spec = prepared.spec;
  spec.pattern = bench::Pattern::nxn;
  spec.size = size->bytes;
  spec.senders = spec.receivers = prepared.settings.nodes;
  if (root.find("shaping") == nullptr) return prepared;
  spec.shaping = FANIN_TRY(parse_run(file, root, prepared.settings.nodes)).system.shaping;
  if (spec.shaping.on()) FANIN_TRY(bench::check_shaped(spec));
  return prepared;
}

} // namespace

Result<> check_nxn(const ConfigurationFile& file) {
  FANIN_TRY(prepare_nxn(file));
  return {};
}

Result<Outcome> run_nxn(const ConfigurationFile& file, const Watch& watch) {
  auto [settings, spec] = FANIN_TRY(prepare_nxn(file));
  const MonotonicClock clock;
  const Time began = clock.now();
  auto made = FANIN_TRY(fabric::Fabric::make(settings.fabric));
  std::vector<std::uint32_t> hosts(2 * std::size_t{settings.nodes});
  std::iota(hosts.begin(), hosts.end(), 0U);
  FabricCarrier carrier(std::move(made), std::move(hosts));
  auto world =
      std::make_unique<net::VirtualWorld>(settings.traffic.seed, world_options(settings, carrier));
  Nxn nxn(spec, *world);
  const Time begin = Time{} + settings.traffic.warm_up;
  const Time end = begin + settings.traffic.duration;
  Outcome outcome;
  std::optional<NetworkState> at_begin;
  const Result<> ran = [&]() -> Result<> {
    FANIN_TRY(nxn.make());
    run_until(*world, begin, end, watch);
    const std::uint64_t taken = nxn.bytes();
    const std::uint64_t carried = bytes_in(carrier.network(), settings);
    at_begin.emplace(carrier.network());
    run_until(*world, end, end, watch);
    outcome.virtual_s = std::chrono::duration<double>(settings.traffic.duration).count();
    const double links = double{1} * settings.nodes * settings.fabric.topology.ports;
    outcome.saturation = static_cast<double>(bytes_in(carrier.network(), settings) - carried) /
                         (settings.fabric.topology.link_rate * outcome.virtual_s * links);
    outcome.per_node_bytes_per_s =
        static_cast<double>(nxn.bytes() - taken) / outcome.virtual_s / settings.nodes;
    return {};
  }();
  nxn.take_down();
  world.reset();
  if (!ran) return std::unexpected(ran.error());
  add_network(outcome, carrier.network(), *at_begin,
              fabric::to_picoseconds(settings.traffic.duration));
  outcome.wall_s = std::chrono::duration<double>(clock.now() - began).count();
  return outcome;
}

} // namespace fanin::simulation
