// Traffic that never ends: each source always has messages for all destinations. It measures the
// network alone, without event building.
#pragma once

#include "fanin/base/result.hpp"
#include "fanin/simulation/point.hpp"
#include "fanin/simulation/progress.hpp"
#include "fanin/simulation/settings.hpp"

namespace fanin::simulation {

// Of settings.nodes sources and as many destinations, each a host of its own. Errors: usage,
// refused.
[[nodiscard]] Result<Outcome> run_uniform_traffic(SimulationSettings settings, const Watch& watch);

} // namespace fanin::simulation
