#include "fanin/base/home.hpp"

#include <cstdlib>

#include <gtest/gtest.h>

namespace fanin {
namespace {

TEST(Home, stands_for_a_leading_tilde_alone) {
  ASSERT_EQ(::setenv("HOME", "/home/ana", 1), 0);
  EXPECT_EQ(expand_home("~/data/run"), "/home/ana/data/run");
  EXPECT_EQ(expand_home("~"), "/home/ana");
  for (const char* const path : {"", "/data", "data/~/x", "~bo/data", "./~"})
    EXPECT_EQ(expand_home(path), path);
  ASSERT_EQ(::unsetenv("HOME"), 0);
  EXPECT_EQ(expand_home("~/data"), "~/data");
}

} // namespace
} // namespace fanin
