// What an RdmaTransport does with a peer that speaks its provider's language, and none of fanin's:
// any hello, any tag, any size, more than it may, or nothing.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fanin/net/conformance/peer.hpp"
#include "fanin/net/rdma/rdma.hpp"
#include "fanin/net/rdma/testing/adversarial_provider.hpp"

namespace fanin::net {
namespace {

using conformance::Peer;
using rdma::credits_most;
using rdma::Hello;
using rdma::HelloBytes;
using rdma::Tag;
using rdma::TagKind;
using Happening = rdma::ProviderEvent::Kind;

constexpr std::uint32_t hostile_max_message = 4001; // a slot has more: 4008

// One endpoint of a provider, without a transport above it.
class RawEndpoint {
public:
  explicit RawEndpoint(std::shared_ptr<rdma::AdversarialFabric> fabric)
      : provider_(std::move(fabric)) {}

  void connect(const Url& url, const HelloBytes& hello) {
    endpoint_ = provider_.connect(url, {}).value();
    (void)endpoint_->open(*pool_);
    post_receives();
    ASSERT_TRUE(endpoint_->start(hello));
  }
  [[nodiscard]] Url listen() {
    listening_ = provider_.listen({.scheme = "adversarial"}, ListenerId{1}, *pool_).value();
    return listening_->url;
  }
  void accept(const HelloBytes& hello) {
    (void)endpoint_->open(*pool_);
    post_receives();
    ASSERT_TRUE(endpoint_->start(hello));
  }
  void reject(const HelloBytes& hello) { endpoint_->reject(hello); }
  void vanish() { endpoint_.reset(); }

  // What has happened so far.
  [[nodiscard]] bool saw(Happening what) {
    turn();
    return std::ranges::find(seen_, what) != seen_.end();
  }
  [[nodiscard]] Result<Hello> hello() const { return rdma::decode_hello(hello_); }

  void send(std::uint32_t tag, std::uint32_t size = 0) {
    const memory::View bytes = pool_->take().freeze(0, size);
    const std::span<const memory::View> extents{&bytes, size > 0 ? 1U : 0U};
    const rdma::Send one{extents, size, tag, &operation_, true};
    for (std::size_t taken = 0; taken == 0;) {
      const auto posted = endpoint_->post_sends({&one, 1});
      if (!posted) return; // it was hung up on
      taken = *posted;
    }
    static_cast<rdma::AdversarialEndpoint&>(*endpoint_).carry(); // at once
  }

private:
  void post_receives() {
    constexpr std::uint32_t size = 2048;
    std::vector<rdma::Receive> receives;
    for (rdma::Operation& operation : received_) {
      receives.push_back({bytes_.data(), &operation});
    }
    ASSERT_TRUE(endpoint_->post_receives(receives, size));
  }
  void turn() {
    rdma::ProviderEvent event;
    while (provider_.next_event(event)) {
      seen_.push_back(event.kind);
      hello_ = event.hello;
      if (event.request) endpoint_ = std::move(event.request);
    }
    std::array<rdma::Completion, 64> completions;
    while (provider_.completions(completions) == completions.size()) {
    }
  }

  std::unique_ptr<memory::PagePool> pool_ =
      memory::PagePool::make({.page_size = 65536, .pages = 64, .arena = {.reserve_only = true}})
          .value();
  rdma::AdversarialProvider provider_;
  std::unique_ptr<rdma::Listening> listening_;
  std::unique_ptr<rdma::Endpoint> endpoint_;
  rdma::Operation operation_;
  std::array<rdma::Operation, 16> received_;
  std::array<std::byte, 2048> bytes_{};
  std::vector<Happening> seen_;
  HelloBytes hello_{};
};

// With receives of their own, and sharing them.
class RdmaHostile : public ::testing::TestWithParam<bool> {
protected:
  void SetUp() override {
    loop.add(transport);
    Url here{.scheme = "adversarial"};
    if (GetParam()) here.options["share_above"] = "0";
    ConnectionOptions options = server.options();
    options.max_message = hostile_max_message;
    url = transport.listening_url(transport.listen(here, options).value());
  }
  void TearDown() override {
    const std::array peers{&server, &client, &open_to_all};
    for (const auto* peer : peers) {
      for (const ConnectionId id : peer->opened) transport.close(id, true);
    }
    EXPECT_TRUE(until([&] {
      return std::ranges::all_of(peers, [](const Peer* peer) {
        return peer->receive_pool->available() == peer->receive_pool->pages();
      });
    })) << "receives are missing";
    loop.remove(transport);
  }
  template <class Condition>
  bool until(Condition condition) {
    for (int turns = 0; turns < 20'000 && !condition(); ++turns) {
      clock.advance(std::chrono::milliseconds{1});
      (void)loop.turn();
    }
    return condition();
  }
  static HelloBytes good_hello(std::uint32_t credits = 8) {
    return encode(Hello{.max_message = 1000, .credits = credits});
  }
  void connect(RawEndpoint& raw, const HelloBytes& hello = good_hello()) {
    raw.connect(url, hello);
    ASSERT_TRUE(until([&] { return raw.saw(Happening::connected); })) << said;
    ASSERT_TRUE(until([&] { return server.opened.size() > server.closed.size(); })) << said;
  }
  // The transport has ended the connection to it, for this reason, and serves others.
  void expect_end(RawEndpoint& raw, CloseReason reason) {
    ASSERT_TRUE(until([&] { return raw.saw(Happening::gone) && !server.closed.empty(); })) << said;
    EXPECT_EQ(server.closed.back().second, reason) << said;
    expect_service();
  }
  void expect_service() {
    const std::uint64_t before = server.messages;
    const auto id = transport.connect(url, client.options());
    ASSERT_TRUE(until([&] { return !client.opened.empty(); })) << said;
    EXPECT_EQ(client.send(transport, *id, 0, 100), SendOutcome::accepted);
    EXPECT_TRUE(until([&] { return server.messages == before + 1; })) << said;
    EXPECT_TRUE(client.closed.empty());
  }

  VirtualClock clock;
  Loop loop{clock};
  Peer server{{.receive_pages = 32}};
  Peer client{{.receive_pages = 32}};
  Peer open_to_all{{.receive_pages = 64}}; // listens to anybody
  std::string said;
  std::shared_ptr<rdma::AdversarialFabric> fabric = std::make_shared<rdma::AdversarialFabric>(7);
  RdmaTransport transport{
      loop,
      std::make_unique<rdma::AdversarialProvider>(fabric),
      {.report = [this](CloseReason, std::string_view text) { said += std::string(text) + "\n"; }}};
  Url url;
};

TEST_P(RdmaHostile, introductions_that_are_none_are_rejected_with_ours) {
  HelloBytes reserved = good_hello();
  reserved[20] = std::byte{1};
  const std::pair<HelloBytes, const char*> wrong[] = {
      {HelloBytes{}, "not fanin's"},
      {encode(Hello{.version = rdma::protocol_version + 1}), "speaks version 2"},
      {good_hello(credits_most + 1), "impossible values"},
      {reserved, "impossible values"}};
  for (const auto& [hello, why] : wrong) {
    RawEndpoint raw(fabric);
    raw.connect(url, hello);
    ASSERT_TRUE(until([&] { return raw.saw(Happening::refused); }));
    EXPECT_EQ(raw.hello().value().version, rdma::protocol_version);
    EXPECT_NE(said.find(why), std::string::npos) << said;
  }
  EXPECT_EQ(transport.counters().rejected, std::size(wrong));
  EXPECT_TRUE(server.opened.empty());
  expect_service();
}

TEST_P(RdmaHostile, a_listener_that_answers_with_garbage_is_no_peer) {
  const std::pair<HelloBytes, CloseReason> wrong[] = {
      {HelloBytes{}, CloseReason::protocol_violation},
      {encode(Hello{.version = 9}), CloseReason::version_mismatch},
      {good_hello(credits_most + 1), CloseReason::protocol_violation}};
  for (const auto& [hello, reason] : wrong) {
    RawEndpoint raw(fabric);
    const std::size_t before = client.closed.size();
    ASSERT_TRUE(transport.connect(raw.listen(), client.options()));
    ASSERT_TRUE(until([&] { return raw.saw(Happening::request); }));
    raw.accept(hello);
    ASSERT_TRUE(until([&] { return client.closed.size() > before; })) << said;
    EXPECT_EQ(client.closed.back().second, reason) << said;
  }
  EXPECT_TRUE(client.opened.empty());
}

TEST_P(RdmaHostile, a_listener_that_never_answers_is_given_up) {
  RawEndpoint raw(fabric);
  ASSERT_TRUE(transport.connect(raw.listen(), client.options()));
  ASSERT_TRUE(until([&] { return raw.saw(Happening::request); }));
  ASSERT_TRUE(until([&] { return !client.closed.empty(); }));
  EXPECT_EQ(client.closed.back().second, CloseReason::connect_failed);
  EXPECT_NE(said.find("no answer within 5 s"), std::string::npos) << said;
}

TEST_P(RdmaHostile, who_vanishes_at_any_step_leaves_nothing) {
  for (int turns = 0; turns < 10; ++turns) {
    RawEndpoint raw(fabric);
    raw.connect(url, good_hello());
    for (int i = 0; i < turns; ++i) (void)loop.turn();
    raw.vanish();
  }
  expect_service();
}

TEST_P(RdmaHostile, tags_and_sizes_that_nobody_sends_end_the_connection) {
  struct Attack {
    std::uint32_t tag;
    std::uint32_t size;
    CloseReason reason;
  };
  const Attack attacks[] = {
      {3, 0, CloseReason::protocol_violation}, // no kind
      {~0U, 0, CloseReason::protocol_violation},
      {(credits_most + 1) << 3, 0, CloseReason::protocol_violation},
      {encode(Tag{.credits = credits_most}), 0, CloseReason::protocol_violation}, // 8 it has
      {encode(Tag{.kind = TagKind::credits, .credits = credits_most}), 0,
       CloseReason::protocol_violation},
      {encode(Tag{.kind = TagKind::credits}), 1, CloseReason::protocol_violation},
      {encode(Tag{.kind = TagKind::end}), 1, CloseReason::protocol_violation},
      {encode(Tag{}), hostile_max_message + 1, CloseReason::message_too_large}};
  for (const Attack& attack : attacks) {
    SCOPED_TRACE(attack.tag);
    RawEndpoint raw(fabric);
    connect(raw);
    const std::uint64_t before = server.messages;
    raw.send(attack.tag, attack.size);
    ASSERT_TRUE(until([&] { return raw.saw(Happening::gone); })) << said;
    ASSERT_TRUE(until([&] { return server.closed.size() == server.opened.size(); })) << said;
    EXPECT_EQ(server.closed.back().second, attack.reason) << said;
    EXPECT_EQ(server.messages, before);
  }
  expect_service();
}

TEST_P(RdmaHostile, more_messages_than_were_allowed_end_the_connection) {
  RawEndpoint raw(fabric);
  connect(raw);
  const std::uint32_t allowed = raw.hello().value().credits;
  for (std::uint32_t i = 0; i <= allowed; ++i) raw.send(encode(Tag{})); // one is for credits
  expect_end(raw, CloseReason::protocol_violation);
  EXPECT_NE(said.find("more messages than it was allowed"), std::string::npos) << said;
}

TEST_P(RdmaHostile, messages_behind_the_end_are_nobodys) {
  RawEndpoint raw(fabric);
  connect(raw);
  const std::uint64_t before = server.messages;
  raw.send(encode(Tag{.kind = TagKind::end}));
  raw.send(encode(Tag{}), 100);
  expect_end(raw, CloseReason::peer_closed);
  EXPECT_EQ(server.messages, before + 1) << "the one of expect_service()";
}

TEST_P(RdmaHostile, a_peer_that_gives_no_credits_is_sent_nothing_and_keeps_nobody_at_the_end) {
  RawEndpoint raw(fabric);
  connect(raw, good_hello(0));
  const ConnectionId id = server.opened.back();
  SendOutcome last = SendOutcome::accepted;
  for (int i = 0; i < 1000 && last == SendOutcome::accepted; ++i)
    last = server.send(transport, id, 0, 1000);
  EXPECT_EQ(last, SendOutcome::backpressure);
  EXPECT_EQ(transport.counters().posts, 0U);
  transport.close(id, false);
  EXPECT_EQ(transport.closing(), 1U);
  EXPECT_TRUE(until([&] { return transport.closing() == 0; })) << "after linger_timeout";
  EXPECT_EQ(transport.given_up(), 1U);
  EXPECT_NE(said.find("has not taken all that was sent"), std::string::npos) << said;
  server.opened.clear();
  expect_service();
}

// Each takes the one receive that is kept for them, and says nothing new.
TEST_P(RdmaHostile, credit_messages_without_end_hold_up_nobody) {
  RawEndpoint raw(fabric);
  connect(raw);
  for (int i = 0; i < 2000; ++i) {
    raw.send(encode(Tag{.kind = TagKind::credits}));
    for (int turns = 0; turns < 3; ++turns) (void)loop.turn();
    if (i % 100 != 0) continue;
    Peer other{{.receive_pages = 8}};
    const auto id = transport.connect(url, other.options());
    const std::uint64_t before = server.messages;
    ASSERT_TRUE(until([&] { return !other.opened.empty(); })) << said;
    EXPECT_EQ(other.send(transport, *id, 0, 100), SendOutcome::accepted);
    ASSERT_TRUE(until([&] { return server.messages == before + 1; })) << said;
    transport.close(*id, true);
    ASSERT_TRUE(until([&] { return other.receive_pool->available() == 8; }));
  }
}

// Whoever is sent away comes again. There are 8 pages for unidentified peers.
TEST_P(RdmaHostile, a_flood_of_peers_that_only_introduce_themselves_keeps_nobody_out) {
  ConnectionOptions options = open_to_all.options();
  options.peers_must_identify = true;
  open_to_all.react = [](Transport& network, Event& event) {
    if (event.kind == EventKind::message) network.mark_identified(event.connection);
  };
  const Url there = transport.listening_url(
      transport.listen({.scheme = "adversarial", .options = url.options}, options).value());
  std::vector<std::unique_ptr<RawEndpoint>> silent(120);
  const auto come = [&](std::unique_ptr<RawEndpoint>& raw) {
    raw = std::make_unique<RawEndpoint>(fabric);
    raw->connect(there, good_hello());
  };
  for (auto& raw : silent) come(raw);
  ASSERT_TRUE(until([&] { return open_to_all.opened.size() == 8; }));
  const auto honest = transport.connect(there, client.options()).value();
  bool sent = false;
  EXPECT_TRUE(until([&] {
    for (auto& raw : silent) {
      if (raw->saw(Happening::gone)) come(raw);
    }
    if (!client.opened.empty() && !sent)
      sent = client.send(transport, honest, 0, 100) == SendOutcome::accepted;
    return open_to_all.messages == 1;
  }));
  EXPECT_TRUE(client.closed.empty());
}

INSTANTIATE_TEST_SUITE_P(, RdmaHostile, ::testing::Bool(),
                         [](const auto& one) { return one.param ? "shared" : "own"; });

} // namespace
} // namespace fanin::net
