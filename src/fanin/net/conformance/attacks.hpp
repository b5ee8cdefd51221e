// The part of the conformance suite about what peers do by accident or on purpose: both ends that
// abort, many that want the last page, those that are sent away before they are known.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fanin/net/conformance/fixture.hpp"

namespace fanin::net::conformance {

// Takes all pages that are free and overwrites them.
inline void overwrite_free_pages(memory::PagePool& pool) {
  std::vector<memory::Loan> loans;
  while (memory::Loan loan = pool.take()) {
    std::memset(loan.data(), 0xee, loan.size());
    loans.push_back(std::move(loan));
  }
}

TEST_P(TransportConformance, WhatIsStillReadAfterBothEndsHaveAbortedIsNotOverwritten) {
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
  settle();
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

TEST_P(TransportConformance, AViewOfNoPageMayStandAnywhereInAMessage) {
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

// Messages in bursts, and a reader that lets go of a few only when nothing moves any more.
TEST_P(TransportConformance, SendersThatShareASmallPoolAllGetTheirPart) {
  constexpr std::size_t senders = 16;
  constexpr std::uint64_t wanted = 32; // of each, on average
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
  std::size_t first = 0; // they share a pool here, too
  const auto push = [&] { // as much as each connection takes
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

// As a listener does with those who say something wrong.
TEST_P(TransportConformance, ConnectionsClosedBeforeTheyAreTrustedLeaveNothing) {
  constexpr std::size_t count = 40;
  ConnectionOptions options = server.options();
  options.strangers = true;
  const auto made = backend->server().listen(backend->address(), options);
  ASSERT_TRUE(made);
  listener = *made;
  server.react = [](Transport& transport, Event& event) { transport.close(event.connection); };
  for (std::size_t i = 0; i < count; ++i) {
    (void)connect(client.options());
    ASSERT_TRUE(run_until([&] { return client.closed.size() == i + 1; }));
  }
  EXPECT_TRUE(run_until([&] { return backend->server().closing() == 0; }));
  EXPECT_TRUE(server.closed.empty());
  EXPECT_EQ(client.died(), 0U);
}

// Who says hello must not wait for those who hold what they have received.
TEST_P(TransportConformance, AHelloGetsThroughWhileTheReceivePoolIsEmpty) {
  if (!GetParam().small_without_pages) return; // it needs a receive that was posted before
  ConnectionOptions options = server.options();
  options.strangers = true;
  server.any_home = true;
  const auto made = backend->server().listen(backend->address(), options);
  ASSERT_TRUE(made);
  listener = *made;
  std::vector<memory::Loan> all;
  while (memory::Loan loan = server.receive_pool->take()) all.push_back(std::move(loan));
  server.react = [](Transport& transport, Event& event) {
    if (event.kind == EventKind::message) transport.trust(event.connection);
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
  settle();
  EXPECT_EQ(server.messages, 40U);
  all.clear();
  EXPECT_TRUE(run_until([&] { return server.messages == 41; }));
}

} // namespace fanin::net::conformance
