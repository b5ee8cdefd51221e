#include "fanin/builder/manager/assignment_policies.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "fanin/base/random.hpp"

namespace fanin::builder {
namespace {

// Gives batches of so many bytes to the first of the preference that is up.
class Given {
public:
  explicit Given(Assigner& policy) : policy_(policy) {}
  NodeId give(EventNumber first, std::uint64_t bytes) {
    const AssignmentRequest request{{first, first + 1}, bytes, 0};
    for (const NodeId node : policy_.preference(request)) {
      if (std::ranges::find(away, node) != away.end()) continue;
      policy_.assigned(node, request);
      bytes_of[node] += bytes;
      return node;
    }
    return invalid;
  }
  static constexpr NodeId invalid = 0xffff;
  std::vector<NodeId> away;
  std::map<NodeId, std::uint64_t> bytes_of;

private:
  Assigner& policy_;
};

TEST(AssignmentPolicy, least_loaded_prefers_who_has_least_to_build) {
  LeastLoaded policy{3};
  Given given{policy};
  EXPECT_EQ(given.give(0, 100), 0U);
  EXPECT_EQ(given.give(1, 10), 1U);
  EXPECT_EQ(given.give(2, 20), 2U);
  EXPECT_EQ(given.give(3, 10), 1U);
  EXPECT_EQ(given.give(4, 1), 2U); // of equals the one that waits longest
  policy.ended(0, 100);
  EXPECT_EQ(given.give(5, 1), 0U);
  EXPECT_EQ(given.give(6, 1), 0U);
}

TEST(AssignmentPolicy, least_loaded_gives_a_slow_one_less) {
  LeastLoaded policy{2};
  Given given{policy};
  std::uint64_t open = 0; // of the slow one
  for (EventNumber i = 0; i < 1000; ++i) {
    if (given.give(i, 10) == 0) {
      policy.ended(0, 10); // built at once
    } else {
      open += 10;
    }
    if (i % 10 == 0 && open > 0) policy.ended(1, 10), open -= 10;
  }
  EXPECT_GE(given.bytes_of[0], 8 * given.bytes_of[1]);
}

TEST(AssignmentPolicy, weighted_gives_bytes_in_proportion_whatever_the_sizes) {
  const std::vector<std::uint32_t> weights{1, 2, 5, 1000};
  Weighted policy{weights, 4096};
  Given given{policy};
  Random random{1};
  for (EventNumber i = 0; i < 100'000; ++i) (void)given.give(i, random.below(4096));
  for (NodeId node = 0; node < 4; ++node) {
    const double share = static_cast<double>(given.bytes_of[node]) / weights[node];
    EXPECT_NEAR(share, 100'000 * 2048.0 / 1008, 5000) << node;
  }
}

TEST(AssignmentPolicy, weighted_makes_nobody_catch_up_who_was_away) {
  Weighted policy{{1, 1}, 100};
  Given given{policy};
  given.away = {0};
  for (EventNumber i = 0; i < 1000; ++i) (void)given.give(i, 100);
  given.away.clear();
  given.bytes_of.clear();
  for (EventNumber i = 0; i < 100; ++i) (void)given.give(i, 100);
  EXPECT_NEAR(static_cast<double>(given.bytes_of[0]), 5000, 200);
}

TEST(AssignmentPolicy, weights_hold_where_parts_stay_together) {
  Weighted policy{{1, 3}, 160};
  std::map<NodeId, std::uint64_t> bytes_of;
  for (EventNumber block = 0; block < 1000; ++block) {
    const AssignmentRequest request{{block, block + 1}, 10, 0};
    const NodeId node = policy.preference(request).front();
    for (int part = 0; part < 16; ++part) policy.assigned(node, request), bytes_of[node] += 10;
  }
  EXPECT_NEAR(static_cast<double>(bytes_of[1]) / static_cast<double>(bytes_of[0]), 3, 0.1);
}

TEST(AssignmentPolicy, weights_hold_for_ever) {
  constexpr std::uint64_t large = std::uint64_t{1} << 49; // tags begin anew every few batches
  Weighted policy{{1, 3}, large};
  Given given{policy};
  for (EventNumber i = 0; i < 4000; ++i) (void)given.give(i, large);
  const double ratio =
      static_cast<double>(given.bytes_of[1]) / static_cast<double>(given.bytes_of[0]);
  EXPECT_NEAR(ratio, 3, 0.1);
}

TEST(AssignmentPolicy, by_number_deals_out_blocks_whoever_is_up) {
  ByNumber policy{3, 16};
  Given given{policy};
  for (const EventNumber first : {0U, 5U, 15U}) EXPECT_EQ(given.give(first, 10), 0U);
  EXPECT_EQ(given.give(16, 10), 1U);
  EXPECT_EQ(given.give(32, 10), 2U);
  given.away = {0};
  EXPECT_EQ(given.give(48, 10), Given::invalid);
  EXPECT_EQ(given.give(64, 10), 1U);
}

} // namespace
} // namespace fanin::builder
