// Whole event builders with shaping, in virtual time.
#include <gtest/gtest.h>

#include "fanin/builder/shaping/orders.hpp"
#include "fanin/builder/shaping/testing/test_name.hpp"
#include "virtual/expectations.hpp"
#include "virtual/virtual_system.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using fanin::testing::expect_balanced;
using fanin::testing::expect_nothing_lost;
using fanin::testing::tail_of_log;
using fanin::testing::triggered;
using fanin::testing::VirtualSystem;
using fanin::testing::VirtualSystemOptions;
using shaping::Policy;

class Shaped : public ::testing::TestWithParam<std::tuple<Policy, Protocol, bool>> {
protected:
  static VirtualSystemOptions options(std::size_t readouts, std::size_t builders,
                                      double trigger_hz = 0) {
    VirtualSystemOptions options = triggered(readouts, builders, trigger_hz, 2);
    options.system.protocol = std::get<1>(GetParam());
    options.system.shaping = {.policy = std::get<0>(GetParam()), .carrier = 4096};
    options.system.shaping.window = options.system.shaping.window_least(2 * readouts); // two rails
    options.network.strict = std::get<2>(GetParam());
    options.check_bytes = fanin::testing::emulated_bytes;
    return options;
  }
  // Nobody has been granted more than the window, and nobody has sent more than that.
  static void expect_bounded(VirtualSystem& system, const System& agreed) {
    for (std::size_t b = 0; b < system.builders(); ++b) {
      if (system.builder(b) == nullptr) continue;
      std::uint64_t outstanding = 0; // over all rails
      for (const auto& grants : system.builder(b)->grants()) outstanding += grants.outstanding();
      EXPECT_LE(outstanding, agreed.shaping.window);
    }
  }
  // Nothing is under way: readout and builder units say the same of every connection.
  static void expect_grants_home(VirtualSystem& system) {
    std::uint64_t received = 0;
    for (std::size_t r = 0; r < system.readouts(); ++r) {
      for (std::size_t b = 0; b < system.builders(); ++b) {
        const auto schedules = system.readout(r)->schedules();
        const auto grants = system.builder(b)->grants();
        ASSERT_EQ(schedules.size(), grants.size());
        for (std::size_t rail = 0; rail < grants.size(); ++rail) {
          const auto credit = schedules[rail].credit(static_cast<NodeId>(b));
          const auto account = grants[rail].account(static_cast<NodeId>(r));
          EXPECT_EQ(credit.granted, account.granted) << r << " to " << b << " over " << rail;
          EXPECT_EQ(credit.sent, account.received) << r << " to " << b << " over " << rail;
          received += account.received;
        }
      }
    }
    EXPECT_GT(received, 0U);
  }
  // After trouble: without the event manager nothing new begins, and what is under way arrives.
  static void expect_grants_come_home(VirtualSystem& system) {
    system.manager_node().freeze();
    system.run_for(500ms);
    expect_grants_home(system);
    system.manager_node().thaw();
  }
  // One when a connection is opened, and then one for each carrier at most.
  static void expect_few_grants(VirtualSystem& system) {
    std::uint64_t carriers = 0;
    std::uint64_t grants = 0;
    for (std::size_t r = 0; r < system.readouts(); ++r) {
      for (const auto& schedule : system.readout(r)->schedules()) carriers += schedule.carriers();
    }
    for (std::size_t b = 0; b < system.builders(); ++b) {
      for (const auto& one : system.builder(b)->grants()) grants += one.messages();
    }
    EXPECT_LE(grants, carriers + system.readouts() * system.builders());
    EXPECT_GT(carriers, 100U);
  }
};

INSTANTIATE_TEST_SUITE_P(
    All, Shaped,
    ::testing::Combine(::testing::Values(Policy::random, Policy::linear_shift, Policy::tokens,
                                         Policy::barrel_shifter),
                       ::testing::Values(Protocol::push, Protocol::pull), ::testing::Bool()),
    [](const auto& run) {
      return shaping::testing::test_name(std::get<0>(run.param)) + "_" +
             std::string(name(std::get<1>(run.param))) + (std::get<2>(run.param) ? "_strict" : "");
    });

TEST_P(Shaped, every_event_is_built_and_every_grant_is_home) {
  auto setup = options(3, 2);
  setup.source_rate_hz = 20'000;
  setup.source_events = 1000;
  VirtualSystem system{setup};
  system.start_all();
  for (int i = 0; i < 50; ++i) {
    system.run_for(1ms);
    expect_bounded(system, setup.system);
  }
  ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
  EXPECT_EQ(system.summary().events_built, 1000U);
  EXPECT_EQ(system.summary().events_incomplete, 0U);
  expect_few_grants(system);
  expect_balanced(system);
}

// From trigger to commit, at 100 Hz.
Duration longest_at_low_rate(VirtualSystemOptions setup) {
  setup.system.latency = {};
  VirtualSystem system{setup};
  system.start_all();
  system.run_for(5s);
  EXPECT_GT(system.summary().events_built, 450U);
  return system.summary().latency.quantile(1);
}

TEST_P(Shaped, at_a_low_rate_it_costs_the_round_trip_of_a_grant_at_most) {
  auto setup = options(4, 3, 100);
  const Duration shaped = longest_at_low_rate(setup);
  setup.system.shaping = {};
  const Duration unshaped = longest_at_low_rate(setup);
  const bool slots = std::get<0>(GetParam()) == Policy::barrel_shifter;
  const Duration cycle = slots ? 4 * shaping::BarrelShifter::slot_at_first : Duration{};
  EXPECT_LE(shaped, unshaped + 2 * setup.network.latency_max + cycle);
}

TEST_P(Shaped, a_quiet_system_has_every_grant_home) {
  auto setup = options(2, 3);
  setup.source_rate_hz = 20; // 50 ms apart
  VirtualSystem system{setup};
  system.start_all();
  for (int i = 0; i < 20; ++i) {
    system.run_for(50ms);
    if (i > 2) expect_grants_home(system);
  }
  expect_nothing_lost(system);
}

TEST_P(Shaped, fragments_larger_than_a_carrier_travel_in_several) {
  auto setup = options(2, 2);
  setup.size = source::UniformSize{0, 60'000};
  setup.fragment_max = 60'000;
  setup.source_pages = 40;
  setup.receive_pages = 256;
  setup.source_rate_hz = 2000;
  setup.source_events = 200;
  VirtualSystem system{setup};
  system.start_all();
  ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
  EXPECT_EQ(system.summary().events_built, 200U);
  EXPECT_EQ(system.summary().events_incomplete, 0U);
  expect_balanced(system);
}

TEST_P(Shaped, a_dead_builder_unit_loses_no_event) {
  auto setup = options(2, 3, 5000);
  VirtualSystem system{setup};
  system.start_all();
  for (int i = 0; i < 3; ++i) {
    system.run_for(30ms);
    system.kill_builder(1);
    system.run_for(60ms);
    system.start_builder(1);
  }
  system.run_for(100ms);
  expect_bounded(system, setup.system);
  expect_grants_come_home(system);
  expect_nothing_lost(system);
}

TEST_P(Shaped, a_dead_readout_unit_comes_back_and_is_granted_afresh) {
  auto setup = options(3, 2, 5000);
  VirtualSystem system{setup};
  system.start_all();
  system.run_for(50ms);
  system.kill_readout(1);
  system.run_for(100ms);
  system.start_readout(1);
  system.run_for(100ms);
  const auto incomplete = system.summary().events_incomplete;
  system.run_for(100ms);
  EXPECT_EQ(system.summary().events_incomplete, incomplete);
  expect_grants_come_home(system);
  system.stop();
  ASSERT_TRUE(system.run_until_ended(60s)) << tail_of_log(system);
  expect_balanced(system);
}

TEST_P(Shaped, a_frozen_builder_unit_does_not_hold_up_the_others) {
  auto setup = options(2, 3, 2000);
  setup.source_pages = 64;
  setup.metadata_pages = 256;
  VirtualSystem system{setup};
  system.start_all();
  system.run_for(100ms);
  system.builder_node(1).freeze();
  system.run_for(100ms);
  const auto built = system.summary().events_built;
  system.run_for(500ms);
  EXPECT_GT(system.summary().events_built, built + 800U);
  system.builder_node(1).thaw();
  system.run_for(500ms);
  expect_grants_come_home(system);
  expect_nothing_lost(system);
}

TEST_P(Shaped, slow_paths_and_lost_connections_lose_nothing) {
  auto setup = options(3, 3, 2000);
  VirtualSystem system{setup};
  system.start_all();
  for (int i = 0; i < 6; ++i) {
    const auto r = static_cast<std::size_t>(i) % 3;
    system.run_for(Duration{20ms} + i * 1ms);
    system.builder_node(r).slow_down(Duration{1ms} * i);
    system.run_for(20ms);
    system.readout_node(r).disconnect(system.builder_node((r + 1) % 3));
    system.run_for(20ms);
    system.builder_node(r).slow_down({});
    expect_bounded(system, setup.system);
  }
  system.run_for(500ms);
  expect_grants_come_home(system);
  expect_nothing_lost(system);
}

TEST_P(Shaped, a_dead_path_costs_nothing_for_good) {
  auto setup = options(2, 2, 5000);
  VirtualSystem system{setup};
  system.start_all();
  system.run_for(50ms);
  system.builder_node(0).break_path(system.readout_node(1), 1); // grants and requests are lost
  system.run_for(1s);
  system.builder_node(0).repair_path(system.readout_node(1), 1);
  system.run_for(500ms);
  expect_grants_come_home(system);
  expect_nothing_lost(system);
}

} // namespace
} // namespace fanin::builder
