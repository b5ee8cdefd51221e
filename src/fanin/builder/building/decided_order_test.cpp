#include "fanin/builder/building/decided_order.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

Assembly batch_at(EventNumber first) {
  Assembly assembly;
  assembly.range = {first, first + 4};
  return assembly;
}

TEST(DecidedOrder, a_batch_waits_for_lower_ones) {
  DecidedOrder order;
  Assembly a = batch_at(0);
  Assembly b = batch_at(4);
  Assembly c = batch_at(16);
  for (const Assembly* one : {&a, &b, &c}) order.assigned(one->range.first);
  order.decided(c);
  EXPECT_EQ(order.next(), nullptr);
  order.decided(a);
  EXPECT_EQ(order.next(), &a);
  EXPECT_EQ(order.next(), nullptr);
  order.decided(b);
  EXPECT_EQ(order.next(), &b);
  EXPECT_EQ(order.next(), &c);
  EXPECT_EQ(order.next(), nullptr);
}

TEST(DecidedOrder, one_that_was_handed_back_keeps_its_place) {
  DecidedOrder order;
  Assembly a = batch_at(0);
  Assembly b = batch_at(4);
  order.assigned(0);
  order.assigned(4);
  order.decided(b); // and the first one is handed back
  EXPECT_EQ(order.next(), nullptr);
  order.assigned(0);
  order.decided(a);
  EXPECT_EQ(order.next(), &a);
  EXPECT_EQ(order.next(), &b);
  order.assigned(8);
  order.clear();
  EXPECT_EQ(order.next(), nullptr);
}

} // namespace
} // namespace fanin::builder
