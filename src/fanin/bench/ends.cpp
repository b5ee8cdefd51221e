#include "fanin/bench/ends.hpp"

#include <sched.h>

#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"

namespace fanin::bench {

Ends in_one_process(std::function<Result<>(ProcessStats&)> run) {
  return {.listeners = 0,
          .listen = {},
          .connect = [own = std::move(run)](std::size_t, const auto&,
                                            ProcessStats& stats) { return own(stats); },
          .connectors_count = true};
}

void keep_to_core(const Ends& ends, std::size_t process) {
  cpu_set_t usable;
  if (!ends.one_core_each || sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  if (ends.listeners + ends.connectors > static_cast<std::size_t>(CPU_COUNT(&usable))) return;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable) || process-- > 0) continue;
    CPU_ZERO(&usable);
    CPU_SET(cpu, &usable);
    (void)sched_setaffinity(0, sizeof usable, &usable);
    return;
  }
}

Result<std::size_t> start_here(ProcessGroup& group, const Ends& ends, std::size_t index,
                               const std::vector<std::string>* addresses) {
  if (addresses == nullptr) {
    return group.start(fmt::format("listener{}", index), [&](ProcessStats& stats) {
      keep_to_core(ends, index);
      return ends.listen(index, stats);
    });
  }
  return group.start(fmt::format("connector{}", index), [&](ProcessStats& stats) {
    keep_to_core(ends, ends.listeners + index);
    return ends.connect(index, *addresses, stats);
  });
}

Result<Sample> run_ends(ProcessGroup& group, const Ends& ends, const Window& window,
                        const StartEnd& start) {
  constexpr Duration end_patience = std::chrono::seconds{10};
  std::vector<std::string> addresses;
  for (std::size_t i = 0; i < ends.listeners; ++i) FANIN_TRY(start(i, nullptr));
  for (std::size_t i = 0; i < ends.listeners; ++i) {
    FANIN_TRY(group.wait_until(i, ProcessStats::State::ready));
    addresses.emplace_back(group.stats(i).text.data());
  }
  for (std::size_t i = 0; i < ends.connectors; ++i) FANIN_TRY(start(i, &addresses));
  auto sample = FANIN_TRY(group.measure(window.warmup, window.duration));
  if (!ends.latency) return sample;
  const std::size_t first_connector = ends.listeners;
  group.terminate(first_connector);
  FANIN_TRY(group.wait_until_ended(end_patience, first_connector));
  sample.latency = group.stats(first_connector).latency;
  return sample;
}

Result<Sample> run_ends(const Ends& ends, const Window& window) {
  ProcessGroup group;
  return run_ends(group, ends, window, [&](std::size_t index, const auto* addresses) {
    return start_here(group, ends, index, addresses);
  });
}

} // namespace fanin::bench
