// The results of a sweep as a drawing.
#pragma once

#include <vector>

#include "fanin/bench/plot.hpp"
#include "fanin/simulation/sweep.hpp"

namespace fanin::simulation {

// Over the values of the last key of the sweep, in their order; a curve for each combination of the
// other keys. Throughput, latency, queues and the busiest links.
[[nodiscard]] bench::Plot plot_of(const std::vector<SweepResult>& results);

} // namespace fanin::simulation
