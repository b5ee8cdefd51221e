// A whole event builder as `fanin run` starts it: an event manager, N readout units with emulated
// sources and M builder units, each in a process of its own (inproc://: all in one). Or a process
// beside each readout unit sends the fragments of its sources (fragment_sender.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fanin/base/result.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/processes.hpp"
#include "fanin/builder/lane.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/executive/host_list.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::bench {

// What its configuration is made from.
struct EvbShape {
  std::size_t readout_units = 1;
  std::size_t builder_units = 1;
  std::size_t sources = 1; // of each readout unit
  std::uint32_t fragment_size = 0; // bytes
  std::uint32_t fragment_sigma = 0; // bytes: sizes are log-normal with that mean; 0: all are equal
  bool receive = false; // fragments come from processes beside the readout units
  std::size_t rails = 1; // of builder units
  std::string url = "tcp"; // of each rail
  std::vector<std::string> overrides; // as of `fanin run --set`

  static void each_member(auto& self, const auto& visit) { // members.hpp
    visit("rus", self.readout_units);
    visit("bus", self.builder_units);
    visit("sources", self.sources);
    visit("fragment_size", self.fragment_size);
    visit("fragment_sigma", self.fragment_sigma);
    visit("receive", self.receive);
    visit("rails", self.rails, 1, builder::rails_max);
    visit("url", self.url);
    visit("overrides", self.overrides);
  }
};

struct EvbSetup {
  EvbShape shape; // of the configuration
  const executive::HostList* hosts = nullptr; // a node each; null: all on this host. Outlives it
  config::Configuration configuration; // where it has an output, a folder is made in there
  std::uint32_t fragment_size = 0; // bytes
  // Of the event manager's process; that of the others is the configuration's.
  net::WaitPolicy manager_wait = net::WaitPolicy::block;
};

// Sources of fragments, emulated or received; events are discarded. Errors: those of
// the configuration.
[[nodiscard]] Result<config::Configuration> evb_configuration(const EvbShape& shape);

// Of one node on another host (bodies.hpp). Errors: those of the configuration and of its hosts.
[[nodiscard]] Result<ProcessGroup::Body> evb_body(const json::Value& part);

// Starts everything, measures in mid-run, ends in good order. The sample's remark says what was not
// as it should be (events incomplete or lost, a node that did not end). `idle`: there are no
// events.
[[nodiscard]] Result<Sample> run_evb(const EvbSetup& setup, const Window& window, bool idle,
                                     const Watch& watch = {});

// The same in two measurements: before and after the first builder unit is held to `share` of the
// processor time that it took in the first one. The sample is the second one's. There are several
// builder units, on this host or the testbed. Errors: unsupported too (cpu_quota.hpp).
[[nodiscard]] Result<Sample> run_throttled_evb(const EvbSetup& setup, const Window& window,
                                               double share);

} // namespace fanin::bench
