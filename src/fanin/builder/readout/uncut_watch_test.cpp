#include "fanin/builder/readout/uncut_watch.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;

constexpr Time uncut_begin{1s};

TEST(UncutWatch, asks_when_the_sources_were_held_up_long_enough_by_the_same_batch) {
  UncutWatch watch{10ms};
  EXPECT_FALSE(watch.due(true, 32, uncut_begin));
  EXPECT_TRUE(watch.watching());
  EXPECT_FALSE(watch.due(true, 32, uncut_begin + 9ms));
  EXPECT_TRUE(watch.due(true, 32, uncut_begin + 10ms));
  EXPECT_TRUE(watch.due(true, 32, uncut_begin + 11ms)); // there was no room to ask
}

TEST(UncutWatch, asks_again_after_the_same_time) {
  UncutWatch watch{10ms};
  EXPECT_FALSE(watch.due(true, 32, uncut_begin));
  EXPECT_TRUE(watch.due(true, 32, uncut_begin + 10ms));
  watch.asked(uncut_begin + 10ms);
  EXPECT_FALSE(watch.due(true, 32, uncut_begin + 19ms));
  EXPECT_TRUE(watch.due(true, 32, uncut_begin + 20ms));
}

TEST(UncutWatch, begins_anew_when_batches_were_cut) {
  UncutWatch watch{10ms};
  EXPECT_FALSE(watch.due(true, 32, uncut_begin));
  EXPECT_FALSE(watch.due(true, 48, uncut_begin + 10ms));
  EXPECT_FALSE(watch.due(true, 48, uncut_begin + 19ms));
  EXPECT_TRUE(watch.due(true, 48, uncut_begin + 20ms));
}

TEST(UncutWatch, begins_anew_when_the_sources_went_on) {
  UncutWatch watch{10ms};
  EXPECT_FALSE(watch.due(true, 32, uncut_begin));
  EXPECT_FALSE(watch.due(false, 32, uncut_begin + 5ms));
  EXPECT_FALSE(watch.watching());
  EXPECT_FALSE(watch.due(true, 32, uncut_begin + 10ms));
  EXPECT_TRUE(watch.due(true, 32, uncut_begin + 20ms));
  watch.reset();
  EXPECT_FALSE(watch.watching());
}

} // namespace
} // namespace fanin::builder
