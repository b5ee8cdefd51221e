#include "fanin/fabric/event_queue.hpp"

#include <set>
#include <tuple>

#include <gtest/gtest.h>

#include "fanin/base/random.hpp"

namespace fanin::fabric {
namespace {

TEST(EventQueue, equal_times_come_in_the_order_of_scheduling) {
  EventQueue queue;
  for (std::uint32_t i = 0; i < 100; ++i) queue.add(i % 2 == 0 ? 7 : 1'000'000'000, 0, i);
  std::vector<std::uint32_t> taken;
  while (!queue.empty()) taken.push_back(queue.take().index);
  for (std::uint32_t i = 0; i < 50; ++i) {
    EXPECT_EQ(taken[i], 2 * i);
    EXPECT_EQ(taken[50 + i], 2 * i + 1);
  }
}

TEST(EventQueue, an_event_keeps_its_kind_and_detail) {
  EventQueue queue;
  queue.add(5, 3, 77, 9);
  EXPECT_EQ(queue.next_time(), 5);
  const Event event = queue.take();
  EXPECT_EQ(event.kind, 3);
  EXPECT_EQ(event.index, 77U);
  EXPECT_EQ(event.detail, 9);
  EXPECT_EQ(queue.now(), 5);
}

// Against a set, for events of now, of this slot, of the wheel and of the far future.
TEST(EventQueue, gives_what_a_sorted_set_gives) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    EventQueue queue(static_cast<int>(random.below(20)));
    std::set<std::tuple<Picoseconds, std::uint64_t, std::uint32_t>> reference;
    std::uint64_t order = 0;
    for (std::uint32_t i = 0; i < 5000; ++i) {
      if (random.chance(11, 20) || reference.empty()) {
        const std::uint64_t span = 1ULL << random.below(40);
        const Picoseconds time =
            queue.now() + (random.chance(1, 5) ? 0 : static_cast<Picoseconds>(random.below(span)));
        queue.add(time, 0, i);
        reference.emplace(time, order++, i);
      } else {
        const auto [time, at, index] = *reference.begin();
        reference.erase(reference.begin());
        ASSERT_EQ(queue.next_time(), time);
        ASSERT_EQ(queue.take().index, index);
      }
      ASSERT_EQ(queue.size(), reference.size());
    }
  }
}

} // namespace
} // namespace fanin::fabric
