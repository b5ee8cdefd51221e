/// \file
/// The part of the conformance suite about orderly ends and deaths.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fanin/net/conformance/fixture.hpp"

namespace fanin::net::conformance {

TEST_P(TransportConformance, what_was_sent_before_an_orderly_close_arrives) {
  open();
  const std::uint64_t sent = fill(client, backend->client(), at_client, 3000);
  backend->client().close(at_client);
  backend->client().close(at_client); // a second call has no effect
  EXPECT_EQ(backend->client().send(at_client, {}), SendOutcome::closed);
  ASSERT_TRUE(run_until([&] { return !server.closed.empty(); }));
  EXPECT_EQ(server.messages, sent);
  EXPECT_EQ(server.closed, (std::vector{std::pair{at_server, CloseReason::peer_closed}}));
  EXPECT_TRUE(client.closed.empty());
  EXPECT_EQ(server.send(backend->server(), at_server, 0, 1), SendOutcome::closed);
}

TEST_P(TransportConformance, megabytes_that_were_accepted_arrive_after_close) {
  set_pools({.send_pages = 640});
  client.send_queue_bytes = 8U << 20;
  open();
  const std::uint64_t sent = fill(client, backend->client(), at_client, page_size / 2);
  backend->client().close(at_client);
  EXPECT_TRUE(run_until([&] { return backend->client().closing() == 0; }));
  EXPECT_EQ(backend->client().given_up(), 0U);
  (void)kill_client(); // what it has sent does not depend on its process
  ASSERT_TRUE(run_until([&] { return !server.closed.empty(); }));
  EXPECT_EQ(server.messages, sent);
  EXPECT_EQ(server.closed, (std::vector{std::pair{at_server, CloseReason::peer_closed}}));
}

/// In each linger_timeout the reader goes on until pages come back to the sender.
inline void TransportConformance::expect_all_after_close(std::uint32_t size,
                                                         std::uint32_t receive_page_size) {
  set_pools({.receive_pages = 16, .send_pages = 640, .receive_page_size = receive_page_size});
  client.send_queue_bytes = 4U << 20;
  server.keep = true;
  open();
  const std::uint64_t sent = fill_all_queues(client, backend->client(), at_client, size);
  backend->client().close(at_client);
  for (int period = 0; period < 4; ++period) {
    const std::uint32_t before = client.send_pool->available();
    ASSERT_TRUE(run_until([&] {
      if (client.send_pool->available() > before || server.messages == sent) return true;
      for (std::uint32_t i = receive_page_size / size; i > 0 && !server.kept.empty(); --i)
        server.kept.pop_front();
      return false;
    }));
    if (server.messages == sent) break;
    if (!backend->pass(std::chrono::seconds{5}))
      GTEST_SKIP() << "not applicable: its time cannot be moved";
    run_until_idle();
  }
  server.keep = false;
  server.kept.clear();
  ASSERT_TRUE(run_until([&] { return !server.closed.empty(); }));
  EXPECT_EQ(server.messages, sent);
  EXPECT_EQ(server.closed, (std::vector{std::pair{at_server, CloseReason::peer_closed}}));
  EXPECT_TRUE(run_until([&] { return backend->client().closing() == 0; }));
  EXPECT_EQ(backend->client().given_up(), 0U);
}

TEST_P(TransportConformance, a_slow_reader_gets_all_that_was_accepted_before_close) {
  expect_all_after_close(page_size / 2, page_size);
}

TEST_P(TransportConformance,
       a_slow_reader_gets_all_small_messages_that_were_accepted_before_close) {
  expect_all_after_close(200, 4096);
}

TEST_P(TransportConformance, a_close_reaches_a_peer_that_is_sending) {
  open();
  (void)fill(server, backend->server(), at_server, 3000);
  const std::uint64_t sent = fill(client, backend->client(), at_client, 3000);
  const std::uint64_t received = client.messages;
  backend->client().close(at_client);
  ASSERT_TRUE(run_until([&] {
    (void)server.send(backend->server(), at_server, 0, 3000);
    return !server.closed.empty();
  }));
  EXPECT_EQ(server.messages, sent);
  EXPECT_EQ(server.closed.front().second, CloseReason::peer_closed);
  EXPECT_EQ(client.messages, received);
}

TEST_P(TransportConformance, both_sides_may_close_at_once_with_much_under_way) {
  open();
  (void)fill(server, backend->server(), at_server, 3000);
  (void)fill(client, backend->client(), at_client, 3000);
  backend->client().close(at_client);
  backend->server().close(at_server);
  run_until_idle();
  EXPECT_TRUE(client.closed.empty());
  EXPECT_TRUE(server.closed.empty());
}

TEST_P(TransportConformance, an_abort_is_a_death_to_the_peer) {
  open();
  send_all(0, 5, [](std::uint64_t) { return 100U; });
  backend->client().close(at_client, true);
  ASSERT_TRUE(run_until([&] { return !server.closed.empty(); }));
  EXPECT_EQ(server.closed, (std::vector{std::pair{at_server, CloseReason::peer_died}}));
  EXPECT_TRUE(client.closed.empty());
}

TEST_P(TransportConformance, the_death_of_a_process_is_noticed) {
  open();
  send_all(0, 20, [](std::uint64_t) { return 1000U; });
  ASSERT_TRUE(run_until([&] { return server.messages > 0; }));
  if (!kill_client()) GTEST_SKIP() << "not applicable: both sides are one process";
  ASSERT_TRUE(run_until([&] { return !server.closed.empty(); }));
  EXPECT_EQ(server.closed, (std::vector{std::pair{at_server, CloseReason::peer_died}}));
}

TEST_P(TransportConformance, what_a_dead_peer_has_not_taken_is_known) {
  set_pools({.receive_pages = 16, .send_pages = 64}); // more than the client can have received
  open();
  send_all(0, 5, [](std::uint64_t) { return 1000U; });
  ASSERT_TRUE(run_until([&] { return server.messages == 5; }));
  std::uint64_t sent = 0;
  while (server.send(backend->server(), at_server, sent, 3000) == SendOutcome::accepted) ++sent;
  EXPECT_EQ(backend->server().given_up(), 0U);
  if (!kill_client()) GTEST_SKIP() << "not applicable: both sides are one process";
  ASSERT_TRUE(run_until([&] { return !server.closed.empty(); }));
  if (sent > 16) { // otherwise all of it may lie in the receiver's pages
    EXPECT_EQ(backend->server().given_up(), 1U);
  }
}

/// The receiver closes, or dies, after the sender has closed with much under way.
inline void TransportConformance::expect_to_know_after_close(std::uint32_t size, bool dies) {
  if (dies && GetParam().leaks_at_death) GTEST_SKIP() << "not applicable: its library leaks then";
  set_pools({.receive_pages = 16, .send_pages = 640, .receive_page_size = 4096});
  client.keep = true;
  open();
  const std::uint64_t sent = fill_all_queues(server, backend->server(), at_server, size);
  backend->server().close(at_server);
  run_until_idle();
  if (!dies) {
    backend->client().close(at_client);
  } else if (!kill_client()) {
    GTEST_SKIP() << "not applicable: both sides are one process";
  }
  ASSERT_TRUE(run_until([&] { return backend->server().closing() == 0; }));
  run_until_idle();
  EXPECT_EQ(backend->server().given_up(), sent > client.messages ? 1U : 0U);
}

TEST_P(TransportConformance, what_a_dying_peer_has_not_taken_is_known_after_close) {
  expect_to_know_after_close(2048, true);
}

TEST_P(TransportConformance,
       what_a_dying_peer_has_not_taken_of_small_messages_is_known_after_close) {
  expect_to_know_after_close(200, true);
}

TEST_P(TransportConformance, what_a_peer_has_not_taken_when_both_close_is_known) {
  if (GetParam().holds_messages) GTEST_SKIP() << "not applicable: it holds what was taken";
  expect_to_know_after_close(2048, false);
}

TEST_P(TransportConformance, what_a_peer_has_not_taken_of_small_messages_when_both_close_is_known) {
  if (GetParam().holds_messages) GTEST_SKIP() << "not applicable: it holds what was taken";
  expect_to_know_after_close(200, false);
}

TEST_P(TransportConformance, what_a_peer_has_not_taken_when_it_closes_is_known) {
  if (GetParam().holds_messages) GTEST_SKIP() << "not applicable: it holds what was taken";
  open();
  server.react = [&](Transport& transport, Event& event) {
    if (event.kind == EventKind::message && server.messages == 3) transport.close(event.connection);
  };
  const std::uint64_t sent = fill(client, backend->client(), at_client, 3000);
  ASSERT_TRUE(run_until([&] { return !client.closed.empty(); }));
  run_until_idle();
  EXPECT_EQ(client.closed, (std::vector{std::pair{at_client, CloseReason::peer_closed}}));
  EXPECT_EQ(server.messages, 3U);
  ASSERT_GT(sent, 3U);
  EXPECT_EQ(backend->client().given_up(), 1U);
}

TEST_P(TransportConformance, a_peer_that_closes_when_it_has_taken_everything_is_not_given_up) {
  open();
  send_all(0, 40, [](std::uint64_t number) { return number % 2 == 0 ? 10U : 3000U; });
  ASSERT_TRUE(run_until([&] { return server.messages == 40; }));
  backend->server().close(at_server);
  ASSERT_TRUE(run_until([&] { return !client.closed.empty(); }));
  run_until_idle();
  EXPECT_EQ(backend->client().given_up(), 0U);
  EXPECT_EQ(backend->server().given_up(), 0U);
}

TEST_P(TransportConformance, a_dead_peer_that_had_taken_everything_is_not_given_up) {
  open();
  ASSERT_EQ(server.send(backend->server(), at_server, 0, 1000), SendOutcome::accepted);
  ASSERT_TRUE(run_until([&] { return client.messages == 1; }));
  run_until_idle();
  if (!kill_client()) GTEST_SKIP() << "not applicable: both sides are one process";
  ASSERT_TRUE(run_until([&] { return !server.closed.empty(); }));
  EXPECT_EQ(backend->server().given_up(), 0U);
}

TEST_P(TransportConformance, a_death_while_both_sides_send_is_noticed_and_leaves_nothing) {
  open();
  std::uint64_t forth = 0;
  std::uint64_t back = 0;
  // One at a time: until a transport knows of the death, it may accept what is lost.
  const auto send_back = [&] {
    if (server.send(backend->server(), at_server, back, 3000) == SendOutcome::accepted) ++back;
  };
  ASSERT_TRUE(run_until([&] {
    while (client.send(backend->client(), at_client, forth, 7000) == SendOutcome::accepted) ++forth;
    for (int i = 0; i < 8; ++i) send_back();
    return server.messages > 50 && client.messages > 50;
  }));
  if (!kill_client()) backend->client().close(at_client, true);
  ASSERT_TRUE(run_until([&] {
    send_back();
    return !server.closed.empty();
  }));
  EXPECT_EQ(server.closed, (std::vector{std::pair{at_server, CloseReason::peer_died}}));
  EXPECT_LE(server.messages, forth);
}

TEST_P(TransportConformance, no_event_follows_close_even_within_one_batch) {
  open();
  server.react = [&](Transport& transport, Event& event) {
    if (event.kind == EventKind::message) transport.close(event.connection);
  };
  send_all(0, 1, [](std::uint64_t) { return 10U; });
  for (std::uint64_t i = 1; i < 10; ++i) (void)client.send(backend->client(), at_client, i, 10);
  ASSERT_TRUE(run_until([&] { return !client.closed.empty(); }));
  run_until_idle();
  EXPECT_EQ(server.messages, 1U);
  EXPECT_TRUE(server.closed.empty());
}

TEST_P(TransportConformance, no_event_follows_close_within_the_batch_of_the_peers_end) {
  open();
  server.react = [&](Transport& transport, Event& event) {
    if (event.kind == EventKind::message) transport.close(event.connection);
  };
  std::uint64_t sent = 0;
  for (int i = 0; i < 10; ++i) {
    if (client.send(backend->client(), at_client, sent, 10) == SendOutcome::accepted) ++sent;
  }
  ASSERT_GT(sent, 1U);
  backend->client().close(at_client);
  ASSERT_TRUE(run_until([&] { return server.messages > 0; }));
  run_until_idle();
  EXPECT_EQ(server.messages, 1U);
  EXPECT_TRUE(server.closed.empty());
}

TEST_P(TransportConformance, a_handler_may_send_and_close_in_any_event) {
  server.react = [&](Transport& transport, Event& event) {
    const SendOutcome outcome = server.send(transport, event.connection, 0, 500);
    if (outcome == SendOutcome::backpressure) return; // again when it is `writable`
    EXPECT_EQ(outcome, SendOutcome::accepted);
    transport.close(event.connection);
  };
  open();
  ASSERT_TRUE(run_until([&] { return !client.closed.empty(); }));
  EXPECT_EQ(client.messages, 1U);
  EXPECT_EQ(client.closed.front().second, CloseReason::peer_closed);
}

} // namespace fanin::net::conformance
