// A contender as two kinds of processes: those that listen, and those that connect to them. Those
// that receive count. The same ends run on one host or, with bodies.hpp, on several.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "fanin/base/result.hpp"
#include "fanin/bench/processes.hpp"

namespace fanin::bench {

struct Ends {
  std::size_t listeners = 1;
  std::size_t connectors = 1;
  // Says its address in the stats, then is ready. Runs until it is killed.
  std::function<Result<>(std::size_t index, ProcessStats& stats)> listen;
  // To all addresses. Runs until it is killed; where it measures latencies, until it is terminated.
  std::function<Result<>(std::size_t index, const std::vector<std::string>& addresses,
                         ProcessStats& stats)>
      connect;
  bool connectors_count = false; // they receive: subscribers, and who waits for replies
  bool latency = false; // the first connector's stats has it when it has ended
  bool one_core_each = false; // where there are cores enough: processes of one thread
};

// One process that does it all, and counts.
[[nodiscard]] Ends in_one_process(std::function<Result<>(ProcessStats&)> run);

struct Window {
  Duration warmup{};
  Duration duration{};
};

// Starts one of the ends in a group: a listener, or a connector to these addresses.
using StartEnd = std::function<Result<std::size_t>(std::size_t index,
                                                   const std::vector<std::string>* addresses)>;
// On this host. `ends` outlives the call.
[[nodiscard]] Result<std::size_t> start_here(ProcessGroup& group, const Ends& ends,
                                             std::size_t index,
                                             const std::vector<std::string>* addresses);
// The scheduler likes to put two that talk to each other on one core.
void keep_to_core(const Ends& ends, std::size_t process);

// All ends in `group`, which is empty. Errors: one does not start, and those of the measurement.
[[nodiscard]] Result<Sample> run_ends(ProcessGroup& group, const Ends& ends, const Window& window,
                                      const StartEnd& start);
// On this host.
[[nodiscard]] Result<Sample> run_ends(const Ends& ends, const Window& window);

} // namespace fanin::bench
