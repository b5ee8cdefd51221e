#include "fanin/memory/page_pool.hpp"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace fanin::memory {
namespace {

std::unique_ptr<PagePool> make_pool(std::uint32_t page_size, std::uint32_t pages) {
  auto pool = PagePool::make({.page_size = page_size, .pages = pages});
  EXPECT_TRUE(pool) << pool.error().text;
  return std::move(*pool);
}

TEST(PagePool, lends_every_page_once_and_then_none) {
  const auto pool = make_pool(4096, 3);
  std::vector<Loan> loans;
  for (int i = 0; i < 3; ++i) {
    loans.push_back(pool->take());
    ASSERT_TRUE(loans.back());
    std::memset(loans.back().data(), 0x5a + i, loans.back().size());
  }
  EXPECT_FALSE(pool->take());
  EXPECT_EQ(pool->available(), 0U);
  loans.clear();
  EXPECT_EQ(pool->available(), 3U);
}

TEST(PagePool, lends_the_page_used_last_first) {
  const auto pool = make_pool(4096, 3);
  Loan a = pool->take();
  Loan b = pool->take();
  const Page* last = a.page();
  b.reset();
  a.reset();
  EXPECT_EQ(pool->take().page(), last);
}

TEST(PagePool, pages_that_were_read_elsewhere_rest_and_go_out_in_their_order) {
  const auto pool = make_pool(4096, 4);
  std::vector<const Page*> read;
  const Loan kept = pool->take();
  for (int i = 0; i < 6; ++i) { // twice round
    Loan loan = pool->take();
    loan.page()->read_elsewhere = true;
    read.push_back(loan.page());
  }
  for (std::size_t i = 3; i < 6; ++i) EXPECT_EQ(read[i], read[i - 3]);
  const Page* own = pool->take().page(); // used and not read elsewhere: the next one again
  EXPECT_EQ(pool->take().page(), own);
  EXPECT_EQ(pool->available(), 3U);
}

TEST(PagePool, a_page_comes_home_with_its_last_view) {
  const auto pool = make_pool(4096, 1);
  Loan loan = pool->take();
  View view = loan.freeze(8, 100);
  const View part = view.subview(10, 20);
  EXPECT_EQ(part.offset, 18U);
  EXPECT_EQ(part.data(), loan.data() + 18);
  loan.reset();
  EXPECT_EQ(pool->available(), 0U);
  view = View{};
  EXPECT_EQ(pool->available(), 0U);
  View moved = part; // a copy, since part is const
  EXPECT_EQ(moved.bytes().size(), 20U);
  moved = View{};
  EXPECT_EQ(pool->available(), 0U);
}

TEST(PagePool, an_empty_view_has_no_bytes) { EXPECT_TRUE(View{}.bytes().empty()); }

TEST(PagePool, refuses_impossible_sizes) {
  EXPECT_EQ(PagePool::make({.page_size = 0, .pages = 1}).error().kind, ErrorKind::usage);
  EXPECT_EQ(PagePool::make({.page_size = 1000, .pages = 1}).error().kind, ErrorKind::usage);
  EXPECT_EQ(PagePool::make({.page_size = 4096, .pages = 0}).error().kind, ErrorKind::usage);
}

TEST(PagePool, more_than_the_host_has_is_an_error_that_names_size_and_limit) {
  const auto pool = PagePool::make({.page_size = 1U << 30, .pages = 1U << 20}); // 1 PiB
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().kind, ErrorKind::exhausted);
  EXPECT_NE(pool.error().text.find("TiB"), std::string::npos) << pool.error().text;
}

TEST(Arena, reserved_address_space_costs_no_memory) {
  const auto arena = Arena::make(std::size_t{64} << 30, {.reserve_only = true});
  ASSERT_TRUE(arena) << arena.error().text;
  (*arena)->data()[(*arena)->size() - 1] = std::byte{1};
}

TEST(Arena, a_numa_node_that_is_not_there_is_an_error) {
  const auto arena = Arena::make(4096, {.numa_node = 4095});
  ASSERT_FALSE(arena);
  EXPECT_EQ(arena.error().kind, ErrorKind::unsupported);
}

TEST(Arena, huge_pages_that_are_required_and_missing_are_an_error) {
  const auto arena = Arena::make(std::size_t{1} << 46, {.huge_pages = HugePages::required});
  ASSERT_FALSE(arena);
  EXPECT_EQ(arena.error().kind, ErrorKind::exhausted);
  EXPECT_NE(arena.error().text.find("huge"), std::string::npos) << arena.error().text;
}

} // namespace
} // namespace fanin::memory
