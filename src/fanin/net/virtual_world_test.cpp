#include "fanin/net/virtual_world.hpp"

#include <cstring>
#include <functional>
#include <map>

#include <gtest/gtest.h>

namespace fanin::net {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<memory::PagePool> make_small_pool(std::uint32_t size_of_page, std::uint32_t pages) {
  return *memory::PagePool::make({.page_size = size_of_page, .pages = pages});
}

// One application on one node: counts what it gets.
class CountingPeer final : public Handler {
public:
  explicit CountingPeer(VirtualNode& node, std::uint32_t pages = 64, std::uint32_t send_pages = 64)
      : node_(node),
        pool(make_small_pool(4096, pages)),
        send_pool(make_small_pool(4096, send_pages)) {}

  ConnectionOptions options() {
    return {.receive_pool = pool.get(), .handler = this, .send_queue_bytes = 1 << 20};
  }
  void listen() {
    ASSERT_TRUE(node_.transport().listen(*Url::parse("sim://" + node_.name()), options()));
  }
  void connect(VirtualNode& to) {
    const auto made = node_.transport().connect(*Url::parse("sim://" + to.name()), options());
    ASSERT_TRUE(made);
    connection = *made;
  }
  SendOutcome send(std::uint64_t value, std::uint32_t size = 8) {
    memory::Loan loan = send_pool->take();
    if (!loan) return SendOutcome::backpressure;
    std::memset(loan.data(), 0, size);
    std::memcpy(loan.data(), &value, 8);
    const memory::View view = loan.freeze(0, size);
    return node_.transport().send(connection, std::span(&view, 1));
  }
  void on_event(Transport&, Event& event) override {
    switch (event.kind) {
    case EventKind::accepted:
      connection = event.connection;
      ++accepted;
      break;
    case EventKind::connected: ++connected; break;
    case EventKind::writable: ++writable; break;
    case EventKind::closed: closed.push_back(event.reason); break;
    case EventKind::message: {
      std::uint64_t value = 0;
      std::memcpy(&value, event.message.data(), 8);
      values.push_back(value);
      if (keep) kept.push_back(event.message);
      if (on_message) on_message(event);
      break;
    }
    }
  }

private:
  VirtualNode& node_;

public:
  std::unique_ptr<memory::PagePool> pool;
  std::unique_ptr<memory::PagePool> send_pool;
  ConnectionId connection = ConnectionId::none;
  int accepted = 0;
  int connected = 0;
  int writable = 0;
  bool keep = false;
  std::vector<CloseReason> closed;
  std::vector<std::uint64_t> values;
  std::vector<memory::View> kept;
  std::function<void(Event&)> on_message;
};

// The world ends before the pools: declared last.
struct Two {
  explicit Two(bool strict = false)
      : world(1, {.strict = strict}), a(world.add_node("a")), b(world.add_node("b")) {}
  VirtualWorld world;
  VirtualNode& a;
  VirtualNode& b;
};

TEST(VirtualWorld, messages_arrive_in_order_after_their_latency) {
  std::unique_ptr<CountingPeer> client;
  std::unique_ptr<CountingPeer> server;
  Two two;
  client = std::make_unique<CountingPeer>(two.a);
  server = std::make_unique<CountingPeer>(two.b);
  server->keep = true;
  server->listen();
  client->connect(two.b);
  EXPECT_EQ(client->send(1), SendOutcome::closed); // not yet
  two.world.run_until(Time{1ms});
  EXPECT_EQ(client->connected, 1);
  EXPECT_EQ(server->accepted, 1);
  std::vector<std::uint64_t> sent;
  for (std::uint64_t i = 0; i < 60; ++i) {
    ASSERT_EQ(client->send(i), SendOutcome::accepted);
    sent.push_back(i);
  }
  two.world.run_until(two.world.now() + 4us);
  EXPECT_TRUE(server->values.empty());
  two.world.run_until(never);
  EXPECT_EQ(server->values, sent);
  EXPECT_EQ(client->send_pool->available(), 64U);
  EXPECT_EQ(server->pool->available(), 63U); // small messages share a page
  server->kept.clear();
  EXPECT_EQ(server->pool->available(), 64U);
}

TEST(VirtualWorld, an_empty_receive_pool_holds_the_sender_back_without_loss) {
  for (const bool strict : {false, true}) {
    std::unique_ptr<CountingPeer> client;
    std::unique_ptr<CountingPeer> server;
    Two two(strict);
    client = std::make_unique<CountingPeer>(two.a);
    server = std::make_unique<CountingPeer>(two.b, 5);
    server->keep = true;
    server->listen();
    client->connect(two.b);
    two.world.run_until(Time{1ms});
    for (std::uint64_t i = 0; i < 32; ++i) ASSERT_EQ(client->send(i, 2048), SendOutcome::accepted);
    two.world.run_until(two.world.now() + 10ms);
    EXPECT_LT(server->values.size(), 12U);
    while (server->values.size() < 32) {
      ASSERT_FALSE(server->kept.empty());
      server->kept.clear();
      two.world.run_until(two.world.now() + 1ms);
    }
    server->kept.clear();
    EXPECT_EQ(client->send_pool->available(), 64U);
  }
}

TEST(VirtualWorld, a_dead_nodes_messages_arrive_and_then_its_peers_know) {
  std::unique_ptr<CountingPeer> client;
  std::unique_ptr<CountingPeer> server;
  Two two;
  client = std::make_unique<CountingPeer>(two.a);
  server = std::make_unique<CountingPeer>(two.b);
  server->listen();
  client->connect(two.b);
  two.world.run_until(Time{1ms});
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_EQ(client->send(i), SendOutcome::accepted);
  two.a.kill();
  client.reset(); // nothing of its pools is held any more
  EXPECT_FALSE(two.a.alive());
  two.world.run_until(never);
  EXPECT_EQ(server->values.size(), 10U);
  EXPECT_EQ(server->closed, std::vector{CloseReason::peer_died});
  EXPECT_EQ(server->send(1), SendOutcome::closed);

  two.a.restart();
  client = std::make_unique<CountingPeer>(two.a);
  client->connect(two.b);
  two.world.run_until(never);
  EXPECT_EQ(client->connected, 1);

  two.b.kill();
  server.reset();
  client->connect(two.b);
  two.world.run_until(never);
  EXPECT_EQ(client->closed, (std::vector{CloseReason::peer_died, CloseReason::connect_failed}));
}

TEST(VirtualWorld, a_frozen_node_is_silent_until_it_is_thawed) {
  std::unique_ptr<CountingPeer> client;
  std::unique_ptr<CountingPeer> server;
  Two two;
  client = std::make_unique<CountingPeer>(two.a);
  server = std::make_unique<CountingPeer>(two.b);
  server->listen();
  client->connect(two.b);
  two.world.run_until(Time{1ms});
  two.b.freeze();
  ASSERT_EQ(client->send(7), SendOutcome::accepted);
  two.world.run_until(Time{5s});
  EXPECT_TRUE(server->values.empty());
  EXPECT_TRUE(client->closed.empty());
  EXPECT_EQ(client->send_pool->available(), 63U);
  // closing with abort gives the pages back although the peer is frozen
  two.a.transport().close(client->connection, true);
  EXPECT_EQ(client->send_pool->available(), 64U);
  two.b.thaw();
  two.world.run_until(Time{6s});
  EXPECT_EQ(server->closed, std::vector{CloseReason::peer_died});
}

TEST(VirtualWorld, disconnected_nodes_both_see_a_dead_peer) {
  std::unique_ptr<CountingPeer> client;
  std::unique_ptr<CountingPeer> server;
  Two two;
  client = std::make_unique<CountingPeer>(two.a);
  server = std::make_unique<CountingPeer>(two.b);
  server->listen();
  client->connect(two.b);
  two.world.run_until(Time{1ms});
  ASSERT_EQ(client->send(7), SendOutcome::accepted);
  two.a.disconnect(two.b);
  two.world.run_until(never);
  EXPECT_TRUE(server->values.empty());
  EXPECT_EQ(server->closed, std::vector{CloseReason::peer_died});
  EXPECT_EQ(client->closed, std::vector{CloseReason::peer_died});
  EXPECT_EQ(client->send_pool->available(), 64U);
  client->connect(two.b);
  two.world.run_until(never);
  EXPECT_EQ(client->connected, 2);
}

TEST(VirtualWorld, a_slow_node_is_late) {
  std::unique_ptr<CountingPeer> client;
  std::unique_ptr<CountingPeer> server;
  Two two;
  client = std::make_unique<CountingPeer>(two.a);
  server = std::make_unique<CountingPeer>(two.b);
  server->listen();
  two.b.slow_down(10ms);
  client->connect(two.b);
  two.world.run_until(Time{19ms});
  EXPECT_EQ(client->connected, 0);
  two.world.run_until(Time{21ms});
  EXPECT_EQ(client->connected, 1);
}

TEST(VirtualWorldDeathTest, strict_sends_must_keep_their_memory_until_they_complete) {
  const auto reuse_early = [](bool early) {
    std::unique_ptr<CountingPeer> client;
    std::unique_ptr<CountingPeer> server;
    Two two(true);
    client = std::make_unique<CountingPeer>(two.a);
    server = std::make_unique<CountingPeer>(two.b);
    server->listen();
    client->connect(two.b);
    two.world.run_until(Time{1ms});
    memory::Loan loan = client->send_pool->take();
    std::memset(loan.data(), 1, 64);
    const memory::View view = loan.freeze(0, 64);
    ASSERT_EQ(two.a.transport().send(client->connection, std::span(&view, 1)),
              SendOutcome::accepted);
    if (!early) two.world.run_until(Time{2ms});
    loan.data()[3] = std::byte{9};
    two.world.run_until(Time{3ms});
  };
  reuse_early(false);
  EXPECT_DEATH(reuse_early(true), "memory_of_a_message_unchanged_until_its_send_completed");
}

class Ticker final : public Service {
public:
  bool poll() override { return left > 0 && left-- > 0; }
  int left = 0;
};

TEST(VirtualWorld, a_service_runs_until_it_has_nothing_more) {
  VirtualWorld world(1, {.turn_cost = 1us});
  VirtualNode& node = world.add_node("a");
  Ticker ticker;
  node.loop().add(ticker);
  world.run_until(Time{1ms});
  ticker.left = 10;
  world.run_until(never);
  EXPECT_EQ(ticker.left, 0);
  EXPECT_EQ(world.now(), Time{1ms} + 10us); // each turn costs virtual time
  EXPECT_FALSE(world.step());
}

TEST(VirtualWorld, timers_fire_at_their_virtual_time) {
  VirtualWorld world(1, {});
  VirtualNode& node = world.add_node("a");
  std::vector<Time> fired;
  Timer timer([&] {
    fired.push_back(node.loop().now());
    if (fired.size() < 3) timer.start(node.loop(), node.loop().now() + 1h);
  });
  timer.start(node.loop(), Time{1h});
  world.run_until(never);
  EXPECT_EQ(fired, (std::vector<Time>{Time{1h}, Time{2h}, Time{3h}}));
}

// Every node sends to random others for a while; answers are counted.
struct Storm {
  std::vector<std::unique_ptr<CountingPeer>> peers; // ends after the world
  VirtualWorld world;
  std::uint64_t messages = 0;

  Storm(std::uint64_t seed, std::size_t nodes, int fan_out, bool strict)
      : world(seed, {.strict = strict, .posted_receives = 2}) {
    std::vector<VirtualNode*> all;
    for (std::size_t i = 0; i < nodes; ++i) {
      all.push_back(&world.add_node("n" + std::to_string(i)));
      peers.push_back(
          std::make_unique<CountingPeer>(*all[i], 4 + 8 * static_cast<std::uint32_t>(fan_out), 8));
      peers[i]->listen();
    }
    for (std::size_t i = 0; i < nodes; ++i) {
      for (int k = 0; k < fan_out; ++k) peers[i]->connect(*all[world.random().below(nodes)]);
      peers[i]->on_message = [this, i](Event& event) {
        ++messages;
        std::uint64_t hops = peers[i]->values.back();
        if (hops == 0) return;
        peers[i]->connection = event.connection;
        (void)peers[i]->send(hops - 1, 64);
      };
    }
    world.run_until(Time{1ms});
    for (auto& peer : peers) (void)peer->send(100, 64);
  }
};

TEST(VirtualWorld, the_same_seed_gives_the_same_trace) {
  for (const bool strict : {false, true}) {
    std::map<std::uint64_t, std::uint64_t> hashes;
    for (const std::uint64_t seed : {1U, 2U, 1U, 2U}) {
      Storm storm(seed, 32, 3, strict);
      storm.world.run_until(never);
      const auto [known, is_new] = hashes.emplace(seed, storm.world.trace_hash());
      EXPECT_EQ(known->second, storm.world.trace_hash()) << "seed " << seed;
    }
    EXPECT_EQ(hashes.size(), 2U);
    EXPECT_NE(hashes[1], hashes[2]);
  }
}

TEST(VirtualWorld, runs_a_thousand_nodes_on_one_thread) {
  Storm storm(3, 1024, 2, false);
  const std::uint64_t turns = storm.world.run_until(never);
  EXPECT_GT(storm.messages, 50'000U);
  EXPECT_GT(turns, storm.messages / 4);
  for (const auto& peer : storm.peers) EXPECT_EQ(peer->pool->available(), peer->pool->pages());
}

} // namespace
} // namespace fanin::net
