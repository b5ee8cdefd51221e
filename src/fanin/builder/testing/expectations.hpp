// What tests of whole event builders in virtual time ask in the end.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>

#include "fanin/builder/testing/virtual_system.hpp"

namespace fanin::builder::testing {

inline std::string tail_of_log(const VirtualSystem& system) {
  std::string all;
  const auto& log = system.log();
  for (std::size_t i = log.size() > 40 ? log.size() - 40 : 0; i < log.size(); ++i)
    all += log[i] + "\n";
  return all;
}

// The run has ended: the ledger balances, what is stored is what it says, and every page is home.
inline void expect_balanced(VirtualSystem& system) {
  EXPECT_TRUE(system.summary().balanced) << tail_of_log(system);
  EXPECT_EQ(system.check_stored(), "") << tail_of_log(system);
  system.run_for(std::chrono::seconds{3});
  system.destroy_applications();
  EXPECT_EQ(system.check_pools(), "");
}

} // namespace fanin::builder::testing
