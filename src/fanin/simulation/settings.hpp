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

enum class Destinations : std::uint8_t {
  random,
  round_robin,
  pairs // of each source one and the same, drawn once
};

// On which leaves of a Clos network the hosts are.
enum class Placement : std::uint8_t {
  in_order, // sources, then destinations, each with all its ports
  apart // sources and destinations, and each port of them, on leaves of their own
};

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
  fabric::FabricOptions fabric; // without hosts: place_hosts() sets them
  Placement placement = Placement::in_order;
  TrafficSettings traffic;
  std::vector<Origin> origins;
};

// From a whole file: [fabric], [fabric.origin] and [traffic]. Errors: usage, with file, line and
// key.
[[nodiscard]] Result<SimulationSettings> read_settings(const settings::Value& root);

// `nodes` sources, and after them as many destinations, are the hosts. Errors: usage.
[[nodiscard]] Result<> place_hosts(SimulationSettings& settings);

} // namespace fanin::simulation
