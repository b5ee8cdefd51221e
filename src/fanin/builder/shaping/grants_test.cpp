#include "fanin/builder/shaping/grants.hpp"

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

namespace fanin::builder::shaping {
namespace {

constexpr Shaping two_shares{.policy = Policy::linear_shift, .carrier = 1000, .window = 6000};
constexpr auto nobody_owes = [](NodeId) { return false; };

// Two readout units, which may have 3,000 bytes under way each.
class GrantsTest : public ::testing::Test {
protected:
  explicit GrantsTest(Policy policy = Policy::linear_shift)
      : grants_({.policy = policy, .carrier = 1000, .window = 6000}, 2, false) {}
  // What it is granted now; 0: nothing new.
  std::uint64_t granted(NodeId readout) {
    grants_.update({}, nobody_owes);
    return grants_.unsent(readout) ? grants_.take(readout) : 0;
  }
  Grants grants_;
};

TEST_F(GrantsTest, a_connection_is_granted_its_share_at_once) {
  EXPECT_EQ(granted(0), 0U);
  grants_.opened(0);
  EXPECT_EQ(granted(0), 3000U);
  EXPECT_EQ(granted(0), 0U);
  EXPECT_EQ(granted(1), 0U);
  EXPECT_EQ(grants_.outstanding(), 3000U);
  EXPECT_TRUE(grants_.may_send(0));
  EXPECT_FALSE(grants_.may_send(1));
}

TEST_F(GrantsTest, a_grant_is_renewed_when_a_carrier_has_come_and_not_before) {
  grants_.opened(1);
  EXPECT_EQ(granted(1), 3000U);
  EXPECT_TRUE(grants_.received(1, 999));
  EXPECT_EQ(granted(1), 0U);
  EXPECT_TRUE(grants_.received(1, 1));
  EXPECT_EQ(granted(1), 4000U);
  EXPECT_TRUE(grants_.received(1, 1000));
  EXPECT_TRUE(grants_.received(1, 1000));
  EXPECT_EQ(granted(1), 6000U); // for both
  EXPECT_EQ(grants_.outstanding(), 3000U);
}

TEST_F(GrantsTest, more_than_was_granted_and_said_is_refused) {
  EXPECT_FALSE(grants_.received(0, 1));
  grants_.opened(0);
  EXPECT_FALSE(grants_.received(0, 1));
  EXPECT_EQ(granted(0), 3000U);
  EXPECT_FALSE(grants_.received(0, 3001));
  EXPECT_TRUE(grants_.received(0, 3000));
  EXPECT_FALSE(grants_.received(0, 1));
}

TEST_F(GrantsTest, a_new_connection_starts_afresh) {
  grants_.opened(0);
  EXPECT_EQ(granted(0), 3000U);
  EXPECT_TRUE(grants_.received(0, 2500));
  grants_.opened(0);
  EXPECT_EQ(grants_.outstanding(), 0U);
  EXPECT_EQ(granted(0), 3000U);
  grants_.closed(0);
  EXPECT_EQ(grants_.outstanding(), 0U);
  EXPECT_TRUE(grants_.unsent().empty());
}

TEST_F(GrantsTest, a_full_carrier_makes_no_grant_where_it_is_not_the_clock) {
  grants_.opened(0);
  EXPECT_EQ(granted(0), 3000U);
  EXPECT_TRUE(grants_.received(0, 900));
  grants_.carrier_filled(0);
  EXPECT_EQ(granted(0), 0U);
}

class GrantsInSlots : public GrantsTest {
protected:
  GrantsInSlots() : GrantsTest(Policy::barrel_shifter) {}
};

TEST_F(GrantsInSlots, a_full_carrier_is_confirmed_by_a_grant) {
  grants_.opened(0);
  EXPECT_EQ(granted(0), 3000U);
  EXPECT_TRUE(grants_.received(0, 500));
  EXPECT_EQ(granted(0), 0U);
  EXPECT_TRUE(grants_.received(0, 400));
  grants_.carrier_filled(0);
  EXPECT_EQ(granted(0), 3900U);
  EXPECT_TRUE(grants_.received(0, 900)); // not full
  EXPECT_EQ(granted(0), 0U);
  EXPECT_TRUE(grants_.received(0, 100));
  EXPECT_EQ(granted(0), 4900U);
}

TEST(GrantsAsked, nothing_is_granted_before_something_is_owed) {
  Grants grants{two_shares, 2, true};
  grants.opened(0);
  grants.opened(1);
  grants.update({}, nobody_owes);
  EXPECT_TRUE(grants.unsent().empty());
  grants.update({}, [](NodeId node) { return node == 1; });
  EXPECT_EQ(grants.unsent(), std::vector<NodeId>{1});
  EXPECT_EQ(grants.take(1), 3000U);
  EXPECT_TRUE(grants.received(1, 1000));
  grants.update({}, nobody_owes); // for the next block
  EXPECT_EQ(grants.unsent(), std::vector<NodeId>{1});
}

// Two tokens for four readout units, which may have 2,000 bytes under way each.
class Tokens : public ::testing::Test {
protected:
  Tokens() {
    for (NodeId readout = 0; readout < 4; ++readout) grants_.opened(readout);
  }
  // Who is granted something now, and how much in all.
  std::vector<std::pair<NodeId, std::uint64_t>> granted() {
    grants_.update(now_, [this](NodeId node) { return owing_.at(node); });
    std::vector<std::pair<NodeId, std::uint64_t>> all;
    while (!grants_.unsent().empty()) {
      const NodeId node = grants_.unsent().front();
      all.emplace_back(node, grants_.take(node));
    }
    return all;
  }
  using Granted = std::vector<std::pair<NodeId, std::uint64_t>>;

  Time now_{};
  std::array<bool, 4> owing_{true, true, true, true};
  Grants grants_{
      {.policy = Policy::tokens, .carrier = 1000, .window = 8000, .tokens = 2}, 4, false};
};

TEST_F(Tokens, few_send_at_once_and_tokens_go_round) {
  EXPECT_EQ(granted(), (Granted{{0, 2000}, {1, 2000}}));
  EXPECT_EQ(granted(), Granted{});
  EXPECT_TRUE(grants_.received(1, 1000));
  EXPECT_EQ(granted(), Granted{}); // it can send another carrier
  EXPECT_TRUE(grants_.received(1, 900));
  EXPECT_EQ(granted(), (Granted{{2, 2000}}));
  EXPECT_TRUE(grants_.received(0, 1001));
  EXPECT_EQ(granted(), (Granted{{3, 2000}}));
  EXPECT_TRUE(grants_.received(2, 2000));
  EXPECT_TRUE(grants_.received(3, 1500));
  EXPECT_EQ(granted(), (Granted{{0, 3001}, {1, 3900}})); // its share beyond what has come
}

TEST_F(Tokens, who_owes_nothing_gets_none) {
  owing_ = {false, false, true, false};
  EXPECT_EQ(granted(), (Granted{{2, 2000}}));
  EXPECT_TRUE(grants_.received(2, 2000));
  EXPECT_EQ(granted(), (Granted{{2, 4000}}));
  owing_ = {false, true, false, true};
  EXPECT_EQ(granted(), (Granted{{3, 2000}, {1, 2000}})); // the grant of 2 remains
  EXPECT_TRUE(grants_.may_send(2));
}

TEST_F(Tokens, who_sends_nothing_keeps_its_grant_and_not_its_token) {
  EXPECT_EQ(granted(), (Granted{{0, 2000}, {1, 2000}}));
  EXPECT_EQ(grants_.wake(), Time{} + Grants::token_patience);
  now_ = grants_.wake();
  EXPECT_EQ(granted(), (Granted{{2, 2000}, {3, 2000}}));
  EXPECT_EQ(grants_.outstanding(), 8000U);
  now_ = grants_.wake();
  EXPECT_EQ(granted(), Granted{}); // all have a grant
  EXPECT_EQ(grants_.wake(), never);
  EXPECT_TRUE(grants_.received(0, 2000));
  EXPECT_EQ(granted(), (Granted{{0, 4000}}));
}

TEST_F(Tokens, who_sends_slowly_keeps_its_token) {
  EXPECT_EQ(granted(), (Granted{{0, 2000}, {1, 2000}}));
  for (int i = 0; i < 10; ++i) {
    now_ += Grants::token_patience / 2;
    for (NodeId readout = 0; readout < 2; ++readout) EXPECT_TRUE(grants_.received(readout, 1));
    EXPECT_EQ(granted(), Granted{});
  }
}

TEST_F(Tokens, a_lost_connection_gives_its_token_back) {
  EXPECT_EQ(granted(), (Granted{{0, 2000}, {1, 2000}}));
  grants_.closed(0);
  EXPECT_EQ(granted(), (Granted{{2, 2000}}));
  EXPECT_FALSE(grants_.received(0, 1));
}

} // namespace
} // namespace fanin::builder::shaping
