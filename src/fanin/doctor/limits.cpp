// Limits of this process and settings of the kernel.
#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "fanin/base/units.hpp"
#include "fanin/doctor/examine.hpp"

namespace fanin::doctor::detail {
namespace {

constexpr std::uint64_t files_least = 4096;
constexpr std::int64_t buffer_least = 4 << 20; // bytes
constexpr std::uint64_t kib = 1024;

// In "always [madvise] never" the word in brackets.
std::string chosen(const std::string& text) {
  const auto open = text.find('[');
  const auto close = text.find(']', open);
  if (open == std::string::npos || close == std::string::npos) return text;
  return text.substr(open + 1, close - open - 1);
}

bool has_word(const std::string& text, std::string_view word) {
  std::istringstream words(text);
  for (std::string each; words >> each;) {
    if (each == word) return true;
  }
  return false;
}

std::int64_t last_number(const std::string& text) {
  std::istringstream words(text);
  std::int64_t last = 0;
  for (std::int64_t each = 0; words >> each;) last = each;
  return last;
}

std::optional<std::uint64_t> memory_total(const Host& host) {
  std::istringstream lines(host.text("proc/meminfo").value_or(""));
  std::string key;
  std::uint64_t value = 0;
  lines >> key >> value;
  if (key != "MemTotal:") return {};
  return value * kib;
}

// The folder of this process's control group (version 2).
std::string control_group(const Host& host) {
  const std::string text = host.text("proc/self/cgroup").value_or("");
  const auto at = text.find("0::");
  if (at == std::string::npos) return "sys/fs/cgroup";
  return "sys/fs/cgroup" + text.substr(at + 3, text.find('\n', at) - at - 3);
}

} // namespace

void examine_limits(const Host& host, Findings& findings) {
  const auto files = host.limit("Max open files");
  findings.push_back(hint_if(
      files && *files < files_least, "open files", files ? fmt::format("{}", *files) : "unlimited",
      "a connection takes one or two: ulimit -n 65536, or LimitNOFILE= in the unit"));
}

void examine_memory(const Host& host, Findings& findings) {
  const std::string pages = "sys/kernel/mm/hugepages/hugepages-2048kB/";
  const std::int64_t reserved = host.number(pages + "nr_hugepages").value_or(0);
  const std::int64_t unused = host.number(pages + "free_hugepages").value_or(0);
  const std::string transparent =
      chosen(host.text("sys/kernel/mm/transparent_hugepage/enabled").value_or("not available"));
  const bool usable = reserved > 0 || transparent == "always" || transparent == "madvise";
  findings.push_back(hint_if(
      !usable, "huge pages",
      fmt::format("{} of 2 MiB reserved, {} free; transparent: {}", reserved, unused, transparent),
      "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: pools have fewer TLB misses"));

  const auto total = memory_total(host);
  const auto most = host.number(control_group(host) + "/memory.max"); // "max": no number
  const bool limited = most && total && static_cast<std::uint64_t>(*most) < *total;
  findings.push_back(hint_if(
      limited, "memory",
      limited ? fmt::format("this control group may use {} of {}",
                            format_size(static_cast<std::uint64_t>(*most)), format_size(*total))
              : format_size(total.value_or(0)),
      "pools, those of shm:// too, count: `fanin check` prints their sum; raise MemoryMax= if it "
      "is more"));
}

void examine_tcp(const Host& host, Findings& findings) {
  const std::string net = "proc/sys/net/";
  const std::string control = host.text(net + "ipv4/tcp_congestion_control").value_or("not known");
  const std::string available =
      host.text(net + "ipv4/tcp_available_congestion_control").value_or(control);
  const bool cubic = has_word(available, "cubic");
  findings.push_back(hint_if(!cubic, "TCP congestion control",
                             cubic
                                 ? fmt::format("cubic is available and used (default: {})", control)
                                 : fmt::format("{} is used; cubic is not available", control),
                             "modprobe tcp_cubic; BBR is a third slower on a busy host"));

  const std::int64_t receive = last_number(host.text(net + "ipv4/tcp_rmem").value_or(""));
  const std::int64_t send = last_number(host.text(net + "ipv4/tcp_wmem").value_or(""));
  const auto text = [](std::int64_t bytes) {
    return format_size(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0)));
  };
  findings.push_back(hint_if(
      std::min(receive, send) < buffer_least, "socket buffers",
      fmt::format("up to {} (receiving) and {} (sending)", text(receive), text(send)),
      "sysctl net.ipv4.tcp_rmem='4096 131072 16777216' net.ipv4.tcp_wmem='4096 65536 16777216'"));
}

void examine_processors(const Host& host, Findings& findings) {
  const std::string online = host.text("sys/devices/system/cpu/online").value_or("not known");
  const auto governor = host.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  findings.push_back(
      hint_if(governor == "powersave", "processors",
              fmt::format("cores {}{}", online, governor ? ", governor " + *governor : ""),
              "cpupower frequency-set -g performance: steadier latency"));
  const std::string quota = host.text(control_group(host) + "/cpu.max").value_or("max");
  if (quota.starts_with("max")) return;
  findings.push_back({"processor time", Level::hint,
                      fmt::format("this control group has a quota (cpu.max {}, in us)", quota),
                      "a process that is held back mid-turn stalls its peers: raise CPUQuota="});
}

} // namespace fanin::doctor::detail
