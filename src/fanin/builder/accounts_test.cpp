#include "fanin/builder/accounts.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;

System two_readouts() {
  System system;
  system.readout_units = {"ru0", "ru1"};
  system.builder_units = {"bu0"};
  system.sources = {{1, "s1", 0, true}, {2, "s2", 1, false}};
  return system;
}

class Ledger : public ::testing::Test {
protected:
  Ledger() {
    for (NodeId node = 0; node < 2; ++node) join(node);
    builders_.join(0);
    accounts_.begin(Time{1s});
  }
  void join(NodeId node) {
    members_[node] = readouts_.join(node);
    accounts_.readout_up(node);
  }
  void build(EventRange range, const std::vector<wire::MissingRun>& missing = {},
             const std::vector<wire::Gap>& gaps = {}) {
    Batch batch;
    batch.range = range;
    batch.missing = missing;
    batch.gaps = gaps;
    accounts_.built(batch, {.bytes = 10 * range.count()}, members_, Time{3s}, trigger_);
  }
  const RunSummary& end() {
    return accounts_.summarise({0, known_end_, true, readouts_, builders_});
  }
  System system_ = two_readouts();
  SourceIndex sources_{system_};
  Trigger trigger_{system_};
  NodeList readouts_{2};
  NodeList builders_{1};
  std::vector<Incarnation> members_{0, 0};
  EventNumber known_end_ = 0;
  Accounts accounts_{system_, sources_};
};

TEST_F(Ledger, balances_when_everything_that_was_read_is_built) {
  accounts_.read(0, 20);
  accounts_.read(1, 20);
  accounts_.absent(1, 0, 5);
  build({0, 16}, {{.source = 2, .count = 5, .first = 3, .reason = 1}});
  build({16, 20});
  readouts_.finish(0);
  readouts_.finish(1);
  const RunSummary& summary = end();
  EXPECT_TRUE(summary.balanced);
  EXPECT_EQ(summary.events_built, 20U);
  EXPECT_EQ(summary.bytes_built, 200U);
  EXPECT_EQ(summary.sources[0].ledger.built, 20U);
  EXPECT_EQ(summary.sources[1].ledger.built, 15U);
  EXPECT_EQ(summary.duration, 2s);
  EXPECT_TRUE(summary.incomplete_list.empty()); // the source is not required
}

TEST_F(Ledger, what_a_readout_unit_that_died_had_read_is_lost) {
  accounts_.read(0, 30);
  accounts_.read(1, 30);
  build({0, 10});
  readouts_.leave(0);
  join(0);
  accounts_.read(0, 5);
  build({10, 15}, {{.source = 1, .count = 1, .first = 12, .reason = 1}});
  const RunSummary& summary = end();
  EXPECT_EQ(summary.sources[0].ledger.read, 35U);
  EXPECT_EQ(summary.sources[0].ledger.built, 14U);
  EXPECT_EQ(summary.sources[0].ledger.lost, 21U);
  EXPECT_EQ(summary.incomplete_list.size(), 1U);
  EXPECT_TRUE(summary.balanced);
}

TEST_F(Ledger, more_built_than_read_never_balances) {
  accounts_.read(0, 5);
  accounts_.read(1, 10);
  build({0, 10});
  readouts_.leave(0);
  EXPECT_FALSE(end().balanced);
}

TEST_F(Ledger, what_a_live_readout_unit_read_and_nobody_built_does_not_balance) {
  accounts_.read(0, 5);
  readouts_.finish(0);
  readouts_.finish(1);
  EXPECT_FALSE(end().balanced);
  accounts_.force();
  EXPECT_TRUE(end().balanced); // then it is lost
}

TEST_F(Ledger, dropped_fragments_are_read_and_not_built) {
  wire::SourceCounters counters;
  counters.dropped[0] = 3;
  EXPECT_TRUE(accounts_.count_dropped(0, {&counters, 1}));
  const std::vector<wire::SourceCounters> too_many(2);
  EXPECT_FALSE(accounts_.count_dropped(0, too_many));
  const SourceLedger& ledger = end().sources[0].ledger;
  EXPECT_EQ(ledger.read, 3U);
  EXPECT_EQ(ledger.late + ledger.dropped, 3U);
  EXPECT_TRUE(ledger.balanced());
}

TEST_F(Ledger, gaps_that_touch_are_one_and_no_events) {
  accounts_.read(0, 13);
  accounts_.read(1, 13);
  accounts_.gap({100, 110});
  build({90, 106}, {}, {{95, 98}, {80, 85}}); // the last one was known before
  accounts_.gap({98, 100});
  const RunSummary& summary = end();
  EXPECT_EQ(summary.gaps, 15U);
  EXPECT_EQ(summary.gap_list, (std::vector<EventRange>{{95, 110}}));
  EXPECT_EQ(summary.events_built, 13U);
}

TEST_F(Ledger, each_file_of_a_builder_unit_is_named_once) {
  EXPECT_EQ(accounts_.add_files(0, "a\nb\n").size(), 2U);
  EXPECT_EQ(accounts_.add_files(0, "b\nc\nhalf"), std::vector<std::string>{"c"});
  EXPECT_EQ(end().files, (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(Ledger, first_reason_of_a_failure_is_kept) {
  EXPECT_FALSE(accounts_.failed());
  accounts_.fail("disk");
  accounts_.fail("no builder unit");
  EXPECT_EQ(accounts_.error(), "disk");
}

} // namespace
} // namespace fanin::builder
