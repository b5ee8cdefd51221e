/// \file
/// The part of the conformance suite about difficult and hostile peers: both ends abort, many
/// senders need the last page, peers are disconnected before they are identified.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fanin/base/clock.hpp"
#include "fanin/net/conformance/fixture.hpp"

namespace fanin::net::conformance {

/// Takes all pages that are free and overwrites them.
inline void overwrite_free_pages(memory::PagePool& pool) {
  std::vector<memory::Loan> loans;
  while (memory::Loan loan = pool.take()) {
    std::memset(loan.data(), 0xee, loan.size());
    loans.push_back(std::move(loan));
  }
}

TEST_P(TransportConformance, what_is_still_read_after_both_ends_have_aborted_is_not_overwritten) {
  constexpr std::uint32_t size = 3000;
  open();
  for (Peer* const peer : {&server, &client}) peer->keep = true;
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(send(client, backend->client(), at_client, i, size), SendOutcome::accepted);
    EXPECT_EQ(send(server, backend->server(), at_server, i, size), SendOutcome::accepted);
  }
  ASSERT_TRUE(run_until([&] { return server.messages == 4 && client.messages == 4; }));
  backend->server().close(at_server, true);
  backend->client().close(at_client, true);
  run_until_idle();
  for (Peer* const peer : {&server, &client}) {
    overwrite_free_pages(*peer->send_pool);
    overwrite_free_pages(*peer->receive_pool);
  }
  for (Peer* const peer : {&server, &client}) {
    ASSERT_EQ(peer->kept.size(), 4U);
    for (std::uint64_t i = 0; i < 4; ++i) Peer::check_content(peer->kept[i].bytes(), i, 0);
  }
  EXPECT_TRUE(server.closed.empty() && client.closed.empty());
}

TEST_P(TransportConformance, a_view_of_no_page_may_stand_anywhere_in_a_message) {
  open();
  std::uint64_t number = 0;
  for (const std::uint32_t size : {40U, 1000U, 7000U}) {
    for (std::size_t at = 0; at < max_extents; ++at) {
      SendOutcome outcome = SendOutcome::backpressure;
      ASSERT_TRUE(run_until([&] {
        auto message = client.make_message(number, size, max_extents - 1);
        if (message.empty()) return false;
        message.insert(message.begin() + static_cast<std::ptrdiff_t>(at), memory::View{});
        outcome = backend->client().send(at_client, message);
        return outcome != SendOutcome::backpressure;
      }));
      EXPECT_EQ(outcome, SendOutcome::accepted);
      ++number;
    }
  }
  EXPECT_TRUE(run_until([&] { return server.messages == number; }));
}

/// Messages come in bursts. The reader releases a few of them only when nothing moves any more.
TEST_P(TransportConformance, senders_that_share_a_small_pool_all_get_their_part) {
  constexpr std::size_t senders = 16;
  constexpr std::uint64_t wanted = 32; // messages of each sender, on average
  set_pools({.receive_pages = 3 * senders + 4, .send_pages = 512});
  server.keep = true;
  client.send_queue_bytes = 32U << 10;
  listen(server);
  std::vector<ConnectionId> ids;
  for (std::size_t i = 0; i < senders; ++i) ids.push_back(connect(client.options()));
  ASSERT_TRUE(run_until([&] { return server.opened.size() == senders; }));
  ASSERT_TRUE(run_until([&] { return client.opened.size() == senders; }));
  std::vector<std::uint64_t> sent(senders, 0);
  Random random(random_seed());
  SCOPED_TRACE("seed " + std::to_string(random_seed()));
  std::size_t first = 0; // the senders share a pool
  const auto push = [&] { // as much as each connection accepts
    ++first;
    for (std::size_t at = 0; at < senders; ++at) {
      const std::size_t i = (first + at) % senders;
      for (std::uint64_t burst = random.below(16); burst > 0; --burst) {
        const auto size = static_cast<std::uint32_t>(100 + random.below(page_size / 2 - 100));
        if (client.send(backend->client(), ids[i], sent[i], size) != SendOutcome::accepted) break;
        ++sent[i];
      }
    }
  };
  std::uint64_t before = 0;
  ASSERT_TRUE(run_until([&] {
    for (int i = 0; i < 3 && server.messages == before && !server.kept.empty(); ++i)
      server.kept.pop_front();
    before = server.messages;
    push();
    return server.messages >= senders * wanted;
  })) << server.messages
      << " messages, " << server.kept.size() << " kept, " << server.receive_pool->available()
      << " pages free";
  ASSERT_EQ(server.next.size(), senders);
  for (const auto& [id, number] : server.next) EXPECT_GE(number, wanted / 4);
}

/// Senders always have more messages than the receiver takes at once, and pages for all of them.
inline void TransportConformance::expect_turns(std::size_t most, std::uint32_t size,
                                               std::uint64_t wanted, bool low_latency) {
  const std::size_t senders = std::min(most, possible_connections() - 2);
  set_pools({.receive_pages = static_cast<std::uint32_t>(3 * senders) + 8,
             .send_pages = 512,
             .receive_page_size = 4 * page_size,
             .send_page_size = 2 * page_size});
  client.send_queue_bytes = 256U << 10;
  ConnectionOptions options = server.options();
  options.low_latency = low_latency;
  options.max_message = std::max(size, 1024U); // if the network posts receives, many of them
  listen(options);
  std::vector<ConnectionId> ids;
  for (std::size_t i = 0; i < senders; ++i) ids.push_back(connect(client.options()));
  ASSERT_TRUE(run_until(
      [&] { return server.opened.size() == senders && client.opened.size() == senders; }));
  std::vector<std::uint64_t> sent(senders, 0);
  std::size_t first = 0; // the senders share a pool
  ASSERT_TRUE(run_until([&] {
    ++first;
    for (std::size_t at = 0; at < senders; ++at) {
      const std::size_t i = (first + at) % senders;
      for (int burst = 0; burst < 200; ++burst, ++sent[i]) {
        if (client.send(backend->client(), ids[i], sent[i], size) != SendOutcome::accepted) break;
      }
    }
    return server.messages >= senders * wanted;
  }));
  EXPECT_EQ(server.next.size(), senders);
  for (const auto& [id, number] : server.next) EXPECT_GE(number, wanted / 4);
}

TEST_P(TransportConformance, busy_senders_of_large_messages_all_get_their_turn) {
  expect_turns(24, 2 * page_size, 16, false);
}

TEST_P(TransportConformance, busy_senders_of_small_messages_all_get_their_turn) {
  expect_turns(8, 100, 1000, false);
}

TEST_P(TransportConformance,
       busy_senders_of_small_messages_that_are_waited_for_all_get_their_turn) {
  expect_turns(8, 100, 1000, true);
}

/// A listener closes connections whose peers send something wrong.
TEST_P(TransportConformance, connections_closed_before_they_are_identified_leave_nothing) {
  constexpr std::size_t count = 40;
  listen_to_anybody();
  server.react = [](Transport& transport, Event& event) { transport.close(event.connection); };
  for (std::size_t i = 0; i < count; ++i) {
    (void)connect(client.options());
    ASSERT_TRUE(run_until([&] { return client.closed.size() == i + 1; }));
  }
  EXPECT_TRUE(run_until([&] { return backend->server().closing() == 0; }));
  EXPECT_TRUE(server.closed.empty());
  EXPECT_EQ(client.died(), 0U);
}

/// A hello must not wait until others have released what they have received.
TEST_P(TransportConformance, a_hello_gets_through_while_the_receive_pool_is_empty) {
  if (!GetParam().small_without_pages) {
    GTEST_SKIP() << "not applicable: a message needs a receive that was posted before";
  }
  server.any_home = true;
  listen_to_anybody();
  std::vector<memory::Loan> all;
  while (memory::Loan loan = server.receive_pool->take()) all.push_back(std::move(loan));
  server.react = [](Transport& transport, Event& event) {
    if (event.kind == EventKind::message) transport.mark_identified(event.connection);
  };
  for (std::size_t i = 0; i < 40; ++i) {
    const ConnectionId id = connect(client.options());
    ASSERT_TRUE(run_until([&] { return client.opened.size() == i + 1; }));
    EXPECT_EQ(send(client, backend->client(), id, 0, 32), SendOutcome::accepted);
    ASSERT_TRUE(run_until([&] { return server.messages == i + 1; }));
  }
  // From then on pages are needed.
  const ConnectionId last = client.opened.back();
  EXPECT_EQ(send(client, backend->client(), last, 1, 100), SendOutcome::accepted);
  run_until_idle();
  EXPECT_EQ(server.messages, 40U);
  all.clear();
  EXPECT_TRUE(run_until([&] { return server.messages == 41; }));
}

/// Otherwise a peer that sends more before it is identified would take the memory for hellos of
/// others.
TEST_P(TransportConformance, what_follows_the_first_message_waits_for_trust) {
  if (!GetParam().small_without_pages) {
    GTEST_SKIP() << "not applicable: the messages of a peer lie in pages posted for it";
  }
  constexpr std::uint64_t count = 8;
  listen_to_anybody();
  server.any_home = true;
  server.keep = true;
  const ConnectionId hasty = connect(client.options());
  ASSERT_TRUE(run_until([&] { return client.opened.size() == 1; }));
  for (std::uint64_t i = 0; i < count; ++i)
    EXPECT_EQ(send(client, backend->client(), hasty, i, 100), SendOutcome::accepted);
  ASSERT_TRUE(run_until([&] { return server.messages > 0; }));
  run_until_idle();
  EXPECT_EQ(server.messages, 1U);
  backend->server().mark_identified(server.opened.front());
  ASSERT_TRUE(run_until([&] { return server.messages == count; }));
  for (std::uint64_t i = 1; i < count; ++i)
    EXPECT_EQ(server.kept[i].page.get()->home, server.receive_pool.get());
}

/// The peers connect and never identify themselves.
TEST_P(TransportConformance, silent_peers_take_nothing_that_others_need) {
  constexpr std::uint32_t pages = 32;
  constexpr std::uint64_t kept = 20; // messages of half a page
  PeerPools pools{.receive_pages = pages, .shared = GetParam().shared_pools};
  server.set_pools(pools);
  pools.receive_pages = 160;
  pools.send_pages = 2 * kept;
  client.set_pools(pools);
  server.any_home = true;
  server.keep = true;
  server.react = [](Transport& transport, Event& event) {
    if (event.kind == EventKind::message) transport.mark_identified(event.connection);
  };
  listen_to_anybody();
  const auto say_hello = [&](ConnectionId id) {
    const std::uint64_t before = server.messages;
    EXPECT_EQ(send(client, backend->client(), id, 0, 32), SendOutcome::accepted);
    return run_until([&] { return server.messages > before; });
  };
  const auto known = connect(client.options());
  ASSERT_TRUE(run_until([&] { return client.opened.size() == 1; }));
  ASSERT_TRUE(say_hello(known));
  std::vector<ConnectionId> silent(std::min<std::size_t>(40, possible_connections() - 2));
  for (ConnectionId& id : silent) id = connect(client.options());
  run_until_idle();
  EXPECT_GE(server.receive_pool->available(), pages * 3 / 4);
  for (std::uint64_t i = 1; i <= kept; ++i) {
    EXPECT_EQ(send(client, backend->client(), known, i, page_size / 2), SendOutcome::accepted);
  }
  EXPECT_TRUE(run_until([&] { return server.messages == 1 + kept; }));
  server.kept.clear();
  for (const ConnectionId id : silent) backend->client().close(id, true);
  const std::size_t before = client.opened.size();
  const auto late = connect(client.options());
  ASSERT_TRUE(run_until([&] { return client.opened.size() > before; }));
  EXPECT_TRUE(say_hello(late));
}

TEST_P(TransportConformance, a_flood_of_connections_that_are_given_up_leaves_nothing) {
  listen_to_anybody();
  Random random(random_seed());
  SCOPED_TRACE("seed " + std::to_string(random_seed()));
  for (int i = 0; i < 60; ++i) {
    const auto id = connect(client.options());
    for (std::uint64_t turns = random.below(8); turns > 0; --turns) (void)backend->turn();
    backend->client().close(id, true);
  }
  EXPECT_TRUE(run_until([&] { return server.closed.size() == server.opened.size(); }));
  EXPECT_TRUE(run_until([&] { return pools_are_full(); }));
  const std::size_t before = client.opened.size();
  (void)connect(client.options());
  EXPECT_TRUE(run_until([&] { return client.opened.size() > before; }));
}

TEST_P(TransportConformance, who_does_not_even_introduce_itself_keeps_nobody_out) {
  listen_to_anybody();
  const Url url = backend->server().listening_url(listener);
  std::vector<std::unique_ptr<RawPeer>> raw;
  for (int i = 0; i < 60; ++i) {
    raw.push_back(backend->connect_raw(url));
    if (raw.back() == nullptr) {
      GTEST_SKIP() << "not applicable: whoever connects below this transport introduces itself";
    }
    for (int turns = 0; turns < 4; ++turns) (void)backend->turn();
  }
  run_until_idle();
  EXPECT_TRUE(server.opened.empty());
  EXPECT_EQ(server.receive_pool->available(), server.receive_pool->pages());
  server.any_home = true;
  const auto honest = connect(client.options());
  ASSERT_TRUE(run_until([&] { return client.opened.size() == 1; }));
  EXPECT_EQ(send(client, backend->client(), honest, 0, 32), SendOutcome::accepted);
  EXPECT_TRUE(run_until([&] { return server.messages == 1; }));
}

/// Whoever is sent away for its silence is followed by another one. A peer that speaks at once
/// still gets in before its handshake is given up.
TEST_P(TransportConformance, a_flood_of_silent_peers_that_come_again_keeps_nobody_out) {
  if (!backend->meets_silent_peers())
    GTEST_SKIP() << "not applicable: silent peers are kept below this transport";
  constexpr std::size_t flood = 200; // more than there are places for unidentified peers
  listen_to_anybody();
  server.any_home = true;
  server.react = [](Transport& transport, Event& event) {
    if (event.kind == EventKind::message) transport.mark_identified(event.connection);
  };
  const Url url = backend->server().listening_url(listener);
  std::vector<std::unique_ptr<RawPeer>> raw;
  const auto come = [&] {
    raw.push_back(backend->connect_raw(url));
    return raw.back() != nullptr;
  };
  while (raw.size() < flood) {
    if (!come())
      GTEST_SKIP() << "not applicable: whoever connects below this transport introduces itself";
    for (int turns = 0; turns < 4; ++turns) (void)backend->turn();
  }
  const auto honest = connect(client.options());
  bool said = false;
  const auto heard = [&] {
    if (!client.opened.empty() && !said)
      said = client.send(backend->client(), honest, 0, 32) == SendOutcome::accepted;
    return server.messages == 1;
  };
  for (Duration passed{}; passed < std::chrono::seconds{3} && !heard();
       passed += std::chrono::milliseconds{250}) {
    run_until_idle();
    (void)backend->pass(std::chrono::milliseconds{250});
    for (std::size_t i = 0; i < flood / 8; ++i) {
      raw[i] = nullptr; // of those that were sent away
      (void)come();
    }
    raw.erase(raw.begin(), raw.begin() + flood / 8);
  }
  EXPECT_TRUE(run_until(heard)); // networks take their time
  EXPECT_TRUE(client.closed.empty());
}

/// The same, where the silent peers have introduced themselves to the transport.
TEST_P(TransportConformance, a_flood_of_peers_that_only_introduce_themselves_keeps_nobody_out) {
  if (!backend->frees_pages_at_once())
    GTEST_SKIP() << "not applicable: pages of closed connections come back late";
  const std::size_t flood = std::min<std::size_t>(120, possible_connections() - 2);
  set_pools({.receive_pages = static_cast<std::uint32_t>(4 * flood) + 16});
  listen_to_anybody();
  server.any_home = true;
  server.react = [](Transport& transport, Event& event) {
    if (event.kind == EventKind::message) transport.mark_identified(event.connection);
  };
  std::vector<ConnectionId> ids(flood);
  for (ConnectionId& id : ids) id = connect(client.options());
  run_until_idle();
  auto honest = connect(client.options());
  const MonotonicClock machine; // a busy one takes of the time that a handshake may take
  Time since = machine.now();
  int attempts_left = 3;
  bool sent = false; // by the attempt that is under way
  std::size_t ends = 0;
  const auto heard = [&] {
    for (; ends < client.closed.size(); ++ends) {
      const bool given_up = client.closed[ends].first == honest;
      const auto next = connect(client.options());
      (given_up ? honest : ids.emplace_back()) = next;
      if (!given_up) continue;
      attempts_left = machine.now() - since > std::chrono::seconds{1} ? attempts_left - 1 : 0;
      since = machine.now();
      sent = false;
    }
    if (client.known.contains(honest) && !sent)
      sent = client.send(backend->client(), honest, 0, 32) == SendOutcome::accepted;
    return server.messages == 1;
  };
  // The honest peer speaks as soon as it may: while others come and go it is never idle here.
  constexpr Duration step = std::chrono::milliseconds{2}; // networks go on in real time
  for (Duration passed{}; passed < std::chrono::seconds{4} && !heard(); passed += step) {
    for (int turns = 0; turns < 100 && !heard(); ++turns) {
      if (!backend->turn()) sched_yield();
    }
    (void)backend->pass(step);
  }
  EXPECT_TRUE(run_until(heard));
  EXPECT_GT(attempts_left, 0) << "its handshake was given up";
  for (const ConnectionId id : ids) backend->client().close(id, true);
}

TEST_P(TransportConformance,
       messages_that_have_hardly_begun_do_not_keep_the_pages_that_others_need) {
  PeerPools pools{.receive_pages = 4, .shared = GetParam().shared_pools};
  server.set_pools(pools);
  listen(server);
  const Url url = backend->server().listening_url(listener);
  std::vector<std::unique_ptr<RawPeer>> slow;
  for (std::size_t i = 0; i < 32; ++i) {
    slow.push_back(backend->connect_raw(url));
    if (slow.back() == nullptr || !slow.back()->begin_message(page_size / 2))
      GTEST_SKIP() << "not applicable: messages come as a whole or not at all";
    ASSERT_TRUE(run_until([&] { return server.opened.size() == i + 1; }));
  }
  const auto honest = connect(client.options());
  ASSERT_TRUE(run_until([&] { return client.opened.size() == 1; }));
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(send(client, backend->client(), honest, i, page_size / 2), SendOutcome::accepted);
    EXPECT_TRUE(run_until([&] { return server.messages == i + 1; }));
  }
}

} // namespace fanin::net::conformance
