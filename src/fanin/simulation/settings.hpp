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
  in_order, // one after the other, each with all its ports
  apart // those that send data and those that receive it, and each port of them, on leaves of their
        // own
};

struct TrafficSettings {
  source::SizeDistribution size = source::FixedSize{16U << 10};
  Destinations destinations = Destinations::random;
  Duration warm_up = std::chrono::milliseconds{1}; // virtual time before the measurement
  Duration duration = std::chrono::milliseconds{10}; // virtual time of the measurement
  std::uint64_t seed = 1;
};

enum class Hosts : std::uint8_t {
  units, // each readout unit, builder unit, filter unit and the event manager has its own
  processes // the nodes of a [[process]] share one
};

// What stands for processors, disks and filters of the nodes.
struct NodeSettings {
  Hosts hosts = Hosts::units;
  Duration turn = std::chrono::nanoseconds{500}; // of a node's processor, for a turn of its loop
  Duration message{}; // beside it, for a message that is sent or taken
  double processor_rate = 0; // bytes per second that are sent or taken; 0: they cost nothing
  double sink_rate = 0; // bytes per second that a builder unit stores or forwards; 0: no limit
  Duration filter_time = std::chrono::milliseconds{1}; // of a filter unit, for an event
  std::uint32_t filter_accepts_one_in = 10; // events
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
  NodeSettings node;
  TrafficSettings traffic;
  std::uint64_t memory_most = 0; // bytes of the process; 0: no limit
  std::vector<Origin> origins;
};

// From a whole file: [fabric], [fabric.origin] and [traffic]. Errors: usage, with file, line and
// key.
[[nodiscard]] Result<SimulationSettings> read_settings(const settings::Value& root);

// For place_hosts(): `nodes` hosts that send, and after them as many that receive.
[[nodiscard]] std::vector<bool> senders_and_receivers(std::uint32_t nodes);

// The hosts, of which some receive the data. Errors: usage.
[[nodiscard]] Result<> place_hosts(SimulationSettings& settings, const std::vector<bool>& receives);

} // namespace fanin::simulation
