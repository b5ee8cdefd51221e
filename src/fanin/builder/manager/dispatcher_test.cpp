#include "fanin/builder/manager/dispatcher.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "fanin/builder/testing/kept_messages.hpp"
#include "fanin/builder/testing/make_system.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;

// Two readout units with a source each, and two builder units. All take part and reach each other.
class Dispatching : public ::testing::Test {
protected:
  explicit Dispatching(Protocol protocol = Protocol::push) {
    system_.protocol = protocol;
    for (const NodeId node : {NodeId{0}, NodeId{1}}) {
      const Incarnation incarnation = readouts_.join(node);
      accounts_.readout_up(node);
      announced_.join(node, {});
      dispatcher_.readout_up(node, 1U << 24, 1U << 20);
      paths_.readout_up(node, incarnation, now);
    }
    for (const NodeId node : {NodeId{0}, NodeId{1}}) {
      static_cast<void>(builders_.join(node));
      dispatcher_.builder_up(node, 1U << 24);
      paths_.builder_up(node, now);
      for (NodeId readout = 0; readout < 2; ++readout)
        paths_.report(node, readout, readouts_.incarnation(readout), true, now);
    }
    dispatcher_.publish_members();
  }
  // Both readout units announce these events.
  void announce(EventNumber first, EventNumber end) {
    for (const NodeId node : {NodeId{0}, NodeId{1}}) {
      EXPECT_TRUE(announced_.add(node, {.first = first, .end = end, .bytes = 100 * (end - first)},
                                 {}, 0, {}));
    }
    if (!announced_.begun()) announced_.begin_at_first();
  }
  std::vector<wire::Assign> assigned(NodeKey key) { return messages_.take<wire::Assign>(key); }

  static constexpr Time now{1s};
  static constexpr std::size_t ranges_max = 128;
  System system_ = testing::make_system(2, 2);
  SourceIndex sources_{system_};
  Trigger trigger_{system_};
  NodeList readouts_{2};
  NodeList builders_{2};
  Announcements announced_{system_, sources_, ranges_max};
  DataPaths paths_{2, 2, 400ms};
  Accounts accounts_{system_, sources_};
  testing::KeptMessages messages_{2, 2};
  Dispatcher dispatcher_{{system_, sources_, trigger_, readouts_, builders_, announced_, paths_,
                          accounts_, messages_}};
};

class DispatchingByPull : public Dispatching {
protected:
  DispatchingByPull() : Dispatching(Protocol::pull) {}
};

TEST_F(Dispatching, builder_units_are_told_who_takes_part) {
  for (const NodeId node : {NodeId{0}, NodeId{1}}) {
    const auto members = messages_.take<wire::Members>(builder_key(node));
    ASSERT_EQ(members.size(), 1U);
    EXPECT_EQ(members[0].epoch, 1U);
  }
  dispatcher_.publish_members(); // nothing has changed
  EXPECT_TRUE(messages_.take<wire::Members>(builder_key(0)).empty());
}

TEST_F(Dispatching, a_batch_is_assigned_to_one_builder_unit_and_all_readout_units_hear_of_it) {
  announce(0, 64);
  dispatcher_.assign_batches(now);
  const auto told = assigned(builder_key(0));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].range(), (EventRange{0, 64}));
  EXPECT_TRUE(assigned(builder_key(1)).empty());
  for (const NodeId node : {NodeId{0}, NodeId{1}})
    EXPECT_EQ(assigned(readout_key(node)).size(), 1U) << node;
}

TEST_F(Dispatching, events_are_counted_and_not_numbers_that_nobody_has) {
  EXPECT_EQ(dispatcher_.least_step(), 1U) << "not known yet";
  const auto next = [&](EventNumber gap_from, EventNumber event) {
    for (const NodeId node : {NodeId{0}, NodeId{1}}) {
      EXPECT_TRUE(announced_.add(node, {.first = gap_from, .end = event, .nothing = 1}, {}, 0, {}));
    }
    announce(event, event + 1);
    dispatcher_.assign_batches(now);
  };
  announce(100, 101);
  dispatcher_.assign_batches(now);
  next(101, 1037);
  EXPECT_EQ(dispatcher_.events_cut(), 2U);
  EXPECT_EQ(dispatcher_.least_step(), 937U);
  next(1038, 5000);
  EXPECT_EQ(dispatcher_.least_step(), 937U);
  announce(5001, 5003);
  dispatcher_.assign_batches(now);
  EXPECT_EQ(dispatcher_.events_cut(), 5U);
  EXPECT_EQ(dispatcher_.least_step(), 1U);
}

TEST_F(DispatchingByPull, readout_units_are_told_only_what_they_cannot_be_asked_for) {
  announce(0, 64);
  dispatcher_.assign_batches(now);
  EXPECT_TRUE(assigned(readout_key(0)).empty());
  dispatcher_.on_uncut(0, {.event = 0});
  EXPECT_EQ(assigned(readout_key(0)).size(), 1U);
  EXPECT_TRUE(assigned(readout_key(1)).empty());
}

TEST_F(Dispatching, nothing_is_assigned_while_a_readout_unit_does_not_read) {
  announce(0, 64);
  messages_.set_roomy(readout_key(1), false);
  dispatcher_.assign_batches(now);
  EXPECT_TRUE(dispatcher_.batches().empty());
  messages_.set_roomy(readout_key(1), true);
  dispatcher_.assign_batches(now);
  EXPECT_EQ(assigned(builder_key(0)).size(), 1U);
}

TEST_F(Dispatching, a_builder_unit_that_does_not_read_gets_nothing) {
  announce(0, 64);
  messages_.set_roomy(builder_key(0), false);
  dispatcher_.assign_batches(now);
  EXPECT_TRUE(assigned(builder_key(0)).empty());
  EXPECT_EQ(assigned(builder_key(1)).size(), 1U);
}

TEST_F(Dispatching, the_batches_of_a_builder_unit_that_dies_are_assigned_again) {
  announce(0, 64);
  dispatcher_.assign_batches(now);
  builders_.leave(0);
  paths_.builder_down(0);
  messages_.leave(builder_key(0));
  EXPECT_EQ(dispatcher_.builder_down(0), 64U);
  dispatcher_.assign_batches(now + std::chrono::seconds{5});
  const auto again = assigned(builder_key(1));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].range(), (EventRange{0, 64}));
  EXPECT_EQ(again[0].attempt, 1U);
  EXPECT_EQ(again[0].cut_unix_ns, now.time_since_epoch().count())
      << "its events are as old as before";
}

TEST_F(Dispatching, builder_units_hear_which_fragments_died_with_a_readout_unit) {
  announce(0, 64);
  dispatcher_.assign_batches(now);
  readouts_.leave(1);
  dispatcher_.readout_down(1);
  const auto lost = messages_.take<wire::Lost>(builder_key(0));
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].runs, 1U); // one range of one source
  EXPECT_TRUE(messages_.take<wire::Lost>(builder_key(1)).empty());
}

TEST_F(Dispatching, a_batch_that_was_handed_back_goes_to_another_builder_unit) {
  announce(0, 64);
  dispatcher_.assign_batches(now);
  std::optional<Dispatcher::Blame> blame;
  EXPECT_TRUE(dispatcher_.on_hand_back(0, {.first = 0, .readout_unit = 1, .blames = 1}, blame));
  ASSERT_TRUE(blame);
  EXPECT_EQ(blame->readout, 1U);
  dispatcher_.assign_batches(now);
  EXPECT_EQ(assigned(builder_key(1)).size(), 1U);
}

// Else one builder unit that stores nothing would make invalid what good readout units announce.
TEST_F(Dispatching, no_batch_is_assigned_while_too_many_absent_ranges_are_undecided) {
  EventNumber end = 0;
  const auto announce_batch = [&] { // in which source 1 is absent in 16 ranges
    for (const EventNumber until = end + 64; end < until; end += 4) {
      const wire::AbsentRange absent{1, 1, end};
      EXPECT_TRUE(announced_.add(0, {.first = end, .end = end + 4, .absent_ranges = 1},
                                 {&absent, 1}, dispatcher_.decided(), {}));
      EXPECT_TRUE(announced_.add(1, {.first = end, .end = end + 4}, {}, dispatcher_.decided(), {}));
    }
    if (!announced_.begun()) announced_.begin_at_first();
    dispatcher_.assign_batches(now);
  };
  const auto build = [&](EventNumber first) {
    const Batch* const batch = dispatcher_.batches().find(first);
    ASSERT_NE(batch, nullptr);
    const wire::Built message{.first = first, .events = 64};
    wire::MessageReader reader{std::as_bytes(std::span{&message, 1})};
    std::optional<Dispatcher::Decision> decision;
    EXPECT_TRUE(dispatcher_.on_built(batch->builder, reader, now, decision));
    dispatcher_.assign_batches(now);
  };
  for (int batch = 0; batch < 4; ++batch) announce_batch();
  EXPECT_EQ(announced_.assigned_end(), 128U);
  build(64);
  EXPECT_EQ(announced_.assigned_end(), 128U);
  build(0);
  EXPECT_EQ(announced_.assigned_end(), 256U); // no batch is waited for
}

// What builder unit 0 says of its batch of 64 events, which 2 sources have.
class BuiltMessages : public Dispatching {
protected:
  BuiltMessages() {
    announce(0, 64);
    dispatcher_.assign_batches(now);
  }
  // In a message that others follow.
  bool say(const std::vector<wire::MissingRange>& missing,
           const std::vector<wire::BadFragment>& bad, Attempt attempt = 0) {
    const wire::Built built{.first = 0,
                            .events = 64,
                            .attempt = attempt,
                            .more = 1,
                            .missing_ranges = static_cast<std::uint32_t>(missing.size()),
                            .bad = static_cast<std::uint32_t>(bad.size())};
    std::vector<std::byte> body;
    for (const auto part : {std::as_bytes(std::span{&built, 1}), std::as_bytes(std::span{missing}),
                            std::as_bytes(std::span{bad})}) {
      body.insert(body.end(), part.begin(), part.end());
    }
    wire::MessageReader reader{body};
    std::optional<Dispatcher::Decision> decision;
    return dispatcher_.on_built(0, reader, now, decision);
  }
};

TEST_F(BuiltMessages, no_more_fragments_are_missing_than_the_batch_has_in_however_many_messages) {
  EXPECT_TRUE(say({{.source = 1, .count = 64, .first = 0}}, {}));
  EXPECT_TRUE(say({{.source = 2, .count = 63, .first = 0}}, {}));
  EXPECT_FALSE(say({{.source = 2, .count = 2, .first = 0}}, {}));
}

TEST_F(BuiltMessages, no_more_fragments_are_damaged_than_the_batch_has_in_however_many_messages) {
  EXPECT_TRUE(say({}, std::vector<wire::BadFragment>(128, {.event = 63, .source = 2})));
  EXPECT_FALSE(say({}, {{.event = 63, .source = 2}}));
}

TEST_F(BuiltMessages, what_is_missing_or_damaged_is_of_the_batch_and_of_sources_that_there_are) {
  EXPECT_FALSE(say({{.source = 1, .count = 0, .first = 0}}, {}));
  EXPECT_FALSE(say({{.source = 1, .count = 2, .first = 63}}, {}));
  EXPECT_FALSE(say({{.source = 3, .count = 1, .first = 0}}, {}));
  EXPECT_FALSE(say({{.source = 1, .count = 1, .within = 1, .member = 1}}, {})); // merges nothing
  EXPECT_FALSE(say({{.source = 1, .count = 1, .within = 1, .member = 2}}, {}));
  EXPECT_FALSE(say({}, {{.event = 64, .source = 1}}));
  EXPECT_FALSE(say({}, {{.event = 0, .source = 3}}));
}

TEST_F(BuiltMessages, no_more_events_are_incomplete_rejected_or_undecided_than_the_batch_has) {
  for (const auto count : {&wire::Built::incomplete, &wire::Built::rejected,
                           &wire::Built::undecided, &wire::Built::undelivered}) {
    wire::Built built{.first = 0, .events = 64, .more = 1};
    for (const std::uint32_t events : {64U, 65U}) {
      built.*count = events;
      wire::MessageReader reader{std::as_bytes(std::span{&built, 1})};
      std::optional<Dispatcher::Decision> decision;
      EXPECT_EQ(dispatcher_.on_built(0, reader, now, decision), events == 64) << events;
    }
  }
}

TEST_F(BuiltMessages, of_a_batch_that_is_built_again_all_may_be_missing_again) {
  const std::vector<wire::MissingRange> all{{.source = 1, .count = 64, .first = 0},
                                            {.source = 2, .count = 64, .first = 0}};
  EXPECT_TRUE(say(all, {}));
  std::optional<Dispatcher::Blame> blame;
  EXPECT_TRUE(dispatcher_.on_hand_back(0, {.first = 0}, blame));
  messages_.set_roomy(builder_key(1), false); // builder unit 0 gets it again
  dispatcher_.assign_batches(now);
  EXPECT_TRUE(say(all, {}, 1));
}

} // namespace
} // namespace fanin::builder
