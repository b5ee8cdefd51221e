// Holds a process to a part of a core: a group of its own under the kernel's CPU controller
// (cgroup v1). Needs root.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "fanin/base/result.hpp"

namespace fanin::bench {

class CpuQuota {
public:
  static constexpr const char* usual_root = "/sys/fs/cgroup/cpu";
  // Whether a group can be made there. Errors: unsupported, with the reason.
  [[nodiscard]] static Result<> check(const std::string& root = usual_root);
  // From now on the process gets so much of a core. Errors: unsupported.
  [[nodiscard]] static Result<CpuQuota> make(pid_t pid, double cores,
                                             const std::string& root = usual_root);
  ~CpuQuota(); // back in the group where it was
  CpuQuota(CpuQuota&& other) noexcept
      : before_(std::move(other.before_)),
        folder_(std::exchange(other.folder_, {})),
        cores_(other.cores_) {}
  CpuQuota& operator=(CpuQuota&&) = delete;

  [[nodiscard]] double cores() const { return cores_; } // as the kernel says

private:
  CpuQuota(std::string before, std::string folder)
      : before_(std::move(before)), folder_(std::move(folder)) {}

  std::string before_; // the process's group until then
  std::string folder_;
  double cores_ = 0;
};

} // namespace fanin::bench
