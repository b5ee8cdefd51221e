// Traffic that never ends: each sender always has messages. It measures the network alone, without
// event building.
#pragma once

#include <cstdint>

#include "fanin/base/result.hpp"
#include "fanin/simulation/point.hpp"
#include "fanin/simulation/progress.hpp"
#include "fanin/simulation/settings.hpp"

namespace fanin::simulation {

enum class Pattern : std::uint8_t {
  uniform, // each source sends to all destinations
  stream, // each source sends to a destination of its own
  roundtrip // as stream, and at the same time the destination sends as much back
};

// Of settings.nodes sources and as many destinations, each a host of its own. Errors: usage,
// refused.
[[nodiscard]] Result<Outcome> run_traffic(SimulationSettings settings, Pattern pattern,
                                          const Watch& watch);

// What is wrong with traffic over that network, of whichever kind, before anything runs.
[[nodiscard]] Result<> check_traffic(SimulationSettings settings);

} // namespace fanin::simulation
