#include "fanin/base/log_limiter.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace fanin {
namespace {

TEST(LogLimiter, says_a_few_lines_a_second_and_counts_the_others_in_the_next) {
  std::vector<std::string> said;
  const LogFunction log = [&](LogLevel, std::string_view text) { said.emplace_back(text); };
  LogLimiter limiter;
  Time now = Time{} + std::chrono::hours{1};
  for (int i = 0; i < 100; ++i) limiter.write(log, now, LogLevel::warning, "refused");
  EXPECT_EQ(said, std::vector<std::string>(LogLimiter::lines_max, "refused"));
  said.clear();
  now += LogLimiter::period;
  for (int i = 0; i < 2; ++i) limiter.write(log, now, LogLevel::warning, "refused");
  EXPECT_EQ(said, (std::vector<std::string>{"refused (and 97 such lines were left out before)",
                                            "refused"}));
}

} // namespace
} // namespace fanin
