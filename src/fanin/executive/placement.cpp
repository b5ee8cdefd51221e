#include "fanin/executive/placement.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/try.hpp"

namespace fanin::executive {

Result<> check_cpus(const std::vector<int>& cpus) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  (void)sched_getaffinity(0, sizeof usable, &usable);
  for (const int cpu : cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE && CPU_ISSET(static_cast<unsigned>(cpu), &usable)) continue;
    return fail(ErrorKind::usage,
                fmt::format("CPU {} does not exist, or this process may not use it (it may use {})",
                            cpu, counted(static_cast<std::uint64_t>(CPU_COUNT(&usable)), "CPU")));
  }
  return {};
}

Result<> pin_thread(const std::vector<int>& cpus) {
  if (cpus.empty()) return {};
  FANIN_TRY(check_cpus(cpus));
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<unsigned>(cpu), &set);
  if (sched_setaffinity(0, sizeof set, &set) == 0) return {};
  return fail_errno(ErrorKind::usage, fmt::format("pinning to CPUs {}", fmt::join(cpus, ", ")),
                    errno);
}

std::size_t usable_cores() { return std::max(1U, std::thread::hardware_concurrency()); }

void share_cores(std::size_t processes) {
  if (processes <= usable_cores()) return;
  const sched_param parameters{};
  (void)sched_setscheduler(0, SCHED_BATCH, &parameters);
}

} // namespace fanin::executive
