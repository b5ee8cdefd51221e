#include "fanin/builder/manager/path_watch.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "fanin/builder/testing/kept_messages.hpp"
#include "fanin/builder/testing/make_system.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;

// Two readout units and one builder unit, which take part.
class PathWatchTest : public ::testing::Test {
protected:
  PathWatchTest() {
    for (const NodeId node : {NodeId{0}, NodeId{1}})
      paths_.readout_up(node, readouts_.join(node), begin);
    paths_.builder_up(0, begin);
    static_cast<void>(builders_.join(0));
    phase_.run();
  }
  bool reached(NodeId readout, bool yes, Time now) {
    return watch_.on_reached(0,
                             {.readout_unit = readout,
                              .yes = static_cast<std::uint16_t>(yes ? 1 : 0),
                              .incarnation = readouts_.incarnation(readout),
                              .connection = 7,
                              .lane = 1},
                             now);
  }
  // The builder unit is not silent meanwhile.
  void watch(Time now) {
    paths_.heard(0, now);
    static_cast<void>(paths_.update(now));
    watch_.watch(now);
  }

  static constexpr Time begin{1s};
  static constexpr Duration patience = 400ms;
  System system_ = testing::make_system(2, 1);
  RunPhase phase_;
  NodeList readouts_{2};
  NodeList builders_{1};
  DataPaths paths_{2, 1, patience};
  testing::KeptMessages messages_{2, 1};
  PathWatch watch_{{system_, phase_, readouts_, builders_, paths_, messages_}, 500ms};
};

TEST_F(PathWatchTest, a_readout_unit_is_told_which_of_its_lanes_has_ended) {
  EXPECT_TRUE(reached(0, true, begin));
  EXPECT_TRUE(messages_.take<wire::Reconnect>(readout_key(0)).empty());
  EXPECT_TRUE(reached(0, false, begin));
  const auto told = messages_.take<wire::Reconnect>(readout_key(0));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].builder, 0U);
  EXPECT_EQ(told[0].incarnation, builders_.incarnation(0));
  EXPECT_EQ(told[0].connection, 7U);
  EXPECT_EQ(told[0].lane, 1U);
  EXPECT_TRUE(messages_.take<wire::Reconnect>(readout_key(1)).empty());
}

TEST_F(PathWatchTest, a_readout_unit_that_does_not_exist_is_refused) {
  EXPECT_FALSE(watch_.on_reached(0, {.readout_unit = 2}, begin));
}

TEST_F(PathWatchTest, who_reaches_nobody_is_told_to_try_another_rail_as_soon_as_it_reads) {
  EXPECT_TRUE(reached(0, true, begin));
  messages_.set_roomy(readout_key(1), false);
  watch(begin + patience);
  EXPECT_TRUE(messages_.take<wire::Reconnect>(readout_key(1)).empty());
  messages_.set_roomy(readout_key(1), true);
  watch(begin + patience + 1ms);
  EXPECT_EQ(messages_.take<wire::Reconnect>(readout_key(1)).size(), 1U);
  EXPECT_TRUE(messages_.take<wire::Reconnect>(readout_key(0)).empty());
}

TEST_F(PathWatchTest, who_stands_in_the_way_of_the_run_is_dropped_and_barred) {
  EXPECT_TRUE(reached(0, true, begin));
  watch(begin);
  watch(begin + system_.dead_after);
  EXPECT_TRUE(messages_.dropped().empty());
  const Time late = begin + system_.dead_after + 1ms;
  watch(late);
  ASSERT_EQ(messages_.dropped().size(), 1U);
  EXPECT_EQ(messages_.dropped()[0].first, readout_key(1));
  EXPECT_TRUE(paths_.barred(1, late));
}

TEST_F(PathWatchTest, who_is_blamed_for_long_is_dropped) {
  watch_.on_blamed(0, 1, begin);
  EXPECT_TRUE(messages_.dropped().empty());
  watch_.on_blamed(0, 1, begin + 2 * system_.dead_after + 1ms);
  ASSERT_EQ(messages_.dropped().size(), 1U);
  EXPECT_EQ(messages_.dropped()[0].second, "no builder unit gets data from it");
}

} // namespace
} // namespace fanin::builder
