#include "fanin/simulation/builder_run.hpp"

#include <gtest/gtest.h>

namespace fanin::simulation {
namespace {

// 20 kHz of 2 KiB from each of `nodes` readout units, for 20 virtual ms.
ConfigurationFile small(std::vector<std::string> overrides = {}) {
  return {.text = R"(
[run]
duration = "20ms"
[network]
url = "tcp://127.0.0.1"
[trigger]
rate = "20kHz"
[fabric]
rate = "10Gb/s"
latency = "1us"
[[readout]]
count = 2
source = [{ id = 1, type = "emulator", size = "2KiB" }]
[[builder]]
count = 2
)",
          .name = "small.toml",
          .overrides = std::move(overrides)};
}

Outcome run(const ConfigurationFile& file) {
  const auto outcome = run_event_builder(file, {});
  EXPECT_TRUE(outcome.has_value()) << outcome.error().text;
  return outcome.value_or(Outcome{});
}

std::string error_of(const ConfigurationFile& file) {
  const auto outcome = run_event_builder(file, {});
  return outcome ? "" : outcome.error().text;
}

TEST(BuilderRun, builds_every_event_on_a_simulated_network) {
  const Outcome outcome = run(small());
  EXPECT_NEAR(static_cast<double>(outcome.run.at("events").at("built").natural()), 400, 2);
  EXPECT_EQ(outcome.run.at("events").at("incomplete").natural(), 0U);
  EXPECT_GT(outcome.network_events, 1000U);
  EXPECT_NEAR(outcome.per_node_bytes_per_s, 2 * 20e3 * 2048 / 2, 3e6);
  EXPECT_GT(outcome.latency.count(), 0U);
}

TEST(BuilderRun, the_same_configuration_gives_the_same_run) {
  const Outcome one = run(small());
  const Outcome two = run(small());
  EXPECT_EQ(one.run.dump(), two.run.dump());
  EXPECT_EQ(one.network_events, two.network_events);
}

TEST(BuilderRun, payload_without_bytes_changes_no_message) {
  ConfigurationFile with_bytes = small();
  with_bytes.fills_payload = true;
  EXPECT_EQ(run(small()).trace_hash, run(with_bytes).trace_hash);
}

// Recorded: the same for each compiler, with sanitizers and without.
TEST(BuilderRun, its_trace_is_the_recorded_one) {
  EXPECT_EQ(run(small({"fabric.queues=input-fifo", "trigger.rate=100kHz"})).trace_hash,
            10111172572551272157U);
}

TEST(BuilderRun, nodes_are_readout_units_and_builder_units) {
  const Outcome outcome = run(small({"fabric.nodes=5"}));
  EXPECT_EQ(outcome.run.at("nodes").object().size(), 10U);
}

TEST(BuilderRun, nodes_of_a_process_share_a_host) {
  const Outcome apart = run(small());
  const Outcome together = run(small({"network.url=inproc://", "fabric.hosts=processes"}));
  EXPECT_EQ(together.network_events, 0U);
  EXPECT_GT(apart.network_events, 0U);
}

TEST(BuilderRun, a_slow_network_or_sink_limits_the_rate) {
  const Outcome network = run(small({"fabric.rate=100Mb/s"}));
  EXPECT_LT(network.per_node_bytes_per_s, 13e6);
  const Outcome sink = run(small({"fabric.sink_rate=5MB/s"}));
  EXPECT_LT(sink.per_node_bytes_per_s, 6e6);
}

TEST(BuilderRun, outside_sources_become_emulators) {
  ConfigurationFile file = small();
  const std::string emulator = "type = \"emulator\", size = \"2KiB\"";
  file.text.replace(file.text.find(emulator), emulator.size(),
                    "type = \"receive\", listen = \"tcp://127.0.0.1:7201\", expected = \"20MB/s\"");
  file.overrides = {"readout.0.count=1", "builder.0.count=1"};
  const Outcome outcome = run(file);
  ASSERT_FALSE(outcome.notes.empty());
  EXPECT_NE(outcome.notes.at(0).find("receive"), std::string::npos);
  EXPECT_NEAR(outcome.per_node_bytes_per_s, 20e6, 2e6);
}

TEST(BuilderRun, mistakes_are_named) {
  EXPECT_NE(error_of(small({"fabric.switch_ports=4"})).find("bu1 is not connected"),
            std::string::npos);
  EXPECT_NE(error_of(small({"fabric.cpu_turn=0s"})).find("cpu_turn"), std::string::npos);
  EXPECT_NE(error_of(small({"trigger.rat=1kHz"})).find("trigger.rat"), std::string::npos);
}

} // namespace
} // namespace fanin::simulation
