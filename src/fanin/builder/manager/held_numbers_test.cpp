#include "fanin/builder/manager/held_numbers.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

class Held : public ::testing::Test {
protected:
  Held() {
    for (NodeId i = 0; i < 3; ++i) held_.join(i);
  }
  void hold(NodeId node, EventNumber event, bool ended = false) {
    EXPECT_TRUE(held_.hold(node, {.event = event, .count = ++count_, .ended = ended ? 1U : 0U}, 0));
  }
  HeldNumbers held_{3, 1000};
  std::uint32_t count_ = 0U - 1U; // the first count of all is 0
};

TEST_F(Held, nothing_is_said_until_others_have_reached_the_number) {
  hold(0, 100);
  EXPECT_TRUE(held_.any_waiting());
  EXPECT_FALSE(held_.take_new_answer(0, 100, 0));
  EXPECT_TRUE(held_.take_new_answer(0, 101, 0));
  EXPECT_FALSE(held_.take_new_answer(0, 200, 0)); // said once
  EXPECT_TRUE(held_.any_waiting());      // it may still hear that the others end
  const wire::Horizon answer = held_.answer(0, 101);
  EXPECT_EQ(answer.event, 101U);
  EXPECT_EQ(answer.held, 0U);
  EXPECT_EQ(answer.alone, 0U);
  EXPECT_EQ(answer.equal, 0U);
}

TEST_F(Held, equal_numbers_confirm_each_other) {
  hold(0, 100);
  hold(1, 200);
  EXPECT_FALSE(held_.take_new_answer(0, 0, 0));
  hold(1, 100);
  EXPECT_TRUE(held_.take_new_answer(0, 0, 0));
  EXPECT_TRUE(held_.take_new_answer(1, 0, 0));
  EXPECT_EQ(held_.answer(0, 0).equal, 1U);
  EXPECT_FALSE(held_.any_waiting());
}

TEST_F(Held, a_number_stays_known_when_it_is_held_no_longer) {
  hold(1, 100);
  EXPECT_FALSE(held_.hold(1, {.event = event_number_end, .count = 7}, 0));
  EXPECT_EQ(held_.number(1), std::nullopt);
  hold(0, 100);
  EXPECT_TRUE(held_.take_new_answer(0, 0, 0));
  EXPECT_EQ(held_.answer(0, 0).equal, 1U);
}

TEST_F(Held, who_has_held_nothing_confirms_nothing) {
  EXPECT_FALSE(held_.hold(1, {.event = event_number_end, .count = 7, .ended = 1}, 0));
  hold(0, 0);
  EXPECT_FALSE(held_.take_new_answer(0, 0, 0));
  EXPECT_EQ(held_.answer(0, 0).equal, 0U);
}

TEST_F(Held, last_that_goes_on_hears_that_it_is_alone) {
  hold(0, 100);
  held_.announced_end(1, true);
  EXPECT_FALSE(held_.take_new_answer(0, 0, 0));
  hold(2, 300, true); // its sources have ended, with a number held
  EXPECT_TRUE(held_.take_new_answer(0, 0, 0));
  EXPECT_EQ(held_.answer(0, 0).alone, 1U);
  EXPECT_EQ(held_.answer(2, 0).alone, 0U);
}

TEST_F(Held, who_begins_afresh_goes_on) {
  hold(0, 100);
  held_.announced_end(1, true);
  held_.announced_end(2, true);
  held_.announced_end(1, false);
  EXPECT_FALSE(held_.take_new_answer(0, 0, 0));
}

TEST_F(Held, who_has_left_counts_for_nothing) {
  hold(0, 100);
  hold(1, 100);
  held_.leave(1);
  EXPECT_FALSE(held_.take_new_answer(0, 0, 0));
  held_.leave(2);
  EXPECT_TRUE(held_.take_new_answer(0, 0, 0));
  held_.leave(0);
  EXPECT_FALSE(held_.any_waiting());
  held_.join(1);
  EXPECT_FALSE(held_.take_new_answer(1, 1000, 0));
}

} // namespace
} // namespace fanin::builder
