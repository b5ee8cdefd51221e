// What stands in a simulation for sources, filters, plug-ins and files of a configuration: nothing
// outside is opened.
#pragma once

#include <string>
#include <vector>

#include "fanin/config/configuration.hpp"
#include "fanin/executive/plugins.hpp"
#include "fanin/net/virtual_world.hpp"
#include "fanin/simulation/settings.hpp"

namespace fanin::simulation {

struct Substituted {
  config::Configuration configuration; // all addresses are sim://
  std::vector<std::uint32_t> host_of_node; // of each of its nodes, on the network
  std::vector<std::string> host_names;
  std::vector<std::string> notes; // a line for each substitution
};

// A run without a duration or a number of events lasts one virtual second. Emulators fill payload
// only with `fills_payload`, and nodes check it then.
[[nodiscard]] Substituted substitute(config::Configuration configuration,
                                     const NodeSettings& settings, bool fills_payload = false);

// Emulators, and filters that take the configured time: of nodes of that world.
[[nodiscard]] executive::Plugins simulated_plugins(const NodeSettings& settings,
                                                   net::VirtualWorld& world);

} // namespace fanin::simulation
