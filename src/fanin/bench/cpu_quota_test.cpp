#include "fanin/bench/cpu_quota.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace fanin::bench {
namespace {

// A folder of a test is no controller: it does not know the process's group.
TEST(CpuQuota, a_process_whose_group_is_not_visible_returns_to_the_root) {
  const std::filesystem::path root =
      std::filesystem::path(testing::TempDir()) / ("quota-root-" + std::to_string(getpid()));
  std::filesystem::create_directories(root);
  std::ofstream(root / "cpu.cfs_period_us") << 100'000;
  {
    ASSERT_TRUE(CpuQuota::make(getpid(), 0.25, root));
  }
  pid_t back = 0;
  std::ifstream(root / "cgroup.procs") >> back;
  std::filesystem::remove_all(root);
  EXPECT_EQ(back, getpid());
}

TEST(CpuQuota, what_a_killed_process_has_left_is_in_nobodys_way) {
  const std::filesystem::path root =
      std::filesystem::path(testing::TempDir()) / ("quota-" + std::to_string(getpid()));
  const std::filesystem::path left = root / ("fanin-bench-" + std::to_string(getpid()));
  std::filesystem::create_directories(left);
  std::ofstream(root / "cpu.cfs_period_us") << 100'000;
  const auto quota = CpuQuota::make(getpid(), 0.25, root);
  std::filesystem::remove_all(root);
  ASSERT_TRUE(quota) << quota.error().text;
  EXPECT_EQ(quota->cores(), 0.25);
}

} // namespace
} // namespace fanin::bench
