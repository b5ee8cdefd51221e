#include "fanin/builder/readout/rail_choice.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using Rails = std::vector<std::size_t>;

Time at(Duration time) { return Time{} + 1h + time; }

TEST(RailChoice, there_is_a_rail_for_each_lane_and_pairs_begin_at_different_ones) {
  EXPECT_EQ(RailChoice(2, 0, 5).choose(), (Rails{0, 1}));
  EXPECT_EQ(RailChoice(3, 4, 2).choose(), (Rails{1, 2}));
  EXPECT_EQ(RailChoice(3, 2, 1).choose(), (Rails{2}));
}

TEST(RailChoice, a_lost_rail_is_left_out) {
  RailChoice rails(3, 0, 2);
  rails.lost(0, at(0s));
  EXPECT_EQ(rails.choose(), (Rails{1, 2}));
  EXPECT_EQ(rails.next_try(), never); // there are as many as lanes
  rails.lost(2, at(0s));
  EXPECT_EQ(rails.choose(), (Rails{1}));
  EXPECT_EQ(rails.next_try(), at(1s));
}

TEST(RailChoice, where_all_are_lost_all_but_the_last_one_are_taken) {
  RailChoice rails(3, 0, 3);
  for (const std::size_t rail : {2U, 0U, 1U}) rails.lost(rail, at(0s)); // at the same time
  EXPECT_EQ(rails.choose(), (Rails{0, 2}));
  RailChoice one(1, 7, 3);
  one.lost(0, at(0s));
  EXPECT_EQ(one.choose(), (Rails{0}));
  EXPECT_EQ(one.next_try(), never);
}

TEST(RailChoice, of_two_rails_with_one_lane_each_takes_its_turn) {
  RailChoice rails(2, 0, 1);
  for (const std::size_t rail : {0U, 1U, 0U, 1U}) {
    EXPECT_EQ(rails.choose(), (Rails{rail}));
    rails.lost(rail, at(1s));
  }
}

TEST(RailChoice, a_lost_rail_is_tried_less_and_less_often) {
  RailChoice rails(2, 0, 2);
  rails.lost(1, at(0s));
  Time now = at(0s);
  for (const Duration wait : {1s, 2s, 4s, 8s, 16s, 32s, 60s, 60s}) {
    EXPECT_EQ(rails.next_try(), now + wait);
    EXPECT_EQ(rails.to_try(), 1U);
    now += wait;
    rails.tried(1, now);
  }
  rails.back(1, now);
  EXPECT_EQ(rails.choose(), (Rails{0, 1}));
  EXPECT_EQ(rails.next_try(), never);
}

TEST(RailChoice, a_rail_that_is_lost_again_soon_is_tried_later_and_one_that_held_as_at_first) {
  RailChoice rails(2, 0, 2);
  rails.lost(1, at(0s));
  rails.tried(1, at(1s));
  rails.back(1, at(1s));
  rails.lost(1, at(3s));
  EXPECT_EQ(rails.next_try(), at(3s) + 4s);
  rails.back(1, at(10s));
  rails.lost(1, at(100s));
  EXPECT_EQ(rails.next_try(), at(100s) + 1s);
}

} // namespace
} // namespace fanin::builder
