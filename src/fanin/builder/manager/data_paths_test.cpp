#include "fanin/builder/manager/data_paths.hpp"

#include <gtest/gtest.h>

#include <utility>

#include "fanin/base/random.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using Pairs = std::vector<std::pair<NodeId, NodeId>>;

class Paths : public ::testing::Test {
protected:
  // Three readout units and two builder units.
  Paths() {
    for (NodeId i = 0; i < 3; ++i) paths_.readout_up(i, 1, now_);
    for (NodeId i = 0; i < 2; ++i) paths_.builder_up(i, now_);
  }
  void open(NodeId builder, NodeId readout, Incarnation incarnation = 1) {
    EXPECT_TRUE(paths_.report(builder, readout, incarnation, true, now_));
  }
  void open_all() {
    for (NodeId b = 0; b < 2; ++b) {
      for (NodeId r = 0; r < 3; ++r) open(b, r);
    }
  }
  Pairs overdue() {
    Pairs pairs;
    paths_.for_each_overdue(now_, [&](NodeId builder, NodeId readout) {
      pairs.emplace_back(builder, readout);
      return true;
    });
    return pairs;
  }
  Time now_{10s};
  DataPaths paths_{3, 2, 100ms};
};

TEST_F(Paths, builder_unit_is_reached_when_all_readout_units_reach_it) {
  open(0, 0);
  open(0, 1);
  EXPECT_FALSE(paths_.reached(0));
  open(0, 2);
  EXPECT_TRUE(paths_.reached(0));
  EXPECT_FALSE(paths_.reached(1));
  paths_.builder_down(0);
  EXPECT_FALSE(paths_.reached(0));
  paths_.builder_up(0, now_);
  EXPECT_FALSE(paths_.reached(0));
}

TEST_F(Paths, readout_unit_that_is_gone_is_not_waited_for_and_a_new_one_is) {
  open(0, 0);
  open(0, 1);
  paths_.readout_down(2);
  EXPECT_TRUE(paths_.reached(0));
  paths_.readout_up(2, 2, now_);
  EXPECT_FALSE(paths_.reached(0));
  EXPECT_FALSE(paths_.report(0, 2, 1, true, now_)); // of the incarnation before
  EXPECT_FALSE(paths_.reached(0));
  open(0, 2, 2);
  EXPECT_TRUE(paths_.reached(0));
}

TEST_F(Paths, broken_paths_are_tried_again_each_time_later) {
  open_all();
  EXPECT_TRUE(paths_.report(1, 2, 1, false, now_));
  EXPECT_EQ(overdue(), Pairs{});
  now_ += 100ms;
  EXPECT_EQ(overdue(), (Pairs{{1, 2}}));
  now_ += 100ms;
  EXPECT_EQ(overdue(), Pairs{});
  now_ += 100ms;
  EXPECT_EQ(overdue(), (Pairs{{1, 2}}));
  open(1, 2);
  now_ += 10s;
  EXPECT_EQ(overdue(), Pairs{});
}

TEST_F(Paths, knows_since_when_nobody_is_reached_by_all) {
  EXPECT_TRUE(paths_.update(now_));
  EXPECT_EQ(paths_.unreached_since(), now_);
  const Time first = now_;
  now_ += 1s;
  open(0, 0);
  EXPECT_TRUE(paths_.update(now_));
  EXPECT_FALSE(paths_.update(now_));
  EXPECT_EQ(paths_.unreached_since(), first);
  open_all();
  EXPECT_TRUE(paths_.update(now_));
  EXPECT_EQ(paths_.unreached_since(), never);
}

TEST_F(Paths, no_builder_unit_is_nobody_s_fault) {
  paths_.builder_down(0);
  paths_.builder_down(1);
  EXPECT_TRUE(paths_.update(now_));
  EXPECT_EQ(paths_.unreached_since(), never);
}

TEST_F(Paths, who_blames_a_readout_unit_and_is_gone_blames_it_no_more) {
  paths_.failing(0, 2, now_);
  const Time first = now_;
  now_ += 1s;
  paths_.failing(1, 2, now_);
  paths_.failing(0, 2, now_);
  EXPECT_EQ(paths_.failing_since(2), first);
  paths_.builder_down(0);
  EXPECT_EQ(paths_.failing_since(2), now_);
  paths_.builder_up(0, now_ + 1s);
  paths_.builder_down(1);
  EXPECT_EQ(paths_.failing_since(2), never);
}

TEST_F(Paths, the_fewest_readout_units_are_in_the_way) {
  open(0, 0);
  open(1, 1);
  open(1, 2);
  (void)paths_.update(now_);
  EXPECT_EQ(paths_.smallest_set_to_drop(), std::vector<NodeId>{0});
  EXPECT_EQ(paths_.unreached_since(), never);
}

TEST_F(Paths, pauses_of_the_event_manager_count_for_nobody) {
  (void)paths_.update(now_);
  paths_.failing(0, 1, now_);
  const Time before = now_;
  now_ += 5s;
  paths_.pass_over(4s, now_);
  EXPECT_EQ(paths_.unreached_since(), before + 4s);
  EXPECT_EQ(paths_.failing_since(1), before + 4s);
  paths_.pass_over(10s, now_);
  EXPECT_EQ(paths_.unreached_since(), now_); // never in the future
  paths_.works(1);
  EXPECT_EQ(paths_.failing_since(1), never);
}

TEST_F(Paths, who_is_not_reached_by_a_builder_unit_that_is_silent_is_not_judged) {
  (void)paths_.update(now_);
  const Time before = now_;
  paths_.failing(0, 1, now_);
  paths_.failing(1, 2, now_);
  const auto check = [&] {
    now_ += 100ms;
    paths_.pass_over_silence(500ms, now_);
  };
  for (int i = 0; i < 10; ++i) {
    paths_.heard(0, now_);
    check();
  }
  EXPECT_EQ(paths_.unreached_since(), before); // one of them speaks
  EXPECT_EQ(paths_.failing_since(1), before);
  EXPECT_EQ(paths_.failing_since(2), now_);
  const Time last_heard = now_ - 100ms;
  for (int i = 0; i < 30; ++i) check();
  EXPECT_EQ(now_ - paths_.unreached_since(), last_heard - before);
  EXPECT_EQ(now_ - paths_.failing_since(1), last_heard - before);
  paths_.heard(1, now_);
  check();
  EXPECT_EQ(now_ - paths_.unreached_since(), last_heard - before + 100ms);
}

TEST(DataPaths, counts_as_looking_at_all_of_them_would) {
  Random random{7};
  DataPaths paths{4, 3, 1s};
  std::vector<bool> readouts(4);
  std::vector<bool> builders(3);
  std::vector<Incarnation> incarnations(4);
  std::vector<std::vector<Incarnation>> ways(3, std::vector<Incarnation>(4));
  for (int step = 0; step < 2000; ++step) {
    const auto r = static_cast<NodeId>(random.below(4));
    const auto b = static_cast<NodeId>(random.below(3));
    switch (random.below(4)) {
    case 0:
      if (readouts[r]) {
        paths.readout_down(r);
      } else {
        paths.readout_up(r, ++incarnations[r], Time{});
        for (auto& way : ways) way[r] = 0;
      }
      readouts[r] = !readouts[r];
      break;
    case 1:
      if (builders[b]) {
        paths.builder_down(b);
      } else {
        paths.builder_up(b, Time{});
        ways[b].assign(4, 0);
      }
      builders[b] = !builders[b];
      break;
    default:
      if (!builders[b]) break;
      const bool open = random.chance(2, 3);
      if (paths.report(b, r, incarnations[r], open, Time{}))
        ways[b][r] = open ? incarnations[r] : 0;
    }
    for (NodeId i = 0; i < 3; ++i) {
      bool reached = builders[i];
      for (NodeId j = 0; j < 4; ++j) {
        reached = reached && (!readouts[j] || ways[i][j] == incarnations[j]);
      }
      ASSERT_EQ(paths.reached(i), reached) << "step " << step;
    }
  }
}

} // namespace
} // namespace fanin::builder
