#include "fanin/executive/node_pools.hpp"

#include <gtest/gtest.h>

namespace fanin::executive {
namespace {

constexpr memory::ArenaOptions arena{.huge_pages = memory::HugePages::off, .shared = true};

TEST(NodePools, are_as_planned) {
  const NodePlan plan{
      .control = {4096, 3}, .sources = {{8192, 2}, {16384, 1}}, .metadata = {4096, 5}};
  const auto pools = NodePools::make(plan, arena);
  ASSERT_TRUE(pools) << pools.error().text;
  EXPECT_EQ(pools->control->pages(), 3U);
  ASSERT_EQ(pools->sources.size(), 2U);
  EXPECT_EQ(pools->sources[0]->page_size(), 8192U);
  EXPECT_EQ(pools->sources[1]->page_size(), 16384U);
  EXPECT_EQ(pools->metadata->pages(), 5U);
  EXPECT_EQ(pools->receive, nullptr);
}

TEST(NodePools, share_what_is_sent_and_not_what_is_received) {
  const auto pools = NodePools::make({.control = {4096, 1}, .receive = {4096, 1}}, arena);
  ASSERT_TRUE(pools) << pools.error().text;
  EXPECT_GE(pools->control->arena()->descriptor(), 0);
  EXPECT_EQ(pools->receive->arena()->descriptor(), -1);
}

TEST(NodePools, know_whether_a_page_is_away) {
  const auto pools = NodePools::make({.control = {4096, 1}, .sources = {{4096, 2}}}, arena);
  ASSERT_TRUE(pools) << pools.error().text;
  EXPECT_TRUE(pools->all_home());
  {
    const auto loan = pools->sources[0]->take();
    EXPECT_FALSE(pools->all_home());
  }
  EXPECT_TRUE(pools->all_home());
}

} // namespace
} // namespace fanin::executive
