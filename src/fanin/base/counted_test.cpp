#include "fanin/base/counted.hpp"

#include <gtest/gtest.h>

namespace fanin {
namespace {

TEST(Counted, one_is_singular_and_none_and_many_are_plural) {
  EXPECT_EQ(counted(0, "readout unit"), "0 readout units");
  EXPECT_EQ(counted(1, "readout unit"), "1 readout unit");
  EXPECT_EQ(counted(2, "readout unit"), "2 readout units");
  EXPECT_EQ(counted(1, "batch", "batches"), "1 batch");
  EXPECT_EQ(counted(3, "batch", "batches"), "3 batches");
}

} // namespace
} // namespace fanin
