// verbs:// beyond what every transport does: peers that are no peers, options, limits. Needs a
// device.
#include "fanin/net/verbs/verbs.hpp"

#include <sched.h>

#include <gtest/gtest.h>

#include "fanin/net/conformance/peer.hpp"
#include "fanin/net/rdma/rdma.hpp"
#include "fanin/net/verbs/testing/raw_peer.hpp"

namespace fanin::net::verbs {
namespace {

using conformance::page_size;
using conformance::Peer;
using rdma::credits_most;
using rdma::Hello;
using rdma::HelloBytes;
using rdma::protocol_version;
using rdma::Tag;
using rdma::TagKind;

// With receives of their own, and sharing them.
class Verbs : public testing::TestWithParam<bool> {
protected:
  void SetUp() override {
    auto made = make_provider();
    if (!made) GTEST_SKIP() << made.error().text;
    RdmaOptions options;
    options.keep_alive = std::chrono::milliseconds(50);
    options.handshake_timeout = std::chrono::seconds(1);
    options.report = [this](CloseReason, std::string_view text) {
      said += std::string(text) + "\n";
    };
    transport = std::make_unique<RdmaTransport>(loop, std::move(*made), std::move(options));
    loop.add(*transport);
    url.scheme = "verbs";
    if (GetParam()) url.options["share_above"] = "0";
    const auto listener = transport->listen(url, server.options());
    ASSERT_TRUE(listener) << listener.error().text;
    url = transport->listening_url(*listener);
  }
  void TearDown() override {
    if (!transport) return;
    for (const auto& peer : {&server, &client}) {
      for (const ConnectionId id : peer->opened) transport->close(id, true);
    }
    EXPECT_TRUE(run_until([&] { return pages_are_home(); })) << "receives are missing";
    loop.remove(*transport);
  }
  [[nodiscard]] bool pages_are_home() const {
    return server.receive_pool->available() == server.receive_pool->pages() &&
           client.receive_pool->available() == client.receive_pool->pages();
  }

  template <class Condition>
  bool run_until(Condition condition) {
    for (int i = 0; i < 3'000'000; ++i) {
      if (condition()) return true;
      if (!loop.turn()) sched_yield();
    }
    return condition();
  }
  // The raw peer up to the point where the transport's answer is there.
  void connect(RawPeer& raw, const HelloBytes& hello, rdma_cm_event_type answer) {
    const auto wait_for = [&](rdma_cm_event_type wanted) {
      std::optional<rdma_cm_event_type> got;
      EXPECT_TRUE(run_until([&] { return (got = raw.event()).has_value(); }));
      EXPECT_EQ(got, wanted);
    };
    raw.resolve(url.host, url.port);
    wait_for(RDMA_CM_EVENT_ADDR_RESOLVED);
    raw.resolve_route();
    wait_for(RDMA_CM_EVENT_ROUTE_RESOLVED);
    raw.connect(hello);
    wait_for(answer);
  }
  ConnectionId connect_to(const Url& where) {
    const auto made = transport->connect(where, client.options());
    EXPECT_TRUE(made) << made.error().text;
    return made ? *made : ConnectionId::none;
  }

  MonotonicClock clock;
  Loop loop{clock};
  Peer server{{.receive_pages = 32}};
  Peer client{{.receive_pages = 32}};
  std::string said;
  Url url;
  std::unique_ptr<RdmaTransport> transport; // ends before the pools
};

TEST_P(Verbs, a_peer_of_another_version_is_told_so_and_refused) {
  RawPeer raw;
  connect(raw, encode(Hello{.version = protocol_version + 1, .max_message = 100, .credits = 8}),
          RDMA_CM_EVENT_REJECTED);
  ASSERT_TRUE(raw.hello());
  EXPECT_EQ(raw.hello()->version, protocol_version);
  EXPECT_NE(said.find("speaks version 2"), std::string::npos) << said;
  EXPECT_EQ(transport->counters().rejected, 1U);
  EXPECT_TRUE(server.opened.empty());
  EXPECT_TRUE(run_until([&] { return pages_are_home(); }));
}

TEST_P(Verbs, a_listener_of_another_version_is_understood) {
  RawPeer raw;
  raw.listen(url.host);
  Url there = url;
  there.port = raw.port();
  const ConnectionId id = connect_to(there);
  ASSERT_TRUE(run_until([&] { return raw.event() == RDMA_CM_EVENT_CONNECT_REQUEST; }));
  ASSERT_TRUE(raw.hello());
  raw.reject(encode(Hello{.version = 9}));
  ASSERT_TRUE(run_until([&] { return !client.closed.empty(); }));
  EXPECT_EQ(client.closed, (std::vector{std::pair{id, CloseReason::version_mismatch}}));
  EXPECT_NE(said.find("speaks version 9"), std::string::npos) << said;
}

TEST_P(Verbs, who_is_no_node_of_fanin_is_refused) {
  RawPeer raw;
  connect(raw, HelloBytes{}, RDMA_CM_EVENT_REJECTED);
  EXPECT_NE(said.find("sent an introduction that is not fanin's"), std::string::npos) << said;
  EXPECT_TRUE(run_until([&] { return pages_are_home(); }));
}

TEST_P(Verbs, a_peer_that_vanishes_before_it_is_accepted_leaves_nothing) {
  for (int i = 0; i < 4; ++i) {
    RawPeer raw;
    raw.resolve(url.host, url.port);
    ASSERT_TRUE(run_until([&] { return raw.event() == RDMA_CM_EVENT_ADDR_RESOLVED; }));
    raw.resolve_route();
    ASSERT_TRUE(run_until([&] { return raw.event() == RDMA_CM_EVENT_ROUTE_RESOLVED; }));
    raw.connect(encode(Hello{.max_message = 100, .credits = 8}));
    raw.close();
  }
  const ConnectionId id = connect_to(url); // and others are served
  ASSERT_TRUE(run_until([&] { return client.opened == std::vector{id}; }));
  ASSERT_TRUE(run_until([&] { return !server.opened.empty(); }));
  transport->close(id, true);
  EXPECT_TRUE(run_until([&] { return pages_are_home(); })) << said;
}

TEST_P(Verbs, what_no_peer_sends_ends_that_connection_and_no_other) {
  const ConnectionId good = connect_to(url);
  ASSERT_TRUE(run_until([&] { return client.opened == std::vector{good}; }));
  ASSERT_TRUE(run_until([&] { return server.opened.size() == 1; }));
  const HelloBytes hello = encode(Hello{.max_message = 100, .credits = 8});
  struct Case {
    std::size_t size;
    std::optional<std::uint32_t> tag;
    CloseReason reason;
  };
  const Case cases[] = {
      {100, std::nullopt, CloseReason::protocol_violation},
      {100, encode(Tag{.kind = TagKind::credits}), CloseReason::protocol_violation},
      {0, 0xffffffffU, CloseReason::protocol_violation},
      {0, encode(Tag{.credits = credits_most}), CloseReason::protocol_violation},
      {page_size / 2 + 1, encode(Tag{}), CloseReason::message_too_large}};
  std::size_t ended = 0;
  for (const Case& one : cases) {
    SCOPED_TRACE(ended);
    RawPeer raw;
    connect(raw, hello, RDMA_CM_EVENT_ESTABLISHED);
    raw.send(one.size, one.tag);
    ASSERT_TRUE(run_until([&] { return server.closed.size() == ended + 1; })) << said;
    EXPECT_EQ(server.closed.back().second, one.reason);
    ++ended;
    EXPECT_EQ(client.send(*transport, good, ended - 1, 1000), SendOutcome::accepted);
    EXPECT_TRUE(run_until([&] { return server.next[server.opened.front()] == ended; }));
  }
  EXPECT_TRUE(client.closed.empty());
}

TEST_P(Verbs, a_path_that_the_port_does_not_have_is_an_error_in_words) {
  const std::pair<const char*, const char*> cases[] = {{"pkey", "0x1234"}, {"gid_index", "200"}};
  for (const auto& [option, value] : cases) {
    SCOPED_TRACE(option);
    Url there = url;
    there.options[option] = value;
    const std::size_t before = client.closed.size();
    const ConnectionId id = connect_to(there);
    ASSERT_TRUE(run_until([&] { return client.closed.size() > before; }));
    EXPECT_EQ(client.closed.back(), (std::pair{id, CloseReason::connect_failed}));
    EXPECT_NE(said.find(option), std::string::npos) << said;
  }
}

TEST_P(Verbs, the_options_of_a_path_reach_the_queue_pair) {
  Url there = url;
  there.options.insert({{"service_level", "3"},
                        {"traffic_class", "0x68"},
                        {"pkey", "0xffff"},
                        {"gid_index", "1"},
                        {"mtu", "512"}});
  const ConnectionId id = connect_to(there);
  ASSERT_TRUE(run_until([&] { return !client.opened.empty() && !server.opened.empty(); })) << said;
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(
        run_until([&] { return client.send(*transport, id, i, 8000) == SendOutcome::accepted; }));
  }
  EXPECT_TRUE(run_until([&] { return server.messages == 20; }));
}

TEST_P(Verbs, small_messages_go_inline_and_large_ones_without_a_copy) {
  const ConnectionId id = connect_to(url);
  ASSERT_TRUE(run_until([&] { return !client.opened.empty() && !server.opened.empty(); }));
  const auto send = [&](std::uint64_t number, std::uint32_t size) {
    ASSERT_TRUE(run_until(
        [&] { return client.send(*transport, id, number, size) == SendOutcome::accepted; }));
    ASSERT_TRUE(run_until([&] { return server.messages == number + 1; }));
  };
  for (std::uint64_t i = 0; i < 50; ++i) send(i, 100);
  EXPECT_EQ(transport->counters().inlined, 50U);
  const std::uint64_t moved = transport->counters().moved;
  for (std::uint64_t i = 50; i < 100; ++i) send(i, page_size / 2);
  EXPECT_EQ(transport->counters().inlined, 50U);
  EXPECT_EQ(transport->counters().copied, 0U);
  EXPECT_EQ(transport->counters().moved, moved);
}

TEST_P(Verbs, a_small_message_behind_a_large_one_does_not_keep_its_page) {
  const ConnectionId id = connect_to(url);
  ASSERT_TRUE(run_until([&] { return !client.opened.empty() && !server.opened.empty(); }));
  EXPECT_EQ(client.send(*transport, id, 0, page_size / 2), SendOutcome::accepted);
  EXPECT_EQ(client.send(*transport, id, 1, 10), SendOutcome::accepted);
  EXPECT_TRUE(run_until([&] {
    return server.messages == 2 && client.send_pool->available() == client.send_pool->pages();
  }));
}

TEST_P(Verbs, a_peer_without_power_is_noticed_and_a_silent_one_stays) {
  const ConnectionId silent = connect_to(url);
  ASSERT_TRUE(run_until([&] { return !client.opened.empty() && server.opened.size() == 1; }));
  RawPeer raw;
  connect(raw, encode(Hello{.max_message = 100, .credits = 8}), RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_TRUE(run_until([&] { return server.opened.size() == 2; }));
  raw.fall_silent();
  ASSERT_TRUE(run_until([&] { return !server.closed.empty(); })) << said;
  EXPECT_EQ(server.closed, (std::vector{std::pair{server.opened[1], CloseReason::peer_died}}));
  EXPECT_NE(said.find("retry"), std::string::npos) << said;
  EXPECT_TRUE(client.closed.empty());
  EXPECT_EQ(client.send(*transport, silent, 0, 100), SendOutcome::accepted);
  EXPECT_TRUE(run_until([&] { return server.messages == 1; }));
}

TEST_P(Verbs, a_peer_that_sends_more_than_it_may_ends_and_others_go_on) {
  const ConnectionId good = connect_to(url);
  ASSERT_TRUE(run_until([&] { return client.opened.size() == 1 && server.opened.size() == 1; }));
  const ConnectionId end = server.opened.front();
  RawPeer raw;
  connect(raw, encode(Hello{.max_message = 100, .credits = 8}), RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_TRUE(run_until([&] { return server.opened.size() == 2; }));
  for (int i = 0; i < 4; ++i) raw.send(0, encode(Tag{})); // three, or one, it may
  for (int i = 0; i < 4; ++i) { // before the transport looks
    while (!raw.arrived()) sched_yield();
  }
  for (std::uint64_t i = 0; i < 6; ++i) {
    ASSERT_TRUE(run_until(
        [&] { return client.send(*transport, good, i, page_size / 2) == SendOutcome::accepted; }));
    ASSERT_TRUE(run_until([&] { return server.next[end] == i + 1; })) << said;
  }
  ASSERT_TRUE(run_until([&] { return !server.closed.empty(); }));
  EXPECT_EQ(server.closed.front().second, CloseReason::protocol_violation);
  EXPECT_NE(said.find("more messages than it was allowed"), std::string::npos) << said;
  EXPECT_EQ(server.closed.size(), 1U);
  EXPECT_TRUE(client.closed.empty());
}

// No key of memory is ever told to a peer, and what is registered may only be written to from here.
TEST_P(Verbs, a_peer_that_writes_to_an_address_gets_nowhere_and_ends) {
  const ConnectionId good = connect_to(url);
  ASSERT_TRUE(run_until([&] { return client.opened.size() == 1 && server.opened.size() == 1; }));
  const auto page = reinterpret_cast<std::uintptr_t>(server.receive_pool->arena()->data());
  std::size_t ended = 0;
  for (const std::uint32_t guess : {0U, 0x100U, 0x200U}) { // below: keys that were given before
    SCOPED_TRACE(guess);
    RawPeer raw;
    connect(raw, encode(Hello{.max_message = 100, .credits = 8}), RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_TRUE(run_until([&] { return server.opened.size() == ended + 2; })) << said;
    raw.write_to(page, raw.key() - guess);
    std::optional<ibv_wc_status> status;
    ASSERT_TRUE(run_until([&] { return (status = raw.ended()).has_value(); }));
    EXPECT_TRUE(*status == IBV_WC_REM_ACCESS_ERR || *status == IBV_WC_REM_INV_REQ_ERR)
        << ibv_wc_status_str(*status);
    ASSERT_TRUE(run_until([&] { return server.closed.size() == ended + 1; })) << said;
    EXPECT_EQ(server.closed.back().second, CloseReason::peer_died);
    ++ended;
  }
  EXPECT_TRUE(client.closed.empty());
  EXPECT_EQ(client.send(*transport, good, 0, 100), SendOutcome::accepted);
  EXPECT_TRUE(run_until([&] { return server.messages == 1; }));
}

TEST_P(Verbs, a_listener_that_never_answers_is_given_up) {
  RawPeer raw;
  raw.listen(url.host);
  Url there = url;
  there.port = raw.port();
  (void)connect_to(there);
  ASSERT_TRUE(run_until([&] { return !client.closed.empty(); }));
  EXPECT_EQ(client.closed.back().second, CloseReason::connect_failed);
  EXPECT_NE(said.find("no answer within 1 s"), std::string::npos) << said;
}

// One after the other, through a queue that never ends: what a connection had begun to receive, and
// what nobody has looked at, comes back.
TEST_P(Verbs, connections_that_come_and_go_leave_their_receives_to_the_others) {
  const ConnectionId stays = connect_to(url);
  ASSERT_TRUE(run_until([&] { return client.opened.size() == 1 && server.opened.size() == 1; }));
  const ConnectionId end = server.opened.front();
  for (std::uint64_t round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    const ConnectionId goes = connect_to(url);
    ASSERT_TRUE(run_until(
        [&] { return client.opened.size() == round + 2 && server.opened.size() == round + 2; }));
    for (std::uint64_t i = 0; i < 3; ++i) (void)client.send(*transport, goes, i, page_size / 2);
    transport->flush();
    transport->close(round % 2 == 0 ? goes : server.opened.back(), true);
    ASSERT_TRUE(run_until([&] {
      return client.send(*transport, stays, round, page_size / 2) == SendOutcome::accepted;
    })) << said;
    ASSERT_TRUE(run_until([&] { return server.next[end] == round + 1; })) << said;
  }
}

INSTANTIATE_TEST_SUITE_P(, Verbs, testing::Bool(),
                         [](const auto& one) { return one.param ? "shared" : "own"; });

} // namespace
} // namespace fanin::net::verbs
