#include "fanin/simulation/uniform_traffic.hpp"

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

double saturation(const SimulationSettings& settings) {
  const auto outcome = run_uniform_traffic(settings, {});
  EXPECT_TRUE(outcome.has_value()) << outcome.error().text;
  return outcome->saturation;
}

TEST(UniformTraffic, cells_over_input_fifos_are_as_the_markov_chain_says) {
  for (std::uint32_t nodes = 1; nodes <= 8; ++nodes)
    EXPECT_NEAR(saturation(cells(nodes)), fabric::crossbar_saturation(nodes), half_a_point)
        << nodes;
}

TEST(UniformTraffic, sizes_that_vary_cost_more) {
  SimulationSettings settings = cells(8);
  settings.traffic.size = source::LogNormalSize{1000, 1000};
  EXPECT_NEAR(saturation(settings), 0.536, half_a_point);
}

TEST(UniformTraffic, round_robin_with_one_size_organises_itself) {
  SimulationSettings settings = cells(8);
  settings.traffic.destinations = Destinations::round_robin;
  EXPECT_NEAR(saturation(settings), 1, half_a_point);
}

TEST(UniformTraffic, output_queues_know_no_head_of_line_blocking) {
  SimulationSettings settings = cells(8);
  settings.fabric.queueing = fabric::Queueing::output_queues;
  settings.fabric.queue_for_each_destination = true;
  EXPECT_GT(saturation(settings), 0.97);
}

TEST(UniformTraffic, the_same_seed_gives_the_same_result) {
  const auto one = run_uniform_traffic(cells(4), {});
  const auto two = run_uniform_traffic(cells(4), {});
  ASSERT_TRUE(one.has_value() && two.has_value());
  EXPECT_EQ(one->network_events, two->network_events);
  EXPECT_EQ(one->messages, two->messages);
}

TEST(UniformTraffic, a_watch_ends_it) {
  const auto outcome = run_uniform_traffic(cells(8), [](double) { return false; });
  ASSERT_FALSE(outcome.has_value());
  EXPECT_NE(outcome.error().text.find("interrupted"), std::string::npos);
}

TEST(UniformTraffic, virtual_time_that_stands_still_is_an_error) {
  SimulationSettings settings = cells(2);
  settings.fabric.topology.link_rate = 1e14;
  settings.traffic.size = source::FixedSize{1};
  const auto outcome = run_uniform_traffic(settings, {});
  ASSERT_FALSE(outcome.has_value());
  EXPECT_NE(outcome.error().text.find("stands still"), std::string::npos);
}

} // namespace
} // namespace fanin::simulation
