#include "fanin/builder/manager/waiting_text.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fanin/builder/testing/kept_messages.hpp"
#include "fanin/builder/testing/make_system.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;

// Two readout units with a source each, and a builder unit. None of them has started.
class WaitingTextTest : public ::testing::Test {
protected:
  void start_readout(NodeId node) {
    const Incarnation incarnation = readouts_.join(node);
    readouts_.on_ready(node, {1});
    accounts_.readout_up(node);
    events_.join(node);
    dispatcher_.readout_up(node, 1U << 24, 1U << 20);
    paths_.readout_up(node, incarnation, now);
  }
  void start_builder() {
    static_cast<void>(builders_.join(0));
    dispatcher_.builder_up(0, 1U << 24);
    paths_.builder_up(0, now);
  }
  void reach(NodeId readout) {
    paths_.report(0, readout, readouts_.incarnation(readout), true, now);
  }
  // All are here and reach each other, and events are read.
  void run() {
    start_builder();
    for (const NodeId node : {NodeId{0}, NodeId{1}}) {
      start_readout(node);
      reach(node);
    }
    phase_.run();
  }
  void announce(NodeId node, EventNumber first, EventNumber end, bool final = false) {
    const wire::Announce message{.first = first,
                                 .end = end,
                                 .bytes = 100 * (end - first),
                                 .final = static_cast<std::uint8_t>(final ? 1 : 0)};
    wire::MessageReader reader{std::as_bytes(std::span{&message, 1})};
    EXPECT_TRUE(events_.on_announce(node, reader, 0, {}));
  }
  // A batch of 64 events, which are all that there are.
  void assign_the_only_batch() {
    for (const NodeId node : {NodeId{0}, NodeId{1}}) announce(node, 0, 64, true);
    EXPECT_TRUE(events_.find_first_event());
    dispatcher_.publish_members();
    dispatcher_.assign_batches(now);
  }
  std::string text() {
    return WaitingText{{system_, phase_, readouts_, builders_, paths_, events_, dispatcher_,
                        storage_waits_for_, held_}}
        .text();
  }

  static constexpr Time now{1s};
  bool held_ = false;
  System system_ = testing::make_system(2, 1);
  SourceIndex sources_{system_};
  Trigger trigger_{system_};
  RunPhase phase_;
  NodeList readouts_{2};
  NodeList builders_{1};
  Accounts accounts_{system_, sources_};
  DataPaths paths_{2, 1, 400ms};
  testing::KeptMessages messages_{2, 1};
  LogFunction log_ = [](LogLevel, std::string_view) {};
  KnownEvents events_{{system_, sources_, trigger_, phase_, accounts_, messages_, log_}, 500ms};
  Dispatcher dispatcher_{{system_, sources_, trigger_, readouts_, builders_,
                          events_.announcements(), paths_, accounts_, messages_}};
  std::vector<std::string> storage_waits_for_{""};
};

TEST_F(WaitingTextTest, names_nodes_that_have_not_started) {
  start_readout(0);
  EXPECT_EQ(text(), "readout unit 'ru1' to start; builder unit 'bu0' to start");
  start_builder();
  start_readout(1);
  EXPECT_EQ(text(), ""); // before the run begins nobody has to reach anybody
}

TEST_F(WaitingTextTest, names_readout_units_whose_sources_are_not_ready_and_what_they_say) {
  start_readout(0);
  start_readout(1);
  start_builder();
  readouts_.on_ready(1, {0});
  EXPECT_EQ(text(), "readout unit 'ru1' to be ready");
  events_.on_status(1, false, "source 0x2 to have a sender", {});
  EXPECT_EQ(text(), "readout unit 'ru1': source 0x2 to have a sender");
  readouts_.on_ready(1, {1});
  events_.on_status(1, false, "", {});
  EXPECT_EQ(text(), "");
}

TEST_F(WaitingTextTest, explains_why_a_run_by_number_cannot_do_without_a_builder_unit) {
  system_.assignment = AssignmentPolicy::by_number;
  start_readout(0);
  start_readout(1);
  EXPECT_EQ(text(), "builder unit 'bu0' to start, which alone builds its share of the events "
                    "(event.assignment = \"by-number\")");
}

TEST_F(WaitingTextTest, does_not_name_a_builder_unit_that_has_finished) {
  run();
  assign_the_only_batch();
  builders_.finish(0);
  EXPECT_EQ(text(), "");
}

TEST_F(WaitingTextTest, names_nodes_that_have_not_ended_when_all_is_built) {
  run();
  phase_.drain();
  phase_.finish();
  readouts_.finish(0);
  EXPECT_EQ(text(), "readout unit 'ru1' to end; builder unit 'bu0' to close its files");
  readouts_.finish(1);
  builders_.finish(0);
  EXPECT_EQ(text(), "");
}

TEST_F(WaitingTextTest, names_readout_units_without_the_next_event) {
  run();
  announce(0, 0, 64);
  EXPECT_EQ(text(), "readout unit 'ru1' to have event 0");
  announce(1, 0, 0, true); // it has come to its end
  EXPECT_EQ(text(), "");
}

TEST_F(WaitingTextTest, says_which_readout_units_begin_too_far_from_each_other) {
  run();
  const EventNumber far = 2 * system_.event_window;
  announce(0, 0, 64);
  announce(1, far, far + 64);
  EXPECT_FALSE(events_.find_first_event());
  EXPECT_EQ(text(), events_.apart());
}

TEST_F(WaitingTextTest, repeats_what_a_readout_unit_waits_for_at_its_sources) {
  run();
  for (const NodeId node : {NodeId{0}, NodeId{1}}) announce(node, 0, 64);
  events_.on_status(0, false, "source 'source1' to connect", {});
  EXPECT_EQ(text(), "readout unit 'ru0': source 'source1' to connect");
  readouts_.leave(0);
  EXPECT_EQ(text(), ""); // it has died: nobody waits for it
}

TEST_F(WaitingTextTest, a_held_run_waits_for_its_nodes_and_senders_and_then_for_its_start) {
  held_ = true;
  start_builder();
  start_readout(0);
  EXPECT_EQ(text(), "readout unit 'ru1' to start");
  readouts_.join(1); // it says that it is ready when the run is released
  EXPECT_EQ(text(), "its start");
  events_.on_status(1, false, "source 'source1' to have a sender", {});
  EXPECT_EQ(text(), "readout unit 'ru1': source 'source1' to have a sender");
}

TEST_F(WaitingTextTest, names_readout_units_that_do_not_reach_a_builder_unit) {
  start_builder();
  start_readout(0);
  start_readout(1);
  reach(0);
  phase_.run();
  for (const NodeId node : {NodeId{0}, NodeId{1}}) announce(node, 0, 64);
  EXPECT_EQ(text(), "readout unit 'ru1' to reach builder unit 'bu0'");
}

TEST_F(WaitingTextTest, says_what_the_oldest_batch_of_a_builder_unit_lacks) {
  run();
  assign_the_only_batch();
  const std::string use =
      fmt::format(" ({} of 16777216 bytes in use)", dispatcher_.capacity().reserved_by(0));
  EXPECT_EQ(text(), "builder unit 'bu0' to build event 0" + use);
  dispatcher_.on_received(0, {.first = 0});
  EXPECT_EQ(text(), "builder unit 'bu0' to store event 0" + use);
  storage_waits_for_[0] = "its disk is full";
  EXPECT_EQ(text(), "builder unit 'bu0': its disk is full" + use);
}

} // namespace
} // namespace fanin::builder
