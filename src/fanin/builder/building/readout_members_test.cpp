#include "fanin/builder/building/readout_members.hpp"

#include <gtest/gtest.h>

#include <array>

namespace fanin::builder {
namespace {

using Incarnations = std::array<Incarnation, 2>;

TEST(ReadoutMembers, nobody_takes_part_before_the_first_word) {
  const ReadoutMembers members{2};
  EXPECT_EQ(members.size(), 2U);
  EXPECT_EQ(members.epoch(), 0U);
  EXPECT_EQ(members.incarnation(1), 0U);
}

TEST(ReadoutMembers, only_what_is_newer_and_of_as_many_readout_units_counts) {
  ReadoutMembers members{2};
  EXPECT_TRUE(members.update(3, Incarnations{1, 1}));
  EXPECT_FALSE(members.update(3, Incarnations{2, 2}));
  EXPECT_FALSE(members.update(2, Incarnations{2, 2}));
  EXPECT_FALSE(members.update(4, std::array<Incarnation, 1>{2}));
  EXPECT_EQ(members.epoch(), 3U);
  EXPECT_EQ(members.incarnation(0), 1U);
  EXPECT_TRUE(members.update(4, Incarnations{2, 0}));
  EXPECT_EQ(members.incarnation(0), 2U);
  EXPECT_EQ(members.incarnation(1), 0U);
}

TEST(ReadoutMembers, member_that_lives_gives_something) {
  ReadoutMembers members{2};
  ASSERT_TRUE(members.update(1, Incarnations{1, 1}));
  EXPECT_FALSE(members.gives_nothing(0, 1, 1));
  EXPECT_FALSE(members.gives_nothing(0, 1, 0)); // its connection may come back
  EXPECT_FALSE(members.gives_nothing(0, 5, 1));
}

TEST(ReadoutMembers, who_took_no_part_gives_nothing_even_if_its_connection_is_open) {
  ReadoutMembers members{2};
  ASSERT_TRUE(members.update(1, Incarnations{1, 0}));
  EXPECT_TRUE(members.gives_nothing(1, 1, 0));
  EXPECT_TRUE(members.gives_nothing(1, 1, 1));
}

TEST(ReadoutMembers, who_has_died_gives_what_is_left_on_its_connection) {
  ReadoutMembers members{2};
  ASSERT_TRUE(members.update(1, Incarnations{1, 1}));
  ASSERT_TRUE(members.update(2, Incarnations{1, 0}));
  EXPECT_FALSE(members.gives_nothing(1, 1, 1));
  EXPECT_TRUE(members.gives_nothing(1, 1, 0));
  EXPECT_FALSE(members.gives_nothing(0, 1, 1));
}

TEST(ReadoutMembers, who_came_back_gives_nothing_of_its_earlier_life_when_it_is_connected) {
  ReadoutMembers members{2};
  ASSERT_TRUE(members.update(1, Incarnations{1, 1}));
  ASSERT_TRUE(members.update(2, Incarnations{1, 2}));
  EXPECT_FALSE(members.gives_nothing(1, 1, 1)); // the old connection
  EXPECT_TRUE(members.gives_nothing(1, 1, 2));
}

TEST(ReadoutMembers, are_forgotten_with_the_incarnation_of_the_builder_unit) {
  ReadoutMembers members{1};
  ASSERT_TRUE(members.update(5, std::array<Incarnation, 1>{3}));
  members.clear();
  EXPECT_EQ(members.epoch(), 0U);
  EXPECT_EQ(members.incarnation(0), 0U);
  EXPECT_TRUE(members.update(1, std::array<Incarnation, 1>{1}));
}

} // namespace
} // namespace fanin::builder
