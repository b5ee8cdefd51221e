#include "fanin/settings/reader.hpp"

#include <gtest/gtest.h>

namespace fanin::settings {
namespace {

TEST(Nearest, finds_slips_of_the_finger_and_nothing_far_away) {
  const std::vector<std::string> known{"duration", "events", "number"};
  EXPECT_EQ(nearest("durtion", known), "duration");
  EXPECT_EQ(nearest("event", known), "events");
  EXPECT_EQ(nearest("zzz", known), "");
}

} // namespace
} // namespace fanin::settings
