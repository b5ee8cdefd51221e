#include "fanin/simulation/settings.hpp"

#include <gtest/gtest.h>

namespace fanin::simulation {
namespace {

Result<SimulationSettings> read(const std::string& text) {
  const auto root = settings::parse_toml(text, "net.toml");
  EXPECT_TRUE(root.has_value());
  return read_settings(*root);
}

std::string error_of(const std::string& text) {
  const auto read_one = read(text);
  return read_one ? "" : read_one.error().text;
}

TEST(SimulationSettings, a_file_without_a_network_has_defaults) {
  const auto read_one = read("");
  ASSERT_TRUE(read_one.has_value());
  EXPECT_EQ(read_one->nodes, 0U);
  EXPECT_EQ(read_one->fabric.queueing, fabric::Queueing::output_queues);
}

TEST(SimulationSettings, keys_have_units) {
  const auto read_one = read(R"(
[fabric]
nodes = 8
topology = "clos"
rate = "2Gb/s"
latency = "300ns"
queues = "input-fifo"
routing = "adaptive"
packet = "4KiB"
nic_shared = true
placement = "apart"
[traffic]
size = "2KiB"
size_sigma = "1KiB"
destinations = "pairs"
)");
  ASSERT_TRUE(read_one.has_value()) << read_one.error().text;
  EXPECT_EQ(read_one->nodes, 8U);
  EXPECT_EQ(read_one->fabric.topology.shape, fabric::Shape::clos);
  EXPECT_DOUBLE_EQ(read_one->fabric.topology.link_rate, 250e6);
  EXPECT_EQ(read_one->fabric.topology.link_latency, Duration{300});
  EXPECT_EQ(read_one->fabric.packet, 4096U);
  EXPECT_TRUE(read_one->fabric.nic_shared);
  EXPECT_EQ(read_one->placement, Placement::apart);
  EXPECT_EQ(read_one->traffic.destinations, Destinations::pairs);
  EXPECT_EQ(std::get<source::LogNormalSize>(read_one->traffic.size).sigma_bytes, 1024);
}

TEST(SimulationSettings, an_origin_says_what_a_value_is) {
  const auto read_one = read("[fabric]\nrate = \"2Gb/s\"\norigin.rate = \"published: table I\"\n");
  ASSERT_TRUE(read_one.has_value());
  ASSERT_EQ(read_one->origins.size(), 1U);
  EXPECT_EQ(read_one->origins[0].key, "fabric.rate");
  EXPECT_NE(error_of("[fabric]\norigin.rate = \"from somewhere\"\n").find("fitted"),
            std::string::npos);
}

TEST(SimulationSettings, mistakes_have_file_line_and_key) {
  EXPECT_NE(error_of("[fabric]\nnods = 3\n").find("net.toml:2: fabric.nods"), std::string::npos);
  EXPECT_NE(error_of("[fabric]\nrate = \"0Gb/s\"\n").find("fabric.rate"), std::string::npos);
  EXPECT_NE(error_of("[fabric]\nrate = \"999999999Gb/s\"\n").find("fabric"), std::string::npos);
  EXPECT_NE(error_of("[fabric]\npacket = \"0B\"\n"), "");
  EXPECT_NE(error_of("[fabric]\nnodes = 0\n"), "");
  EXPECT_NE(error_of("[fabric]\nrouting = \"adaptive\"\n").find("adaptive"), std::string::npos);
  EXPECT_NE(error_of("[fabric]\nwhen_full = \"drop\"\nqueues = \"input-fifo\"\n"), "");
  EXPECT_NE(error_of("[traffic]\nsize = \"0B\"\n").find("traffic.size"), std::string::npos);
  EXPECT_NE(error_of("[traffic]\nduration = \"0s\"\n").find("traffic.duration"), std::string::npos);
}

} // namespace
} // namespace fanin::simulation
