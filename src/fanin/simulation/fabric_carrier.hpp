// Carries what nodes of a virtual world send over a simulated network of links and switches.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fanin/fabric/fabric.hpp"
#include "fanin/net/in_memory/carrier.hpp"
#include "fanin/net/virtual_world.hpp"
#include "fanin/simulation/settings.hpp"

namespace fanin::simulation {

// Thread: that of the world. Virtual time and the time of the network are the same.
class FabricCarrier final : public net::in_memory::Carrier {
public:
  // `host_of_node`: of each node of the world, its host on the network. What nodes of one host send
  // to each other passes no link, and takes no time.
  FabricCarrier(std::unique_ptr<fabric::Fabric> network, std::vector<std::uint32_t> host_of_node);

  void depart(const net::in_memory::Departure& departure) override;
  [[nodiscard]] Time next() override;
  void advance(Time now) override;

  [[nodiscard]] const fabric::Fabric& network() const { return *network_; }

private:
  static constexpr std::uint32_t none = ~0U;
  struct Slot { // of an item under way
    net::in_memory::Item* item = nullptr;
    std::uint32_t next_free = none;
  };

  std::unique_ptr<fabric::Fabric> network_;
  std::vector<std::uint32_t> host_of_node_;
  std::vector<Slot> slots_;
  std::uint32_t free_ = none;
};

// Of a world whose nodes have processors as the settings say, over that network.
[[nodiscard]] net::VirtualNetworkOptions world_options(const SimulationSettings& settings,
                                                       FabricCarrier& carrier);

} // namespace fanin::simulation
