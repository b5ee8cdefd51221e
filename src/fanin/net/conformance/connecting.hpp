/// \file
/// The part of the conformance suite about listening, connecting, many connections, and connecting
/// again.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fanin/net/conformance/fixture.hpp"

namespace fanin::net::conformance {

TEST_P(TransportConformance, listening_on_port_zero_gives_each_listener_a_port_of_its_own) {
  const auto first = backend->server().listen(backend->address(), server.options());
  const auto second = backend->server().listen(backend->address(), server.options());
  ASSERT_TRUE(first && second);
  const Url a = backend->server().listening_url(*first);
  const Url b = backend->server().listening_url(*second);
  EXPECT_NE(a.port, 0);
  EXPECT_NE(b.port, 0);
  EXPECT_NE(a.port, b.port);
  EXPECT_EQ(a.scheme, backend->address().scheme);
  const auto again = backend->server().listen(a, server.options());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, ErrorKind::refused);
  Url place = a;
  place.options.clear();
  EXPECT_NE(again.error().text.find(place.text()), std::string::npos) << again.error().text;
  listener = *second;
  (void)connect(client.options());
  EXPECT_TRUE(run_until([&] { return !server.opened.empty(); }));
}

TEST_P(TransportConformance, connecting_is_reported_to_both_sides) {
  open();
  EXPECT_FALSE(backend->server().peer_name(at_server).empty());
  EXPECT_FALSE(backend->client().peer_name(at_client).empty());
}

TEST_P(TransportConformance, connecting_to_nobody_fails_with_an_event) {
  const auto made = backend->client().connect(backend->nobody(), client.options());
  ASSERT_TRUE(made) << made.error().text;
  ASSERT_TRUE(run_until([&] { return !client.closed.empty(); }));
  EXPECT_EQ(client.closed, (std::vector{std::pair{*made, CloseReason::connect_failed}}));
  EXPECT_EQ(client.send(backend->client(), *made, 0, 1), SendOutcome::closed);
}

TEST_P(TransportConformance, wrong_options_are_errors) {
  ConnectionOptions options = server.options();
  options.max_message = page_size / 2 + 1;
  EXPECT_FALSE(backend->server().listen(backend->address(), options));
  options = server.options();
  options.receive_pool = nullptr;
  EXPECT_FALSE(backend->server().listen(backend->address(), options));
  Url url = backend->address();
  url.scheme = "carrier-pigeon";
  EXPECT_FALSE(backend->server().listen(url, server.options()));
  EXPECT_FALSE(backend->client().connect(url, client.options()));
}

TEST_P(TransportConformance, an_address_with_an_unknown_option_is_refused_beforehand) {
  EXPECT_TRUE(backend->server().check_address(backend->address()));
  Url url = backend->address();
  url.options["no_such_option"] = "1";
  const auto wrong = backend->server().check_address(url);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().kind, ErrorKind::usage);
  EXPECT_NE(wrong.error().text.find("no_such_option"), std::string::npos) << wrong.error().text;
  EXPECT_EQ(backend->server().listen(url, server.options()).error().text, wrong.error().text);
  EXPECT_FALSE(backend->client().connect(url, client.options()));
  url = backend->address();
  url.scheme = "carrier-pigeon";
  EXPECT_FALSE(backend->server().check_address(url));
}

TEST_P(TransportConformance, nothing_can_be_sent_before_the_connection_is_made) {
  listen(server);
  at_client = connect(client.options());
  EXPECT_EQ(client.send(backend->client(), at_client, 0, 1), SendOutcome::closed);
  EXPECT_EQ(client.send(backend->client(), ConnectionId::none, 0, 1), SendOutcome::closed);
  EXPECT_TRUE(run_until([&] { return !client.opened.empty() && !server.opened.empty(); }));
}

TEST_P(TransportConformance, connections_outlive_their_listener) {
  open();
  const Url url = backend->server().listening_url(listener);
  backend->server().close_listener(listener);
  send_all(0, 1, [](std::uint64_t) { return 100U; });
  EXPECT_TRUE(run_until([&] { return server.messages == 1; }));
  const auto late = backend->client().connect(url, client.options());
  ASSERT_TRUE(late);
  EXPECT_TRUE(run_until([&] { return !client.closed.empty(); }));
  EXPECT_EQ(client.closed, (std::vector{std::pair{*late, CloseReason::connect_failed}}));
}

TEST_P(TransportConformance, many_connections_keep_their_order_each) {
  const std::size_t count = possible_connections();
  const auto page = std::uint32_t{4096};
  // A strict receiver posts two for each connection.
  set_pools(
      {.receive_pages = static_cast<std::uint32_t>(2 * count + 64), .receive_page_size = page});
  listen(server);
  std::vector<ConnectionId> ids;
  while (ids.size() < count) { // at once at most what a listener's queue takes
    for (int i = 0; i < 32 && ids.size() < count; ++i) ids.push_back(connect(client.options()));
    ASSERT_TRUE(run_until([&] {
      return server.opened.size() == ids.size() && client.opened.size() == ids.size();
    })) << server.opened.size()
        << " and " << client.opened.size() << " of " << ids.size();
  }
  constexpr std::uint64_t messages_each = 40;
  std::map<ConnectionId, std::uint64_t> sent;
  Random random(3);
  std::vector<ConnectionId> unfinished = ids;
  ASSERT_TRUE(run_until([&] {
    for (int i = 0; i < 16 && !unfinished.empty(); ++i) {
      const std::size_t at = random.below(unfinished.size());
      std::uint64_t& number = sent[unfinished[at]];
      const auto size =
          static_cast<std::uint32_t>(random.below(random.chance(1, 8) ? page / 2 : 300));
      if (client.send(backend->client(), unfinished[at], number, size) != SendOutcome::accepted)
        break;
      if (++number == messages_each) {
        std::swap(unfinished[at], unfinished.back());
        unfinished.pop_back();
      }
    }
    return server.messages == messages_each * count;
  }));
  for (const auto& [id, number] : server.next) EXPECT_EQ(number, messages_each);
  for (const ConnectionId id : ids) backend->client().close(id);
  EXPECT_TRUE(run_until([&] { return server.closed.size() == count; }));
}

TEST_P(TransportConformance, connections_come_and_go_without_leaving_anything) {
  listen(server);
  for (std::size_t i = 0; i < 64; ++i) {
    at_client = connect(client.options());
    ASSERT_TRUE(
        run_until([&] { return client.opened.size() == i + 1 && server.opened.size() == i + 1; }));
    send_all(0, 1, [](std::uint64_t) { return 100U; });
    backend->client().close(at_client, i % 3 == 2);
    ASSERT_TRUE(run_until([&] { return server.closed.size() == i + 1; }));
  }
  EXPECT_EQ(server.died(), 21U);
}

/// The client's handler connects again whenever its connection has ended.
TEST_P(TransportConformance, a_client_that_tries_again_finds_the_peer_that_has_come_back) {
  open();
  const Url url = backend->server().listening_url(listener);
  client.react = [&](Transport&, Event& event) {
    if (event.kind == EventKind::closed) at_client = connect_to(url, client.options());
  };
  for (std::size_t round = 1; round <= 6; ++round) {
    const bool dies = round % 2 == 0;
    const std::size_t ended = client.closed.size();
    backend->server().close_listener(listener);
    backend->server().close(at_server, dies);
    ASSERT_TRUE(run_until([&] { return client.closed.size() >= ended + 3; }));
    EXPECT_EQ(client.closed[ended].second,
              dies ? CloseReason::peer_died : CloseReason::peer_closed);
    EXPECT_EQ(client.closed[ended + 1].second, CloseReason::connect_failed);
    const auto again = backend->server().listen(url, server.options());
    ASSERT_TRUE(again) << again.error().text;
    listener = *again;
    ASSERT_TRUE(run_until(
        [&] { return client.opened.size() == round + 1 && server.opened.size() == round + 1; }));
    at_server = server.opened.back();
    const std::uint64_t before = server.messages;
    send_all(0, 3, [](std::uint64_t) { return 1000U; });
    ASSERT_TRUE(run_until([&] { return server.messages == before + 3; }));
  }
  client.react = nullptr;
}

} // namespace fanin::net::conformance
