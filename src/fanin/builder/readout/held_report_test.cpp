#include "fanin/builder/readout/held_report.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

class HeldReportTest : public ::testing::Test {
protected:
  // Tells what has to be told. False: nothing.
  bool tell(std::optional<EventNumber> lowest, bool ended = false) {
    const auto message = report_.next(lowest, ended);
    if (message) report_.reported(reported_ = *message);
    return message.has_value();
  }
  HeldReport report_{0};
  wire::Held reported_;
};

TEST_F(HeldReportTest, tells_nothing_while_no_number_is_held) {
  EXPECT_FALSE(tell({}));
  EXPECT_FALSE(tell({}, true));
}

TEST_F(HeldReportTest, tells_a_number_once) {
  EXPECT_TRUE(tell(70));
  EXPECT_EQ(reported_.event, 70U);
  EXPECT_EQ(reported_.count, 1U);
  EXPECT_EQ(reported_.ended, 0U);
  EXPECT_FALSE(tell(70));
}

TEST_F(HeldReportTest, tells_it_again_when_another_one_is_the_lowest_or_the_sources_have_ended) {
  EXPECT_TRUE(tell(70));
  EXPECT_TRUE(tell(60));
  EXPECT_EQ(reported_.event, 60U);
  EXPECT_TRUE(tell(60, true));
  EXPECT_EQ(reported_.ended, 1U);
  EXPECT_EQ(reported_.count, 3U);
  EXPECT_FALSE(tell(60, true));
}

TEST_F(HeldReportTest, takes_back_a_number_that_is_not_held_any_more) {
  EXPECT_TRUE(tell(70));
  EXPECT_TRUE(tell({}));
  EXPECT_EQ(reported_.event, event_number_end);
  EXPECT_EQ(reported_.count, 2U);
  EXPECT_FALSE(tell({}));
  EXPECT_TRUE(tell(70));
  EXPECT_EQ(reported_.count, 3U);
}

TEST_F(HeldReportTest, says_the_same_as_long_as_there_was_no_room_for_it) {
  EXPECT_TRUE(report_.next(70, false));
  EXPECT_TRUE(report_.next(70, false));
  EXPECT_TRUE(tell(70));
}

TEST_F(HeldReportTest, is_answered_when_the_last_message_is) {
  EXPECT_FALSE(report_.answered(70, false)); // not told
  EXPECT_TRUE(tell(70));
  EXPECT_TRUE(tell(60));
  EXPECT_FALSE(report_.answered(60, false));
  report_.on_answer({.held = 1});
  EXPECT_FALSE(report_.answered(60, false));
  report_.on_answer({.held = 2});
  EXPECT_TRUE(report_.answered(60, false));
  report_.on_answer({.held = 1}); // late
  EXPECT_TRUE(report_.answered(60, false));
  EXPECT_FALSE(report_.answered(60, true));
  EXPECT_FALSE(report_.answered(50, false));
}

TEST_F(HeldReportTest, is_answered_beyond_the_wrap_of_its_count) {
  HeldReport report{0U - 200U};
  for (EventNumber number = 0; number < 1000; ++number) {
    const auto message = report.next(number, false);
    ASSERT_TRUE(message);
    report.reported(*message);
    report.on_answer({.held = message->count - 1}); // late
    ASSERT_FALSE(report.answered(number, false)) << message->count;
    report.on_answer({.held = message->count});
    ASSERT_TRUE(report.answered(number, false)) << message->count;
  }
}

TEST_F(HeldReportTest, a_number_is_confirmed_only_by_the_answer_to_the_last_message) {
  EXPECT_TRUE(tell(70));
  EXPECT_FALSE(report_.confirmed_by({.held = 1}));
  EXPECT_TRUE(report_.confirmed_by({.held = 1, .equal = 1}));
  EXPECT_EQ(report_.number(), 70U);
  EXPECT_TRUE(tell(60));
  EXPECT_FALSE(report_.confirmed_by({.held = 1, .equal = 1}));
}

} // namespace
} // namespace fanin::builder
