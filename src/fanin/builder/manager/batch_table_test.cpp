#include "fanin/builder/manager/batch_table.hpp"

#include <gtest/gtest.h>

#include "fanin/base/attempt.hpp"

namespace fanin::builder {
namespace {

Assignment to(NodeId builder, std::uint64_t epoch = 1) {
  return {.builder = builder, .incarnation = 1, .epoch = epoch, .reservation = 7};
}

TEST(BatchTable, knows_the_current_attempt_only) {
  BatchTable table;
  Batch& batch = table.add({0, 16}, 100);
  EXPECT_EQ(table.find_current(0, 0, 2), nullptr); // not assigned yet
  table.assign(batch, to(2));
  EXPECT_EQ(table.find_current(0, 0, 2), &batch);
  EXPECT_EQ(table.find_current(0, 0, 1), nullptr);
  EXPECT_EQ(table.find_current(0, 1, 2), nullptr);
  EXPECT_EQ(table.find_current(16, 0, 2), nullptr);
  table.take_back(batch);
  EXPECT_EQ(table.find_current(0, 0, 2), nullptr);
  table.assign(batch, to(1));
  EXPECT_EQ(batch.attempt, 1U);
  EXPECT_EQ(table.find_current(0, 0, 1), nullptr);
  EXPECT_EQ(table.find_current(0, 1, 1), &batch);
}

TEST(BatchTable, one_that_is_set_aside_is_assigned_again_as_any_other) {
  BatchTable table;
  Batch& batch = table.add({0, 16}, 100);
  table.assign(batch, to(2));
  table.received(batch);
  table.set_aside(batch);
  EXPECT_EQ(table.find_current(0, 0, 2), &batch);
  table.take_back(batch);
  EXPECT_EQ(table.next_to_reassign(), &batch);
  table.assign(batch, to(1));
  EXPECT_EQ(batch.state, BatchState::assigned);
}

TEST(BatchTable, attempts_wrap_and_none_is_the_first_again) {
  BatchTable table;
  Batch& batch = table.add({0, 16}, 100);
  batch.attempt = 65'534;
  table.assign(batch, to(1));
  for (const Attempt next : {Attempt{65'535}, Attempt{1}, Attempt{2}}) {
    const Attempt before = batch.attempt;
    table.take_back(batch);
    table.assign(batch, to(1));
    EXPECT_EQ(batch.attempt, next);
    EXPECT_EQ(table.find_current(0, next, 1), &batch);
    EXPECT_TRUE(is_later(next, before));
    EXPECT_FALSE(is_later(before, next));
    EXPECT_FALSE(is_later(next, next));
  }
}

TEST(BatchTable, gives_the_oldest_batch_that_was_taken_back_first) {
  BatchTable table;
  for (EventNumber i = 0; i < 3; ++i) table.assign(table.add({16 * i, 16 * i + 16}, 1), to(0));
  EXPECT_EQ(table.next_to_reassign(), nullptr);
  table.take_back(*table.find_current(32, 0, 0));
  table.received(*table.find_current(0, 0, 0));
  table.take_back(*table.find_current(0, 0, 0));
  ASSERT_NE(table.next_to_reassign(), nullptr);
  EXPECT_EQ(table.next_to_reassign()->range.first, 0U);
  table.assign(*table.next_to_reassign(), to(1));
  EXPECT_EQ(table.next_to_reassign()->range.first, 32U);
  EXPECT_EQ(table.next_to_reassign()->state, BatchState::unassigned);
  table.assign(*table.next_to_reassign(), to(1));
  EXPECT_EQ(table.next_to_reassign(), nullptr);
}

TEST(BatchTable, what_was_reported_of_an_attempt_is_forgotten_with_it) {
  BatchTable table;
  Batch& batch = table.add({0, 16}, 1);
  table.assign(batch, to(0));
  batch.missing.push_back({.source = 1, .count = 2, .first = 3});
  batch.bad.push_back({.event = 4, .source = 1});
  batch.lost.push_back({.source = 1, .count = 2, .first = 3});
  table.take_back(batch);
  EXPECT_TRUE(batch.missing.empty());
  EXPECT_TRUE(batch.bad.empty());
  EXPECT_EQ(batch.lost.size(), 1U);
}

TEST(BatchTable, finds_the_batch_with_an_event) {
  BatchTable table;
  (void)table.add({10, 20}, 1);
  Batch& second = table.add({32, 40}, 1);
  EXPECT_EQ(table.containing(9), nullptr);
  EXPECT_EQ(table.containing(19)->range.first, 10U);
  EXPECT_EQ(table.containing(20), nullptr);
  EXPECT_EQ(table.containing(39), &second);
  EXPECT_EQ(table.containing(40), nullptr);
}

TEST(BatchTable, the_oldest_batch_of_a_builder_unit_is_one_that_it_has) {
  using Oldest = std::vector<const Batch*>;
  BatchTable table;
  Batch& first = table.add({0, 10}, 1);
  Batch& second = table.add({10, 20}, 1);
  Batch& third = table.add({20, 30}, 1);
  EXPECT_EQ(table.oldest_of_each(3), (Oldest{nullptr, nullptr, nullptr}));
  table.assign(first, to(2));
  table.assign(second, to(0));
  table.assign(third, to(0));
  EXPECT_EQ(table.oldest_of_each(3), (Oldest{&second, nullptr, &first}));
  table.take_back(second);
  EXPECT_EQ(table.oldest_of_each(3), (Oldest{&third, nullptr, &first}));
}

TEST(BatchTable, everything_below_the_oldest_batch_is_built) {
  BatchTable table;
  EXPECT_EQ(table.decided(50), 50U);
  Batch& first = table.add({10, 20}, 1);
  (void)table.add({20, 30}, 1);
  EXPECT_EQ(table.decided(50), 10U);
  table.assign(first, to(0));
  table.erase(first);
  EXPECT_EQ(table.decided(50), 20U);
  EXPECT_EQ(table.find(10), nullptr);
}

} // namespace
} // namespace fanin::builder
