// What tests of whole event builders in virtual time ask in the end.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "virtual/virtual_system.hpp"

namespace fanin::testing {

// All of it with FANIN_LOG=1.
inline std::string tail_of_log(const VirtualSystem& system) {
  std::string all;
  const auto& log = system.log();
  const std::size_t lines = std::getenv("FANIN_LOG") != nullptr ? log.size() : 40;
  for (std::size_t i = log.size() - std::min(log.size(), lines); i < log.size(); ++i)
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

// Which builder unit built what, in which order. Equal with all compilers, libraries and address
// layouts: nothing may hang on an address, on std:: distributions or on libm. Changes of the
// protocol change it, nothing else may.
inline std::uint64_t delivered(const VirtualSystem& system) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  const auto add = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3U; };
  for (std::size_t i = 0; i < system.builders(); ++i) {
    for (const auto& event : system.store(i).events) {
      add(i);
      add(event.row.event);
      add(event.row.attempt);
      for (const auto& fragment : event.fragments) add(fragment.size);
    }
  }
  return hash;
}

inline void expect_nothing_lost(VirtualSystem& system) {
  ASSERT_NO_FATAL_FAILURE(end_without_loss(system));
  expect_balanced(system);
}

} // namespace fanin::testing
