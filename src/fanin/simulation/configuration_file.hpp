// A file that is simulated: a run's configuration, or a network and its traffic alone.
#pragma once

#include <string>
#include <vector>

#include "fanin/base/result.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/settings/tree.hpp"

namespace fanin::simulation {

// As it was given.
struct ConfigurationFile {
  std::string text;
  std::string name; // for messages
  std::vector<std::string> overrides; // KEY=VALUE
  bool fills_payload = false; // with the bytes that it would have; else it has sizes only
};

// All that the file says, with the overrides. Errors: usage.
[[nodiscard]] Result<settings::Value> parse(const ConfigurationFile& file);

// The run of a file whose parse() is `root`; with `nodes` that are not 0 so many readout units and
// builder units, of one [[readout]] and one [[builder]]. Errors: usage, naming file, line and key.
[[nodiscard]] Result<config::Configuration>
parse_run(const ConfigurationFile& file, const settings::Value& root, std::uint32_t nodes);

} // namespace fanin::simulation
