#include "fanin/builder/manager/known_events.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "fanin/builder/testing/kept_messages.hpp"
#include "fanin/builder/testing/make_system.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;

// Two readout units with a source each, which take part in a run.
class Known : public ::testing::Test {
protected:
  Known() {
    for (const NodeId node : {NodeId{0}, NodeId{1}}) {
      accounts_.readout_up(node);
      events_.join(node);
    }
    phase_.run();
  }
  bool announce(NodeId node, EventNumber first, EventNumber end, bool silent = false) {
    const wire::Announce message{
        .first = first, .end = end, .bytes = 100, .silent = static_cast<std::uint8_t>(silent)};
    wire::MessageReader reader{std::as_bytes(std::span{&message, 1})};
    return events_.on_announce(node, reader, 0, {});
  }

  System system_ = testing::make_system(2, 1);
  SourceIndex sources_{system_};
  Trigger trigger_{system_};
  RunPhase phase_;
  Accounts accounts_{system_, sources_};
  testing::KeptMessages messages_{2, 1};
  std::vector<std::string> lines_;
  LogFunction log_ = [this](LogLevel, std::string_view text) { lines_.emplace_back(text); };
  KnownEvents events_{{system_, sources_, trigger_, phase_, accounts_, messages_, log_}, 500ms};
};

TEST_F(Known, a_number_that_is_held_is_answered_when_others_have_reached_it) {
  EXPECT_TRUE(announce(0, 0, 64));
  EXPECT_TRUE(announce(1, 0, 64));
  EXPECT_TRUE(events_.find_first_event());
  events_.on_held(0, {.event = 100, .count = 1});
  events_.answer_held();
  static_cast<void>(messages_.take<wire::Horizon>(readout_key(0))); // where others are now
  EXPECT_TRUE(announce(1, 64, 128));
  events_.answer_held();
  const auto answers = messages_.take<wire::Horizon>(readout_key(0));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].event, 128U);
  EXPECT_EQ(answers[0].held, 1U);
  EXPECT_TRUE(messages_.take<wire::Horizon>(readout_key(1)).empty());
}

TEST_F(Known, who_is_behind_hears_how_far_the_others_are) {
  EXPECT_TRUE(announce(0, 0, 64));
  EXPECT_TRUE(announce(1, 0, 64));
  EXPECT_TRUE(events_.find_first_event());
  EXPECT_TRUE(announce(1, 64, 128));
  events_.watch_laggards();
  messages_.set_roomy(readout_key(0), false);
  events_.watch_laggards();
  EXPECT_TRUE(messages_.take<wire::Horizon>(readout_key(0)).empty()); // it does not read
  messages_.set_roomy(readout_key(0), true);
  events_.watch_laggards();
  const auto told = messages_.take<wire::Horizon>(readout_key(0));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].event, 128U);
  EXPECT_TRUE(messages_.take<wire::Horizon>(readout_key(1)).empty());
}

TEST_F(Known, who_is_silent_hears_at_once_how_far_the_others_are) {
  EXPECT_TRUE(announce(0, 0, 64, true));
  EXPECT_TRUE(announce(1, 0, 64));
  EXPECT_TRUE(events_.find_first_event());
  EXPECT_TRUE(events_.any_silent());
  events_.send_horizon_to_silent();
  EXPECT_TRUE(messages_.take<wire::Horizon>(readout_key(0)).empty()) << "nobody is ahead";
  EXPECT_TRUE(announce(1, 64, 128));
  events_.send_horizon_to_silent();
  const auto told = messages_.take<wire::Horizon>(readout_key(0));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].event, 128U);
  EXPECT_TRUE(announce(0, 64, 128));
  EXPECT_FALSE(events_.any_silent());
  EXPECT_TRUE(announce(1, 128, 192));
  events_.send_horizon_to_silent();
  EXPECT_TRUE(messages_.take<wire::Horizon>(readout_key(0)).empty());
}

TEST_F(Known, numbers_may_fall_only_before_the_first_batch) {
  EXPECT_TRUE(announce(0, 1000, 1064));
  events_.on_reset_request(0, Time{});
  auto answers = messages_.take<wire::ResetReply>(readout_key(0));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].granted, 1U);
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_TRUE(announce(0, 0, 64));
  EXPECT_TRUE(announce(1, 0, 64));
  EXPECT_TRUE(events_.find_first_event());
  events_.on_reset_request(0, Time{});
  answers = messages_.take<wire::ResetReply>(readout_key(0));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].granted, 0U);
}

TEST_F(Known, numbers_do_not_fall_any_more_when_the_run_is_stopped) {
  EXPECT_TRUE(announce(0, 1000, 1064));
  phase_.pause();
  events_.on_reset_request(0, Time{});
  const auto answers = messages_.take<wire::ResetReply>(readout_key(0));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].granted, 0U);
}

TEST_F(Known, numbers_that_fall_again_and_again_are_said_a_few_times_in_a_second) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(announce(0, 1000, 1064));
    events_.on_reset_request(0, Time{});
  }
  EXPECT_EQ(lines_.size(), LogLimiter::lines_max);
}

TEST_F(Known, the_run_waits_for_readout_units_that_begin_too_far_from_each_other) {
  EXPECT_TRUE(announce(0, 0, 64));
  EXPECT_TRUE(announce(1, 2 * system_.event_window, 2 * system_.event_window + 64));
  EXPECT_FALSE(events_.find_first_event());
  EXPECT_FALSE(events_.find_first_event());
  EXPECT_NE(events_.apart(), "");
  EXPECT_EQ(lines_.size(), 1U);
}

TEST_F(Known, the_run_waits_for_the_deadline_for_a_readout_unit_that_begins_above_another_one) {
  EXPECT_TRUE(announce(0, 0, 64));
  EXPECT_TRUE(announce(1, 1000, 1002));
  events_.watch_beginning(1s);
  events_.watch_beginning(1s + system_.event_deadline - 1ms);
  EXPECT_FALSE(events_.find_first_event());
  events_.watch_beginning(1s + system_.event_deadline);
  EXPECT_TRUE(events_.find_first_event());
}

} // namespace
} // namespace fanin::builder
