#include "fanin/net/refused_peers.hpp"

#include <gtest/gtest.h>

#include <string>
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

// Nodes that start together on a busy host come again, and then have their turn.
TEST(RefusedPeers, who_is_evicted_is_a_warning_only_if_that_goes_on) {
  VirtualClock clock;
  clock.advance(std::chrono::hours{1});
  Loop loop{clock};
  std::vector<std::string> warnings;
  RefusedPeers refused{loop, [&](LogLevel level, std::string_view text) {
                         if (level == LogLevel::warning) warnings.emplace_back(text);
                       }};
  const auto evict_for = [&](Duration time) {
    for (Duration passed{}; passed < time; passed += std::chrono::seconds{1}) {
      for (int i = 0; i < 100; ++i) refused(CloseReason::evicted, "tcp://a:1: left");
      clock.advance(std::chrono::seconds{1});
    }
  };
  evict_for(RefusedPeers::evictions_long);
  EXPECT_TRUE(warnings.empty());
  clock.advance(RefusedPeers::eviction_pause);
  evict_for(RefusedPeers::evictions_long);
  EXPECT_TRUE(warnings.empty()) << "it was over";
  evict_for(std::chrono::seconds{1});
  ASSERT_EQ(warnings.size(), 1U) << "and not 100";
  EXPECT_EQ(warnings.front(),
            "tcp://a:1: left; for 10 s peers have connected without a hello: another "
            "program connects here, or this host is overloaded");
  evict_for(RefusedPeers::evictions_long);
  EXPECT_EQ(warnings.size(), 2U);
}

} // namespace
} // namespace fanin::net
