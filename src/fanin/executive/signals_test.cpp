#include "fanin/executive/signals.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <vector>

#include <gtest/gtest.h>

namespace fanin::executive {
namespace {

constexpr StopSignal launcher{.by_launcher = true};
constexpr StopSignal other{.sender = 7};
constexpr StopSignal hangup{.hangup = true};
constexpr Time start{std::chrono::hours{1}};
constexpr Time later = start + StopRequests::burst_window;

TEST(StopRequests, a_user_has_to_send_the_second_one_later) {
  StopRequests requests(SignalsFrom::anyone);
  EXPECT_TRUE(requests.take(other, start));
  EXPECT_FALSE(requests.take(other, start)) << "`timeout` sends two";
  EXPECT_FALSE(requests.take(other, later - Duration{1}));
  EXPECT_FALSE(requests.at_once());
  EXPECT_TRUE(requests.take(other, later));
  EXPECT_TRUE(requests.at_once());
  EXPECT_TRUE(requests.take(other, later));
}

TEST(StopRequests, a_closed_terminal_never_asks_for_an_end_at_once) {
  StopRequests requests(SignalsFrom::anyone);
  EXPECT_TRUE(requests.take(hangup, start));
  EXPECT_FALSE(requests.take(hangup, later));
  EXPECT_TRUE(requests.take(other, later));
}

TEST(StopRequests, a_child_obeys_only_its_launcher) {
  StopRequests requests(SignalsFrom::launcher);
  EXPECT_FALSE(requests.take(other, start));
  EXPECT_TRUE(requests.take(launcher, start));
  EXPECT_FALSE(requests.take(other, later));
  EXPECT_TRUE(requests.take(launcher, start)) << "it means each of its own";
}

TEST(StopRequests, the_first_signal_of_another_is_the_launchers_first) {
  StopRequests after(SignalsFrom::launcher_or_first);
  EXPECT_TRUE(after.take(other, start));
  EXPECT_FALSE(after.take(other, later));
  EXPECT_FALSE(after.take(launcher, later));
  EXPECT_TRUE(after.take(launcher, later));
  StopRequests before(SignalsFrom::launcher_or_first);
  EXPECT_TRUE(before.take(launcher, start));
  EXPECT_FALSE(before.take(other, later));
  EXPECT_TRUE(before.take(launcher, later));
}

TEST(Signals, of_what_launcher_and_others_send_at_once_each_request_arrives_in_one_turn) {
  std::signal(SIGHUP, SIG_DFL); // also under nohup
  const MonotonicClock clock;
  net::Loop loop(clock);
  std::vector<StopSignal> arrived;
  const auto signals = Signals::make(
      loop,
      {.on_signal = [&](const StopSignal& signal) { arrived.push_back(signal); }, .on_death = {}});
  ASSERT_TRUE(signals) << signals.error().text;
  for (const int number : {SIGTERM, SIGHUP}) kill(getpid(), number);
  ask_to_stop(getpid());
  ask_to_stop(getpid());
  loop.turn();
  EXPECT_EQ(arrived.size(), 4U);
  EXPECT_EQ(std::ranges::count(arrived, true, &StopSignal::by_launcher), 2);
  EXPECT_EQ(std::ranges::count(arrived, true, &StopSignal::hangup), 1);
  for (const StopSignal& signal : arrived) EXPECT_EQ(signal.sender, getpid());
}

} // namespace
} // namespace fanin::executive
