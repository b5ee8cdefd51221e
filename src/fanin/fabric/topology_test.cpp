#include "fanin/fabric/topology.hpp"

#include <gtest/gtest.h>

namespace fanin::fabric {
namespace {

Topology make(const TopologyOptions& options) {
  auto made = Topology::make(options);
  EXPECT_TRUE(made.has_value()) << made.error().text;
  return *made;
}

std::string error_of(const TopologyOptions& options) {
  const auto made = Topology::make(options);
  return made ? "" : made.error().text;
}

TEST(Topology, a_crossbar_leads_from_each_port_to_each_port) {
  const Topology topology = make({.hosts = 3, .ports = 2});
  EXPECT_EQ(topology.switches(), 1U);
  EXPECT_EQ(topology.links().size(), 12U);
  for (std::uint32_t port = 0; port < 6; ++port) {
    EXPECT_EQ(topology.links()[Topology::link_from(port)].to, 0U);
    EXPECT_TRUE(topology.ends_at_port(topology.link_to(port)));
    EXPECT_EQ(topology.towards(0, port).first, topology.link_to(port));
  }
}

// Each route is followed to its end, over each of its links.
TEST(Topology, every_route_of_a_clos_ends_at_its_port) {
  const Topology topology =
      make({.shape = Shape::clos, .hosts = 20, .switch_ports = 4, .uplinks = 6, .spines = 3});
  EXPECT_EQ(topology.switches(), 5U + 3U);
  for (std::uint32_t from = 0; from < 20; ++from) {
    for (std::uint32_t to = 0; to < 20; ++to) {
      const LinkRange first = topology.towards(topology.links()[from].to, to);
      EXPECT_EQ(first.count, from / 4 == to / 4 ? 1U : 6U);
      for (std::uint32_t up = first.first; up < first.first + first.count; ++up) {
        if (topology.ends_at_port(up)) continue;
        const LinkRange second = topology.towards(topology.links()[up].to, to);
        ASSERT_EQ(second.count, 2U);
        const LinkRange third = topology.towards(topology.links()[second.first + 1].to, to);
        EXPECT_EQ(third.first, topology.link_to(to));
      }
    }
  }
}

TEST(Topology, links_have_names) {
  const Topology crossbar = make({.hosts = 2, .ports = 2});
  EXPECT_EQ(crossbar.name(3), "port 1 of host 1 to switch 0");
  const Topology clos = make({.shape = Shape::clos, .hosts = 16});
  EXPECT_EQ(clos.name(32), "leaf 0 to spine 0");
  EXPECT_EQ(clos.name(32 + 16 + 1), "spine 0 to leaf 1");
}

TEST(Topology, says_what_is_unconnected_or_absurd) {
  EXPECT_NE(error_of({.hosts = 5, .switch_ports = 4}).find("host 4 is not connected"),
            std::string::npos);
  EXPECT_NE(error_of({.shape = Shape::clos, .hosts = 9, .leaves = 1}).find("host 8"),
            std::string::npos);
  EXPECT_NE(error_of({.hosts = 0}), "");
  EXPECT_NE(error_of({.hosts = 2, .ports = 0}), "");
  EXPECT_NE(error_of({.hosts = 2, .link_rate = 0}), "");
  EXPECT_NE(error_of({.hosts = 2, .link_rate = 1e300}), "");
  EXPECT_NE(error_of({.shape = Shape::clos, .uplinks = 3, .spines = 2}).find("multiple"),
            std::string::npos);
}

} // namespace
} // namespace fanin::fabric
