#include "fanin/builder/wanted_list.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

TEST(WantedList, shows_a_few_and_counts_the_others) {
  WantedList list;
  EXPECT_EQ(list.text(), "");
  list.add("");
  list.add("a");
  list.add("b");
  EXPECT_EQ(list.text(), "a; b");
  for (std::size_t i = 2; i < WantedList::shown_max; ++i) list.add("c");
  EXPECT_EQ(list.text(), "a; b; c; c; c; c");
  for (int i = 0; i < 3839; ++i) list.add("d");
  list.add("");
  EXPECT_EQ(list.text(), "a; b; c; c; c; c; and 3839 more");
}

} // namespace
} // namespace fanin::builder
