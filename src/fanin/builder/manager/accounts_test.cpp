#include "fanin/builder/manager/accounts.hpp"

#include <gtest/gtest.h>

#include "fanin/source/fragment_queue.hpp"

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
  void build(EventRange range, const std::vector<wire::MissingRange>& missing = {},
             const std::vector<wire::Gap>& gaps = {}) {
    Batch batch;
    batch.range = range;
    batch.missing = missing;
    batch.gaps = gaps;
    accounts_.built(batch, {.bytes = 10 * range.count()}, members_, Time{3s}, trigger_);
  }
  const RunSummary& end() { return summarise(true); }
  const RunSummary& summarise(bool ended, EventNumber first = 0) {
    return accounts_.summarise({first, announced_end_, ended, readouts_, builders_});
  }
  System system_ = two_readouts();
  SourceIndex sources_{system_};
  Trigger trigger_{system_};
  NodeList readouts_{2};
  NodeList builders_{1};
  std::vector<Incarnation> members_{0, 0};
  EventNumber announced_end_ = 0;
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

TEST_F(Ledger, has_what_was_built_for_each_slice_and_did_not_reach_it) {
  system_.batch_events = 64;
  system_.slices = {"slice 0 at tcp://a:1", "slice 1 at tcp://b:1"};
  Accounts accounts(system_, sources_);
  for (const NodeId node : {NodeId{0}, NodeId{1}}) accounts.readout_up(node);
  const auto built = [&](EventRange range, std::uint32_t undelivered) {
    Batch batch;
    batch.range = range;
    accounts.built(batch, {.undelivered = undelivered}, members_, Time{3s}, trigger_);
  };
  built({0, 64}, 0);
  built({64, 128}, 64);
  built({128, 138}, 3);
  built({192, 202}, 10);
  const RunSummary& summary = accounts.summarise({0, 0, true, readouts_, builders_});
  EXPECT_EQ(summary.events_undelivered, 77U);
  ASSERT_EQ(summary.slices.size(), 2U);
  EXPECT_EQ(summary.slices[0].name, "slice 0 at tcp://a:1");
  EXPECT_EQ(summary.slices[0].events, 74U);
  EXPECT_EQ(summary.slices[0].undelivered, 3U);
  EXPECT_EQ(summary.slices[1].events, 74U);
  EXPECT_EQ(summary.slices[1].undelivered, 74U);
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

// Else a builder unit that lies makes the numbers of a source look as if it had no end.
TEST_F(Ledger, no_source_lacks_more_fragments_than_there_are_events) {
  accounts_.read(0, 10);
  accounts_.read(1, 10);
  build({0, 10}, {{.source = 1, .count = 10, .first = 0, .reason = 1},
                  {.source = 1, .count = 10, .first = 0, .reason = 1}});
  readouts_.finish(0);
  readouts_.finish(1);
  EXPECT_EQ(end().sources[0].ledger.built, 0U);
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

TEST_F(Ledger, what_came_late_is_told_from_what_was_dropped) {
  wire::SourceCounters counters;
  counters.dropped[static_cast<std::size_t>(wire::DropReason::late)] = 3;
  counters.dropped[static_cast<std::size_t>(wire::DropReason::oversize)] = 2;
  EXPECT_TRUE(accounts_.count_dropped(0, {&counters, 1}));
  const SourceResult& result = end().sources[0];
  EXPECT_EQ(result.ledger.late, 3U);
  EXPECT_EQ(result.ledger.dropped, 2U);
  EXPECT_EQ(result.dropped[static_cast<std::size_t>(wire::DropReason::oversize)], 2U);
}

TEST_F(Ledger, nothing_is_lost_before_the_end) {
  accounts_.read(0, 5);
  readouts_.leave(0);
  EXPECT_EQ(summarise(false).sources[0].ledger.lost, 0U);
  EXPECT_FALSE(summarise(false).balanced);
  EXPECT_EQ(summarise(true).sources[0].ledger.lost, 5U);
  EXPECT_TRUE(summarise(true).balanced);
}

TEST_F(Ledger, an_earlier_incarnation_loses_what_it_read_though_the_last_one_finishes) {
  accounts_.read(0, 5);
  readouts_.leave(0);
  join(0);
  readouts_.finish(0);
  readouts_.finish(1);
  const RunSummary& summary = end();
  EXPECT_EQ(summary.sources[0].ledger.lost, 5U);
  EXPECT_TRUE(summary.balanced);
}

TEST_F(Ledger, what_an_incarnation_takes_back_was_never_read) {
  accounts_.read(0, 5);
  accounts_.take_back(0);
  EXPECT_EQ(end().sources[0].ledger.read, 0U);
}

TEST_F(Ledger, a_batch_counts_for_the_readout_units_that_took_part_in_it) {
  accounts_.read(0, 10);
  accounts_.read(1, 10);
  members_[0] = 0;
  build({0, 10}, {{.source = 1, .count = 10, .first = 0, .reason = 3},
                  {.source = 2, .count = 4, .first = 0, .reason = 2}});
  const RunSummary& summary = end();
  EXPECT_EQ(summary.sources[0].ledger.built, 0U);
  EXPECT_EQ(summary.sources[1].ledger.built, 6U);
  EXPECT_EQ(summary.sources[0].missing[3], 10U);
  EXPECT_EQ(summary.sources[1].missing[2], 4U);
}

// From a builder unit of another version, or one that lies.
TEST_F(Ledger, a_reason_that_does_not_exist_is_not_counted) {
  accounts_.read(0, 10);
  for (const std::size_t reason : {wire::missing_reasons, std::size_t{0xffff}})
    build({0, 1},
          {{.source = 1, .count = 1, .first = 0, .reason = static_cast<std::uint16_t>(reason)}});
  const RunSummary& summary = end();
  for (const SourceResult& source : summary.sources)
    EXPECT_EQ(source.missing, wire::MissingCounts{});
}

TEST_F(Ledger, an_event_with_several_bad_fragments_is_one_bad_event) {
  Batch batch;
  batch.range = {0, 10};
  batch.bad = {{.event = 5, .source = 1}, {.event = 7, .source = 1}, {.event = 5, .source = 2}};
  accounts_.built(batch, {.incomplete = 3}, members_, Time{3s}, trigger_);
  EXPECT_EQ(end().events_bad, 2U);
  EXPECT_EQ(end().events_incomplete, 3U);
}

TEST_F(Ledger, events_are_open_from_the_first_of_the_run_until_they_are_built_or_a_gap) {
  announced_end_ = 30;
  EXPECT_EQ(summarise(false, 10).open_events, 20U);
  EXPECT_EQ(summarise(false, 40).open_events, 0U);
  build({10, 20});
  accounts_.gap({20, 24});
  EXPECT_EQ(summarise(false, 10).open_events, 6U);
  build({24, 40}); // more than was known
  EXPECT_EQ(summarise(false, 10).open_events, 0U);
}

TEST_F(Ledger, lists_are_bounded_and_counts_are_not) {
  for (EventNumber at = 0; at < 2002; at += 2) {
    accounts_.gap({10'000 + at, 10'001 + at});
    build({at, at + 1}, {{.source = 1, .count = 1, .first = at, .reason = 1}});
  }
  accounts_.gap({10'001, 10'002}); // joins two
  accounts_.gap({10'003, 10'004});
  const RunSummary& summary = end();
  EXPECT_EQ(summary.gaps, 1003U);
  EXPECT_EQ(summary.gap_list.size(), 998U);
  EXPECT_EQ(summary.gap_list.front(), (EventRange{10'000, 10'005}));
  EXPECT_EQ(summary.gap_list.back(), (EventRange{11'998, 11'999}));
  EXPECT_EQ(summary.incomplete_list.size(), 1000U);
}

TEST_F(Ledger, a_super_fragment_that_lacks_a_member_is_built_and_its_event_is_listed) {
  accounts_.read(0, 10);
  accounts_.read(1, 10);
  build({0, 10}, {{.source = 2, .count = 3, .first = 4, .reason = 3, .within = 1, .member = 21}});
  const RunSummary& summary = end();
  EXPECT_EQ(summary.sources[1].ledger.built, 10U);
  EXPECT_EQ(summary.sources[1].missing[3], 0U);
  ASSERT_EQ(summary.incomplete_list.size(), 1U);
  EXPECT_EQ(summary.incomplete_list[0].source, 21U);
  EXPECT_EQ(summary.incomplete_list[0].events, (EventRange{4, 7}));
  EXPECT_EQ(summary.incomplete_list[0].reason, wire::MissingReason::lost);
}

TEST_F(Ledger,
       a_super_fragment_that_does_not_fit_is_dropped_whether_its_source_is_required_or_not) {
  accounts_.read(0, 20);
  accounts_.read(1, 20);
  build({0, 20}, {{.source = 1, .count = 3, .first = 4, .reason = 4, .within = 1, .member = 1},
                  {.source = 2, .count = 3, .first = 14, .reason = 4, .within = 1, .member = 2}});
  readouts_.finish(0);
  readouts_.finish(1);
  const RunSummary& summary = end();
  EXPECT_TRUE(summary.balanced);
  EXPECT_EQ(summary.fragments.read, 40U);
  EXPECT_EQ(summary.fragments.built, 34U);
  EXPECT_EQ(summary.fragments.dropped, 6U);
  for (const SourceResult& source : summary.sources) {
    EXPECT_EQ(source.missing[4], 3U);
    EXPECT_EQ(source.not_fitting, 3U);
    EXPECT_EQ(source.dropped_by_reason(),
              (std::map<std::string, std::uint64_t>{{"not_fitting", 3}}));
  }
  ASSERT_EQ(summary.incomplete_list.size(), 1U); // source 2 is not required
  EXPECT_EQ(summary.incomplete_list[0].source, 1U);
  EXPECT_EQ(summary.incomplete_list[0].events, (EventRange{4, 7}));
}

TEST_F(Ledger, of_a_readout_unit_that_died_what_did_not_fit_is_not_lost) {
  accounts_.read(0, 10);
  build({0, 8}, {{.source = 1, .count = 8, .first = 0, .reason = 4, .within = 1, .member = 1}});
  readouts_.leave(0);
  const SourceLedger& ledger = end().sources[0].ledger;
  EXPECT_EQ(ledger.dropped, 8U);
  EXPECT_EQ(ledger.lost, 2U);
}

// Of a source that is dead for hours: batches come in any order.
TEST_F(Ledger, what_batches_cut_is_one_range_of_incomplete_events) {
  const auto all = [](EventNumber at, std::uint16_t reason = 1) {
    return std::vector<wire::MissingRange>{
        {.source = 1, .count = 10, .first = at, .reason = reason}};
  };
  for (EventNumber at = 0; at < 100'000; at += 20) {
    build({at + 10, at + 20}, all(at + 10));
    build({at, at + 10}, all(at));
  }
  build({100'000, 100'010}, all(100'000, 2));
  const auto& list = end().incomplete_list;
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].events, (EventRange{0, 100'000}));
  EXPECT_EQ(list[1].events, (EventRange{100'000, 100'010}));
}

TEST_F(Ledger, latency_counts_every_event_and_only_with_a_trigger) {
  build({0, 1000});
  EXPECT_EQ(end().latency.count(), 0U);
  system_.trigger_rate_hz = 1000;
  trigger_.start(Time{1s});
  build({0, 1000});
  build({1000, 1001});
  EXPECT_EQ(end().latency.count(), 1001U);
}

TEST_F(Ledger, a_run_that_never_began_took_no_time) {
  Accounts accounts{system_, sources_};
  EXPECT_EQ(accounts.summarise({0, 0, true, readouts_, builders_}).duration, 0s);
}

TEST_F(Ledger, nodes_are_alive_while_they_are_here_or_have_finished) {
  readouts_.finish(0);
  readouts_.leave(1);
  Batch batch;
  batch.range = {0, 10};
  accounts_.built(batch, {}, members_, Time{3s}, trigger_);
  const auto& nodes = end().nodes;
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_TRUE(nodes[0].alive);
  EXPECT_FALSE(nodes[1].alive);
  EXPECT_TRUE(nodes[2].alive);
  EXPECT_EQ(nodes[2].role, "builder");
  EXPECT_EQ(nodes[2].events, 10U);
  EXPECT_EQ(nodes[0].events, 0U);
}

TEST_F(Ledger, a_gap_that_touches_only_the_next_one_is_joined_to_it) {
  accounts_.gap({100, 110});
  accounts_.gap({98, 100});
  accounts_.gap({110, 112});
  accounts_.gap({113, 114});
  EXPECT_EQ(end().gap_list, (std::vector<EventRange>{{98, 112}, {113, 114}}));
}

TEST_F(Ledger, gaps_that_lie_apart_are_listed_in_their_order) {
  accounts_.gap({100, 110});
  accounts_.gap({50, 60});
  accounts_.gap({60, 70}); // touches the one before it and not the one behind it
  EXPECT_EQ(end().gap_list, (std::vector<EventRange>{{50, 70}, {100, 110}}));
}

TEST_F(Ledger, gaps_that_touch_are_one_and_no_events) {
  accounts_.read(0, 13);
  accounts_.read(1, 13);
  accounts_.gap({100, 110});
  build({90, 106}, {}, {{95, 98}, {80, 85}}); // the last one was known before
  build({200, 202}, {}, {{200, 201}});
  accounts_.gap({98, 100});
  const RunSummary& summary = end();
  EXPECT_EQ(summary.gaps, 16U);
  EXPECT_EQ(summary.gap_list, (std::vector<EventRange>{{95, 110}, {200, 201}}));
  EXPECT_EQ(summary.events_built, 14U);
}

TEST_F(Ledger, each_file_of_a_builder_unit_is_named_once) {
  EXPECT_TRUE(accounts_.add_file(0, "a"));
  EXPECT_FALSE(accounts_.add_file(0, "a"));
  EXPECT_TRUE(accounts_.add_file(0, "b"));
  EXPECT_EQ(end().files, (std::vector<std::string>{"a", "b"}));
  accounts_.builder_up(0); // a new incarnation has other files, whatever they are called
  EXPECT_TRUE(accounts_.add_file(0, "a"));
}

TEST_F(Ledger, first_reason_of_a_failure_is_kept) {
  EXPECT_FALSE(accounts_.failed());
  accounts_.fail("disk");
  accounts_.fail("no builder unit");
  EXPECT_EQ(accounts_.error(), "disk");
}

} // namespace
} // namespace fanin::builder
