#include "fanin/builder/shaping/schedule.hpp"

#include <gtest/gtest.h>

namespace fanin::builder::shaping {
namespace {

// One of two readout units, which may have 3,000 bytes under way to each of three builder units.
class ScheduleTest : public ::testing::Test {
protected:
  void open_all() {
    for (NodeId builder = 0; builder < 3; ++builder) schedule_.opened(builder);
  }
  std::optional<NodeId> carry(std::uint64_t bytes) {
    const auto node = schedule_.next({});
    if (!node) return {};
    schedule_.sent(*node, bytes);
    schedule_.carried(*node, {});
    return node;
  }
  Schedule schedule_{{.policy = Policy::linear_shift, .carrier = 1000, .window = 6000}, 2, 3, 1, 1};
};

TEST_F(ScheduleTest, nothing_is_sent_without_a_grant_that_suffices) {
  open_all();
  schedule_.set_waiting(2, 800);
  EXPECT_EQ(schedule_.next({}), std::nullopt);
  EXPECT_TRUE(schedule_.granted(2, 799));
  EXPECT_EQ(schedule_.next({}), std::nullopt);
  EXPECT_TRUE(schedule_.granted(2, 800));
  EXPECT_EQ(carry(800), NodeId{2});
  EXPECT_EQ(schedule_.room(2), 0U);
}

TEST_F(ScheduleTest, nothing_is_sent_over_a_connection_that_is_full) {
  open_all();
  schedule_.set_waiting(0, 100);
  EXPECT_TRUE(schedule_.granted(0, 3000));
  schedule_.set_full(0, true);
  EXPECT_EQ(schedule_.next({}), std::nullopt);
  schedule_.set_full(0, false);
  EXPECT_EQ(schedule_.next({}), NodeId{0});
}

TEST_F(ScheduleTest, a_grant_beyond_the_window_is_invalid_and_an_earlier_one_is_stale) {
  open_all();
  EXPECT_TRUE(schedule_.granted(0, 3000));
  EXPECT_TRUE(schedule_.granted(0, 2000));
  EXPECT_EQ(schedule_.credit(0).granted, 3000U);
  EXPECT_FALSE(schedule_.granted(0, 3001));
  schedule_.set_waiting(0, 1000);
  EXPECT_EQ(carry(1000), NodeId{0});
  EXPECT_TRUE(schedule_.granted(0, 4000));
  EXPECT_FALSE(schedule_.granted(0, 4001));
}

TEST_F(ScheduleTest, a_new_connection_starts_afresh) {
  open_all();
  schedule_.set_waiting(1, 1000);
  EXPECT_TRUE(schedule_.granted(1, 3000));
  EXPECT_EQ(carry(1000), NodeId{1});
  schedule_.opened(1);
  EXPECT_EQ(schedule_.room(1), 0U);
  EXPECT_EQ(schedule_.next({}), std::nullopt);
  EXPECT_TRUE(schedule_.granted(1, 3000));
  schedule_.set_waiting(1, 1000);
  EXPECT_EQ(carry(1000), NodeId{1});
  schedule_.closed(1);
  EXPECT_EQ(schedule_.next({}), std::nullopt);
  EXPECT_TRUE(schedule_.granted(1, 99'000)); // stale: there is no connection
  EXPECT_EQ(schedule_.room(1), 0U);
}

// One of two readout units, with slots for two builder units.
class ScheduleWithSlots : public ::testing::Test {
protected:
  void SetUp() override {
    schedule_.opened(0);
    EXPECT_TRUE(schedule_.granted(0, 2000));
    schedule_.set_waiting(0, 1000);
  }
  Schedule schedule_{
      {.policy = Policy::barrel_shifter, .carrier = 1000, .window = 4000}, 2, 2, 0, 1};
};

TEST_F(ScheduleWithSlots, a_slot_waits_until_a_whole_carrier_is_granted) {
  schedule_.sent(0, 1001);
  schedule_.set_waiting(0, 10);
  EXPECT_EQ(schedule_.next({}), std::nullopt);
  EXPECT_LT(schedule_.wake(), never);
  EXPECT_TRUE(schedule_.granted(0, 2001));
  EXPECT_EQ(schedule_.next({}), NodeId{0});
}

TEST_F(ScheduleWithSlots, full_carriers_are_under_way_until_a_grant_says_that_they_have_come) {
  for (int carrier = 0; carrier < 2; ++carrier) {
    schedule_.sent(0, 400);
    schedule_.sent(0, 590, true);
  }
  schedule_.set_waiting(0, 0);
  schedule_.carried(0, {});
  schedule_.opened(1);
  EXPECT_TRUE(schedule_.granted(1, 2000));
  schedule_.set_waiting(1, 10);
  EXPECT_EQ(schedule_.next({}), std::nullopt); // two of them
  EXPECT_TRUE(schedule_.granted(0, 2989));
  EXPECT_EQ(schedule_.next({}), std::nullopt);
  EXPECT_TRUE(schedule_.granted(0, 2990));
  EXPECT_EQ(schedule_.next({}), NodeId{1});
}

TEST_F(ScheduleTest, only_those_that_are_connected_have_a_turn) {
  schedule_.opened(0);
  schedule_.opened(2);
  for (NodeId builder = 0; builder < 3; ++builder) {
    EXPECT_TRUE(schedule_.granted(builder, 3000));
    schedule_.set_waiting(builder, 1000);
  }
  std::vector<NodeId> sent;
  while (const auto node = carry(1000)) {
    sent.push_back(*node);
    schedule_.set_waiting(*node, schedule_.room(*node) == 0 ? 0 : 1000);
  }
  EXPECT_EQ(sent, (std::vector<NodeId>{2, 0, 2, 0, 2, 0}));
}

TEST(Shaping, rails_share_the_window) {
  const Shaping two{.policy = Policy::random, .carrier = 1000, .window = 12'000};
  EXPECT_EQ(two.per_rail(2).share(3), 2000U);
  EXPECT_EQ(two.per_rail(1).share(3), 4000U);
}

} // namespace
} // namespace fanin::builder::shaping
