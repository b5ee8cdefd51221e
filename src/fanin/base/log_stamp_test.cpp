#include "fanin/base/log_stamp.hpp"

#include <cstdlib>

#include <gtest/gtest.h>

namespace fanin {
namespace {

TEST(LogStamp, has_a_date_from_the_first_midnight_on) {
  ASSERT_EQ(::setenv("TZ", "UTC", 1), 0);
  ::tzset();
  using namespace std::chrono_literals;
  const std::chrono::system_clock::time_point evening{1'795'910'399s + 7ms}; // 2026-11-28 23:59:59
  LogStamp stamp;
  EXPECT_EQ(stamp.text(evening), "23:59:59.007");
  EXPECT_EQ(stamp.text(evening + 993ms), "2026-11-29 00:00:00.000");
  EXPECT_EQ(stamp.text(evening + 48h), "2026-11-30 23:59:59.007");
  EXPECT_EQ(LogStamp{}.text(evening + 24h), "23:59:59.007")
      << "another log begins with its own day";
}

} // namespace
} // namespace fanin
