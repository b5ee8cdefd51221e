// fanin bench evb: event building beside the bare loops that bound it, and the ladder between them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/evb_processes.hpp"
#include "fanin/bench/measure.hpp"
#include "fanin/bench/spec.hpp"
#include "fanin/bench/timeline.hpp"
#include "fanin/net/url.hpp"

namespace fanin::bench {

struct EvbOptions {
  EvbSetup setup;
  // The setup's hosts: the baselines are one bare stream between two of them, and `nxn`.
  std::shared_ptr<const executive::HostList> hosts;
  std::optional<EvbSetup> one_rail; // the same over one of several rails
  // The same with a readout and a builder unit on each host; its hosts.
  std::optional<EvbSetup> full_duplex;
  std::shared_ptr<const executive::HostList> full_duplex_hosts;
  net::Url url; // that the baselines take: of the configuration's network
  std::string congestion = "cubic"; // of every TCP connection, the baselines' too
  std::uint64_t working_set = fair_set; // through which each end of the fair loop cycles
  Window window{std::chrono::milliseconds{300}, std::chrono::seconds{2}}; // of one measurement
  RoundOptions rounds;
  bool baselines = true;
  bool ladder = false;
  bool idle = false; // connected, without events
  double throttle = 0; // share of its processor time that a builder unit gets; 0: not measured
  std::optional<double> requirement_hz; // events per second, with which each rate is compared
  std::optional<TimelineOptions> timeline; // one measurement of event building alone, in time
};

// The result object: settings, machine and results[]. Errors: usage, and what goes wrong.
[[nodiscard]] Result<json::Value> bench_evb(const EvbOptions& options, const Progress& progress);

// The same as a human-readable table.
[[nodiscard]] std::string evb_table(const json::Value& result);

} // namespace fanin::bench
