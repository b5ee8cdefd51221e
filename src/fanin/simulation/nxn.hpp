// N x N traffic through fanin's message sockets on a simulated network: what `fanin bench nxn`
// runs, in virtual time.
#pragma once

#include "fanin/base/result.hpp"
#include "fanin/simulation/point.hpp"
#include "fanin/simulation/progress.hpp"
#include "fanin/simulation/settings.hpp"

namespace fanin::simulation {

// settings.nodes senders, each of which sends to as many receivers in turn, as fast as they take
// messages of traffic.size. Errors: usage, refused.
[[nodiscard]] Result<Outcome> run_nxn(SimulationSettings settings, const Watch& watch);

} // namespace fanin::simulation
