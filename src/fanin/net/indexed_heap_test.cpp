#include "fanin/net/indexed_heap.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "fanin/base/random.hpp"

namespace fanin::net {
namespace {

struct Ranked {
  std::uint64_t rank = 0;
  std::size_t place = 0;
  bool listed = false;
};
struct Lower {
  bool operator()(const Ranked& a, const Ranked& b) const { return a.rank < b.rank; }
};

TEST(IndexedHeap, its_first_is_the_least_whoever_comes_changes_or_leaves) {
  IndexedHeap<Ranked, &Ranked::place, Lower> heap;
  std::vector<Ranked> all(50);
  Random random{1};
  for (int step = 0; step < 5000; ++step) {
    Ranked& one = all[random.below(all.size())];
    if (one.listed && random.chance(1, 2)) {
      heap.remove(one);
      one.listed = false;
    } else {
      one.rank = random.below(20);
      one.listed ? heap.update(one) : heap.add(one);
      one.listed = true;
    }
    std::vector<std::uint64_t> ranks;
    for (const Ranked& each : all) {
      if (each.listed) ranks.push_back(each.rank);
    }
    ASSERT_EQ(heap.size(), ranks.size());
    if (heap.empty()) continue;
    ASSERT_EQ(heap.front().rank, std::ranges::min(ranks));
  }
}

} // namespace
} // namespace fanin::net
