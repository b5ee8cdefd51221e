// What peers and hosts can do wrong to ofi+PROVIDER://, over ofi+tcp.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fanin/base/random.hpp"
#include "fanin/net/conformance/peer.hpp"
#include "fanin/net/ofi/fabric.hpp"
#include "fanin/net/ofi/ofi.hpp"
#include "fanin/net/rdma/rdma.hpp"

namespace fanin::net {
namespace {

using conformance::Peer;
using rdma::Hello;
using rdma::Tag;
using rdma::TagKind;

constexpr std::uint32_t max_message = 1000;

// An endpoint of libfabric that says what a test wants.
class RawPeer {
public:
  RawPeer(const Url& url, std::span<const std::byte> hello)
      : info_(ofi::find_endpoint("tcp", url, false).value()),
        fabric_(ofi::Fabric::open(*info_).value()),
        domain_(ofi::Domain::open(*fabric_, *info_).value()) {
    bool made = false;
    completions_ = domain_->completions(16, true, made).value();
    fid_ep* endpoint = nullptr;
    EXPECT_EQ(fi_endpoint(domain_->get(), info_.get(), &endpoint, nullptr), 0);
    endpoint_.reset(endpoint);
    EXPECT_EQ(fi_ep_bind(endpoint, &fabric_->events->fid, 0), 0);
    EXPECT_EQ(fi_ep_bind(endpoint, &completions_->queue->fid, FI_TRANSMIT | FI_RECV), 0);
    EXPECT_EQ(fi_enable(endpoint), 0);
    EXPECT_EQ(fi_recv(endpoint, room_.data(), room_.size(), nullptr, 0, nullptr), 0);
    EXPECT_EQ(fi_connect(endpoint, info_->dest_addr, hello.data(), hello.size()), 0);
  }

  // The last thing that happened to it: FI_CONNECTED, FI_SHUTDOWN, -1: refused.
  int turn() {
    std::array<std::byte, 512> entry{};
    std::uint32_t kind = 0;
    fi_cq_data_entry done{};
    (void)fi_cq_read(completions_->queue.get(), &done, 1);
    const auto got = fi_eq_read(fabric_->events.get(), &kind, entry.data(), entry.size(), 0);
    if (got == -FI_EAVAIL) {
      fi_eq_err_entry error{};
      error.err_data = answer.data();
      error.err_data_size = answer.size();
      (void)fi_eq_readerr(fabric_->events.get(), &error, 0);
      state_ = -1;
    } else if (got > 0) {
      state_ = static_cast<int>(kind);
    }
    return state_;
  }
  void send(std::uint64_t tag, std::size_t size) {
    EXPECT_EQ(fi_senddata(endpoint_.get(), bytes_.data(), size, nullptr, tag, 0, nullptr), 0);
  }

  std::array<std::byte, 256> answer{}; // to a request that was refused

private:
  ofi::Info info_;
  std::unique_ptr<ofi::Fabric> fabric_;
  std::unique_ptr<ofi::Domain> domain_;
  ofi::Completions* completions_ = nullptr;
  ofi::Owned<fid_ep> endpoint_;
  std::array<std::byte, 4096> room_{};
  std::array<std::byte, 16384> bytes_{};
  int state_ = 0;
};

class Ofi : public testing::Test {
protected:
  void SetUp() override {
    make(RdmaOptions{});
    listen(server.options());
  }
  void TearDown() override {
    // Whatever was done to it, it still works, and every page comes home.
    Peer friendly;
    const auto made = transport->connect(url(), friendly.options());
    ASSERT_TRUE(made) << made.error().text;
    const std::size_t before = server.messages;
    bool sent = false;
    ASSERT_TRUE(run_until([&] {
      if (!sent) sent = friendly.send(*transport, *made, 0, 100) == SendOutcome::accepted;
      return server.messages > before;
    }));
    transport->close(*made, true);
    for (const ConnectionId id : server.opened) transport->close(id, true);
    ASSERT_TRUE(run_until([&] {
      return server.receive_pool->available() == server.receive_pool->pages() &&
             friendly.receive_pool->available() == friendly.receive_pool->pages();
    }));
    loop.remove(*transport);
    transport.reset();
  }

  void make(RdmaOptions options) {
    if (transport) loop.remove(*transport);
    options.report = [this](CloseReason, std::string_view text) {
      said += std::string(text) + "\n";
    };
    transport = std::make_unique<RdmaTransport>(loop, ofi::make_provider(loop, "tcp").value(),
                                                std::move(options));
    loop.add(*transport);
  }
  void listen(ConnectionOptions options) {
    options.max_message = max_message;
    listener = transport->listen(Url::parse("ofi+tcp://127.0.0.1").value(), options).value();
  }
  [[nodiscard]] Url url() const { return transport->listening_url(listener); }
  [[nodiscard]] std::uint64_t closed(CloseReason reason) const {
    return transport->accounts().closed(reason);
  }
  bool run_until(const std::function<bool()>& condition) {
    for (int i = 0; i < 1'000'000; ++i) {
      if (condition()) return true;
      (void)loop.turn();
    }
    return condition();
  }
  // A raw peer that is connected.
  std::unique_ptr<RawPeer> connected() {
    const auto hello = encode(Hello{.max_message = 4000, .credits = 1});
    auto peer = std::make_unique<RawPeer>(url(), hello);
    EXPECT_TRUE(run_until([&] { return peer->turn() == FI_CONNECTED && !server.opened.empty(); }));
    return peer;
  }
  Descriptor connect_plainly() { return connect_plainly_to(url().port); }
  static Descriptor connect_plainly_to(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    return socket;
  }

  // A listener that knows nothing of libfabric.
  [[nodiscard]] std::pair<Descriptor, Url> listen_plainly() const {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(socket.get(), generic, size), 0);
    EXPECT_EQ(::listen(socket.get(), 8), 0);
    EXPECT_EQ(::getsockname(socket.get(), generic, &size), 0);
    Url there = url();
    there.port = ntohs(address.sin_port);
    return {std::move(socket), there};
  }
  // If it returns false, errno is EAGAIN, as other calls in a loop leave it.
  static bool is_closed_by_peer(const Descriptor& socket) {
    std::byte byte{};
    const ssize_t got = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }

  MonotonicClock clock;
  Loop loop{clock};
  Peer server;
  std::unique_ptr<RdmaTransport> transport;
  ListenerId listener = ListenerId::none;
  std::string said;
};

TEST_F(Ofi, a_provider_that_does_not_exist_is_an_error_that_names_those_that_do) {
  for (const char* const name : {"pigeon", "sockets"}) {
    const auto made = ofi::make_provider(loop, name);
    ASSERT_FALSE(made) << name;
    EXPECT_EQ(made.error().kind, ErrorKind::unsupported);
    EXPECT_NE(made.error().text.find("ofi+tcp"), std::string::npos) << made.error().text;
  }
}

TEST_F(Ofi, options_that_are_none_are_errors_that_name_them) {
  for (const char* const text :
       {"ofi+tcp://127.0.0.1:1?colour=red", "ofi+tcp://127.0.0.1:1?posted=1",
        "ofi+tcp://127.0.0.1:1?posted=many"}) {
    const auto made = transport->connect(Url::parse(text).value(), server.options());
    ASSERT_FALSE(made) << text;
    EXPECT_EQ(made.error().kind, ErrorKind::usage);
  }
  const Url wish = Url::parse("ofi+tcp://127.0.0.1:0?posted=4").value();
  EXPECT_TRUE(transport->listen(wish, server.options()));
}

TEST_F(Ofi, random_bytes_over_tcp_harm_nobody) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    const Descriptor socket = connect_plainly();
    std::array<std::uint8_t, 64> bytes;
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random.below(256));
    (void)::send(socket.get(), bytes.data(), 1 + random.below(bytes.size()), MSG_NOSIGNAL);
    for (int i = 0; i < 100; ++i) (void)loop.turn();
  }
  EXPECT_TRUE(server.opened.empty());
}

TEST_F(Ofi, a_peer_that_says_nothing_holds_up_nobody) {
  const Descriptor socket = connect_plainly();
  for (int i = 0; i < 1000; ++i) (void)loop.turn();
  EXPECT_TRUE(server.opened.empty());
}

TEST_F(Ofi, a_program_that_hangs_up_before_it_has_asked_is_forgotten) {
  const std::array<std::byte, 3> part{};
  for (std::size_t size = 0; size <= part.size(); ++size) {
    const Descriptor socket = connect_plainly();
    EXPECT_EQ(::send(socket.get(), part.data(), size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
    EXPECT_EQ(::shutdown(socket.get(), SHUT_WR), 0);
    EXPECT_TRUE(run_until([&] { return is_closed_by_peer(socket); })) << size << " bytes";
  }
  EXPECT_TRUE(server.opened.empty());
}

// A busy loop looks for events in every 64th turn only.
TEST_F(Ofi, peers_that_say_nothing_are_not_accepted_one_in_each_look) {
  constexpr std::size_t silent_peers = 200;
  const auto provider = ofi::make_provider(loop, "tcp").value();
  const auto listening = provider->listen(Url::parse("ofi+tcp://127.0.0.1").value(),
                                          ListenerId::none, *server.receive_pool);
  ASSERT_TRUE(listening) << listening.error().text;
  std::vector<Descriptor> silent;
  while (silent.size() < silent_peers) silent.push_back(connect_plainly_to((*listening)->url.port));
  RawPeer peer((*listening)->url, encode(Hello{.max_message = 4000, .credits = 1}));
  rdma::ProviderEvent event;
  std::size_t looks = 0; // when there was something to do
  const bool asked = run_until([&] {
    (void)peer.turn();
    pollfd work{.fd = provider->descriptor(), .events = POLLIN, .revents = 0};
    if (::poll(&work, 1, 0) == 0) return false;
    ++looks;
    return provider->next_event(event);
  });
  ASSERT_TRUE(asked);
  EXPECT_EQ(event.kind, rdma::ProviderEvent::Kind::request);
  EXPECT_LT(looks, silent_peers / 2);
  event.request->reject({});
  silent.clear(); // libfabric frees what belongs to them when it has seen their ends
  EXPECT_TRUE(run_until([&] {
    (void)provider->next_event(event);
    pollfd work{.fd = provider->descriptor(), .events = POLLIN, .revents = 0};
    return ::poll(&work, 1, 0) == 0;
  }));
}

TEST_F(Ofi, a_peer_that_is_none_of_fanin_is_refused_and_counted) {
  const std::array<std::byte, 10> hello{std::byte{7}};
  RawPeer peer(url(), hello);
  EXPECT_TRUE(run_until([&] { return peer.turn() == -1; }));
  EXPECT_EQ(transport->counters().rejected, 1U);
  EXPECT_EQ(closed(CloseReason::protocol_violation), 1U);
  EXPECT_TRUE(server.opened.empty());
}

TEST_F(Ofi, a_peer_of_another_version_is_told_ours) {
  const auto hello = encode(Hello{.version = 77});
  RawPeer peer(url(), hello);
  EXPECT_TRUE(run_until([&] { return peer.turn() == -1; }));
  EXPECT_EQ(closed(CloseReason::version_mismatch), 1U);
  EXPECT_NE(said.find("speaks version 77"), std::string::npos) << said;
  const auto answer = rdma::decode_hello(peer.answer);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->version, rdma::protocol_version);
}

TEST_F(Ofi, a_tag_that_is_none_is_a_violation) {
  const auto peer = connected();
  peer->send(3, 10);
  EXPECT_TRUE(run_until([&] { return peer->turn() == FI_SHUTDOWN && !server.closed.empty(); }));
  EXPECT_EQ(server.closed.front().second, CloseReason::protocol_violation);
}

TEST_F(Ofi, credits_that_cannot_be_are_a_violation) {
  const auto peer = connected();
  peer->send(encode(Tag{.kind = TagKind::credits, .credits = rdma::credits_most}), 0);
  EXPECT_TRUE(run_until([&] { return !server.closed.empty(); }));
  EXPECT_EQ(server.closed.front().second, CloseReason::protocol_violation);
}

TEST_F(Ofi, a_message_over_the_limit_ends_its_connection) {
  const auto peer = connected();
  peer->send(encode(Tag{}), 5000);
  EXPECT_TRUE(run_until([&] { return !server.closed.empty(); }));
  EXPECT_EQ(server.closed.front().second, CloseReason::message_too_large);
  EXPECT_EQ(server.messages, 0U);
}

TEST_F(Ofi, more_messages_than_allowed_are_a_violation) {
  server.keep = true;
  const auto peer = connected();
  for (int i = 0; i < 200 && server.closed.empty(); ++i) {
    peer->send(encode(Tag{}), 0);
    if (i % 20 == 0) (void)peer->turn();
  }
  EXPECT_TRUE(run_until([&] {
    (void)peer->turn();
    return !server.closed.empty();
  }));
  EXPECT_EQ(server.closed.front().second, CloseReason::protocol_violation);
  server.messages = 0;
  server.kept.clear();
  server.keep = false;
}

TEST_F(Ofi, a_peer_that_vanishes_without_an_end_has_died) {
  auto peer = connected();
  peer.reset();
  EXPECT_TRUE(run_until([&] { return !server.closed.empty(); }));
  EXPECT_EQ(server.closed.front().second, CloseReason::peer_died);
}

TEST_F(Ofi, a_peer_that_vanishes_while_it_connects_leaves_nothing) {
  for (int turns = 0; turns < 40; ++turns) {
    const auto hello = encode(Hello{.max_message = 4000, .credits = 1});
    RawPeer peer(url(), hello);
    for (int i = 0; i < turns; ++i) {
      (void)loop.turn();
      (void)peer.turn();
    }
  }
  EXPECT_TRUE(run_until([&] { return server.closed.size() == server.opened.size(); }));
}

TEST_F(Ofi, the_large_message_of_an_unidentified_peer_waits_until_it_is_identified) {
  Peer host;
  const auto trusting = [&] {
    ConnectionOptions options = host.options();
    options.peers_must_identify = true;
    return options;
  }();
  const auto there = transport->listen(Url::parse("ofi+tcp://127.0.0.1").value(), trusting).value();
  Peer client;
  const auto id = transport->connect(transport->listening_url(there), client.options()).value();
  ASSERT_TRUE(run_until([&] { return !client.opened.empty() && !host.opened.empty(); }));
  ASSERT_EQ(client.send(*transport, id, 0, 4096), SendOutcome::accepted);
  ASSERT_EQ(client.send(*transport, id, 1, 8000), SendOutcome::accepted);
  ASSERT_TRUE(run_until([&] { return host.messages == 1; }));
  for (int i = 0; i < 1000; ++i) (void)loop.turn();
  EXPECT_EQ(host.messages, 1U);
  transport->mark_identified(host.opened.front());
  EXPECT_TRUE(run_until([&] { return host.messages == 2; }));
  transport->close(id, true);
  transport->close(host.opened.front(), true);
  EXPECT_TRUE(
      run_until([&] { return host.receive_pool->available() == host.receive_pool->pages(); }));
}

TEST_F(Ofi, a_listener_that_never_answers_is_given_up) {
  RdmaOptions options;
  options.handshake_timeout = std::chrono::milliseconds{20};
  make(std::move(options));
  listen(server.options());
  const auto [silent, there] = listen_plainly();
  Peer client;
  ASSERT_TRUE(transport->connect(there, client.options()));
  while (client.closed.empty()) (void)loop.turn();
  EXPECT_EQ(client.closed.front().second, CloseReason::connect_failed);
  EXPECT_EQ(transport->accounts().handshake_timeouts, 1U);
  EXPECT_NE(said.find("no answer within 20 ms"), std::string::npos) << said;
  EXPECT_EQ(client.receive_pool->available(), client.receive_pool->pages());
}

TEST_F(Ofi, a_listener_that_hangs_up_without_an_answer_is_given_up_at_once) {
  const auto [other, there] = listen_plainly();
  Peer client;
  ASSERT_TRUE(transport->connect(there, client.options()));
  Descriptor accepted;
  ASSERT_TRUE(run_until([&] {
    accepted = Descriptor(::accept4(other.get(), nullptr, nullptr, SOCK_CLOEXEC));
    return bool{accepted};
  }));
  ASSERT_EQ(::shutdown(accepted.get(), SHUT_WR), 0);
  while (client.closed.empty()) {
    errno = EAGAIN; // as other calls in a loop leave it
    (void)loop.turn();
  }
  EXPECT_EQ(client.closed.front().second, CloseReason::connect_failed);
  EXPECT_EQ(transport->accounts().handshake_timeouts, 0U) << said;
}

TEST_F(Ofi, without_a_page_to_receive_in_a_connection_waits_for_one) {
  Peer poor({.receive_pages = 2});
  std::vector<memory::Loan> taken;
  while (memory::Loan page = poor.receive_pool->take()) taken.push_back(std::move(page));
  const auto id = transport->connect(url(), poor.options()).value();
  for (int i = 0; i < 1000; ++i) (void)loop.turn();
  EXPECT_TRUE(poor.opened.empty());
  taken.clear();
  EXPECT_TRUE(run_until([&] { return !poor.opened.empty(); }));
  transport->close(id, true);
  EXPECT_TRUE(run_until([&] { return poor.receive_pool->available() == 2; }));
}

} // namespace
} // namespace fanin::net
