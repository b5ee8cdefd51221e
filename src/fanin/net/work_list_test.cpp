#include "fanin/net/work_list.hpp"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace fanin::net {
namespace {

struct Worker {
  explicit Worker(int number) : name(number) {}
  int name;
  WorkList<Worker>::Place place{*this};
};

class WorkListTest : public testing::Test {
protected:
  void add(std::initializer_list<int> names) {
    for (const int name : names) {
      workers.push_back(std::make_unique<Worker>(name));
      list.add(workers.back()->place);
    }
  }
  std::vector<int> take_all() {
    std::vector<int> names;
    while (const Worker* const worker = list.take()) names.push_back(worker->name);
    return names;
  }

  WorkList<Worker> list;
  std::vector<std::unique_ptr<Worker>> workers;
};

TEST_F(WorkListTest, connections_leave_in_the_order_in_which_they_were_added) {
  add({1, 2, 3});
  EXPECT_EQ(list.size(), 3U);
  EXPECT_EQ(take_all(), (std::vector{1, 2, 3}));
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.size(), 0U);
}

TEST_F(WorkListTest, a_connection_is_listed_once_and_keeps_its_place) {
  add({1, 2});
  list.add(workers[0]->place);
  list.add_first(workers[1]->place);
  EXPECT_EQ(take_all(), (std::vector{1, 2}));
  EXPECT_FALSE(workers[0]->place.listed());
  list.add(workers[0]->place);
  EXPECT_EQ(take_all(), std::vector{1});
}

TEST_F(WorkListTest, a_connection_that_ends_leaves_the_list_wherever_it_stands) {
  for (const std::size_t ends : {0U, 1U, 2U}) {
    workers.clear();
    add({1, 2, 3});
    workers.erase(workers.begin() + static_cast<std::ptrdiff_t>(ends));
    EXPECT_EQ(list.size(), 2U);
    add({4});
    std::vector<int> expected{1, 2, 3, 4};
    expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(ends));
    EXPECT_EQ(take_all(), expected);
  }
}

TEST_F(WorkListTest, a_list_may_end_before_its_connections) {
  Worker worker(1);
  {
    WorkList<Worker> other;
    other.add(worker.place);
  }
  EXPECT_FALSE(worker.place.listed());
}

TEST_F(WorkListTest, a_connection_can_be_put_before_others) {
  add({1, 2});
  Worker first(3);
  Worker second(4);
  Worker last(5);
  list.add_first(first.place);
  list.add_before(&workers[0]->place, second.place);
  list.add_before(nullptr, last.place);
  EXPECT_EQ(take_all(), (std::vector{3, 4, 1, 2, 5}));
}

TEST_F(WorkListTest, turns_are_taken_by_going_to_the_end) {
  EXPECT_EQ(list.rotate(), nullptr);
  add({1});
  EXPECT_EQ(list.rotate()->name, 1);
  add({2, 3});
  EXPECT_EQ(list.rotate()->name, 1);
  EXPECT_EQ(list.rotate()->name, 2);
  EXPECT_EQ(list.size(), 3U);
  EXPECT_EQ(take_all(), (std::vector{3, 1, 2}));
}

TEST_F(WorkListTest, those_added_during_a_round_wait_for_the_next_one) {
  add({1, 2, 3});
  std::vector<int> visited;
  list.take_each([&](Worker& worker) {
    visited.push_back(worker.name);
    if (worker.name != 2) list.add(worker.place);
  });
  EXPECT_EQ(visited, (std::vector{1, 2, 3}));
  EXPECT_EQ(take_all(), (std::vector{1, 3}));
}

TEST_F(WorkListTest, a_visit_may_end_the_connection_and_others) {
  add({1, 2, 3});
  std::vector<int> visited;
  list.take_each([&](const Worker& worker) {
    visited.push_back(worker.name);
    workers.clear();
  });
  EXPECT_EQ(visited, std::vector{1});
  EXPECT_TRUE(list.empty());
}

TEST_F(WorkListTest, any_looks_at_all_that_are_listed) {
  add({1, 2, 3});
  EXPECT_TRUE(list.any([](const Worker& worker) { return worker.name == 3; }));
  EXPECT_FALSE(list.any([](const Worker& worker) { return worker.name == 4; }));
}

} // namespace
} // namespace fanin::net
