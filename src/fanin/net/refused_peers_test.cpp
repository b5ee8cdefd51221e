#include "fanin/net/refused_peers.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace fanin::net {
namespace {

TEST(RefusedPeers, who_connects_and_goes_is_no_warning_and_the_others_are_a_few) {
  VirtualClock clock;
  clock.advance(std::chrono::hours{1});
  Loop loop{clock};
  std::vector<LogLevel> lines;
  RefusedPeers refused{loop, [&](LogLevel level, std::string_view) { lines.push_back(level); }};
  const auto warns = [&](CloseReason reason) {
    clock.advance(LogLimiter::period);
    lines.clear();
    for (int i = 0; i < 100; ++i) refused(reason, "refused");
    if (lines.size() != LogLimiter::lines_max) {
      EXPECT_EQ(lines, std::vector(100, LogLevel::debug));
      return false;
    }
    EXPECT_EQ(lines, std::vector(LogLimiter::lines_max, LogLevel::warning));
    return true;
  };
  EXPECT_TRUE(warns(CloseReason::protocol_violation));
  EXPECT_TRUE(warns(CloseReason::version_mismatch));
  EXPECT_TRUE(warns(CloseReason::message_too_large));
  EXPECT_TRUE(warns(CloseReason::local));
  EXPECT_FALSE(warns(CloseReason::peer_closed));
  EXPECT_FALSE(warns(CloseReason::peer_died));
  EXPECT_FALSE(warns(CloseReason::connect_failed));
}

} // namespace
} // namespace fanin::net
