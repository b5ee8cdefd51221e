#include "fanin/builder/shaping/orders.hpp"

#include <gtest/gtest.h>

#include <array>

namespace fanin::builder::shaping {
namespace {

constexpr Destination open{.waits = true, .open = true};
constexpr Destination waiting{.waits = true};

// Who gets the next carriers.
std::vector<int> given(Order& order, std::span<const Destination> to, int carriers) {
  std::vector<int> all;
  for (int i = 0; i < carriers; ++i) {
    const auto node = order.next(to, {});
    all.push_back(node ? *node : -1);
    if (node) order.sent(*node, {});
  }
  return all;
}

TEST(LinearShift, each_readout_unit_begins_with_another_builder_unit) {
  const std::array to{open, open, open};
  for (NodeId readout = 0; readout < 5; ++readout) {
    const auto order = make_order(Policy::linear_shift, 5, to.size(), readout, 1);
    const int first = readout % 3;
    EXPECT_EQ(given(*order, to, 4), (std::vector{first, (first + 1) % 3, (first + 2) % 3, first}));
  }
}

TEST(LinearShift, passes_over_one_without_a_grant_at_once) {
  LinearShift order{4, 0};
  EXPECT_EQ(given(order, std::array{open, waiting, open, Destination{}}, 3),
            (std::vector{0, 2, 0}));
  EXPECT_EQ(given(order, std::array{open, open, open, Destination{}}, 3), (std::vector{1, 2, 0}));
  EXPECT_EQ(given(order, std::array{waiting, waiting, waiting, waiting}, 1), (std::vector{-1}));
}

TEST(RandomOrder, gives_each_open_one_the_same) {
  RandomOrder order{1};
  std::array<int, 4> carriers{};
  const std::array to{open, waiting, open, open};
  for (const int node : given(order, to, 30'000)) ++carriers.at(static_cast<std::size_t>(node));
  EXPECT_EQ(carriers[1], 0);
  for (const int node : {0, 2, 3})
    EXPECT_NEAR(carriers.at(static_cast<std::size_t>(node)), 10'000, 300);
  EXPECT_EQ(given(order, std::array{waiting, waiting}, 1), (std::vector{-1}));
}

TEST(RandomOrder, the_same_seed_gives_the_same_order) {
  const std::array to{open, open, open, open, open};
  RandomOrder one{7};
  RandomOrder same{7};
  RandomOrder other{8};
  const auto first = given(one, to, 100);
  EXPECT_EQ(given(same, to, 100), first);
  EXPECT_NE(given(other, to, 100), first);
}

} // namespace
} // namespace fanin::builder::shaping
