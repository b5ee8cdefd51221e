// A run of the production event builder on a simulated network.
#pragma once

#include <cstdint>
#include <string>

#include "fanin/base/result.hpp"
#include "fanin/simulation/configuration_file.hpp"
#include "fanin/simulation/point.hpp"
#include "fanin/simulation/progress.hpp"

namespace fanin::simulation {

// With `fabric.nodes`, so many readout units and builder units, of one [[readout]] and one
// [[builder]]. Errors: usage, naming file, line and key; refused: the run did not end. Whether it
// has ended in good order is in Outcome::run.
[[nodiscard]] Result<Outcome> run_event_builder(const ConfigurationFile& file, const Watch& watch);

struct MemoryNeed {
  std::uint64_t bytes = 0; // about
  std::string sum; // human-readable
};

// What is wrong with it, before anything runs; else the memory that it will take.
[[nodiscard]] Result<MemoryNeed> check_event_builder(const ConfigurationFile& file);

} // namespace fanin::simulation
