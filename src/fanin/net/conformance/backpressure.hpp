/// \file
/// The part of the conformance suite about receivers without free memory, and senders that wait.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fanin/net/conformance/fixture.hpp"

namespace fanin::net::conformance {

TEST_P(TransportConformance, a_slow_reader_holds_the_sender_back_until_writable) {
  Peer slow({.receive_pages = 8});
  slow.keep = true;
  listen(slow);
  at_client = connect(client.options());
  ASSERT_TRUE(run_until([&] { return !client.opened.empty() && !slow.opened.empty(); }));
  std::uint64_t sent = 0;
  SendOutcome outcome = SendOutcome::accepted;
  const auto send_one = [&] {
    outcome = client.send(backend->client(), at_client, sent, page_size / 2);
    if (outcome == SendOutcome::accepted) ++sent;
    return outcome == SendOutcome::accepted;
  };
  // The queues on the way, those of the kernel included, are finite.
  ASSERT_TRUE(run_until([&] {
    while (send_one()) {
    }
    run_until_idle();
    return client.send_pool->available() == 0 || !send_one();
  }));
  run_until_idle();
  // Where memory is shared, the reader holds memory of the sender.
  EXPECT_LE(slow.messages, backend->server().shares_memory() ? sent : 16U);
  client.writable.clear(); // earlier there was room; now there is none
  slow.keep = false;
  slow.kept.clear();
  EXPECT_TRUE(run_until([&] { return slow.messages == sent; }));
  if (outcome == SendOutcome::backpressure) {
    run_until_idle();
    EXPECT_EQ(send(client, backend->client(), at_client, sent, 1), SendOutcome::accepted);
    EXPECT_TRUE(run_until([&] { return slow.messages == sent + 1; }));
  }
  backend->client().close(at_client);
  EXPECT_TRUE(run_until([&] { return !slow.closed.empty(); }));
  EXPECT_TRUE(run_until([&] { return slow.pages_are_home(); }));
}

TEST_P(TransportConformance, an_empty_receive_pool_loses_nothing) {
  Peer poor({.receive_pages = 6});
  poor.keep = true;
  listen(poor);
  at_client = connect(client.options());
  ASSERT_TRUE(run_until([&] { return !client.opened.empty() && !poor.opened.empty(); }));
  const auto size = [](std::uint64_t number) {
    return static_cast<std::uint32_t>(number * 769 % (page_size / 2 + 1));
  };
  poor.sizes = size;
  std::uint64_t sent = 0;
  Random random(1);
  ASSERT_TRUE(run_until([&] {
    if (sent < 500 &&
        client.send(backend->client(), at_client, sent, size(sent)) == SendOutcome::accepted)
      ++sent;
    // Pages come home in any order, and only when everything stands still.
    if (random.chance(1, 20) && !poor.kept.empty()) {
      const auto at = static_cast<std::ptrdiff_t>(random.below(poor.kept.size()));
      poor.kept.erase(poor.kept.begin() + at);
    }
    return poor.messages == 500;
  }));
  poor.kept.clear();
  backend->client().close(at_client);
  EXPECT_TRUE(run_until([&] { return !poor.closed.empty(); }));
  EXPECT_TRUE(run_until([&] { return poor.pages_are_home(); }));
}

TEST_P(TransportConformance, a_connection_without_pages_does_not_hold_up_another) {
  Peer stuck({.receive_pages = 6});
  stuck.keep = true;
  listen(stuck);
  const ConnectionId first = connect(client.options());
  ASSERT_TRUE(run_until([&] { return !client.opened.empty() && !stuck.opened.empty(); }));
  for (std::uint64_t i = 0; i < 14; ++i) {
    EXPECT_EQ(send(client, backend->client(), first, i, page_size / 4 + 8), SendOutcome::accepted);
    run_until_idle();
  }
  for (std::uint64_t i = 14, number = 14; i < 20; ++i) {
    if (client.send(backend->client(), first, number, page_size / 2) == SendOutcome::accepted)
      ++number;
    run_until_idle();
  }
  listen(server);
  Peer other; // the reader of the first one may hold all its pages
  at_client = connect(other.options());
  ASSERT_TRUE(run_until([&] { return !other.opened.empty() && !server.opened.empty(); }));
  std::uint64_t sent = 0;
  EXPECT_TRUE(run_until([&] {
    if (sent < 50 && other.send(backend->client(), at_client, sent, 100) == SendOutcome::accepted)
      ++sent;
    run_until_idle();
    return server.messages >= 50;
  }));
  backend->client().close(at_client);
  stuck.kept.clear();
  stuck.keep = false;
  run_until_idle();
  backend->client().close(first, true);
  EXPECT_TRUE(run_until([&] { return !stuck.closed.empty(); }));
  EXPECT_TRUE(run_until([&] { return stuck.pages_are_home() && other.pages_are_home(); }));
}

/// Neither side reads until both senders got backpressure. Then both must be able to continue.
TEST_P(TransportConformance, sides_that_hold_each_other_back_go_on_when_both_take) {
  set_pools({.receive_pages = 8});
  open();
  server.keep = true;
  client.keep = true;
  std::uint64_t forth = 0;
  std::uint64_t back = 0;
  const auto pump = [&] {
    const std::uint64_t before = forth + back;
    while (client.send(backend->client(), at_client, forth, 5000) == SendOutcome::accepted) ++forth;
    while (server.send(backend->server(), at_server, back, 6000) == SendOutcome::accepted) ++back;
    return forth + back > before;
  };
  ASSERT_TRUE(run_until([&] {
    const bool some = pump();
    run_until_idle();
    return !some && !pump();
  }));
  EXPECT_GT(forth, 5U);
  EXPECT_GT(back, 5U);
  server.keep = false;
  client.keep = false;
  server.kept.clear();
  client.kept.clear();
  const std::uint64_t forth_least = forth + 500;
  const std::uint64_t back_least = back + 500;
  EXPECT_TRUE(run_until([&] {
    pump();
    return server.messages >= forth_least && client.messages >= back_least;
  }));
}

TEST_P(TransportConformance, a_sleeping_loop_is_woken_for_everything) {
  Loop* const loop = backend->sleeping_loop();
  if (loop == nullptr) GTEST_SKIP() << "not applicable: nothing sleeps here";
  Peer poor({.receive_pages = 6});
  poor.keep = true;
  listen(poor);
  at_client = connect(client.options());
  std::uint64_t sent = 0;
  // Timers release pages, and messages follow when there is room. A lost wake-up hangs here.
  const auto pump = [&] {
    while (sent < 300 &&
           client.send(backend->client(), at_client, sent, 6000) == SendOutcome::accepted)
      ++sent;
  };
  Timer returns([&] { poor.kept.clear(); });
  client.react = [&](Transport&, Event&) { pump(); };
  poor.react = [&](Transport&, Event& event) {
    if (!returns.active()) returns.start(*loop, loop->now() + std::chrono::microseconds(50));
    if (event.kind == EventKind::message && poor.messages == 300) loop->stop();
  };
  class Pump final : public Service {
  public:
    explicit Pump(std::function<void()> work) : work_(std::move(work)) {}
    bool poll() override {
      work_();
      return false;
    }

  private:
    std::function<void()> work_;
  } service(pump);
  loop->add(service);
  loop->run();
  loop->remove(service);
  EXPECT_EQ(poor.messages, 300U);
  returns.cancel();
  poor.kept.clear();
  backend->client().close(at_client);
  EXPECT_TRUE(run_until([&] { return !poor.closed.empty(); }));
  EXPECT_TRUE(run_until([&] { return poor.pages_are_home(); }));
}

} // namespace fanin::net::conformance
