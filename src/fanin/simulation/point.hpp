// What one simulation has given, and how it is shown.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/histogram.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/fabric/fabric.hpp"

namespace fanin::simulation {

struct LinkLoad {
  std::string name; // "host 3 to switch 0"
  double share = 0; // of the virtual time that was measured, 0 to 1
};

struct Outcome {
  double saturation = 0; // share of a destination's links, 0 to 1
  double per_node_bytes_per_s = 0; // of messages, without headers of packets
  Histogram latency; // from sending a message until its last byte is there
  double virtual_s = 0; // measured
  std::uint64_t network_events = 0;
  std::uint64_t messages = 0;
  std::uint64_t packets = 0;
  std::uint64_t dropped = 0; // packets, sent again
  std::uint64_t rerouted = 0;
  std::uint64_t queue_most = 0; // bytes in a queue of a switch, also in the warm-up
  std::vector<LinkLoad> busiest; // the busiest links, the first one most
  std::uint64_t trace_hash = 0; // of what the nodes have sent, where a run was simulated
  double wall_s = 0;
  std::vector<std::string> notes; // what stands for what, where a run was simulated
  json::Value run; // the keys of `run`, where a run was simulated
};

using Point = std::vector<std::pair<std::string, std::string>>; // keys and values of a sweep

// What a network has counted at one time.
struct NetworkState {
  explicit NetworkState(const fabric::Fabric& network);
  fabric::FabricCounters counters;
  std::vector<std::uint64_t> bytes; // over each link
};

// What the network itself says of the time since then, which was so long.
void add_network(Outcome& outcome, const fabric::Fabric& network, const NetworkState& before,
                 fabric::Picoseconds time);

[[nodiscard]] json::Value to_json(const Point& point, const Outcome& outcome);
[[nodiscard]] json::Value to_json(const Point& point, const Error& error);
// A run that was simulated has ended in good order, or there was none.
[[nodiscard]] bool is_good(const Outcome& outcome);
// The heading and the lines of one table.
[[nodiscard]] std::string table_head(const Point& point);
[[nodiscard]] std::string table_line(const Point& point, const Outcome& outcome);

} // namespace fanin::simulation
