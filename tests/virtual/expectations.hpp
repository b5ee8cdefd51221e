// What tests of whole event builders in virtual time ask in the end.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>

#include "virtual/virtual_system.hpp"

namespace fanin::testing {

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
  system.destroy_nodes();
  EXPECT_EQ(system.check_pools(), "");
}

// Ends the run in good order: nothing was lost.
inline void end_without_loss(VirtualSystem& system) {
  system.stop();
  ASSERT_TRUE(system.run_until_ended(std::chrono::seconds{60}))
      << tail_of_log(system) << system.manager().waiting_for();
  EXPECT_EQ(system.summary().events_incomplete, 0U) << tail_of_log(system);
  EXPECT_EQ(system.summary().fragments.lost, 0U) << tail_of_log(system);
}

inline void expect_nothing_lost(VirtualSystem& system) {
  ASSERT_NO_FATAL_FAILURE(end_without_loss(system));
  expect_balanced(system);
}

} // namespace fanin::testing
