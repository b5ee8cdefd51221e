#include "fanin/net/due_queue.hpp"

#include <gtest/gtest.h>

namespace fanin::net {
namespace {

using namespace std::chrono_literals;

std::vector<int> drain(DueQueue<int>& queue) {
  std::vector<int> taken;
  while (queue.size() > 0) taken.push_back(queue.take());
  return taken;
}

TEST(DueQueue, gives_what_is_due_first_and_otherwise_what_came_first) {
  DueQueue<int> queue;
  EXPECT_EQ(queue.next(), never);
  EXPECT_FALSE(queue.is_due(never));
  for (int i = 0; i < 6; ++i) queue.add(Time{i % 2 == 0 ? 5ms : 3ms}, i);
  EXPECT_EQ(queue.next(), Time{3ms});
  EXPECT_FALSE(queue.is_due(Time{2ms}));
  EXPECT_TRUE(queue.is_due(Time{3ms}));
  EXPECT_EQ(drain(queue), (std::vector{1, 3, 5, 0, 2, 4}));
}

TEST(DueQueue, changes_times_and_forgets) {
  DueQueue<int> queue;
  for (int i = 0; i < 6; ++i) queue.add(Time{Duration{10 - i}}, i);
  queue.reschedule([](int one, Time& due) { due = Time{Duration{one % 3}}; });
  EXPECT_TRUE(queue.erase_if([](int one) { return one == 4; }));
  EXPECT_FALSE(queue.erase_if([](int one) { return one == 4; }));
  EXPECT_EQ(drain(queue), (std::vector{0, 3, 1, 2, 5}));
}

} // namespace
} // namespace fanin::net
