#include "fanin/builder/control/silence_watch.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;

class Silence : public ::testing::Test {
protected:
  Silence() { watch_.begin(now_); }
  // Looks once in a period, until the peer is silent; gives how long that took, at most 10 s.
  Duration until_silent(bool welcome, std::uint64_t acknowledged) {
    const Time begin = now_;
    while (now_ - begin < 10s && !look(welcome, acknowledged)) {
    }
    return now_ - begin;
  }
  bool look(bool welcome, std::uint64_t acknowledged, bool nothing_sent = false) {
    now_ += watch_.period();
    return watch_.check(now_, welcome, acknowledged, nothing_sent);
  }
  SilenceWatch watch_{800ms};
  Time now_ = Time{} + 1h;
};

TEST_F(Silence, a_connection_that_answers_nothing_is_silent_after_the_patience) {
  EXPECT_EQ(watch_.period(), 100ms);
  EXPECT_EQ(until_silent(false, 0), 800ms);
  EXPECT_TRUE(look(false, 0)); // and stays so
}

TEST_F(Silence, the_welcome_and_each_acknowledgement_are_answers) {
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(look(false, 0));
  EXPECT_FALSE(look(true, 0));
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(look(true, 0));
  EXPECT_FALSE(look(true, 1));
  EXPECT_EQ(until_silent(true, 1), 800ms);
}

TEST_F(Silence, who_was_sent_nothing_owes_no_answer) {
  EXPECT_FALSE(look(true, 5));
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(look(true, 5, true));
  EXPECT_EQ(until_silent(true, 5), 800ms); // from when something was sent
}

TEST_F(Silence, pauses_of_the_owner_are_not_the_silence_of_the_peer) {
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(look(false, 0));
  now_ += 1h;
  EXPECT_FALSE(look(false, 0));
  EXPECT_TRUE(look(false, 0));
}

TEST_F(Silence, a_new_connection_has_its_own_patience) {
  EXPECT_FALSE(look(true, 5));
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(look(true, 5));
  now_ += 50ms;
  watch_.begin(now_);
  EXPECT_EQ(until_silent(false, 0), 800ms);
  now_ += 1h; // nobody looks while there is no connection
  watch_.begin(now_);
  EXPECT_EQ(until_silent(false, 0), 800ms);
}

} // namespace
} // namespace fanin::builder
