#include "fanin/simulation/traffic.hpp"

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "fanin/base/random.hpp"
#include "fanin/base/try.hpp"

namespace fanin::simulation {
namespace {

using fabric::Delivery;
using fabric::Fabric;
using fabric::Picoseconds;
using fabric::to_picoseconds;

// Messages that wait, for each queue of a sender. A new one need not go over the port that has
// become free: so that none of several ports has nothing to send, more wait.
constexpr std::uint32_t backlog = 2;
constexpr std::uint32_t backlog_of_ports = 64;

class Traffic {
public:
  Traffic(Fabric& network, const SimulationSettings& settings, Pattern pattern)
      : network_(network),
        settings_(settings),
        first_receiver_(pattern == Pattern::roundtrip ? 0 : settings.nodes),
        random_(settings.traffic.seed),
        begin_(to_picoseconds(settings.traffic.warm_up)),
        end_(begin_ + to_picoseconds(settings.traffic.duration)) {
    const bool pairs = settings.traffic.destinations == Destinations::pairs;
    if (pattern != Pattern::uniform || pairs) make_pairs(pairs);
    const std::uint32_t senders = pattern == Pattern::roundtrip ? hosts() : settings.nodes;
    for (std::uint32_t i = 0; i < senders; ++i) {
      senders_.push_back(
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
    const bool pairs = !partners_.empty();
    const std::uint32_t ports = settings_.fabric.topology.ports;
    const std::uint32_t queues =
        ports * (settings_.fabric.queue_for_each_destination && !pairs ? settings_.nodes : 1);
    for (std::uint32_t i = 0; i < (ports == 1 ? backlog : backlog_of_ports) * queues; ++i) {
      for (std::uint32_t sender = 0; sender < senders_.size(); ++sender) send(sender);
    }
    ProgressCheck check(end_, watch);
    FANIN_TRY(advance_to(begin_, check));
    const std::uint64_t before = bytes_in();
    const NetworkState at_begin(network_);
    FANIN_TRY(advance_to(end_, check));
    const double bytes = static_cast<double>(bytes_in() - before);

    Outcome outcome;
    outcome.virtual_s = static_cast<double>(settings_.traffic.duration.count()) * 1e-9;
    const double links = (hosts() - first_receiver_) * settings_.fabric.topology.ports;
    outcome.saturation = bytes / (settings_.fabric.topology.link_rate * outcome.virtual_s * links);
    outcome.per_node_bytes_per_s =
        static_cast<double>(network_.counters().payload - at_begin.counters.payload) /
        outcome.virtual_s / settings_.nodes;
    outcome.latency = latency_;
    add_network(outcome, network_, at_begin, end_ - begin_);
    outcome.wall_s = static_cast<double>((clock.now() - began).count()) * 1e-9;
    return outcome;
  }

private:
  struct Sender {
    source::SizeTable size;
    std::uint64_t sent;
  };

  [[nodiscard]] std::uint32_t hosts() const { return 2 * settings_.nodes; }

  // Sources and destinations one to one: in their order, or drawn.
  void make_pairs(bool drawn) {
    const std::uint32_t nodes = settings_.nodes;
    std::vector<std::uint32_t> destinations(nodes);
    std::iota(destinations.begin(), destinations.end(), nodes);
    for (std::uint32_t i = nodes; drawn && i > 1; --i)
      std::swap(destinations[i - 1], destinations[random_.below(i)]);
    partners_.resize(hosts());
    for (std::uint32_t i = 0; i < nodes; ++i) {
      partners_[i] = destinations[i];
      partners_[destinations[i]] = i;
    }
  }

  Result<> advance_to(Picoseconds end, ProgressCheck& check) {
    while (!network_.idle() && network_.next_time() <= end) {
      now_ = network_.next_time();
      network_.advance();
      FANIN_TRY(check.event(now_));
    }
    return {};
  }

  void send(std::uint32_t index) {
    Sender& sender = senders_[index];
    // The tag is the time, for the latency.
    network_.send(now_, index, destination(index, sender.sent), sender.size(sender.sent),
                  static_cast<std::uint64_t>(now_));
    ++sender.sent;
  }

  std::uint32_t destination(std::uint32_t sender, std::uint64_t sent) {
    if (!partners_.empty()) return partners_[sender];
    const std::uint32_t nodes = settings_.nodes;
    const bool random = settings_.traffic.destinations == Destinations::random;
    return nodes +
           static_cast<std::uint32_t>(random ? random_.below(nodes) : (sender + sent) % nodes);
  }

  void delivered(const Delivery& delivery) {
    if (delivery.last <= begin_ || delivery.last > end_) return;
    latency_.add(Duration{(delivery.last - static_cast<Picoseconds>(delivery.tag)) / 1000});
  }

  // Over the links to the hosts that receive.
  [[nodiscard]] std::uint64_t bytes_in() const {
    const fabric::Topology& topology = network_.topology();
    const std::uint32_t ports = topology.ports();
    std::uint64_t bytes = 0;
    for (std::uint32_t i = first_receiver_ * ports; i < hosts() * ports; ++i)
      bytes += network_.bytes_over(topology.link_to(i));
    return bytes;
  }

  Fabric& network_;
  const SimulationSettings& settings_;
  std::uint32_t first_receiver_; // a host; all after it receive too
  Random random_;
  Picoseconds begin_;
  Picoseconds end_;
  Picoseconds now_ = 0;
  std::vector<Sender> senders_; // the first hosts
  std::vector<std::uint32_t> partners_; // for each host the only one to which it sends; or empty
  Histogram latency_;
};

Result<std::unique_ptr<Fabric>> make_network(SimulationSettings& settings) {
  if (settings.nodes == 0)
    return fail(ErrorKind::usage,
                "fabric.nodes is missing: how many sources send, and to as many destinations");
  FANIN_TRY(place_hosts(settings, senders_and_receivers(settings.nodes)));
  return Fabric::make(settings.fabric);
}

} // namespace

Result<> check_traffic(SimulationSettings settings) {
  FANIN_TRY(make_network(settings));
  return {};
}

Result<Outcome> run_traffic(SimulationSettings settings, Pattern pattern, const Watch& watch) {
  auto network = FANIN_TRY(make_network(settings));
  Traffic traffic(*network, settings, pattern);
  return traffic.run(watch);
}

} // namespace fanin::simulation
