#include "fanin/net/connect_attempts.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <vector>

namespace fanin::net {
namespace {

using std::chrono::seconds;

class ConnectAttemptsTest : public ::testing::Test {
protected:
  ConnectAttemptsTest() {
    const Url url{.scheme = "tcp", .host = "127.0.0.1"};
    const auto addresses = resolve(url, true).value();
    listener_ = bind_and_listen(url, addresses).value();
    good_ = local_address(listener_.get());
    unknown_family_ = good_;
    unknown_family_.storage.ss_family = 999;
  }

  Descriptor listener_;
  Address good_;
  Address unknown_family_;
};

TEST_F(ConnectAttemptsTest, the_next_address_is_tried_where_one_cannot_be) {
  ConnectAttempts attempts(std::vector{unknown_family_, good_}, Time{} + seconds{1}, {});
  int watched = -1;
  const Descriptor socket = attempts.next([&](int which) {
    watched = which;
    return true;
  });
  ASSERT_TRUE(socket);
  EXPECT_EQ(watched, socket.get());
  EXPECT_FALSE(attempts.any_left());
  EXPECT_EQ(attempts.error(), EAFNOSUPPORT);
}

TEST_F(ConnectAttemptsTest, the_last_error_says_why_nobody_was_reached) {
  ConnectAttempts none({}, Time{}, {});
  EXPECT_FALSE(none.next([](int) { return true; }));
  EXPECT_EQ(none.error(), EHOSTUNREACH);
  ConnectAttempts unwatched(std::vector{good_}, Time{} + seconds{1}, {});
  EXPECT_FALSE(unwatched.next([](int) {
    errno = ENOSPC;
    return false;
  }));
  EXPECT_EQ(unwatched.error(), ENOSPC);
}

TEST_F(ConnectAttemptsTest, each_address_has_its_share_of_the_time_that_is_left) {
  const auto watch = [](int) { return true; };
  ConnectAttempts attempts(std::vector{good_, good_, good_}, Time{} + seconds{6}, {});
  ASSERT_TRUE(attempts.next(watch));
  EXPECT_EQ(attempts.share_ends(Time{}), Time{} + seconds{2});
  attempts.failed(ECONNREFUSED); // at once: more is left for the others
  ASSERT_TRUE(attempts.next(watch));
  EXPECT_EQ(attempts.share_ends(Time{}), Time{} + seconds{3});
  ASSERT_TRUE(attempts.next(watch));
  EXPECT_EQ(attempts.share_ends(Time{} + seconds{3}), attempts.until());
}

} // namespace
} // namespace fanin::net
