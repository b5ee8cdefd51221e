#include "fanin/builder/readout/assignment_queue.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace fanin::builder {
namespace {

class Assignments : public ::testing::Test {
protected:
  bool add(EventNumber first, Attempt attempt = 0) {
    return queue_.add({.first = first, .events = 16, .attempt = attempt},
                      [this](const wire::Assign& assign) { return take(assign); });
  }
  void retry(std::size_t room) {
    room_ = room;
    queue_.retry([this](const wire::Assign& assign) { return take(assign); });
  }
  bool take(const wire::Assign& assign) {
    if (room_ == 0) return false;
    --room_;
    taken_.push_back(assign.first);
    return true;
  }

  AssignmentQueue queue_;
  std::size_t room_ = 0; // batches that can be taken
  std::vector<EventNumber> taken_;
};

TEST_F(Assignments, a_batch_for_which_there_is_room_does_not_wait) {
  room_ = 1;
  EXPECT_TRUE(add(0));
  EXPECT_EQ(taken_, (std::vector<EventNumber>{0}));
  EXPECT_TRUE(queue_.empty());
}

TEST_F(Assignments, batches_are_taken_in_the_order_in_which_they_came) {
  EXPECT_TRUE(add(0));
  room_ = 2;
  EXPECT_TRUE(add(16)); // not before the one that waits
  EXPECT_TRUE(taken_.empty());
  retry(1);
  EXPECT_EQ(taken_, (std::vector<EventNumber>{0}));
  EXPECT_FALSE(queue_.empty());
  retry(5);
  EXPECT_EQ(taken_, (std::vector<EventNumber>{0, 16}));
  EXPECT_TRUE(queue_.empty());
}

TEST_F(Assignments, batches_that_were_assigned_before_go_first) {
  EXPECT_TRUE(add(32));
  EXPECT_TRUE(add(0, 1));
  retry(1);
  EXPECT_EQ(taken_, (std::vector<EventNumber>{0}));
  EXPECT_TRUE(add(16, 1));
  retry(2);
  EXPECT_EQ(taken_, (std::vector<EventNumber>{0, 16, 32}));
}

TEST_F(Assignments, one_that_was_assigned_before_is_not_behind_new_ones) {
  EXPECT_TRUE(add(32));
  room_ = 1;
  EXPECT_TRUE(add(0, 1));
  EXPECT_EQ(taken_, (std::vector<EventNumber>{0}));
}

TEST_F(Assignments, a_new_one_waits_as_long_as_one_that_was_assigned_before_finds_no_room) {
  EXPECT_TRUE(add(0, 1));
  EXPECT_TRUE(add(32));
  retry(0);
  EXPECT_TRUE(taken_.empty());
  queue_.clear();
  EXPECT_TRUE(queue_.empty());
  retry(2);
  EXPECT_TRUE(taken_.empty());
}

TEST_F(Assignments, are_refused_where_more_wait_than_make_sense) {
  for (std::size_t i = 0; i < AssignmentQueue::waiting_max; ++i) ASSERT_TRUE(add(16 * i));
  EXPECT_FALSE(add(16 * AssignmentQueue::waiting_max));
}

} // namespace
} // namespace fanin::builder
