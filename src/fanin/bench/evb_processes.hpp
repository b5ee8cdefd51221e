// A whole event builder, made without a configuration file: an event manager, N readout units with
// emulated sources and M builder units, each in a process of its own (inproc://: all in one).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "fanin/base/clock.hpp"
#include "fanin/base/result.hpp"
#include "fanin/bench/processes.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/url.hpp"

namespace fanin::bench {

struct EvbSetup {
  builder::System system; // names, sources, protocol, batches, rates
  net::Url url;           // where each node listens; port 0
  std::uint32_t fragment_size = 200;
  std::uint32_t source_page = 1U << 20;       // bytes
  std::uint64_t readout_buffer = 64ULL << 20; // of all sources of a readout unit
  std::uint64_t builder_buffer = 256ULL << 20;
  std::string storage; // folder for run files; empty: events are discarded
  net::WaitPolicy wait = net::WaitPolicy::poll;         // of readout and builder units
  net::WaitPolicy manager_wait = net::WaitPolicy::poll; // of the event manager
};

// `sources` on each readout unit, with ids from 1 on.
[[nodiscard]] builder::System make_system(std::size_t readout_units, std::size_t builder_units,
                                          std::size_t sources);

// Starts everything, measures in mid-run, ends in good order. The sample's remark says what was not
// as it should be at the end. `idle`: does not wait for data.
[[nodiscard]] Result<Sample> run_evb(const EvbSetup& setup, Duration warmup, Duration duration,
                                     bool idle = false);

} // namespace fanin::bench
