#include "fanin/builder/manager/absent_ranges.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

TEST(AbsentRanges, answer_for_each_event) {
  AbsentRanges ranges;
  ranges.add({5, 8});
  ranges.add({8, 10}); // joins
  ranges.add({12, 12}); // empty
  ranges.add({20, 21});
  EXPECT_EQ(ranges.present_from(4), 4U);
  EXPECT_EQ(ranges.present_from(5), 10U);
  EXPECT_EQ(ranges.present_from(9), 10U);
  EXPECT_EQ(ranges.present_from(10), 10U);
  EXPECT_EQ(ranges.present_from(20), 21U);
  EXPECT_EQ(ranges.absent_from(0, 100), 5U);
  EXPECT_EQ(ranges.absent_from(7, 100), 7U);
  EXPECT_EQ(ranges.absent_from(10, 100), 20U);
  EXPECT_EQ(ranges.absent_from(10, 15), 15U);
  EXPECT_EQ(ranges.absent_from(21, 100), 100U);
}

TEST(AbsentRanges, what_lies_below_is_forgotten_in_whole_ranges) {
  AbsentRanges ranges;
  ranges.add({5, 8});
  ranges.add({10, 12});
  ranges.forget_below(7);
  EXPECT_EQ(ranges.absent_from(0, 100), 5U);
  ranges.forget_below(8);
  EXPECT_EQ(ranges.absent_from(0, 100), 10U);
}

} // namespace
} // namespace fanin::builder
