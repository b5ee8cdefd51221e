#include "fanin/builder/shaping/carrier_fill.hpp"

#include <gtest/gtest.h>

namespace fanin::builder::shaping {
namespace {

TEST(CarrierFill, a_block_gets_what_its_carrier_has_left) {
  CarrierFill fill{4096};
  auto limits = fill.limits(10, 100);
  EXPECT_EQ(limits.entries, 10U);
  EXPECT_EQ(limits.payload, 4096 - 64 - 80U);
  EXPECT_FALSE(fill.add(1000));
  limits = fill.limits(10, 100);
  EXPECT_EQ(limits.payload, 3096 - 64 - 80U);
  fill.begin();
  EXPECT_EQ(fill.limits(10, 100).payload, 4096 - 64 - 80U);
}

TEST(CarrierFill, a_fragment_that_does_not_fit_is_cut_so_that_the_carrier_is_full) {
  CarrierFill fill{4096};
  EXPECT_FALSE(fill.add(3000));
  const auto limits = fill.limits(10, 5000);
  EXPECT_EQ(limits.entries, 1U);
  EXPECT_EQ(limits.payload, 1096 - 72U);
  EXPECT_TRUE(fill.add(1096));
  EXPECT_EQ(fill.limits(1, 0).payload, 4096 - 72U); // of the next one
}

TEST(CarrierFill, a_table_takes_half_of_the_rest_at_most) {
  CarrierFill fill{4096};
  EXPECT_FALSE(fill.add(3584));
  const auto limits = fill.limits(1000, 8);
  EXPECT_EQ(limits.entries, (256 - 64) / 8U);
  EXPECT_EQ(limits.payload, 256U);
}

TEST(CarrierFill, a_rest_not_worth_a_message_is_left) {
  CarrierFill fill{4096};
  EXPECT_FALSE(fill.add(4096 - CarrierFill::rest_least));
  EXPECT_TRUE(fill.add(1));
}

} // namespace
} // namespace fanin::builder::shaping
