// The protocol in virtual time: the production applications on in-memory networks.
#include <gtest/gtest.h>

#include "fanin/builder/testing/make_system.hpp"
#include "virtual/virtual_system.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using fanin::testing::VirtualSystem;
using fanin::testing::VirtualSystemOptions;
using testing::make_system;

std::string log_of(const VirtualSystem& system) {
  std::string all;
  for (const auto& line : system.log()) all += line + "\n";
  return all;
}

void expect_good_end(VirtualSystem& system) {
  const RunSummary& summary = system.summary();
  EXPECT_TRUE(summary.balanced) << log_of(system);
  EXPECT_EQ(summary.events_lost, 0U);
  EXPECT_EQ(system.check_stored(), "") << log_of(system);
  system.run_for(1s);
  system.destroy_nodes();
  EXPECT_EQ(system.check_pools(), "");
}

class Flows : public ::testing::TestWithParam<std::tuple<Protocol, bool>> {
protected:
  static VirtualSystemOptions options(std::size_t readouts, std::size_t builders,
                                      std::size_t sources) {
    VirtualSystemOptions options;
    options.system = make_system(readouts, builders, sources);
    options.system.protocol = std::get<0>(GetParam());
    options.network.strict = std::get<1>(GetParam());
    options.check_bytes = fanin::testing::emulated_bytes;
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(All, Flows,
                         ::testing::Combine(::testing::Values(Protocol::push, Protocol::pull),
                                            ::testing::Bool()),
                         [](const auto& flow) {
                           return std::string(name(std::get<0>(flow.param))) +
                                  (std::get<1>(flow.param) ? "_strict" : "");
                         });

TEST_P(Flows, builds_every_triggered_event) {
  auto setup = options(2, 2, 2);
  setup.system.trigger_rate_hz = 20'000;
  setup.system.events_max = 5000;
  VirtualSystem system{setup};
  system.start_all();
  ASSERT_TRUE(system.run_until_ended(10s)) << log_of(system);
  EXPECT_EQ(system.summary().events_built, 5000U);
  EXPECT_EQ(system.summary().events_incomplete, 0U);
  EXPECT_EQ(system.summary().fragments.read, 20'000U);
  EXPECT_EQ(system.summary().fragments.built, 20'000U);
  EXPECT_EQ(system.summary().latency.count(), 5000U);
  expect_good_end(system);
}

TEST_P(Flows, builds_every_announced_event_up_to_the_end_of_the_sources) {
  auto setup = options(3, 2, 1);
  setup.source_events = 3000;
  VirtualSystem system{setup};
  system.start_all();
  ASSERT_TRUE(system.run_until_ended(10s)) << log_of(system);
  EXPECT_EQ(system.summary().events_built, 3000U);
  EXPECT_EQ(system.summary().events_incomplete, 0U);
  expect_good_end(system);
}

TEST_P(Flows, stops_after_so_many_events_without_a_trigger) {
  auto setup = options(2, 2, 1);
  setup.source_rate_hz = 1000;
  setup.system.events_max = 3000; // many event deadlines long
  VirtualSystem system{setup};
  system.start_all();
  system.run_for(1s);
  system.kill_builder(1);
  system.run_for(100ms);
  system.start_builder(1);
  ASSERT_TRUE(system.run_until_ended(20s)) << log_of(system);
  EXPECT_EQ(system.summary().events_built, 3000U);
  EXPECT_EQ(system.summary().events_incomplete, 0U);
  EXPECT_EQ(system.summary().gaps, 0U);
  expect_good_end(system);
}

TEST_P(Flows, a_builder_unit_that_dies_at_the_end_of_the_run_may_come_back) {
  auto setup = options(2, 1, 1);
  setup.source_events = 2000;
  setup.commit_delay = 50ms;
  VirtualSystem system{setup};
  system.start_all();
  system.run_for(60ms); // the sources are done, storage is not
  system.kill_builder(0);
  system.run_for(100ms);
  system.start_builder(0);
  ASSERT_TRUE(system.run_until_ended(20s)) << log_of(system);
  EXPECT_EQ(system.summary().events_built, 2000U);
  EXPECT_EQ(system.summary().events_incomplete, 0U);
  expect_good_end(system);
}

TEST_P(Flows, stops_in_good_order_while_sources_go_on) {
  VirtualSystem system{options(2, 3, 2)};
  system.start_all();
  system.run_for(100ms);
  system.stop();
  ASSERT_TRUE(system.run_until_ended(10s)) << log_of(system);
  EXPECT_GT(system.summary().events_built, 1000U);
  EXPECT_EQ(system.summary().events_incomplete, 0U);
  expect_good_end(system);
}

TEST_P(Flows, fragments_larger_than_a_page_chain) {
  auto setup = options(2, 2, 1);
  setup.size = source::UniformSize{0, 100'000};
  setup.fragment_max = 100'000;
  setup.source_pages = 40;
  setup.receive_pages = 256;
  setup.source_rate_hz = 2000;
  setup.source_events = 300;
  VirtualSystem system{setup};
  system.start_all();
  ASSERT_TRUE(system.run_until_ended(20s)) << log_of(system);
  EXPECT_EQ(system.summary().events_built, 300U);
  expect_good_end(system);
}

TEST_P(Flows, a_dead_builder_unit_loses_no_event) {
  auto setup = options(2, 3, 1);
  setup.system.trigger_rate_hz = 20'000;
  VirtualSystem system{setup};
  system.start_all();
  system.run_for(50ms);
  system.kill_builder(1);
  system.run_for(100ms);
  system.start_builder(1);
  system.run_for(100ms);
  system.stop();
  ASSERT_TRUE(system.run_until_ended(10s)) << log_of(system);
  EXPECT_EQ(system.summary().fragments.lost, 0U);
  EXPECT_EQ(system.summary().events_incomplete, 0U);
  EXPECT_GT(system.summary().nodes[3].events, 0U);
  expect_good_end(system);
}

TEST_P(Flows, a_dead_readout_unit_leaves_its_sources_missing_until_it_is_back) {
  auto setup = options(3, 2, 1);
  setup.system.trigger_rate_hz = 20'000;
  VirtualSystem system{setup};
  system.start_all();
  system.run_for(50ms);
  system.kill_readout(1);
  system.run_for(100ms);
  const auto incomplete = system.summary().events_incomplete;
  EXPECT_GT(incomplete, 1000U);
  system.start_readout(1);
  system.run_for(100ms);
  const auto after = system.summary().events_incomplete;
  system.run_for(100ms);
  EXPECT_EQ(system.summary().events_incomplete, after); // complete again
  system.stop();
  ASSERT_TRUE(system.run_until_ended(10s)) << log_of(system);
  expect_good_end(system);
}

TEST_P(Flows, nodes_may_start_in_any_order) {
  auto setup = options(2, 2, 1);
  setup.source_events = 500;
  VirtualSystem system{setup};
  system.start_builder(1);
  system.start_readout(1);
  system.run_for(300ms);
  system.start_event_manager();
  system.run_for(300ms);
  ASSERT_NE(system.sink(1), nullptr);
  EXPECT_FALSE(system.knows_of_the_begin(1)) << "a readout unit is missing";
  system.start_readout(0);
  system.run_for(300ms);
  system.start_builder(0);
  ASSERT_TRUE(system.run_until_ended(10s)) << log_of(system);
  EXPECT_EQ(system.summary().events_built, 500U);
  expect_good_end(system);
}

} // namespace
} // namespace fanin::builder
