#include "fanin/simulation/nxn.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/bench/processes.hpp"
#include "fanin/bench/sockets_process.hpp"
#include "fanin/simulation/fabric_carrier.hpp"
#include "fanin/simulation/traffic.hpp"

namespace fanin::simulation {
namespace {

constexpr std::uint32_t pages_least = 16;
constexpr Duration nxn_step = std::chrono::microseconds{100}; // of virtual time, between two looks

using Pool = std::unique_ptr<memory::PagePool>;

Result<Pool> make_pool(std::uint32_t page_size, std::uint32_t pages) {
  return memory::PagePool::make(
      {.page_size = page_size,
       .pages = pages,
       .arena = {.huge_pages = memory::HugePages::off, .reserve_only = true}});
}

// A process of the benchmark. Its pools outlive the world, whose messages hold their pages.
struct Member {
  Pool send_pool;
  Pool receive_pool;
  net::TransportSet transports;
  bench::ProcessStats stats;
  std::unique_ptr<message::Context> context;
  std::unique_ptr<bench::Role> role;

  Result<> make(net::VirtualNode& host, std::uint32_t peers) {
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

class Nxn {
public:
  Nxn(const SimulationSettings& settings, net::VirtualWorld& world)
      : settings_(settings), world_(world) {}

  Result<> make() {
    const std::uint32_t nodes = settings_.nodes;
    bench::Spec spec;
    spec.pattern = bench::Pattern::nxn;
    spec.size = std::get<source::FixedSize>(settings_.traffic.size).bytes;
    spec.senders = spec.receivers = nodes;
    const bench::Roles roles = bench::nxn_roles(spec);
    for (std::uint32_t i = 0; i < nodes; ++i) world_.add_node(fmt::format("sender{}", i));
    std::vector<net::Url> urls;
    for (std::uint32_t i = 0; i < nodes; ++i) {
      const std::string name = fmt::format("receiver{}", i);
      FANIN_TRY(receivers_.emplace_back().make(world_.add_node(name), nodes));
      net::Url url{.scheme = "sim", .host = name};
      Member& receiver = receivers_.back();
      receiver.role = FANIN_TRY(roles.listen(*receiver.context, i, url, receiver.stats));
      urls.push_back(url);
    }
    for (std::uint32_t i = 0; i < nodes; ++i) {
      Member& sender = senders_.emplace_back();
      FANIN_TRY(sender.make(*world_.find_node(fmt::format("sender{}", i)), nodes));
      sender.role = FANIN_TRY(roles.connect(*sender.context, i, urls, sender.stats));
    }
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
  const SimulationSettings& settings_;
  net::VirtualWorld& world_;
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
    const double done = static_cast<double>(world.now().time_since_epoch().count()) /
                        static_cast<double>(end.time_since_epoch().count());
    if (watch) watch(done);
  }
}

} // namespace

Result<Outcome> run_nxn(SimulationSettings settings, const Watch& watch) {
  FANIN_TRY(check_traffic(settings));
  if (!std::holds_alternative<source::FixedSize>(settings.traffic.size))
    return fail(ErrorKind::usage, "traffic.size_sigma: messages of --traffic nxn have one size");
  const MonotonicClock clock;
  const Time began = clock.now();
  FANIN_TRY(place_hosts(settings, senders_and_receivers(settings.nodes)));
  auto made = FANIN_TRY(fabric::Fabric::make(settings.fabric));
  std::vector<std::uint32_t> hosts(2 * std::size_t{settings.nodes});
  std::iota(hosts.begin(), hosts.end(), 0U);
  FabricCarrier carrier(std::move(made), std::move(hosts));
  auto world =
      std::make_unique<net::VirtualWorld>(settings.traffic.seed, world_options(settings, carrier));
  Nxn nxn(settings, *world);
  const Time begin = Time{} + settings.traffic.warm_up;
  const Time end = begin + settings.traffic.duration;
  Outcome outcome;
  const Result<> ran = [&]() -> Result<> {
    FANIN_TRY(nxn.make());
    run_until(*world, begin, end, watch);
    const std::uint64_t taken = nxn.bytes();
    const std::uint64_t carried = bytes_in(carrier.network(), settings);
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
  outcome.messages = carrier.network().counters().messages;
  add_network(outcome, carrier.network(), fabric::to_picoseconds(end.time_since_epoch()));
  outcome.wall_s = std::chrono::duration<double>(clock.now() - began).count();
  return outcome;
}

} // namespace fanin::simulation
