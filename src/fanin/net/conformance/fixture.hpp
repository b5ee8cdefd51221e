/// \file
/// The two sides of a conformance test and what all tests do with them.
#pragma once

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fanin/net/conformance/backend.hpp"
#include "fanin/net/conformance/peer.hpp"

namespace fanin::net::conformance {

class TransportConformance : public testing::TestWithParam<Parameter> {
protected:
  void SetUp() override {
    backend = GetParam().make();
    set_pools({});
  }

  /// The pools of both sides. Call it before open().
  void set_pools(PeerPools pools) {
    pools.shared = GetParam().shared_pools;
    server.set_pools(pools);
    client.set_pools(pools);
  }

  void TearDown() override {
    server.react = nullptr;
    client.react = nullptr;
    server.kept.clear();
    client.kept.clear();
    for (const ConnectionId id : server.opened) backend->server().close(id);
    if (!client_dead) {
      for (const ConnectionId id : client.opened) backend->client().close(id);
    }
    run_until_idle();
    EXPECT_TRUE(run_until([&] { return pools_are_full(); }))
        << "pages are missing of " << server.receive_pool->available() << " "
        << server.send_pool->available() << " " << client.receive_pool->available() << " "
        << client.send_pool->available();
    EXPECT_EQ(backend->server().closing(), 0U);
    backend.reset();
  }

  [[nodiscard]] bool pools_are_full() const {
    return server.pages_are_home() && client.pages_are_home() && backend->server().closing() == 0 &&
           (client_dead || backend->client().closing() == 0);
  }

  /// Both ends of each connection are in this process.
  [[nodiscard]] static std::size_t possible_connections() {
    rlimit files{};
    (void)getrlimit(RLIMIT_NOFILE, &files);
    const std::size_t most = (files.rlim_cur - 100) / GetParam().descriptors;
    return std::min(most, GetParam().limits.connections);
  }

  /// False if both sides are one process.
  bool kill_client() {
    client_dead = backend->kill_client();
    return client_dead;
  }

  /// The seed of a test. --gtest_shuffle and --gtest_random_seed change it.
  [[nodiscard]] static std::uint64_t random_seed() {
    return static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed()) + 1;
  }

  /// Turns until the condition holds; false if it does not for a very long time.
  template <class Condition>
  bool run_until(Condition condition) {
    for (int i = 0; i < 3'000'000; ++i) {
      if (condition()) return true;
      if (!backend->turn()) sched_yield(); // the kernel may have something to do
    }
    return condition();
  }

  /// Turns until nothing has happened for a while.
  void run_until_idle() {
    for (int idle = 0; idle < 100;) {
      if (backend->turn()) {
        idle = 0;
      } else {
        ++idle;
        sched_yield();
      }
    }
  }

  void listen(Peer& peer) { listen(peer.options()); }
  void listen(const ConnectionOptions& options) {
    const auto made = backend->server().listen(backend->address(), options);
    ASSERT_TRUE(made) << made.error().text;
    listener = *made;
  }

  /// Listens; peers that connect are unidentified at first.
  void listen_to_anybody() {
    ConnectionOptions options = server.options();
    options.peers_must_identify = true;
    listen(options);
  }

  ConnectionId connect(const ConnectionOptions& options) {
    return connect_to(backend->server().listening_url(listener), options);
  }
  ConnectionId connect_to(const Url& url, const ConnectionOptions& options) {
    const auto made = backend->client().connect(url, options);
    EXPECT_TRUE(made) << made.error().text;
    return made ? *made : ConnectionId::none;
  }

  /// Opens one connection, known to both sides.
  void open() {
    listen(server);
    at_client = connect(client.options());
    ASSERT_TRUE(run_until([&] { return server.opened.size() == 1 && client.opened.size() == 1; }));
    EXPECT_EQ(client.opened.front(), at_client);
    at_server = server.opened.front();
  }

  /// Sends one message, with turns until there is room for it.
  SendOutcome send(Peer& peer, Transport& transport, ConnectionId connection, std::uint64_t number,
                   std::uint32_t size, std::size_t extents = 1) {
    SendOutcome outcome = SendOutcome::backpressure;
    std::vector<memory::View> message;
    EXPECT_TRUE(run_until([&] {
      if (message.empty()) message = peer.make_message(number, size, extents);
      if (!message.empty()) outcome = transport.send(connection, message);
      return outcome != SendOutcome::backpressure;
    }));
    return outcome;
  }

  /// Sends messages `from` to `end` from the client.
  template <class Size>
  void send_all(std::uint64_t from, std::uint64_t end, Size size, std::size_t extents = 1) {
    for (std::uint64_t number = from; number < end; ++number) {
      ASSERT_EQ(send(client, backend->client(), at_client, number, size(number), extents),
                SendOutcome::accepted);
    }
  }

  /// Sends messages until one is refused; at least a few are accepted. Returns how many.
  std::uint64_t fill(Peer& peer, Transport& transport, ConnectionId connection,
                     std::uint32_t size) {
    std::uint64_t sent = 0;
    EXPECT_TRUE(run_until([&] {
      while (peer.send(transport, connection, sent, size) == SendOutcome::accepted) ++sent;
      return sent > 5;
    }));
    return sent;
  }

  /// Sends messages until no more is accepted and nothing moves. Returns how many.
  std::uint64_t fill_all_queues(Peer& peer, Transport& transport, ConnectionId connection,
                                std::uint32_t size) {
    std::uint64_t sent = 0;
    const auto send_one = [&] {
      const bool accepted = peer.send(transport, connection, sent, size) == SendOutcome::accepted;
      if (accepted) ++sent;
      return accepted;
    };
    EXPECT_TRUE(run_until([&] {
      while (send_one()) {
      }
      run_until_idle();
      return peer.send_pool->available() == 0 || !send_one();
    }));
    return sent;
  }

  /// What a receiver that closes or dies has not taken is known (ending.hpp).
  void expect_to_know_after_close(std::uint32_t size, bool dies);

  /// What was accepted before close() arrives, however long its reader takes (ending.hpp).
  void expect_all_after_close(std::uint32_t size, std::uint32_t receive_page_size);

  /// Each of so many senders gets a fair part (attacks.hpp).
  void expect_turns(std::size_t most, std::uint32_t size, std::uint64_t wanted, bool low_latency);

  Peer server;
  Peer client;
  std::unique_ptr<Backend> backend; ///< ends before the pools
  ListenerId listener = ListenerId::none;
  ConnectionId at_server = ConnectionId::none;
  ConnectionId at_client = ConnectionId::none;
  bool client_dead = false;
};

inline std::string parameter_name(const testing::TestParamInfo<Parameter>& info) {
  return info.param.name;
}

} // namespace fanin::net::conformance
