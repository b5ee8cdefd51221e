#include "fanin/net/socket_listeners.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace fanin::net {
namespace {

using namespace std::chrono_literals;

class SocketListenersTest : public testing::Test {
protected:
  using Listener = SocketListeners::Listener;

  // Something that epoll can watch stands for a socket.
  ListenerId add(std::uint16_t port) {
    Descriptor descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    const auto id = listeners.add({.max_message = port}, {.scheme = "tcp", .port = port},
                                  std::move(descriptor), epoll.get());
    EXPECT_TRUE(id) << id.error().text;
    return id.value();
  }
  // How often each is asked in one round, by port.
  std::vector<std::uint16_t> accepted(int waiting_each) {
    std::vector<std::uint16_t> ports;
    int left = waiting_each;
    listeners.accept([&](Listener& listener) {
      if (left-- == 0) {
        left = waiting_each;
        return false;
      }
      ports.push_back(listener.url.port);
      return true;
    });
    return ports;
  }

  VirtualClock clock;
  Loop loop{clock};
  Descriptor epoll{epoll_create1(EPOLL_CLOEXEC)};
  std::vector<std::string> reports;
  CloseAccounts accounts{
      [this](CloseReason, std::string_view text) { reports.emplace_back(text); }};
  SocketListeners listeners{loop, 100ms, accounts};
};

TEST_F(SocketListenersTest, a_listener_that_was_reported_twice_is_asked_once) {
  const ListenerId one = add(1);
  const ListenerId two = add(2);
  listeners.mark_waiting(two);
  listeners.mark_waiting(one);
  listeners.mark_waiting(two);
  EXPECT_EQ(accepted(1), (std::vector<std::uint16_t>{2, 1}));
  EXPECT_FALSE(listeners.any_waiting());
  EXPECT_TRUE(accepted(1).empty());
}

TEST_F(SocketListenersTest, one_with_a_long_queue_lets_others_have_their_turn) {
  const ListenerId one = add(1);
  const ListenerId two = add(2);
  listeners.mark_waiting(one);
  listeners.mark_waiting(two);
  const auto ports = accepted(1000);
  EXPECT_EQ(ports.size(), 128U);
  EXPECT_EQ(ports.front(), 1U);
  EXPECT_EQ(ports.back(), 2U);
  EXPECT_TRUE(listeners.any_waiting());
}

TEST_F(SocketListenersTest, a_listener_that_is_closed_is_asked_no_more) {
  const ListenerId one = add(1);
  listeners.mark_waiting(one);
  EXPECT_EQ(listeners.url(one).port, 1U);
  EXPECT_TRUE(listeners.close(one));
  EXPECT_FALSE(listeners.close(one));
  listeners.mark_waiting(one);
  EXPECT_TRUE(accepted(1).empty());
  EXPECT_TRUE(listeners.url(one).scheme.empty());
}

TEST_F(SocketListenersTest, without_descriptors_accepting_goes_on_after_a_pause) {
  listeners.mark_waiting(add(1));
  listeners.accept([&](Listener& listener) { return listeners.may_go_on(listener, EMFILE); });
  EXPECT_EQ(accounts.accept_failures, 1U);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_NE(reports[0].find("ulimit -n"), std::string::npos) << reports[0];
  clock.advance(99ms);
  (void)loop.turn();
  EXPECT_FALSE(listeners.any_waiting());
  clock.advance(1ms);
  (void)loop.turn();
  EXPECT_TRUE(listeners.any_waiting());
}

TEST_F(SocketListenersTest, a_connection_that_was_given_up_does_not_stop_the_next) {
  listeners.mark_waiting(add(1));
  std::vector<int> errors{EAGAIN, EHOSTUNREACH, ECONNABORTED};
  listeners.accept([&](Listener& listener) {
    const int error = errors.back();
    errors.pop_back();
    return listeners.may_go_on(listener, error);
  });
  EXPECT_TRUE(errors.empty());
  EXPECT_EQ(accounts.accept_failures, 0U);
  EXPECT_TRUE(reports.empty());
}

} // namespace
} // namespace fanin::net
