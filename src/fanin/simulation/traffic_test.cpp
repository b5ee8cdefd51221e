#include "fanin/simulation/traffic.hpp"

#include <gtest/gtest.h>

#include "fanin/fabric/crossbar_theory.hpp"

namespace fanin::simulation {
namespace {

constexpr double half_a_point = 0.005;

// Cells of 1 us, whose input FIFOs are never empty.
SimulationSettings cells(std::uint32_t nodes) {
  SimulationSettings settings;
  settings.nodes = nodes;
  settings.fabric.queueing = fabric::Queueing::input_fifo;
  settings.fabric.topology.link_rate = 1e9;
  settings.fabric.packet = 1U << 16;
  settings.fabric.buffer = 1U << 20;
  settings.traffic.size = source::FixedSize{1000};
  settings.traffic.duration = std::chrono::milliseconds{60};
  return settings;
}

Outcome outcome_of(const SimulationSettings& settings, Pattern pattern) {
  const auto outcome = run_traffic(settings, pattern, {});
  EXPECT_TRUE(outcome.has_value()) << outcome.error().text;
  return *outcome;
}

double saturation(const SimulationSettings& settings) {
  return outcome_of(settings, Pattern::uniform).saturation;
}

TEST(Traffic, cells_over_input_fifos_are_as_the_markov_chain_says) {
  for (std::uint32_t nodes = 1; nodes <= 8; ++nodes)
    EXPECT_NEAR(saturation(cells(nodes)), fabric::crossbar_saturation(nodes), half_a_point)
        << nodes;
}

TEST(Traffic, sizes_that_vary_cost_more) {
  SimulationSettings settings = cells(8);
  settings.traffic.size = source::LogNormalSize{1000, 1000};
  EXPECT_NEAR(saturation(settings), 0.536, half_a_point);
}

TEST(Traffic, round_robin_with_one_size_organises_itself) {
  SimulationSettings settings = cells(8);
  settings.traffic.destinations = Destinations::round_robin;
  EXPECT_NEAR(saturation(settings), 1, half_a_point);
}

TEST(Traffic, output_queues_know_no_head_of_line_blocking) {
  SimulationSettings settings = cells(8);
  settings.fabric.queueing = fabric::Queueing::output_queues;
  settings.fabric.queue_for_each_destination = true;
  EXPECT_GT(saturation(settings), 0.97);
}

TEST(Traffic, sources_with_destinations_of_their_own_fill_a_crossbar) {
  SimulationSettings settings = cells(8);
  EXPECT_NEAR(outcome_of(settings, Pattern::stream).saturation, 1, half_a_point);
  settings.traffic.destinations = Destinations::pairs;
  EXPECT_NEAR(outcome_of(settings, Pattern::stream).saturation, 1, half_a_point);
  EXPECT_NEAR(saturation(settings), 1, half_a_point);
}

// 1 GB/s on the link each way; the interface carries 1.5 GB/s of both ways together.
TEST(Traffic, a_roundtrip_sends_both_ways_at_the_same_time) {
  SimulationSettings settings = cells(2);
  EXPECT_NEAR(outcome_of(settings, Pattern::roundtrip).saturation, 1, half_a_point);
  settings.fabric.nic_out = settings.fabric.nic_in = 1.5e9;
  settings.fabric.nic_shared = true;
  EXPECT_NEAR(outcome_of(settings, Pattern::stream).per_node_bytes_per_s, 1e9, 5e6);
  const Outcome both = outcome_of(settings, Pattern::roundtrip);
  EXPECT_NEAR(both.per_node_bytes_per_s, 1.5e9, 15e6);
  EXPECT_NEAR(both.saturation, 0.75, 0.01);
}

// Two leaves of 8, and one way between them: apart, all pairs share it; in order, none of these do.
TEST(Traffic, hosts_are_on_the_leaves_that_placement_says) {
  SimulationSettings settings = cells(4);
  settings.fabric.topology.shape = fabric::Shape::clos;
  settings.fabric.topology.uplinks = settings.fabric.topology.spines = 1;
  EXPECT_NEAR(outcome_of(settings, Pattern::stream).saturation, 1, half_a_point);
  settings.placement = Placement::apart;
  EXPECT_NEAR(outcome_of(settings, Pattern::stream).saturation, 0.25, half_a_point);
  settings.fabric.topology.ports = 2; // on leaves, and so links, of their own
  EXPECT_NEAR(outcome_of(settings, Pattern::stream).saturation, 0.25, half_a_point);
  settings.fabric.topology.shape = fabric::Shape::crossbar;
  EXPECT_FALSE(run_traffic(settings, Pattern::stream, {}).has_value());
}

TEST(Traffic, the_same_seed_gives_the_same_result) {
  const auto one = run_traffic(cells(4), Pattern::uniform, {});
  const auto two = run_traffic(cells(4), Pattern::uniform, {});
  ASSERT_TRUE(one.has_value() && two.has_value());
  EXPECT_EQ(one->network_events, two->network_events);
  EXPECT_EQ(one->messages, two->messages);
}

TEST(Traffic, virtual_time_that_stands_still_is_an_error) {
  SimulationSettings settings = cells(2);
  settings.fabric.topology.link_rate = 1e14;
  settings.traffic.size = source::FixedSize{1};
  const auto outcome = run_traffic(settings, Pattern::uniform, {});
  ASSERT_FALSE(outcome.has_value());
  EXPECT_NE(outcome.error().text.find("stands still"), std::string::npos);
}

} // namespace
} // namespace fanin::simulation
