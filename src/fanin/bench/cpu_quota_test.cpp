#include "fanin/bench/cpu_quota.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace fanin::bench {
namespace {

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
