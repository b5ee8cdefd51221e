#include "fanin/memory/bounded_heap.hpp"

#include <optional>

#include <gtest/gtest.h>

namespace fanin::memory {
namespace {

TEST(BoundedHeap, counts_each_page_until_its_last_view_is_gone) {
  BoundedHeap heap(1000);
  std::byte* data = nullptr;
  View view = heap.make(600, data);
  ASSERT_EQ(view.size, 600U);
  data[599] = std::byte{7};
  EXPECT_EQ(view.bytes()[599], std::byte{7});
  const View part = view.subview(500, 100);
  EXPECT_EQ(heap.bytes(), 600U); // once
  view = {};
  EXPECT_EQ(heap.bytes(), 600U);
  EXPECT_EQ(part.bytes()[99], std::byte{7});
}

TEST(BoundedHeap, gives_nothing_beyond_its_bound_and_again_when_there_is_room) {
  BoundedHeap heap(1000);
  std::byte* data = nullptr;
  std::optional<View> first = heap.make(600, data);
  EXPECT_EQ(heap.make(401, data).size, 0U);
  EXPECT_EQ(heap.make(~std::uint64_t{0}, data).size, 0U);
  EXPECT_EQ(heap.bytes(), 600U);
  const View second = heap.make(400, data);
  EXPECT_EQ(second.size, 400U);
  first.reset();
  EXPECT_EQ(heap.bytes(), 400U);
  EXPECT_EQ(heap.make(600, data).size, 600U);
  EXPECT_EQ(heap.bytes(), 400U);
}

TEST(BoundedHeap, may_be_gone_before_its_views) {
  std::optional<BoundedHeap> heap(10);
  std::byte* data = nullptr;
  const View view = heap->make(10, data);
  data[9] = std::byte{3};
  heap.reset();
  EXPECT_EQ(view.bytes()[9], std::byte{3});
}

} // namespace
} // namespace fanin::memory
