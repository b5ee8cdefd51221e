#include "fanin/fabric/deadlock.hpp"

#include <array>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace fanin::fabric {
namespace {

// Link i goes from switch i to the next one.
constexpr std::array<Link, 4> ring{Link{.to = 1}, Link{.to = 2}, Link{.to = 3}, Link{.to = 0}};

std::string error_of(const LinkDependencies& dependencies) {
  const auto good =
      check_deadlock(dependencies, [](std::uint32_t link) { return fmt::format("link {}", link); });
  return good ? "" : good.error().text;
}

TEST(Deadlock, routes_all_around_a_ring_are_refused_with_the_cycle) {
  LinkDependencies dependencies(ring);
  for (std::uint32_t link = 0; link < ring.size(); ++link)
    dependencies.add(link, (link + 1) % ring.size());
  EXPECT_EQ(dependencies.cycle(), (std::vector<std::uint32_t>{1, 2, 3, 0}));
  EXPECT_NE(
      error_of(dependencies).find("link 1, then link 2, then link 3, then link 0, then link 1"),
      std::string::npos);
}

TEST(Deadlock, routes_that_leave_out_one_step_of_a_ring_are_good) {
  LinkDependencies dependencies(ring);
  for (std::uint32_t link = 0; link < ring.size() - 1; ++link) dependencies.add(link, link + 1);
  EXPECT_EQ(error_of(dependencies), "");
}

// 0 leads into the cycle of 1 and 2, and is not in it.
TEST(Deadlock, the_way_into_a_cycle_is_not_named) {
  constexpr std::array<Link, 3> links{Link{.to = 0}, Link{.to = 1}, Link{.to = 0}};
  LinkDependencies dependencies(links);
  dependencies.add(0, 1);
  dependencies.add(1, 2);
  dependencies.add(2, 1);
  EXPECT_EQ(dependencies.cycle(), (std::vector<std::uint32_t>{2, 1}));
}

TEST(Deadlock, routes_up_and_then_down_have_no_cycle) {
  for (const Shape shape : {Shape::crossbar, Shape::clos}) {
    const auto topology =
        Topology::make({.shape = shape, .hosts = 24, .ports = 2, .uplinks = 6, .spines = 3});
    ASSERT_TRUE(topology.has_value());
    EXPECT_EQ(error_of(dependencies(*topology)), "");
  }
}

// With two links between each leaf and each spine, those up ask for those down to the other leaf.
TEST(Deadlock, dependencies_are_those_of_the_routes) {
  const auto topology = Topology::make(
      {.shape = Shape::clos, .hosts = 4, .switch_ports = 2, .uplinks = 2, .spines = 1});
  ASSERT_TRUE(topology.has_value());
  LinkDependencies all = dependencies(*topology);
  const std::uint32_t up = topology->towards(0, 2).first;
  const std::uint32_t down = topology->towards(topology->links()[up].to, 2).first;
  EXPECT_TRUE(all.cycle().empty());
  all.add(down, up); // back up again at the leaf: not of an up-down route
  EXPECT_EQ(all.cycle(), (std::vector<std::uint32_t>{down, up}));
}

} // namespace
} // namespace fanin::fabric
