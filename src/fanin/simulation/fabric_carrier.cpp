#include "fanin/simulation/fabric_carrier.hpp"

#include <utility>

namespace fanin::simulation {

using fabric::to_picoseconds;
using fabric::to_time;

FabricCarrier::FabricCarrier(std::unique_ptr<fabric::Fabric> network,
                             std::vector<std::uint32_t> host_of_node)
    : network_(std::move(network)), host_of_node_(std::move(host_of_node)) {
  network_->on_delivered = [this](const fabric::Delivery& delivery) {
    Slot& slot = slots_[delivery.tag];
    net::in_memory::Item& item = *slot.item;
    slot.next_free = std::exchange(free_, static_cast<std::uint32_t>(delivery.tag));
    arrive(item, to_time(delivery.first), to_time(delivery.last));
  };
}

void FabricCarrier::depart(const net::in_memory::Departure& departure) {
  const std::uint32_t from = host_of_node_[departure.from];
  const std::uint32_t to = host_of_node_[departure.to];
  if (from == to) {
    arrive(*departure.item, departure.at, departure.at);
    return;
  }
  if (free_ == none) {
    free_ = static_cast<std::uint32_t>(slots_.size());
    slots_.emplace_back();
  }
  const std::uint32_t index = free_;
  free_ = slots_[index].next_free;
  slots_[index].item = departure.item;
  network_->send(to_picoseconds(departure.at.time_since_epoch()), from, to, departure.bytes, index);
}

Time FabricCarrier::next() { return network_->idle() ? never : to_time(network_->next_time()); }

void FabricCarrier::advance(Time now) {
  const fabric::Picoseconds until = to_picoseconds(now.time_since_epoch());
  while (!network_->idle() && network_->next_time() <= until) network_->advance();
}

net::VirtualNetworkOptions world_options(const SimulationSettings& settings,
                                         FabricCarrier& carrier) {
  const Duration there_and_back = 2 * settings.fabric.topology.link_latency;
  return {.latency_min = there_and_back,
          .latency_max = there_and_back,
          .turn_cost = settings.node.turn,
          .message_cost = settings.node.message,
          .byte_cost_ns = settings.node.processor_rate > 0 ? 1e9 / settings.node.processor_rate : 0,
          .carrier = &carrier};
}

} // namespace fanin::simulation
