// What every transport has to do, as GoogleTest tests. A backend's test is a few lines, in one
// source file of its test program:
//
//   #include "fanin/net/conformance/suite.hpp"
//   INSTANTIATE_TEST_SUITE_P(Mine, TransportConformance, testing::Values(Parameter{"mine",
//   &make_mine}),
//                            parameter_name);
//
// Both sides run on one thread; nothing sleeps, and no test depends on how long anything takes.
#pragma once

#include <sched.h>

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
    if (!GetParam().shared_pools) return;
    server.share();
    client.share();
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
    settle();
    EXPECT_TRUE(run_until([&] { return pools_are_full(); })) << "pages are missing";
    EXPECT_EQ(backend->server().closing(), 0U);
    backend.reset();
  }

  [[nodiscard]] bool pools_are_full() const {
    for (const Peer* peer : {&server, &client}) {
      if (peer->receive_pool->available() != peer->receive_pool->pages()) return false;
      if (peer->send_pool->available() != peer->send_pool->pages()) return false;
    }
    return backend->server().closing() == 0;
  }

  // Turns until the condition holds; false if it does not for a very long time.
  template <class Condition>
  bool run_until(Condition condition) {
    for (int i = 0; i < 3'000'000; ++i) {
      if (condition()) return true;
      if (!backend->turn()) sched_yield(); // the kernel may owe us something
    }
    return condition();
  }

  // Turns until nothing has happened for a while.
  void settle() {
    for (int idle = 0; idle < 100;) {
      if (backend->turn()) {
        idle = 0;
      } else {
        ++idle;
        sched_yield();
      }
    }
  }

  void listen(Peer& peer) {
    const auto made = backend->server().listen(backend->address(), peer.options());
    ASSERT_TRUE(made) << made.error().text;
    listener = *made;
  }

  ConnectionId connect(const ConnectionOptions& options) {
    const auto made = backend->client().connect(backend->server().listening_url(listener), options);
    EXPECT_TRUE(made) << made.error().text;
    return made ? *made : ConnectionId::none;
  }

  // One connection, known to both sides.
  void open() {
    listen(server);
    at_client = connect(client.options());
    ASSERT_TRUE(run_until([&] { return server.opened.size() == 1 && client.opened.size() == 1; }));
    EXPECT_EQ(client.opened.front(), at_client);
    at_server = server.opened.front();
  }

  // Sends messages `from` to `end` from the client, with turns where it is held back.
  template <class Size>
  void send_all(std::uint64_t from, std::uint64_t end, Size size, std::size_t extents = 1) {
    for (std::uint64_t number = from; number < end; ++number) {
      ASSERT_TRUE(run_until([&] {
        const SendOutcome outcome =
            client.send(backend->client(), at_client, number, size(number), extents);
        EXPECT_TRUE(outcome == SendOutcome::accepted || outcome == SendOutcome::backpressure);
        return outcome != SendOutcome::backpressure;
      }));
    }
  }

  Peer server;
  Peer client;
  std::unique_ptr<Backend> backend; // ends before the pools
  ListenerId listener = ListenerId::none;
  ConnectionId at_server = ConnectionId::none;
  ConnectionId at_client = ConnectionId::none;
  bool client_dead = false;
};

inline std::string parameter_name(const testing::TestParamInfo<Parameter>& info) {
  return info.param.name;
}

TEST_P(TransportConformance, ListeningOnPortZeroGivesEachListenerAPortOfItsOwn) {
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
  EXPECT_NE(again.error().text.find(a.text()), std::string::npos) << again.error().text;
  listener = *second;
  (void)connect(client.options());
  EXPECT_TRUE(run_until([&] { return !server.opened.empty(); }));
}

TEST_P(TransportConformance, ConnectingIsReportedToBothSides) {
  open();
  EXPECT_FALSE(backend->server().peer_name(at_server).empty());
  EXPECT_FALSE(backend->client().peer_name(at_client).empty());
}

TEST_P(TransportConformance, ConnectingToNobodyFailsWithAnEvent) {
  const auto made = backend->client().connect(backend->nobody(), client.options());
  ASSERT_TRUE(made) << made.error().text;
  ASSERT_TRUE(run_until([&] { return !client.closed.empty(); }));
  EXPECT_EQ(client.closed, (std::vector{std::pair{*made, CloseReason::connect_failed}}));
  EXPECT_EQ(client.send(backend->client(), *made, 0, 1), SendOutcome::closed);
}

TEST_P(TransportConformance, WrongOptionsAreErrors) {
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

TEST_P(TransportConformance, NothingCanBeSentBeforeTheConnectionIsMade) {
  listen(server);
  at_client = connect(client.options());
  EXPECT_EQ(client.send(backend->client(), at_client, 0, 1), SendOutcome::closed);
  EXPECT_EQ(client.send(backend->client(), ConnectionId::none, 0, 1), SendOutcome::closed);
  EXPECT_TRUE(run_until([&] { return !client.opened.empty() && !server.opened.empty(); }));
}

TEST_P(TransportConformance, EverySizeArrivesWholeAndInOrder) {
  open();
  std::vector<std::uint32_t> all{0, 0, 1};
  for (std::uint32_t power = 2; power <= page_size / 2; power *= 2) {
    all.insert(all.end(), {power - 1, power});
    if (power < page_size / 2) all.push_back(power + 1);
  }
  all.insert(all.end(), {0, page_size / 2, page_size / 2, 0, 5});
  const auto size = [&](std::uint64_t number) { return all[number]; };
  server.sizes = size;
  send_all(0, all.size(), size);
  EXPECT_TRUE(run_until([&] { return server.messages == all.size(); }));
}

TEST_P(TransportConformance, RandomSizesInRandomPiecesArriveInOrder) {
  const auto seed = static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed()) + 1;
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (std::size_t extents = 1; extents <= max_extents; ++extents) {
    const auto size = [seed](std::uint64_t number) {
      Random random(seed + number);
      const std::uint64_t bound = random.chance(1, 3)   ? page_size / 2 + 1
                                  : random.chance(1, 2) ? 600
                                                        : 20;
      return static_cast<std::uint32_t>(random.below(bound));
    };
    server.sizes = size;
    if (extents == 1) open();
    const std::uint64_t from = (extents - 1) * 400;
    send_all(from, from + 400, size, extents);
    ASSERT_TRUE(run_until([&] { return server.messages == from + 400; }));
  }
}

TEST_P(TransportConformance, BothDirectionsWorkAtOnce) {
  open();
  std::uint64_t forth = 0;
  std::uint64_t back = 0;
  constexpr std::uint64_t count = 2000;
  ASSERT_TRUE(run_until([&] {
    if (forth < count &&
        client.send(backend->client(), at_client, forth, 700) == SendOutcome::accepted)
      ++forth;
    if (back < count &&
        server.send(backend->server(), at_server, back, 1900) == SendOutcome::accepted)
      ++back;
    return server.messages == count && client.messages == count;
  }));
}

TEST_P(TransportConformance, AMessageOverThePeersLimitIsRefused) {
  ConnectionOptions small = server.options();
  small.max_message = 1000;
  const auto made = backend->server().listen(backend->address(), small);
  ASSERT_TRUE(made);
  listener = *made;
  at_client = connect(client.options());
  ASSERT_TRUE(run_until([&] { return !client.opened.empty() && !server.opened.empty(); }));
  EXPECT_EQ(client.send(backend->client(), at_client, 0, 1001), SendOutcome::too_large);
  EXPECT_EQ(client.send(backend->client(), at_client, 0, page_size / 2), SendOutcome::too_large);
  const ConnectionId back = server.opened.front(); // the other direction has its own limit
  EXPECT_EQ(server.send(backend->server(), back, 0, page_size / 2 + 1), SendOutcome::too_large);
  EXPECT_EQ(server.send(backend->server(), back, 0, page_size / 2), SendOutcome::accepted);
  EXPECT_EQ(client.send(backend->client(), at_client, 0, 10, max_extents + 1),
            SendOutcome::too_large);
  EXPECT_EQ(client.send(backend->client(), at_client, 0, 1000), SendOutcome::accepted);
  EXPECT_TRUE(run_until([&] { return server.messages == 1 && client.messages == 1; }));
}

TEST_P(TransportConformance, ASlowReaderHoldsTheSenderBackUntilWritable) {
  Peer slow(8);
  slow.keep = true;
  listen(slow);
  at_client = connect(client.options());
  ASSERT_TRUE(run_until([&] { return !client.opened.empty() && !slow.opened.empty(); }));
  std::uint64_t sent = 0;
  SendOutcome outcome = SendOutcome::accepted;
  // The queues on the way, those of the kernel included, are finite.
  ASSERT_TRUE(run_until([&] {
    if (client.send_pool->available() == 0) return true;
    outcome = client.send(backend->client(), at_client, sent, page_size / 2);
    if (outcome == SendOutcome::accepted) ++sent;
    return outcome == SendOutcome::backpressure;
  }));
  settle();
  // Where memory is shared, what the reader holds is the sender's.
  EXPECT_LE(slow.messages, backend->server().shares_memory() ? sent : 16U);
  client.writable.clear(); // there may have been some room, and is none now
  slow.keep = false;
  slow.kept.clear();
  EXPECT_TRUE(run_until([&] { return slow.messages == sent; }));
  if (outcome == SendOutcome::backpressure) {
    settle();
    EXPECT_EQ(client.send(backend->client(), at_client, sent, 1), SendOutcome::accepted);
    EXPECT_TRUE(run_until([&] { return slow.messages == sent + 1; }));
  }
  backend->client().close(at_client);
  EXPECT_TRUE(run_until([&] { return !slow.closed.empty(); }));
  EXPECT_EQ(slow.receive_pool->available(), slow.receive_pool->pages());
}

TEST_P(TransportConformance, AnEmptyReceivePoolLosesNothing) {
  Peer poor(6);
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
  EXPECT_EQ(poor.receive_pool->available(), poor.receive_pool->pages());
}

TEST_P(TransportConformance, AConnectionWithoutPagesDoesNotHoldUpAnother) {
  Peer stuck(6);
  stuck.keep = true;
  listen(stuck);
  const ConnectionId first = connect(client.options());
  ASSERT_TRUE(run_until([&] { return !client.opened.empty() && !stuck.opened.empty(); }));
  for (std::uint64_t i = 0; i < 14; ++i) {
    EXPECT_EQ(client.send(backend->client(), first, i, page_size / 4 + 8), SendOutcome::accepted);
    settle();
  }
  for (std::uint64_t i = 14; i < 20; ++i) {
    (void)client.send(backend->client(), first, i, page_size / 2);
    settle();
  }
  listen(server);
  Peer other; // the first one's pages may all be in the hands of its reader
  at_client = connect(other.options());
  ASSERT_TRUE(run_until([&] { return !other.opened.empty() && !server.opened.empty(); }));
  EXPECT_TRUE(run_until([&] {
    const std::uint64_t number = server.messages;
    if (number < 50) (void)other.send(backend->client(), at_client, number, 100);
    settle();
    return server.messages >= 50;
  }));
  backend->client().close(at_client);
  stuck.kept.clear();
  stuck.keep = false;
  settle();
  backend->client().close(first, true);
  EXPECT_TRUE(run_until([&] { return !stuck.closed.empty(); }));
  EXPECT_EQ(stuck.receive_pool->available(), stuck.receive_pool->pages());
}

TEST_P(TransportConformance, SmallMessagesShareAPage) {
  open();
  settle();
  server.keep = true;
  const std::uint32_t before = server.receive_pool->available();
  for (std::uint64_t i = 0; i < 128; ++i) { // two pages' worth, one at a time
    send_all(i, i + 1, [](std::uint64_t) { return page_size / 64; });
    ASSERT_TRUE(run_until([&] { return server.messages == i + 1; }));
  }
  settle();
  EXPECT_GE(server.receive_pool->available() + 5, before);
}

TEST_P(TransportConformance, AnIdleConnectionOwnsNoMoreThanItsPostedReceives) {
  open();
  settle();
  const std::uint32_t idle = server.receive_pool->available();
  send_all(0, 30, [](std::uint64_t number) { return static_cast<std::uint32_t>(number * 250); });
  ASSERT_TRUE(run_until([&] { return server.messages == 30; }));
  settle();
  EXPECT_EQ(server.receive_pool->available(), idle);
}

TEST_P(TransportConformance, WhatWasSentBeforeAnOrderlyCloseArrives) {
  open();
  std::uint64_t sent = 0;
  while (client.send(backend->client(), at_client, sent, 3000) == SendOutcome::accepted) ++sent;
  ASSERT_GT(sent, 5U);
  backend->client().close(at_client);
  backend->client().close(at_client); // once more makes no difference
  EXPECT_EQ(backend->client().send(at_client, {}), SendOutcome::closed);
  ASSERT_TRUE(run_until([&] { return !server.closed.empty(); }));
  EXPECT_EQ(server.messages, sent);
  EXPECT_EQ(server.closed, (std::vector{std::pair{at_server, CloseReason::peer_closed}}));
  EXPECT_TRUE(client.closed.empty());
  EXPECT_EQ(server.send(backend->server(), at_server, 0, 1), SendOutcome::closed);
}

TEST_P(TransportConformance, ACloseReachesAPeerThatIsSending) {
  open();
  std::uint64_t sent = 0;
  while (client.send(backend->client(), at_client, sent, 3000) == SendOutcome::accepted) ++sent;
  while (server.send(backend->server(), at_server, client.messages, 3000) ==
         SendOutcome::accepted) {
  }
  backend->client().close(at_client);
  ASSERT_TRUE(run_until([&] {
    (void)server.send(backend->server(), at_server, 0, 3000);
    return !server.closed.empty();
  }));
  EXPECT_EQ(server.messages, sent);
  EXPECT_EQ(server.closed.front().second, CloseReason::peer_closed);
  EXPECT_EQ(client.messages, 0U);
}

TEST_P(TransportConformance, BothSidesMayCloseAtOnce) {
  open();
  EXPECT_EQ(client.send(backend->client(), at_client, 0, 3000), SendOutcome::accepted);
  backend->client().close(at_client);
  backend->server().close(at_server);
  settle();
  EXPECT_TRUE(client.closed.empty());
  EXPECT_TRUE(server.closed.empty());
}

TEST_P(TransportConformance, AnAbortIsADeathToThePeer) {
  open();
  send_all(0, 5, [](std::uint64_t) { return 100U; });
  backend->client().close(at_client, true);
  ASSERT_TRUE(run_until([&] { return !server.closed.empty(); }));
  EXPECT_EQ(server.closed, (std::vector{std::pair{at_server, CloseReason::peer_died}}));
  EXPECT_TRUE(client.closed.empty());
}

TEST_P(TransportConformance, TheDeathOfAProcessIsNoticed) {
  open();
  send_all(0, 20, [](std::uint64_t) { return 1000U; });
  ASSERT_TRUE(run_until([&] { return server.messages > 0; }));
  if (!backend->kill_client()) GTEST_SKIP() << "both sides are one process";
  client_dead = true;
  ASSERT_TRUE(run_until([&] { return !server.closed.empty(); }));
  EXPECT_EQ(server.closed, (std::vector{std::pair{at_server, CloseReason::peer_died}}));
}

TEST_P(TransportConformance, ConnectionsOutliveTheirListener) {
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

TEST_P(TransportConformance, NoEventFollowsCloseEvenWithinOneBatch) {
  open();
  server.react = [&](Transport& transport, Event& event) {
    if (event.kind == EventKind::message) transport.close(event.connection);
  };
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(client.send(backend->client(), at_client, i, 10), SendOutcome::accepted);
  }
  ASSERT_TRUE(run_until([&] { return !client.closed.empty(); }));
  settle();
  EXPECT_EQ(server.messages, 1U);
  EXPECT_TRUE(server.closed.empty());
}

TEST_P(TransportConformance, AHandlerMaySendAndCloseInAnyEvent) {
  server.react = [&](Transport& transport, Event& event) {
    if (event.kind != EventKind::accepted) return;
    EXPECT_EQ(server.send(transport, event.connection, 0, 500), SendOutcome::accepted);
    transport.close(event.connection);
  };
  open();
  ASSERT_TRUE(run_until([&] { return !client.closed.empty(); }));
  EXPECT_EQ(client.messages, 1U);
  EXPECT_EQ(client.closed.front().second, CloseReason::peer_closed);
}

TEST_P(TransportConformance, ManyConnectionsKeepTheirOrderEach) {
  listen(server);
  constexpr std::size_t count = 40;
  std::vector<ConnectionId> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(connect(client.options()));
  ASSERT_TRUE(
      run_until([&] { return server.opened.size() == count && client.opened.size() == count; }));
  std::map<ConnectionId, std::uint64_t> sent;
  Random random(3);
  ASSERT_TRUE(run_until([&] {
    const ConnectionId id = ids[random.below(count)];
    std::uint64_t& number = sent[id];
    const auto size = static_cast<std::uint32_t>(random.below(random.chance(1, 8) ? 8192 : 300));
    if (number < 60 && client.send(backend->client(), id, number, size) == SendOutcome::accepted)
      ++number;
    return server.messages == 60 * count;
  }));
  for (const auto& [id, number] : server.next) EXPECT_EQ(number, 60U);
}

TEST_P(TransportConformance, ConnectionsComeAndGoWithoutLeavingAnything) {
  listen(server);
  for (std::size_t i = 0; i < 64; ++i) {
    at_client = connect(client.options());
    ASSERT_TRUE(
        run_until([&] { return client.opened.size() == i + 1 && server.opened.size() == i + 1; }));
    EXPECT_EQ(client.send(backend->client(), at_client, 0, 100), SendOutcome::accepted);
    backend->client().close(at_client, i % 3 == 2);
    ASSERT_TRUE(run_until([&] { return server.closed.size() == i + 1; }));
  }
  EXPECT_EQ(server.died(), 21U);
}

TEST_P(TransportConformance, ASleepingLoopIsWokenForEverything) {
  Loop* const loop = backend->sleeping_loop();
  if (loop == nullptr) GTEST_SKIP() << "nothing sleeps here";
  Peer poor(6);
  poor.keep = true;
  listen(poor);
  at_client = connect(client.options());
  std::uint64_t sent = 0;
  // Pages come back from timers, messages go when there is room: a wake-up that is lost hangs here.
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
  loop->run(WaitPolicy::block);
  loop->remove(service);
  EXPECT_EQ(poor.messages, 300U);
  returns.cancel();
  poor.kept.clear();
  backend->client().close(at_client);
  EXPECT_TRUE(run_until([&] { return !poor.closed.empty(); }));
}

} // namespace fanin::net::conformance
