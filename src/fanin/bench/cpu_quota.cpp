#include "fanin/bench/cpu_quota.hpp"
#include "fanin/base/try.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>

#include <fmt/format.h>

namespace fanin::bench {
namespace {

constexpr long usual_period_us = 100'000; // the kernel's own
constexpr long longest_period_us = 1'000'000;
constexpr long quota_least_us = 1000; // the kernel takes no less

Result<> write_number(const std::string& file, long number) {
  std::ofstream out(file);
  if (out << number << std::flush) return {};
  return fail(ErrorKind::unsupported,
              fmt::format("{} cannot be written: needs root and cgroup v1", file));
}

long read_number(const std::string& file) {
  std::ifstream in(file);
  long number = 0;
  return in >> number ? number : 0;
}

// Where the process is under the CPU controller. The root, if that is not known or not visible here
// (in a container).
std::string group_of(pid_t pid, const std::string& root) {
  std::ifstream groups(fmt::format("/proc/{}/cgroup", pid));
  for (std::string line; std::getline(groups, line);) { // "4:cpu,cpuacct:/user.slice"
    const auto names = line.find(':') + 1;
    const auto path = line.find(':', names);
    if (path == std::string::npos) continue;
    if (fmt::format(",{},", line.substr(names, path - names)).find(",cpu,") == std::string::npos)
      continue;
    std::string group = root + line.substr(path + 1);
    if (access((group + "/cgroup.procs").c_str(), W_OK) == 0) return group;
  }
  return root;
}

} // namespace

Result<> CpuQuota::check(const std::string& root) {
  if (access((root + "/cpu.cfs_period_us").c_str(), F_OK) == 0 && access(root.c_str(), W_OK) == 0)
    return {};
  return fail(ErrorKind::unsupported,
              fmt::format("a process's use of processors cannot be limited: {} is not the CPU "
                          "controller of cgroup v1, or belongs to root",
                          root));
}

Result<CpuQuota> CpuQuota::make(pid_t pid, double cores, const std::string& root) {
  FANIN_TRY(check(root));
  const std::string folder = fmt::format("{}/fanin-bench-{}", root, pid);
  (void)rmdir(folder.c_str()); // of an earlier process of this number that was killed
  if (mkdir(folder.c_str(), 0755) != 0) return fail_errno(ErrorKind::unsupported, folder, errno);
  CpuQuota made(group_of(pid, root), folder);
  const bool little = std::lround(cores * usual_period_us) < quota_least_us;
  const long period_us = little ? longest_period_us : usual_period_us;
  const long quota = std::max(quota_least_us, std::lround(cores * static_cast<double>(period_us)));
  for (const auto& [name, number] : {std::pair{"cpu.cfs_period_us", period_us},
                                     {"cpu.cfs_quota_us", quota},
                                     {"cgroup.procs", static_cast<long>(pid)}}) {
    FANIN_TRY(write_number(folder + "/" + name, number));
  }
  const long period = read_number(folder + "/cpu.cfs_period_us");
  if (period > 0)
    made.cores_ = static_cast<double>(read_number(folder + "/cpu.cfs_quota_us")) /
                  static_cast<double>(period);
  return made;
}

CpuQuota::~CpuQuota() {
  if (folder_.empty()) return;
  std::ifstream left(folder_ + "/cgroup.procs");
  for (long pid = 0; left >> pid;) (void)write_number(before_ + "/cgroup.procs", pid);
  (void)rmdir(folder_.c_str());
}

} // namespace fanin::bench
