// What a file says of a simulated network ([fabric]) and of the traffic over it ([traffic]).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/result.hpp"
#include "fanin/fabric/fabric.hpp"
#include "fanin/settings/tree.hpp"
#include "fanin/source/emulator.hpp"

namespace fanin::simulation {

enum class Destinations : std::uint8_t { random, round_robin };

struct TrafficSettings {
  source::SizeDistribution size = source::FixedSize{16U << 10};
  Destinations destinations = Destinations::random;
  Duration warm_up = std::chrono::milliseconds{1}; // virtual time before the measurement
  Duration duration = std::chrono::milliseconds{10}; // virtual time of the measurement
  std::uint64_t seed = 1;
};

// Where the value of a key comes from.
struct Origin {
  std::string key; // dotted: "fabric.rate"
  std::string text; // begins with "published", "assumed" or "fitted"
};

struct SimulationSettings {
  std::uint32_t nodes = 0; // sources, and as many destinations; 0: those of the configuration
  fabric::FabricOptions fabric; // its number of hosts is set by who knows them
  TrafficSettings traffic;
  std::vector<Origin> origins;
};

// From a whole file: [fabric], [fabric.origin] and [traffic]. Errors: usage, with file, line and
// key.
[[nodiscard]] Result<SimulationSettings> read_settings(const settings::Value& root);

} // namespace fanin::simulation
