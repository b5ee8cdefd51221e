#include "fanin/net/trace/trace.hpp"

#include <gtest/gtest.h>

#include "fanin/net/conformance/peer.hpp"
#include "fanin/net/inproc/inproc.hpp"

namespace fanin::net {
namespace {

using namespace std::chrono_literals;
using conformance::Peer;

class TraceTest : public testing::Test {
public:
  TraceTest() { loop.add(transport); }
  ~TraceTest() override { loop.remove(transport); }

protected:
  void open() {
    const auto listener =
        transport.listen({.scheme = "trace+inproc", .host = "server"}, server.options());
    ASSERT_TRUE(listener) << listener.error().text;
    const auto made = transport.connect(transport.listening_url(*listener), client.options());
    ASSERT_TRUE(made) << made.error().text;
    at_client = *made;
    clock.advance(3us);
    run();
    ASSERT_EQ(server.opened.size(), 1U);
    at_server = server.opened.front();
  }
  void run() {
    while (loop.turn()) {
    }
  }

  Peer server;
  Peer client;
  VirtualClock clock;
  Loop loop{clock};
  std::vector<std::string> said;
  TraceTransport transport{loop, std::make_unique<InprocTransport>(),
                           [this](LogLevel, std::string_view text) { said.emplace_back(text); }};
  ConnectionId at_client = ConnectionId::none;
  ConnectionId at_server = ConnectionId::none;
};

TEST_F(TraceTest, counts_what_passes_per_connection_and_in_sum) {
  open();
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(client.send(transport, at_client, i, 100), SendOutcome::accepted);
  }
  EXPECT_EQ(server.send(transport, at_server, 0, 7), SendOutcome::accepted);
  run();
  ASSERT_NE(transport.traffic(at_client), nullptr);
  EXPECT_EQ(transport.traffic(at_client)->messages_sent, 5U);
  EXPECT_EQ(transport.traffic(at_client)->bytes_sent, 500U);
  EXPECT_EQ(transport.traffic(at_client)->messages_received, 1U);
  EXPECT_EQ(transport.traffic(at_client)->bytes_received, 7U);
  EXPECT_EQ(transport.traffic(at_server)->messages_received, 5U);
  EXPECT_EQ(transport.trace().traffic.messages_sent, 6U);
  EXPECT_EQ(transport.trace().traffic.bytes_received, 507U);
  EXPECT_EQ(transport.trace().events, (std::array<std::uint64_t, event_kinds>{1, 1, 6, 0, 0}));
}

TEST_F(TraceTest, counts_refusals_and_times_until_there_is_room) {
  open();
  while (client.send(transport, at_client, 0, 8000) == SendOutcome::accepted) {
  }
  EXPECT_EQ(client.send(transport, at_client, 0, 8000), SendOutcome::backpressure);
  EXPECT_EQ(client.send(transport, at_client, 0, 8200), SendOutcome::too_large);
  clock.advance(40us);
  server.sizes = [](std::uint64_t) { return 8000U; };
  server.react = [&](Transport&, Event& event) { server.next[event.connection] = 0; };
  run();
  EXPECT_EQ(transport.traffic(at_client)->backpressure, 2U);
  EXPECT_EQ(transport.trace().too_large, 1U);
  EXPECT_EQ(transport.trace().held_back.count(), 1U);
  EXPECT_NEAR(static_cast<double>(transport.trace().held_back.quantile(0.5).count()), 40e3, 2e3);
  EXPECT_NEAR(static_cast<double>(transport.trace().connecting.quantile(0.5).count()), 3e3, 2e2);
}

TEST_F(TraceTest, times_handlers) {
  open();
  server.react = [&](Transport&, Event&) { clock.advance(10us); };
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(client.send(transport, at_client, i, 100), SendOutcome::accepted);
  }
  const std::uint64_t before = transport.trace().handling.count();
  run();
  EXPECT_EQ(transport.trace().handling.count(), before + 4);
  EXPECT_NEAR(static_cast<double>(transport.trace().handling.quantile(0.99).count()), 10e3, 5e2);
}

TEST_F(TraceTest, counts_ends_and_forgets_the_connections) {
  open();
  transport.close(at_client, true);
  run();
  EXPECT_EQ(transport.traffic(at_client), nullptr);
  EXPECT_EQ(transport.traffic(at_server), nullptr);
  const auto& closed = transport.trace().closed;
  EXPECT_EQ(closed[static_cast<std::size_t>(CloseReason::local)], 1U);
  EXPECT_EQ(closed[static_cast<std::size_t>(CloseReason::peer_died)], 1U);
  ASSERT_EQ(said.size(), 2U);
  EXPECT_TRUE(said[0].starts_with("trace: trace+inproc://server:1: closed here: {")) << said[0];
}

TEST_F(TraceTest, a_connection_that_its_listener_took_back_is_forgotten) {
  const auto listener =
      transport.listen({.scheme = "trace+inproc", .host = "server"}, server.options());
  ASSERT_TRUE(listener);
  const Url url = transport.listening_url(*listener);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(transport.connect(url, client.options()));
  server.react = [&](Transport&, Event& event) {
    if (event.kind == EventKind::accepted) transport.close_listener(*listener);
  };
  run();
  EXPECT_EQ(server.opened.size(), 1U);
  EXPECT_EQ(transport.trace().events[0], 2U);
  EXPECT_EQ(transport.trace().closed[static_cast<std::size_t>(CloseReason::local)], 1U);
  EXPECT_EQ(transport.to_json().at("connections").list().size(), 2U); // the two ends of one
}

TEST_F(TraceTest, is_readable_as_json) {
  open();
  EXPECT_EQ(client.send(transport, at_client, 0, 100), SendOutcome::accepted);
  run();
  const auto read = json::Value::parse(transport.to_json().dump());
  ASSERT_TRUE(read) << read.error().text;
  EXPECT_EQ(read->at("messages_received").natural(), 1U);
  EXPECT_EQ(read->at("events").at("accepted").natural(), 1U);
  EXPECT_EQ(read->at("closed").at("peer_died").natural(1), 0U);
  EXPECT_GT(read->at("connecting_ns").at("p50").natural(), 2900U);
  EXPECT_EQ(read->at("connections").list().size(), 2U);
}

} // namespace
} // namespace fanin::net
