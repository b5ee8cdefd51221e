// What an RdmaTransport does with a provider at its worst; the conformance suite has the rest.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "fanin/net/conformance/peer.hpp"
#include "fanin/net/rdma/rdma.hpp"
#include "fanin/net/rdma/testing/adversarial_provider.hpp"

namespace fanin::net {
namespace {

class RdmaTransportTest : public ::testing::Test, public Handler {
public:
  ~RdmaTransportTest() override {
    loop.remove(server);
    if (client) loop.remove(*client);
  }

protected:
  explicit RdmaTransportTest(Url url = {.scheme = "adversarial"}) {
    loop.add(server);
    listener = server.listen(url, {.receive_pool = pool.get(), .handler = this}).value();
  }

  void start_client(RdmaOptions options = {}) {
    client.emplace(loop, std::make_unique<rdma::AdversarialProvider>(fabric), std::move(options));
    loop.add(*client);
  }
  ConnectionId connect() {
    const std::size_t before = connected.size();
    const auto id = client->connect(server.listening_url(listener),
                                    {.receive_pool = pool.get(), .handler = this});
    until([&] { return connected.size() > before; });
    return id.value();
  }
  template <class Condition>
  void until(Condition condition) {
    for (int turns = 0; turns < 100'000 && !condition(); ++turns) (void)loop.turn();
    ASSERT_TRUE(condition());
  }
  // More pieces than the provider takes.
  SendOutcome send_in_pieces(ConnectionId id, std::uint32_t size) {
    memory::Loan page = pool->take();
    const memory::View whole = page.freeze(0, size);
    std::array<memory::View, max_extents> extents;
    extents.fill(whole);
    for (memory::View& extent : extents) extent.size /= max_extents;
    return client->send(id, extents);
  }

  void end_twice();

  void on_event(Transport&, Event& event) override {
    switch (event.kind) {
    case EventKind::connected: connected.push_back(event.connection); break;
    case EventKind::accepted: accepted.push_back(event.connection); break;
    case EventKind::writable: writable.push_back(event.connection); break;
    case EventKind::closed: closed.push_back(event.connection); break;
    case EventKind::message:
      ++messages;
      pages.insert(event.message.page.get());
      break;
    }
  }

  std::shared_ptr<rdma::AdversarialFabric> fabric = std::make_shared<rdma::AdversarialFabric>(7);
  std::unique_ptr<memory::PagePool> pool =
      memory::PagePool::make({.page_size = 65536, .pages = 256, .arena = {}}).value();
  MonotonicClock clock;
  Loop loop{clock};
  RdmaTransport server{loop, std::make_unique<rdma::AdversarialProvider>(fabric)};
  std::optional<RdmaTransport> client;
  ListenerId listener = ListenerId::none;
  std::vector<ConnectionId> connected;
  std::vector<ConnectionId> accepted;
  std::vector<ConnectionId> writable;
  std::vector<ConnectionId> closed;
  int messages = 0;
  std::set<const void*> pages; // that messages came in
};

class RdmaSharing : public RdmaTransportTest {
protected:
  RdmaSharing() : RdmaTransportTest({.scheme = "adversarial", .options = {{"share_above", "0"}}}) {}
};

TEST_F(RdmaTransportTest, a_connection_that_ends_twice_in_one_turn_ends_once) { end_twice(); }

TEST_F(RdmaSharing, a_connection_that_ends_twice_in_one_turn_ends_once) { end_twice(); }

void RdmaTransportTest::end_twice() {
  start_client();
  for (int round = 0; round < 50; ++round) {
    const ConnectionId id = connect();
    until([&] { return accepted.size() == connected.size(); });
    server.close(accepted.back(), true);
    for (int i = 0; i < 4; ++i) (void)send_in_pieces(id, 4096);
    client->flush(); // the provider refuses, mostly
    client->close(id, true);
  }
  until([&] { return pool->available() == pool->pages(); });
}

TEST_F(RdmaTransportTest, who_waits_for_pages_to_copy_to_goes_on_when_others_have_given_them_back) {
  start_client({.copy_pool = 64U << 10}); // two pages, which all share
  const ConnectionId first = connect();
  const ConnectionId second = connect();
  int sent = 0;
  while (send_in_pieces(first, 32768) == SendOutcome::accepted) ++sent;
  ASSERT_GT(sent, 0);
  ASSERT_EQ(send_in_pieces(second, 32768), SendOutcome::backpressure); // with nothing under way
  until([&] { return writable.size() == 2; });
  EXPECT_EQ(send_in_pieces(second, 32768), SendOutcome::accepted);
  until([&] { return messages == sent + 1; });
  EXPECT_TRUE(closed.empty());
}

// It listens to anybody, over a pool of 16 pages, of which two are for peers that are not known.
class RdmaUnidentifiedPeers : public RdmaTransportTest {
protected:
  RdmaUnidentifiedPeers() {
    loop.add(open_to_all);
    here = open_to_all
               .listen({.scheme = "adversarial"},
                       {.receive_pool = few.get(), .handler = this, .peers_must_identify = true})
               .value();
    start_client();
  }
  void TearDown() override { loop.remove(open_to_all); }
  ConnectionId knock() {
    return client
        ->connect(open_to_all.listening_url(here), {.receive_pool = pool.get(), .handler = this})
        .value();
  }
  void run_until_idle() {
    for (int turns = 0; turns < 200; ++turns) (void)loop.turn();
  }
  std::unique_ptr<memory::PagePool> few =
      memory::PagePool::make({.page_size = 65536, .pages = 16, .arena = {}}).value();
  RdmaTransport open_to_all{
      loop, std::make_unique<rdma::AdversarialProvider>(fabric),
      RdmaOptions{.unidentified = {.patience = std::chrono::microseconds{100}}}};
  ListenerId here = ListenerId::none;
};

TEST_F(RdmaUnidentifiedPeers, who_does_not_say_who_it_is_goes_when_others_wait) {
  for (int i = 0; i < 10; ++i) (void)knock(); // silent for ever
  run_until_idle();
  EXPECT_GE(few->available(), 14U);
  const ConnectionId honest = knock();
  until([&] { return std::ranges::find(connected, honest) != connected.end(); });
  EXPECT_EQ(send_in_pieces(honest, 64), SendOutcome::accepted);
  until([&] { return messages == 1; });
  EXPECT_GE(few->available(), 12U);
  EXPECT_GE(closed.size(), 2U);
}

TEST_F(RdmaUnidentifiedPeers, no_more_are_sent_away_than_others_wait) {
  for (int i = 0; i < 3; ++i) (void)knock();
  until([&] { return closed.size() == 2 && connected.size() == 3; }); // both ends of one
  run_until_idle();
  EXPECT_EQ(closed.size(), 2U);
}

TEST_F(RdmaUnidentifiedPeers, an_identified_peer_gets_all_its_pages_and_leaves_room_for_the_next) {
  std::vector<ConnectionId> ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(knock());
    const std::size_t before = accepted.size();
    until([&] { return accepted.size() > before; });
    until([&] { return connected.size() > before; });
    EXPECT_EQ(few->available(), 16U - 2 * before - 1);
    open_to_all.mark_identified(accepted.back());
    EXPECT_EQ(few->available(), 16U - 2 * accepted.size());
  }
  EXPECT_TRUE(closed.empty());
}

TEST_F(RdmaUnidentifiedPeers, those_who_wait_and_give_up_leave_nothing) {
  std::vector<ConnectionId> ids(20);
  for (ConnectionId& id : ids) id = knock();
  run_until_idle();
  for (const ConnectionId id : ids) client->close(id, true);
  until([&] { return few->available() == 16; });
}

// Nobody sees how much of a message has come.
class RdmaSlowNetwork : public ::testing::Test {
protected:
  static constexpr std::uint32_t large = 3'000'000; // bytes

  void SetUp() override {
    loop.add(transport);
    const ListenerId listener =
        transport.listen({.scheme = "adversarial"}, server.options()).value();
    id = transport.connect(transport.listening_url(listener), client.options()).value();
    turn();
    ASSERT_EQ(client.opened.size(), 1U);
    ASSERT_EQ(server.opened.size(), 1U);
  }
  void TearDown() override { loop.remove(transport); }
  void turn() {
    for (int i = 0; i < 100; ++i) (void)loop.turn();
  }
  void pass(Duration time) {
    clock.advance(time);
    turn();
  }
  // The message is at the network then.
  void send_and_close() {
    fabric->stands_still = true;
    ASSERT_EQ(client.send(transport, id, 0, large), SendOutcome::accepted);
    turn();
    transport.close(id, false);
  }

  VirtualClock clock;
  Loop loop{clock};
  conformance::Peer server{{.receive_pages = 4, .receive_page_size = 8U << 20}};
  conformance::Peer client{{.receive_pages = 4, .send_pages = 1, .send_page_size = 4U << 20}};
  std::shared_ptr<rdma::AdversarialFabric> fabric = std::make_shared<rdma::AdversarialFabric>(7);
  RdmaTransport transport{loop, std::make_unique<rdma::AdversarialProvider>(fabric)};
  ConnectionId id = ConnectionId::none;
};

TEST_F(RdmaSlowNetwork, a_large_message_has_its_time_after_close) {
  send_and_close();
  pass(std::chrono::milliseconds{7'999});
  EXPECT_EQ(transport.closing(), 1U);
  fabric->stands_still = false;
  turn();
  EXPECT_EQ(server.messages, 1U);
  EXPECT_EQ(server.closed,
            (std::vector{std::pair{server.opened.front(), CloseReason::peer_closed}}));
  EXPECT_EQ(transport.closing(), 0U);
  EXPECT_EQ(transport.given_up(), 0U);
}

TEST_F(RdmaSlowNetwork, a_large_message_that_is_slower_than_1_MB_per_second_is_given_up) {
  send_and_close();
  pass(std::chrono::seconds{8});
  EXPECT_EQ(transport.closing(), 0U);
  EXPECT_EQ(transport.given_up(), 1U);
}

TEST_F(RdmaTransportTest, large_messages_leave_before_the_turn_ends) {
  start_client();
  const ConnectionId id = connect();
  const std::uint64_t before = client->counters().posts;
  for (int i = 0; i < 7; ++i) ASSERT_EQ(send_in_pieces(id, 32768), SendOutcome::accepted);
  EXPECT_EQ(client->counters().posts, before);
  ASSERT_EQ(send_in_pieces(id, 32768), SendOutcome::accepted); // 256 KiB
  EXPECT_EQ(client->counters().posts, before + 1);
  until([&] { return messages == 8; });
}

TEST_F(RdmaTransportTest, what_was_given_back_is_received_in_again) {
  start_client();
  const ConnectionId id = connect();
  for (int i = 1; i <= 40; ++i) {
    ASSERT_EQ(send_in_pieces(id, 32768), SendOutcome::accepted);
    until([&] { return messages == i; });
  }
  EXPECT_EQ(pages.size(), 2U); // those that a connection keeps posted
}

} // namespace
} // namespace fanin::net
