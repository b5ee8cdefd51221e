#include "fanin/simulation/uniform_traffic.hpp"

#include <deque>
#include <memory>
#include <vector>

#include "fanin/base/random.hpp"
#include "fanin/base/try.hpp"

namespace fanin::simulation {
namespace {

using fabric::Delivery;
using fabric::Fabric;
using fabric::Picoseconds;
using fabric::to_picoseconds;

constexpr int backlog = 2; // messages of a source that have not left it

class UniformTraffic {
public:
  UniformTraffic(Fabric& network, const SimulationSettings& settings)
      : network_(network),
        settings_(settings),
        random_(settings.traffic.seed),
        begin_(to_picoseconds(settings.traffic.warm_up)),
        end_(begin_ + to_picoseconds(settings.traffic.duration)) {
    for (std::uint32_t i = 0; i < settings.nodes; ++i) {
      sources_.push_back(
          {.size = source::SizeTable(settings.traffic.size, static_cast<SourceId>(i + 1),
                                     settings.traffic.seed),
           .sent = 0});
    }
    network_.on_departed = [this](std::uint32_t source) { send(source); };
    network_.on_delivered = [this](const Delivery& delivery) { delivered(delivery); };
  }

  Result<Outcome> run(const Watch& watch) {
    const MonotonicClock clock;
    const Time began = clock.now();
    for (int i = 0; i < backlog; ++i) {
      for (std::uint32_t source = 0; source < settings_.nodes; ++source) send(source);
    }
    ProgressCheck check(end_, watch);
    FANIN_TRY(advance_to(begin_, check));
    const std::uint64_t before = bytes_in();
    FANIN_TRY(advance_to(end_, check));
    const double bytes = static_cast<double>(bytes_in() - before);

    Outcome outcome;
    outcome.virtual_s = static_cast<double>(settings_.traffic.duration.count()) * 1e-9;
    const double nodes = settings_.nodes;
    const double ports = settings_.fabric.topology.ports;
    outcome.saturation =
        bytes / (settings_.fabric.topology.link_rate * outcome.virtual_s * nodes * ports);
    outcome.per_node_bytes_per_s = static_cast<double>(bytes_) / outcome.virtual_s / nodes;
    outcome.latency = latency_;
    outcome.messages = messages_;
    outcome.network_events = network_.counters().events;
    outcome.packets = network_.counters().packets;
    outcome.dropped = network_.counters().dropped;
    outcome.rerouted = network_.counters().rerouted;
    outcome.wall_s = static_cast<double>((clock.now() - began).count()) * 1e-9;
    return outcome;
  }

private:
  struct Source {
    source::SizeTable size;
    std::uint64_t sent;
  };

  Result<> advance_to(Picoseconds end, ProgressCheck& check) {
    while (!network_.idle() && network_.next_time() <= end) {
      now_ = network_.next_time();
      network_.advance();
      FANIN_TRY(check.event(now_));
    }
    return {};
  }

  void send(std::uint32_t index) {
    Source& source = sources_[index];
    const std::uint32_t nodes = settings_.nodes;
    const bool random = settings_.traffic.destinations == Destinations::random;
    const std::uint64_t to = random ? random_.below(nodes) : (index + source.sent) % nodes;
    // The tag is the time, for the latency.
    network_.send(now_, index, nodes + static_cast<std::uint32_t>(to), source.size(source.sent),
                  static_cast<std::uint64_t>(now_));
    ++source.sent;
  }

  void delivered(const Delivery& delivery) {
    if (delivery.last <= begin_ || delivery.last > end_) return;
    ++messages_;
    bytes_ += delivery.bytes;
    latency_.add(Duration{(delivery.last - static_cast<Picoseconds>(delivery.tag)) / 1000});
  }

  // Over the links to the destinations.
  [[nodiscard]] std::uint64_t bytes_in() const {
    const fabric::Topology& topology = network_.topology();
    const std::uint32_t ports = topology.ports();
    std::uint64_t bytes = 0;
    for (std::uint32_t i = settings_.nodes * ports; i < 2 * settings_.nodes * ports; ++i)
      bytes += network_.bytes_over(topology.link_to(i));
    return bytes;
  }

  Fabric& network_;
  const SimulationSettings& settings_;
  Random random_;
  Picoseconds begin_;
  Picoseconds end_;
  Picoseconds now_ = 0;
  std::vector<Source> sources_;
  std::uint64_t messages_ = 0;
  std::uint64_t bytes_ = 0;
  Histogram latency_;
};

} // namespace

Result<Outcome> run_uniform_traffic(SimulationSettings settings, const Watch& watch) {
  if (settings.nodes == 0)
    return fail(ErrorKind::usage,
                "fabric.nodes is missing: how many sources send, and to as many destinations");
  settings.fabric.topology.hosts = 2 * settings.nodes;
  auto network = FANIN_TRY(Fabric::make(settings.fabric));
  UniformTraffic traffic(*network, settings);
  return traffic.run(watch);
}

} // namespace fanin::simulation
