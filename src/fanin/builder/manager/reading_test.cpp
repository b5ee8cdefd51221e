#include "fanin/builder/manager/reading.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "fanin/builder/testing/kept_messages.hpp"
#include "fanin/builder/testing/make_system.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;

// Two readout units with a source each; the run can begin.
class ReadingTest : public ::testing::Test {
protected:
  struct Run {
    Run(System given, const Clock& clock) : system(std::move(given)), loop(clock) {
      for (const NodeId node : {NodeId{0}, NodeId{1}}) {
        static_cast<void>(readouts.join(node));
        accounts.readout_up(node);
        events.join(node);
        static_cast<void>(reading.join(node));
      }
      reading.start(loop.now());
    }
    // The last limit that a readout unit was told.
    std::optional<wire::Limit> limit(NodeId node) {
      const auto told = messages.take<wire::Limit>(readout_key(node));
      return told.empty() ? std::nullopt : std::optional{told.back()};
    }
    void add_builder() {
      const Time now = loop.now();
      static_cast<void>(builders.join(0));
      dispatcher.builder_up(0, 1U << 24);
      paths.builder_up(0, now);
      for (const NodeId node : {NodeId{0}, NodeId{1}}) {
        dispatcher.readout_up(node, 1U << 24, 1U << 20);
        paths.readout_up(node, readouts.incarnation(node), now);
        paths.report(0, node, readouts.incarnation(node), true, now);
      }
      dispatcher.publish_members();
    }
    void announce(NodeId node, EventNumber first, EventNumber end, bool nothing = false) {
      const wire::Announce message{.first = first,
                                   .end = end,
                                   .bytes = nothing ? 0U : 100U,
                                   .nothing = static_cast<std::uint8_t>(nothing)};
      wire::MessageReader reader{std::as_bytes(std::span{&message, 1})};
      EXPECT_TRUE(events.on_announce(node, reader, 0, {}));
    }

    System system;
    net::Loop loop;
    SourceIndex sources{system};
    Trigger trigger{system};
    RunPhase phase;
    NodeList readouts{2};
    NodeList builders{1};
    DataPaths paths{2, 1, 400ms};
    Accounts accounts{system, sources};
    testing::KeptMessages messages{2, 1};
    LogFunction log = [](LogLevel, std::string_view) {};
    KnownEvents events{{system, sources, trigger, phase, accounts, messages, log}, 500ms};
    Dispatcher dispatcher{{system, sources, trigger, readouts, builders, events.announcements(),
                           paths, accounts, messages}};
    Reading reading{{system, readouts, phase, trigger, events, dispatcher, messages, loop, log}};
  };

  VirtualClock clock_;
};

TEST_F(ReadingTest, without_a_trigger_readout_units_read_without_limit) {
  Run run(testing::make_system(2, 1), clock_);
  for (const NodeId node : {NodeId{0}, NodeId{1}}) {
    const auto limit = run.limit(node);
    ASSERT_TRUE(limit);
    EXPECT_EQ(limit->event, ~EventNumber{0});
  }
}

TEST_F(ReadingTest, with_a_number_of_events_the_run_ends_behind_the_first_one) {
  System system = testing::make_system(2, 1);
  system.events_max = 100;
  Run run(system, clock_);
  for (const NodeId node : {NodeId{0}, NodeId{1}}) run.announce(node, 7, 71);
  run.reading.update();
  EXPECT_EQ(run.limit(0)->event, 107U);
  for (const NodeId node : {NodeId{0}, NodeId{1}}) run.announce(node, 71, 107);
  run.reading.end_if_known();
  EXPECT_TRUE(run.phase.is(Phase::draining));
  EXPECT_EQ(run.limit(1)->event, 107U);
}

// Time stamps, as 48211 + 937 i.
TEST_F(ReadingTest, with_a_number_of_events_numbers_that_nobody_has_do_not_count) {
  System system = testing::make_system(2, 1);
  system.events_max = 100;
  Run run(system, clock_);
  run.add_builder();
  EventNumber end = 48211;
  EventNumber limit = end + 1; // what the readout units announce at first
  for (int turn = 0; !run.phase.is(Phase::draining); ++turn) {
    ASSERT_LT(turn, 1000);
    const EventNumber stop = std::min(limit, end + 5000);
    while (end < stop) {
      const EventNumber event = 48211 + (end - 48211 + 936) / 937 * 937;
      const EventNumber until = std::min(event == end ? event + 1 : event, stop);
      for (const NodeId node : {NodeId{0}, NodeId{1}}) run.announce(node, end, until, event != end);
      end = until;
    }
    run.reading.update();
    run.dispatcher.assign_batches(clock_.now());
    run.reading.end_if_known();
    if (const auto told = run.limit(0)) limit = told->event;
  }
  EXPECT_EQ(run.dispatcher.events_cut(), 100U);
  EXPECT_LE(end, 48211U + 100 * 937);
}

// A limit at the end of all numbers would be none.
TEST_F(ReadingTest, with_more_events_than_numbers_the_last_event_is_known_all_the_same) {
  System system = testing::make_system(2, 1);
  system.events_max = event_number_end - 1;
  Run run(system, clock_);
  for (const NodeId node : {NodeId{0}, NodeId{1}}) run.announce(node, 7, 71);
  run.reading.update();
  EXPECT_EQ(run.limit(0)->event, event_number_end - 1);
}

TEST_F(ReadingTest, what_was_triggered_is_told_to_those_that_read_and_later_to_the_others) {
  System system = testing::make_system(2, 1);
  system.trigger_rate_hz = 1000;
  Run run(system, clock_);
  run.messages.set_roomy(readout_key(1), false);
  clock_.advance(100ms);
  run.loop.turn();
  run.reading.update();
  const auto first = run.limit(0);
  ASSERT_TRUE(first);
  EXPECT_GT(first->event, 0U);
  EXPECT_FALSE(run.limit(1));
  run.messages.set_roomy(readout_key(1), true);
  run.reading.update();
  EXPECT_FALSE(run.limit(0));
  EXPECT_EQ(run.limit(1)->event, first->event);
}

TEST_F(ReadingTest, a_run_that_is_stopped_ends_where_the_furthest_readout_unit_is) {
  Run run(testing::make_system(2, 1), clock_);
  for (const NodeId node : {NodeId{0}, NodeId{1}}) run.announce(node, 0, 64);
  run.reading.update();
  run.reading.stop();
  EXPECT_TRUE(run.phase.is(Phase::pausing));
  for (const NodeId node : {NodeId{0}, NodeId{1}})
    EXPECT_EQ(run.messages.take<wire::Pause>(readout_key(node)).size(), 1U);
  EXPECT_TRUE(run.reading.on_paused(0, {.next_event = 70, .horizon = 70}));
  run.reading.end_if_known();
  EXPECT_TRUE(run.phase.is(Phase::pausing)); // one has not answered
  EXPECT_FALSE(run.reading.on_paused(1, {.next_event = 80, .horizon = 81}));
  EXPECT_FALSE(run.reading.on_paused(1, {.next_event = event_number_end + 1}));
  run.reading.end_if_known();
  EXPECT_TRUE(run.phase.is(Phase::pausing)); // and these are no answers
  EXPECT_TRUE(run.reading.on_paused(1, {.next_event = 80, .horizon = 80}));
  run.reading.end_if_known();
  EXPECT_TRUE(run.phase.is(Phase::draining));
  EXPECT_EQ(run.limit(0)->event, 80U);
}

// All of it may be left over from an earlier run, and who begins now may be anywhere below.
TEST_F(ReadingTest, a_run_that_is_stopped_with_few_fragments_and_no_event_reads_nothing_more) {
  for (const std::uint64_t few : {0U, 1U}) {
    Run run(testing::make_system(2, 1), clock_);
    run.reading.stop();
    EXPECT_TRUE(run.reading.on_paused(0, {.few = few}));
    EXPECT_TRUE(run.reading.on_paused(1, {.next_event = 5008, .horizon = 5008, .few = 1}));
    run.reading.end_if_known();
    const auto limit = run.limit(0);
    EXPECT_EQ(limit->event, 5008U);
    EXPECT_EQ(limit->read, few == 1 ? 0U : 5008U);
  }
}

TEST_F(ReadingTest, a_run_that_is_stopped_counts_from_its_first_event_though_that_unit_is_dead) {
  System system = testing::make_system(2, 1);
  system.events_max = 100;
  Run run(system, clock_);
  run.reading.stop();
  run.announce(0, 7, 7);
  run.announce(1, 50, 50);
  run.reading.update();
  run.events.leave(0);
  run.readouts.leave(0);
  EXPECT_TRUE(run.reading.on_paused(1, {.next_event = 500, .horizon = 500}));
  run.reading.end_if_known();
  EXPECT_EQ(run.limit(1)->event, 107U);
}

TEST_F(ReadingTest, a_run_that_is_stopped_before_its_first_event_is_known_goes_on_stopping) {
  System system = testing::make_system(2, 1);
  system.events_max = 100;
  Run run(system, clock_);
  run.reading.stop();
  (void)run.limit(0);
  for (const NodeId node : {NodeId{0}, NodeId{1}}) run.announce(node, 7, 7);
  run.reading.update();
  EXPECT_FALSE(run.limit(0)) << "it would read on";
  for (const NodeId node : {NodeId{0}, NodeId{1}})
    EXPECT_TRUE(run.reading.on_paused(node, {.next_event = 500, .horizon = 500}));
  run.reading.end_if_known();
  EXPECT_TRUE(run.phase.is(Phase::draining));
  EXPECT_EQ(run.limit(0)->event, 107U);
}

} // namespace
} // namespace fanin::builder
