#include "fanin/bench/machine.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>

#include "fanin/doctor/host.hpp"
#include "fanin/executive/placement.hpp"
#include "fanin/version.hpp"

namespace fanin::bench {
namespace {

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

} // namespace

json::Value describe_machine() {
  json::Value machine;
  utsname system{};
  (void)uname(&system);
  machine["processor"] = processor();
  machine["cores"] = executive::usable_cores();
  const doctor::Host host;
  for (const int level : {2, 3})
    machine[fmt::format("cache_l{}", level)] =
        host.text(fmt::format("sys/devices/system/cpu/cpu0/cache/index{}/size", level))
            .value_or("");
  machine["kernel"] = std::string(system.release);
  machine["memory_bytes"] = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                            static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  double load = 0;
  if (getloadavg(&load, 1) == 1) machine["load_before"] = load;
  machine["fanin"] = version;
  machine["commit"] = version_commit();
  machine["build"] = version_build();
  return machine;
}

ProcessorTime processor_time() {
  std::ifstream file("/proc/stat");
  std::string name;
  file >> name; // "cpu", all of them: user nice system idle iowait irq softirq steal
  constexpr std::size_t fields = 8;
  ProcessorTime time;
  for (std::size_t i = 0; i < fields && file; ++i) {
    std::uint64_t ticks = 0;
    file >> ticks;
    time.all += ticks;
    if (i == 3 || i == 4) time.idle += ticks;
    if (i + 1 == fields) time.stolen = ticks;
  }
  return time;
}

double share_between(const ProcessorTime& before, const ProcessorTime& after,
                     std::uint64_t ProcessorTime::* which) {
  if (after.all <= before.all || after.*which < before.*which) return 0;
  return static_cast<double>(after.*which - before.*which) /
         static_cast<double>(after.all - before.all);
}

std::string host_congestion() {
  return doctor::Host().text("proc/sys/net/ipv4/tcp_congestion_control").value_or("cubic");
}

} // namespace fanin::bench
