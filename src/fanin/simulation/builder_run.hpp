// A run of the production event builder on a simulated network.
#pragma once

#include <string>
#include <vector>

#include "fanin/base/result.hpp"
#include "fanin/settings/tree.hpp"
#include "fanin/simulation/point.hpp"
#include "fanin/simulation/progress.hpp"

namespace fanin::simulation {

// A configuration as it was given.
struct RunFile {
  std::string text;
  std::string name; // for messages
  std::vector<std::string> overrides; // KEY=VALUE
  bool fills_payload = false; // with the bytes that it would have; else it has sizes only
};

// All that the file says, with the overrides. Errors: usage.
[[nodiscard]] Result<settings::Value> parse(const RunFile& file);

// With `fabric.nodes`, so many readout units and builder units, of one [[readout]] and one
// [[builder]]. Errors: usage, naming file, line and key; refused: the run did not end. Whether it
// has ended in good order is in Outcome::run.
[[nodiscard]] Result<Outcome> run_event_builder(const RunFile& file, const Watch& watch);

// What is wrong with it, before anything runs.
[[nodiscard]] Result<> check_event_builder(const RunFile& file);

} // namespace fanin::simulation
