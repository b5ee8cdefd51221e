#include "fanin/builder/manager/membership.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

TEST(NodeList, counts_who_is_present_and_numbers_incarnations) {
  NodeList nodes{2};
  EXPECT_TRUE(nodes.none_present());
  EXPECT_EQ(nodes.join(0), 1U);
  EXPECT_EQ(nodes.join(1), 1U);
  EXPECT_EQ(nodes.present_count(), 2U);
  nodes.leave(0);
  EXPECT_EQ(nodes.presence(0), Presence::away);
  EXPECT_EQ(nodes.join(0), 2U);
  EXPECT_EQ(nodes.incarnation(0), 2U);
  nodes.fail(0);
  EXPECT_EQ(nodes.present_count(), 1U);
  EXPECT_EQ(nodes.presence(0), Presence::failed);
  EXPECT_EQ(nodes.join(0), 3U);
}

TEST(NodeList, finished_is_finished_when_its_connection_ends) {
  NodeList nodes{1};
  nodes.join(0);
  nodes.finish(0);
  EXPECT_TRUE(nodes.none_present());
  nodes.leave(0);
  EXPECT_EQ(nodes.presence(0), Presence::finished);
}

TEST(Epochs, keeps_the_members_of_batches_that_are_not_built) {
  Epochs epochs;
  EXPECT_EQ(epochs.current(), 0U);
  EXPECT_EQ(epochs.begin({1, 1}), 1U);
  epochs.enter(1);
  epochs.enter(1);
  EXPECT_EQ(epochs.begin({1, 0}), 2U);
  epochs.enter(2);
  EXPECT_EQ(epochs.begin({1, 2}), 3U);
  EXPECT_EQ(epochs.members(1)[1], 1U);
  EXPECT_EQ(epochs.members(2)[1], 0U);
  epochs.leave(2);
  EXPECT_EQ(epochs.kept(), 3U); // the first one is needed
  epochs.leave(1);
  epochs.leave(1);
  EXPECT_EQ(epochs.kept(), 1U);
  EXPECT_EQ(epochs.members(3)[1], 2U);
}

} // namespace
} // namespace fanin::builder
