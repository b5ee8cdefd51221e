// What a latency budget saves, counted in virtual time.
#include <gtest/gtest.h>

#include "fanin/builder/testing/make_system.hpp"
#include "virtual/virtual_system.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using fanin::testing::VirtualSystem;
using fanin::testing::VirtualSystemOptions;
using testing::make_system;

struct Cost {
  double turns_per_s = 0;
  double commits_per_s = 0;
  Duration latency{}; // p99.9
};

// Two readout units with two sources each, two builder units, some seconds of virtual time.
Cost cost_of(double trigger_hz, double source_hz, Duration latency, double seconds = 2) {
  VirtualSystemOptions options;
  options.system = make_system(2, 2, 2);
  options.system.rails = 1; // each rail wakes a builder unit on its own
  options.system.trigger_rate_hz = trigger_hz;
  options.system.batch_events = 1024;
  options.system.batch_size = 2U << 20;
  options.system.latency = latency;
  options.source_rate_hz = source_hz;
  options.size = source::UniformSize{200, 200};
  options.source_pages = 64;
  options.source_window = 16384;
  options.receive_pages = 264; // two batches
  VirtualSystem system{options};
  system.start_all();
  system.run_for(500ms);
  const auto commits = [&] { return system.store(0).commits + system.store(1).commits; };
  const std::uint64_t before = commits();
  const std::size_t turns =
      system.world().run_until(system.world().now() + std::chrono::duration_cast<Duration>(
                                                          std::chrono::duration<double>{seconds}));
  const Cost cost{static_cast<double>(turns) / seconds,
                  static_cast<double>(commits() - before) / seconds,
                  system.summary().latency.quantile(0.999)};
  system.stop();
  EXPECT_TRUE(system.run_until_ended(10s));
  EXPECT_TRUE(system.summary().balanced);
  EXPECT_EQ(system.summary().events_incomplete, 0U);
  EXPECT_EQ(system.check_stored(), "");
  return cost;
}

TEST(LatencyBudget, is_spent_on_fewer_batches_at_low_rates) {
  for (const double rate_hz : {1'000.0, 10'000.0}) {
    const Cost cost = cost_of(rate_hz, 0, 50ms);
    EXPECT_LE(cost.commits_per_s, 30) << rate_hz;
    EXPECT_LE(cost.turns_per_s, rate_hz < 5'000 ? 1'500 : 2'800) << rate_hz; // of all nodes
    EXPECT_LE(cost.latency, 50ms) << rate_hz;
  }
}

TEST(LatencyBudget, of_ten_milliseconds_holds) {
  const Cost cost = cost_of(1'000, 0, 10ms);
  EXPECT_LE(cost.commits_per_s, 150);
  EXPECT_LE(cost.latency, 10ms);
}

TEST(LatencyBudget, of_nothing_leaves_each_event_to_itself) {
  const Cost cost = cost_of(1'000, 0, 0ms);
  EXPECT_GE(cost.commits_per_s, 999);
  EXPECT_LE(cost.latency, 2ms);
}

TEST(LatencyBudget, is_not_felt_where_batches_fill_by_themselves) {
  const Cost with = cost_of(200'000, 0, 50ms, 0.2);
  const Cost without = cost_of(200'000, 0, 0ms, 0.2);
  EXPECT_LE(with.commits_per_s, without.commits_per_s);
  EXPECT_LE(with.latency, 15ms);
}

TEST(LatencyBudget, holds_without_a_trigger_too) {
  const Cost cost = cost_of(0, 1'000, 50ms);
  EXPECT_LE(cost.commits_per_s, 60);
  EXPECT_LE(cost.turns_per_s, 1'800); // of all nodes
  EXPECT_LE(cost.latency, 50ms);
}

} // namespace
} // namespace fanin::builder
