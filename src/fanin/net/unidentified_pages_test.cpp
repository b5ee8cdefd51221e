#include "fanin/net/unidentified_pages.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace fanin::net {
namespace {

memory::View message_in(PageFiller& filler) {
  auto [page, offset] = filler.reserve(unidentified_message_max);
  if (!page) return {};
  memory::View view = page.freeze(offset, unidentified_message_max);
  filler.give_back(std::move(page), offset + unidentified_message_max);
  return view;
}

// However they come and go: each may be the only one in its page.
TEST(UnidentifiedPages, there_is_room_for_a_message_of_each_peer) {
  for (const std::uint32_t peers : {1U, 2U, 9U}) {
    UnidentifiedPages pages{peers};
    ASSERT_TRUE(pages.reserve());
    std::vector<memory::View> held;
    while (held.size() + 1 < peers) {
      const memory::View before = message_in(pages.filler());
      ASSERT_TRUE(before.page);
      held.push_back(message_in(pages.filler()));
      ASSERT_EQ(held.back().page.get(), before.page.get());
    }
    EXPECT_TRUE(message_in(pages.filler()).page) << peers;
  }
}

TEST(UnidentifiedPages, what_was_reserved_stays_when_it_is_reserved_again) {
  UnidentifiedPages pages{1};
  ASSERT_TRUE(pages.reserve());
  PageFiller& filler = pages.filler();
  auto [page, offset] = filler.reserve(1);
  const memory::View view = page.freeze(offset, 1);
  page.reset();
  ASSERT_TRUE(pages.reserve());
  EXPECT_EQ(&pages.filler(), &filler);
}

} // namespace
} // namespace fanin::net
