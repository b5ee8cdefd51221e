#include "fanin/net/fault/fault.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fanin/net/conformance/peer.hpp"
#include "fanin/net/inproc/inproc.hpp"

namespace fanin::net {
namespace {

using namespace std::chrono_literals;
using conformance::Peer;

std::uint64_t test_seed() {
  return static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed()) + 1;
}

// Both ends in one transport and in virtual time.
class FaultTest : public testing::Test {
public:
  FaultTest() { loop.add(transport); }
  ~FaultTest() override { loop.remove(transport); }

protected:
  static Url server_url(std::map<std::string, std::string> faults) {
    return {.scheme = "fault+inproc", .host = "server", .options = std::move(faults)};
  }
  void listen(const Url& url) {
    const auto made = transport.listen(url, server.options());
    ASSERT_TRUE(made) << made.error().text;
    listener = *made;
  }
  ConnectionId connect() {
    const auto made = transport.connect(transport.listening_url(listener), client.options());
    EXPECT_TRUE(made) << made.error().text;
    return made.value_or(ConnectionId::none);
  }
  void open(const Url& url) {
    listen(url);
    at_client = connect();
    run();
    ASSERT_EQ(server.opened.size(), 1U);
    at_server = server.opened.front();
  }
  bool turn() {
    if (loop.turn()) return true;
    if (loop.next_deadline() == never) return false;
    clock.advance_to(loop.next_deadline());
    return true;
  }
  void run() {
    while (turn()) {
    }
  }

  Peer server;
  Peer client;
  VirtualClock clock;
  Loop loop{clock};
  FaultTransport transport{loop, std::make_unique<InprocTransport>()};
  ListenerId listener = ListenerId::none;
  ConnectionId at_client = ConnectionId::none;
  ConnectionId at_server = ConnectionId::none;
};

TEST(FaultOptions, are_taken_out_of_the_address) {
  Url url = Url::parse("fault+tcp://x:1?seed=7&loss=0.25&delay=2ms&backpressure=1&congestion=reno")
                .value();
  const auto faults = FaultOptions::take_from(url);
  ASSERT_TRUE(faults) << faults.error().text;
  EXPECT_EQ(faults->seed, 7U);
  EXPECT_EQ(faults->loss, 0.25);
  EXPECT_EQ(faults->delay, 2ms);
  EXPECT_EQ(faults->backpressure, 1);
  EXPECT_EQ(url.text(), "fault+tcp://x:1?congestion=reno");
}

TEST(FaultOptions, what_is_wrong_is_named) {
  for (const auto* const option :
       {"seed=", "seed=x", "seed=-1", "seed=1e3", "loss=", "loss=1.5", "loss=-0.1", "loss=nan",
        "loss=1%", "backpressure=2", "delay=5", "delay=-1ms", "delay=x"}) {
    const std::string text = fmt::format("fault+tcp://x:1?{}", option);
    Url url = Url::parse(text).value();
    const auto faults = FaultOptions::take_from(url);
    ASSERT_FALSE(faults) << text;
    EXPECT_EQ(faults.error().kind, ErrorKind::usage);
    const std::string name{std::string_view(option).substr(0, std::string_view(option).find('='))};
    EXPECT_TRUE(faults.error().text.starts_with(fmt::format("{}: option \"{}\": ", text, name)))
        << faults.error().text;
  }
}

TEST_F(FaultTest, a_listener_tells_its_peers_the_faults) {
  listen(server_url({{"seed", "3"}, {"loss", "0.5"}}));
  EXPECT_EQ(transport.listening_url(listener).text(), "fault+inproc://server:1?loss=0.5&seed=3");
}

TEST_F(FaultTest, a_message_that_is_lost_while_sending_ends_the_connection_at_both_ends) {
  open(server_url({{"loss", "1"}}));
  EXPECT_EQ(client.send(transport, at_client, 0, 100), SendOutcome::accepted);
  EXPECT_EQ(client.send(transport, at_client, 1, 100), SendOutcome::closed);
  run();
  EXPECT_EQ(client.closed, (std::vector{std::pair{at_client, CloseReason::peer_died}}));
  EXPECT_EQ(server.closed, (std::vector{std::pair{at_server, CloseReason::peer_died}}));
  EXPECT_EQ(server.messages, 0U);
  EXPECT_EQ(transport.counters().lost, 1U);
}

TEST_F(FaultTest, a_message_that_is_lost_on_arrival_ends_the_connection_at_both_ends) {
  listen(server_url({{"loss", "1"}, {"delay", "1ms"}}));
  const auto made =
      transport.connect({.scheme = "fault+inproc", .host = "server"}, client.options());
  ASSERT_TRUE(made);
  run();
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(client.send(transport, *made, i, 100), SendOutcome::accepted);
  }
  run();
  EXPECT_EQ(client.closed, (std::vector{std::pair{*made, CloseReason::peer_died}}));
  EXPECT_EQ(server.died(), 1U);
  EXPECT_EQ(server.messages, 0U);
  EXPECT_EQ(transport.counters().lost, 1U);
  EXPECT_EQ(server.receive_pool->available(), server.receive_pool->pages());
}

// Under all faults at once: each connection ends once and for both, what arrives is whole and in
// order (Peer checks), and nothing is left behind.
TEST_F(FaultTest, clients_that_try_again_get_through) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  listen(server_url({{"seed", std::to_string(seed)},
                     {"loss", "0.02"},
                     {"backpressure", "0.2"},
                     {"delay", "100us"}}));
  constexpr std::uint64_t count = 1000; // received, in whichever connection
  ConnectionId current = connect();
  client.react = [&](Transport&, Event& event) {
    if (event.kind == EventKind::closed) current = connect();
  };
  std::uint64_t number = 0;
  ConnectionId sending = ConnectionId::none;
  for (int i = 0; i < 1'000'000 && server.messages < count; ++i) {
    if (std::exchange(sending, current) != current) number = 0;
    const auto size = static_cast<std::uint32_t>(number * 37 % 5000);
    if (client.send(transport, current, number, size) == SendOutcome::accepted) ++number;
    turn();
  }
  EXPECT_GE(server.messages, count);
  EXPECT_GT(transport.counters().lost, 3U);
  EXPECT_GT(transport.counters().refused, 50U);
  EXPECT_GT(transport.counters().delayed, count);
  client.react = nullptr;
  transport.close(current, false);
  run();
  EXPECT_EQ(server.closed.size(), server.opened.size());
  EXPECT_EQ(server.receive_pool->available(), server.receive_pool->pages());
  EXPECT_EQ(client.send_pool->available(), client.send_pool->pages());
}

TEST_F(FaultTest, delay_keeps_the_order_within_a_connection_and_not_across) {
  listen(server_url({{"delay", "1ms"}}));
  const ConnectionId ids[] = {connect(), connect()};
  run();
  std::vector<ConnectionId> arrived;
  server.react = [&](Transport&, Event& event) { arrived.push_back(event.connection); };
  for (std::uint64_t i = 0; i < 20; ++i) {
    for (const ConnectionId id : ids) {
      EXPECT_EQ(client.send(transport, id, i, 100), SendOutcome::accepted);
      run();
    }
  }
  std::vector<ConnectionId> sent = arrived;
  arrived.clear();
  for (std::uint64_t i = 20; i < 40; ++i) {
    for (const ConnectionId id : ids)
      EXPECT_EQ(client.send(transport, id, i, 100), SendOutcome::accepted);
    turn();
  }
  run();
  EXPECT_EQ(arrived.size(), sent.size());
  EXPECT_NE(arrived, sent);
}

TEST_F(FaultTest, the_same_seed_gives_the_same_faults) {
  std::vector<std::string> logs;
  for (int i = 0; i < 3; ++i) {
    Peer own_server;
    Peer own_client;
    VirtualClock own_clock;
    Loop own_loop(own_clock);
    FaultTransport own(own_loop, std::make_unique<InprocTransport>());
    own_loop.add(own);
    const auto made = own.listen(
        server_url({{"seed", i < 2 ? "11" : "12"}, {"backpressure", "0.5"}, {"delay", "1ms"}}),
        own_server.options());
    ASSERT_TRUE(made);
    const auto id = own.connect(own.listening_url(*made), own_client.options());
    ASSERT_TRUE(id);
    std::string log;
    own_server.react = [&](Transport&, Event& event) {
      log += fmt::format("{} {}\n", own_loop.now().time_since_epoch().count(), name(event.kind));
    };
    for (std::uint64_t number = 0; own_server.messages < 50;) {
      if (own_client.send(own, *id, number, 50) == SendOutcome::accepted) ++number;
      if (own_loop.turn() || own_loop.next_deadline() == never) continue;
      own_clock.advance_to(own_loop.next_deadline());
    }
    logs.push_back(std::move(log));
    own_loop.remove(own);
  }
  EXPECT_EQ(logs[0], logs[1]);
  EXPECT_NE(logs[0], logs[2]);
}

TEST_F(FaultTest, every_message_is_refused_once_and_then_taken) {
  open(server_url({{"backpressure", "1"}}));
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(client.send(transport, at_client, i, 100), SendOutcome::backpressure);
    EXPECT_EQ(client.send(transport, at_client, i, 100), SendOutcome::backpressure);
    run();
    EXPECT_EQ(client.writable.size(), i + 1);
    EXPECT_EQ(client.send(transport, at_client, i, 100), SendOutcome::accepted);
  }
  run();
  EXPECT_EQ(server.messages, 10U);
}

TEST_F(FaultTest, what_is_held_is_dropped_by_close) {
  open(server_url({{"delay", "1s"}}));
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(client.send(transport, at_client, i, 4000), SendOutcome::accepted);
  }
  loop.turn();
  EXPECT_EQ(transport.held(), 3U);
  EXPECT_LT(server.receive_pool->available(), server.receive_pool->pages());
  transport.close(at_server, false);
  EXPECT_EQ(transport.held(), 0U);
  EXPECT_EQ(server.receive_pool->available(), server.receive_pool->pages());
  EXPECT_FALSE(transport.arm()); // somebody may wait for those pages
  run();
  EXPECT_EQ(server.messages, 0U);
  EXPECT_TRUE(server.closed.empty());
  EXPECT_EQ(client.closed, (std::vector{std::pair{at_client, CloseReason::peer_closed}}));
}

TEST_F(FaultTest, a_listener_takes_back_the_connections_that_are_still_held) {
  listen(server_url({{"delay", "1s"}}));
  const auto made =
      transport.connect({.scheme = "fault+inproc", .host = "server"}, client.options());
  ASSERT_TRUE(made);
  loop.turn();
  loop.turn();
  ASSERT_EQ(client.opened.size(), 1U);
  transport.close_listener(listener);
  run();
  EXPECT_TRUE(server.opened.empty());
  EXPECT_EQ(client.closed, (std::vector{std::pair{*made, CloseReason::peer_died}}));
}

TEST_F(FaultTest, nothing_is_taken_from_below_while_much_is_held) {
  client.send_queue_bytes = 16U << 20;
  listen(server_url({{"delay", "1s"}}));
  const auto made =
      transport.connect({.scheme = "fault+inproc", .host = "server"}, client.options());
  ASSERT_TRUE(made);
  while (client.opened.empty()) loop.turn();
  std::size_t most = 0;
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(transport.send(*made, {}), SendOutcome::accepted);
    loop.turn();
    most = std::max(most, transport.held());
  }
  EXPECT_GT(most, 1000U);
  EXPECT_LT(most, 1100U);
  EXPECT_EQ(transport.descriptor(), -1);
  run();
  EXPECT_EQ(server.messages, 3000U);
}

} // namespace
} // namespace fanin::net
