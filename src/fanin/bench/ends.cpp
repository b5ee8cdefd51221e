#include "fanin/bench/ends.hpp"
#include "fanin/base/try.hpp"

#include <sched.h>

namespace fanin::bench {
namespace {

constexpr Duration end_patience = std::chrono::seconds{10};

// The scheduler likes to put two that talk to each other on one core.
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

} // namespace

Result<std::vector<std::string>> start_listeners(ProcessGroup& group, const Ends& ends) {
  std::vector<std::string> addresses;
  for (std::size_t i = 0; i < ends.listeners; ++i) {
    auto started = FANIN_TRY(group.start("listener" + std::to_string(i), [&](ProcessStats& stats) {
      keep_to_core(ends, i);
      return ends.listen(i, stats);
    }));
    FANIN_TRY(group.wait_until_ready(started));
    addresses.emplace_back(group.stats(started).text.data());
  }
  return addresses;
}

Result<> start_connectors(ProcessGroup& group, const Ends& ends,
                          const std::vector<std::string>& addresses) {
  for (std::size_t i = 0; i < ends.connectors; ++i) {
    FANIN_TRY(group.start("connector" + std::to_string(i), [&](ProcessStats& stats) {
      keep_to_core(ends, ends.listeners + i);
      return ends.connect(i, addresses, stats);
    }));
  }
  return {};
}

Result<Histogram> take_latency(ProcessGroup& group, std::size_t index) {
  group.terminate(index);
  FANIN_TRY(group.wait_until_ended(index, end_patience));
  return group.stats(index).latency;
}

Result<Sample> run_ends(const Ends& ends, const Window& window) {
  ProcessGroup group;
  const auto addresses = FANIN_TRY(start_listeners(group, ends));
  FANIN_TRY(start_connectors(group, ends, addresses));
  auto sample = FANIN_TRY(group.measure(window.warmup, window.duration));
  if (ends.latency) sample.latency = FANIN_TRY(take_latency(group, ends.listeners));
  return sample;
}

} // namespace fanin::bench
