#include "fanin/executive/signals.hpp"

#include <gtest/gtest.h>

namespace fanin::executive {
namespace {

TEST(StopRequests, each_signal_counts_where_a_user_sends_it) {
  StopRequests requests(SignalsFrom::anyone);
  for (const bool by_launcher : {false, true, false}) EXPECT_TRUE(requests.take(by_launcher));
}

TEST(StopRequests, a_child_obeys_only_its_launcher) {
  StopRequests requests(SignalsFrom::launcher);
  EXPECT_FALSE(requests.take(false));
  EXPECT_TRUE(requests.take(true));
  EXPECT_FALSE(requests.take(false));
  EXPECT_TRUE(requests.take(true));
}

TEST(StopRequests, the_first_signal_of_another_is_the_launchers_first) {
  StopRequests after(SignalsFrom::launcher_or_first);
  EXPECT_TRUE(after.take(false));
  EXPECT_FALSE(after.take(false));
  EXPECT_FALSE(after.take(true));
  EXPECT_TRUE(after.take(true)); // its second
  StopRequests before(SignalsFrom::launcher_or_first);
  EXPECT_TRUE(before.take(true));
  EXPECT_FALSE(before.take(false));
  EXPECT_TRUE(before.take(true));
}

} // namespace
} // namespace fanin::executive
