// A contender as two kinds of processes: those that listen, and those that connect to them. Those
// that receive count. The same ends run on one host or, with remote.hpp, on two.
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

struct Window {
  Duration warmup{};
  Duration duration{};
};

// Their addresses. Errors: one does not start.
[[nodiscard]] Result<std::vector<std::string>> start_listeners(ProcessGroup& group,
                                                               const Ends& ends);
[[nodiscard]] Result<> start_connectors(ProcessGroup& group, const Ends& ends,
                                        const std::vector<std::string>& addresses);
// Ends the first connector, which started as number `index`.
[[nodiscard]] Result<Histogram> take_latency(ProcessGroup& group, std::size_t index);

// On this host.
[[nodiscard]] Result<Sample> run_ends(const Ends& ends, const Window& window);

} // namespace fanin::bench
