// What peers can do wrong to ofi+PROVIDER:// over reliable datagrams: with an
// endpoint for each connection (shm), and with one for all (libfabric's layer over tcp).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rdma/fi_tagged.h>

#include "fanin/base/random.hpp"
#include "fanin/base/testing/failing_calls.hpp"
#include "fanin/net/conformance/peer.hpp"
#include "fanin/net/first_count.hpp"
#include "fanin/net/ofi/introduction.hpp"
#include "fanin/net/ofi/ofi.hpp"
#include "fanin/net/ofi/rdm_connection.hpp"
#include "fanin/net/ofi/rdm_endpoint.hpp"
#include "fanin/net/rdma/rdma.hpp"

namespace fanin::net {
namespace {

using conformance::Peer;
using rdma::Hello;
using rdma::Tag;
using rdma::TagKind;

constexpr std::uint32_t rdm_max_message = 1000;

// Real time, and what a test adds to it.
class HurriedClock final : public Clock {
public:
  [[nodiscard]] Time now() const override { return real_.now() + ahead; }
  Duration ahead{};

private:
  MonotonicClock real_;
};

Descriptor connect_to(const Url& url) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(url.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
            0);
  return socket;
}

void say(const Descriptor& socket, std::span<const std::byte> bytes) {
  EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

// An endpoint of libfabric, and a connection beside, that say what a test wants.
class RawRdmPeer {
public:
  RawRdmPeer(const std::string& provider, const Url& url)
      : info_(ofi::find_datagrams(provider, "127.0.0.1", true, "").value()),
        fabric_(ofi::Fabric::open(*info_).value()),
        domain_(ofi::Domain::open(*fabric_, *info_).value()) {
    bool made = false;
    auto* const queue =
        domain_->completions(ofi::RdmEndpoint::operations_of(*info_), true, made).value();
    completions_ = queue;
    endpoint_ = ofi::RdmEndpoint::open(*domain_, *queue, *info_, true).value();
    socket = connect_to(url);
  }
  [[nodiscard]] ofi::Introduction introduction() const {
    return {.number = 1,
            .hello = encode(Hello{.max_message = 4000, .credits = 1}),
            .address = endpoint_->name()};
  }
  void turn() {
    fi_cq_tagged_entry done{};
    if (fi_cq_read(completions_->queue.get(), &done, 1) == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      (void)fi_cq_readerr(completions_->queue.get(), &error, 0);
    }
    std::array<std::byte, 512> room;
    const ssize_t got = ::recv(socket.get(), room.data(), room.size(), MSG_DONTWAIT);
    if (got > 0) heard_.insert(heard_.end(), room.begin(), room.begin() + got);
    hung_up = got == 0 || (got < 0 && errno != EAGAIN);
    if (answer || heard_.empty()) return;
    if (auto said = ofi::decode_introduction(heard_).value()) {
      answer = std::move(*said);
      if (!answer->refused) address_ = endpoint_->insert(answer->address).value();
    }
  }
  [[nodiscard]] bool send(std::uint64_t tag, std::size_t size) {
    return fi_tsend(endpoint_->get(), bytes_.data(), size, nullptr, address_,
                    std::uint64_t{answer->number} << ofi::number_shift | tag, nullptr) == 0;
  }

  Descriptor socket;
  std::optional<ofi::Introduction> answer;
  bool hung_up = false;

private:
  ofi::Info info_;
  std::unique_ptr<ofi::Fabric> fabric_;
  std::unique_ptr<ofi::Domain> domain_;
  ofi::Completions* completions_ = nullptr;
  std::shared_ptr<ofi::RdmEndpoint> endpoint_;
  fi_addr_t address_ = FI_ADDR_UNSPEC;
  std::vector<std::byte> heard_;
  std::array<std::byte, 16384> bytes_{};
};

class OfiRdm : public testing::TestWithParam<std::string> {
protected:
  void SetUp() override {
    transport = make(RdmaOptions{});
    listener = listen(server.options());
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
    ASSERT_TRUE(run_until([&] { return server.pages_are_home() && friendly.pages_are_home(); }));
    drop(transport);
  }

  std::unique_ptr<RdmaTransport> make(RdmaOptions options) {
    options.report = [this](CloseReason, std::string_view text) {
      said += std::string(text) + "\n";
    };
    auto made = std::make_unique<RdmaTransport>(loop, ofi::make_provider(loop, GetParam()).value(),
                                                std::move(options));
    loop.add(*made);
    return made;
  }
  void drop(std::unique_ptr<RdmaTransport>& gone) {
    loop.remove(*gone);
    gone.reset();
  }
  ListenerId listen(ConnectionOptions options) {
    options.max_message = rdm_max_message;
    return transport->listen(Url::parse("ofi+" + GetParam() + "://127.0.0.1").value(), options)
        .value();
  }
  [[nodiscard]] Url url() const { return transport->listening_url(listener); }
  [[nodiscard]] std::uint64_t closed(CloseReason reason) const {
    return transport->accounts().closed(reason);
  }
  template <class Condition>
  bool run_until(Condition condition) {
    for (int i = 0; i < 3'000'000; ++i) {
      if (condition()) return true;
      if (!loop.turn()) sched_yield();
    }
    return condition();
  }
  std::unique_ptr<RawRdmPeer> raw() { return std::make_unique<RawRdmPeer>(GetParam(), url()); }
  // A raw peer that is connected.
  std::unique_ptr<RawRdmPeer> connected() {
    auto peer = raw();
    say(peer->socket, encode(peer->introduction()));
    EXPECT_TRUE(run_until([&] {
      peer->turn();
      return peer->answer && !server.opened.empty();
    }));
    return peer;
  }
  void send(RawRdmPeer& peer, std::uint64_t tag, std::size_t size) {
    EXPECT_TRUE(run_until([&] {
      peer.turn();
      return peer.send(tag, size);
    }));
  }
  bool ends(RawRdmPeer& peer, CloseReason reason) {
    EXPECT_TRUE(run_until([&] {
      peer.turn();
      return !server.closed.empty();
    }));
    return !server.closed.empty() && server.closed.front().second == reason;
  }

  HurriedClock clock;
  Loop loop{clock};
  Peer server;
  std::unique_ptr<RdmaTransport> transport;
  ListenerId listener = ListenerId::none;
  std::string said;
};

TEST_P(OfiRdm, options_that_are_none_are_errors_that_name_them) {
  for (const char* const options : {"colour=red", "posted=1", "posted=many"}) {
    const auto text = "ofi+" + GetParam() + "://127.0.0.1:1?" + options;
    const auto made = transport->connect(Url::parse(text).value(), server.options());
    ASSERT_FALSE(made) << text;
    EXPECT_EQ(made.error().kind, ErrorKind::usage);
  }
  const Url wish = Url::parse("ofi+" + GetParam() + "://127.0.0.1?domain=nowhere&posted=4").value();
  const auto made = transport->listen(wish, server.options());
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().text.find("nowhere"), std::string::npos) << made.error().text;
}

TEST_P(OfiRdm, random_bytes_over_tcp_harm_nobody) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    const Descriptor socket = connect_to(url());
    std::array<std::byte, 64> bytes;
    for (auto& byte : bytes) byte = static_cast<std::byte>(random.below(256));
    say(socket, std::span(bytes).first(1 + random.below(bytes.size())));
    for (int i = 0; i < 100; ++i) (void)loop.turn();
  }
  EXPECT_EQ(closed(CloseReason::protocol_violation), 20U);
  EXPECT_TRUE(server.opened.empty());
}

TEST_P(OfiRdm, peers_that_say_nothing_are_evicted_when_others_wait_and_closed_in_any_case) {
  std::vector<Descriptor> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(connect_to(url()));
    (void)loop.turn();
  }
  Peer client;
  const auto made = transport->connect(url(), client.options());
  ASSERT_TRUE(made);
  for (int i = 0; i < 1000; ++i) (void)loop.turn();
  EXPECT_TRUE(client.opened.empty());
  clock.ahead += std::chrono::seconds{2};
  EXPECT_TRUE(run_until([&] { return !client.opened.empty(); }));
  EXPECT_NE(said.find("did not identify itself, and others wait"), std::string::npos) << said;
  clock.ahead += std::chrono::seconds{6};
  for (int i = 0; i < 1000; ++i) (void)loop.turn();
  EXPECT_NE(said.find("did not identify itself within 5 s"), std::string::npos) << said;
  transport->close(*made, true);
  EXPECT_TRUE(run_until([&] { return client.pages_are_home(); }));
}

// As where a busy host has given it no processor.
TEST_P(OfiRdm, what_peers_have_sent_is_read_before_they_are_sent_away) {
  std::vector<Descriptor> peers;
  for (int i = 0; i < 128; ++i) {
    peers.push_back(connect_to(url()));
    (void)loop.turn();
  }
  for (int i = 0; i < 100; ++i) (void)loop.turn();
  const std::array<std::byte, 10> none_of_fanin{std::byte{7}};
  for (const Descriptor& peer : peers) say(peer, none_of_fanin);
  for (int i = 0; i < 16; ++i) {
    peers.push_back(connect_to(url()));
    say(peers.back(), none_of_fanin);
  }
  clock.ahead += std::chrono::seconds{6};
  EXPECT_TRUE(run_until([&] { return closed(CloseReason::protocol_violation) == peers.size(); }));
  EXPECT_EQ(said.find("did not identify itself"), std::string::npos) << said;
}

TEST_P(OfiRdm, a_peer_that_is_none_of_fanin_is_refused_and_counted) {
  const auto peer = raw();
  std::array<std::byte, 10> hello{std::byte{7}};
  say(peer->socket, hello);
  EXPECT_TRUE(run_until([&] {
    peer->turn();
    return peer->answer.has_value();
  }));
  EXPECT_TRUE(peer->answer->refused);
  EXPECT_EQ(transport->counters().rejected, 1U);
  EXPECT_EQ(closed(CloseReason::protocol_violation), 1U);
}

TEST_P(OfiRdm, a_peer_of_another_version_is_told_ours) {
  const auto peer = raw();
  ofi::Introduction other = peer->introduction();
  other.hello = encode(Hello{.version = 77});
  say(peer->socket, encode(other));
  EXPECT_TRUE(run_until([&] {
    peer->turn();
    return peer->answer.has_value();
  }));
  EXPECT_EQ(closed(CloseReason::version_mismatch), 1U);
  EXPECT_NE(said.find("speaks version 77"), std::string::npos) << said;
  EXPECT_EQ(rdma::decode_hello(peer->answer->hello)->version, rdma::protocol_version);
}

TEST_P(OfiRdm, an_address_that_is_none_is_not_given_to_the_provider) {
  for (const std::string_view address :
       {std::string_view("/etc/passwd\0", 12), std::string_view("fi_shm://1:0:1"),
        std::string_view("fi_shm://a\0b\0", 13)}) {
    const auto peer = raw();
    ofi::Introduction other = peer->introduction();
    const auto bytes = std::as_bytes(std::span(address));
    other.address.assign(bytes.begin(), bytes.end());
    say(peer->socket, encode(other));
    EXPECT_TRUE(run_until([&] {
      peer->turn();
      return peer->hung_up;
    }));
    EXPECT_NE(said.find("no address of this provider"), std::string::npos) << said;
  }
  EXPECT_TRUE(server.opened.empty());
}

// libfabric's layer over tcp listens on a port of its own.
TEST_P(OfiRdm, a_program_that_hangs_up_before_it_has_asked_is_forgotten) {
  if (GetParam() != "tcp-rxm")
    GTEST_SKIP() << "not applicable: it has no other port that is listened on";
  const auto peer = connected();
  Url there = url();
  ofi::put_address(there, peer->answer->address.data(), peer->answer->address.size());
  ASSERT_NE(there.port, url().port);
  const Descriptor socket = connect_to(there);
  EXPECT_EQ(::shutdown(socket.get(), SHUT_WR), 0);
  std::byte byte{};
  EXPECT_TRUE(run_until([&] { return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0; }));
}

TEST_P(OfiRdm, nonsense_beside_ends_the_connection) {
  const auto peer = connected();
  say(peer->socket, std::array<std::byte, 8>{std::byte{1}});
  EXPECT_TRUE(ends(*peer, CloseReason::peer_died));
}

TEST_P(OfiRdm, a_tag_that_is_none_is_a_violation) {
  const auto peer = connected();
  send(*peer, 3, 10);
  EXPECT_TRUE(ends(*peer, CloseReason::protocol_violation));
}

TEST_P(OfiRdm, credits_that_cannot_be_are_a_violation) {
  const auto peer = connected();
  send(*peer, encode(Tag{.kind = TagKind::credits, .credits = rdma::credits_most}), 0);
  EXPECT_TRUE(ends(*peer, CloseReason::protocol_violation));
}

TEST_P(OfiRdm, a_message_over_the_limit_ends_its_connection) {
  const auto peer = connected();
  send(*peer, encode(Tag{}), 3000); // over 4096, the shm of 1.17 would read for ever
  EXPECT_TRUE(run_until([&] {
    peer->turn();
    return !server.closed.empty();
  }));
  EXPECT_EQ(server.messages, 0U);
}

TEST_P(OfiRdm, more_messages_than_allowed_are_a_violation) {
  server.keep = true;
  const auto peer = connected();
  for (int i = 0; i < 100 && server.closed.empty(); ++i) send(*peer, encode(Tag{}), 0);
  EXPECT_TRUE(ends(*peer, CloseReason::protocol_violation));
  server.kept.clear();
  server.keep = false;
}

// As a process that is killed, between two messages.
TEST_P(OfiRdm, a_peer_that_vanishes_without_an_end_has_died) {
  auto peer = connected();
  peer->socket = {};
  EXPECT_TRUE(ends(*peer, CloseReason::peer_died));
  for (const ConnectionId id : server.opened) transport->close(id, true);
  EXPECT_TRUE(run_until([&] { return server.pages_are_home(); }));
}

TEST_P(OfiRdm, a_peer_that_vanishes_while_it_connects_leaves_nothing) {
  for (int turns = 0; turns < 40; ++turns) {
    const auto peer = raw();
    say(peer->socket, encode(peer->introduction()));
    for (int i = 0; i < turns; ++i) (void)loop.turn();
    peer->socket = {};
    (void)run_until([&] { return server.closed.size() == server.opened.size(); });
  }
  EXPECT_TRUE(run_until(
      [&] { return server.closed.size() == server.opened.size() && server.pages_are_home(); }));
}

TEST_P(OfiRdm, a_peer_that_never_says_good_bye_keeps_no_pages) {
  const auto peer = connected();
  transport->close(server.opened.front(), true);
  for (int i = 0; i < 1000; ++i) (void)loop.turn();
  EXPECT_FALSE(server.pages_are_home()); // it may still be sending
  clock.ahead += std::chrono::seconds{10};
  EXPECT_TRUE(run_until([&] { return server.pages_are_home(); }));
}

TEST_P(OfiRdm, a_good_bye_ends_the_connection_once_all_that_was_sent_has_come) {
  for (const std::uint32_t messages : {0U, 1U, 3U}) {
    const auto peer = connected();
    for (std::uint32_t i = 0; i < messages; ++i) send(*peer, encode(Tag{}), 0);
    say(peer->socket, ofi::encode_farewell(first_count + messages));
    EXPECT_TRUE(ends(*peer, CloseReason::peer_died)); // it has not ended its stream
    EXPECT_EQ(server.messages, messages);
    for (const ConnectionId id : std::exchange(server.opened, {})) transport->close(id, true);
    server.closed.clear();
    server.messages = 0;
  }
}

TEST_P(OfiRdm, a_good_bye_before_the_last_message_ends_nothing) {
  const auto peer = connected();
  say(peer->socket, ofi::encode_farewell(first_count + 2));
  send(*peer, encode(Tag{}), 0);
  EXPECT_TRUE(run_until([&] {
    peer->turn();
    return server.messages == 1;
  }));
  EXPECT_TRUE(server.closed.empty());
  send(*peer, encode(Tag{}), 0);
  EXPECT_TRUE(ends(*peer, CloseReason::peer_died));
  EXPECT_EQ(server.messages, 2U);
}

TEST_P(OfiRdm, a_peer_that_the_kernel_cannot_watch_is_dropped_with_a_line_and_the_next_is_served) {
  const auto peer = raw();
  {
    const FailingCalls watches(FailingCalls::Kind::watch, ENOSPC);
    EXPECT_TRUE(run_until([&] {
      peer->turn();
      return peer->hung_up;
    }));
    EXPECT_EQ(watches.count(), 1);
  }
  EXPECT_NE(said.find("No space left on device"), std::string::npos) << said;
  EXPECT_TRUE(server.opened.empty()); // TearDown() connects
}

TEST_P(OfiRdm, without_room_to_watch_a_listener_and_a_connection_are_errors) {
  const FailingCalls watches(FailingCalls::Kind::watch, ENOSPC);
  const auto there = Url::parse("ofi+" + GetParam() + "://127.0.0.1").value();
  const auto listening = transport->listen(there, server.options());
  ASSERT_FALSE(listening);
  EXPECT_EQ(listening.error().kind, ErrorKind::exhausted);
  Peer client;
  ASSERT_TRUE(transport->connect(url(), client.options()));
  EXPECT_TRUE(run_until([&] { return !client.closed.empty(); }));
  EXPECT_EQ(client.closed.front().second, CloseReason::connect_failed);
  EXPECT_NE(said.find("No space left on device"), std::string::npos) << said;
  EXPECT_TRUE(run_until([&] { return client.pages_are_home(); }));
}

TEST_P(OfiRdm, an_abort_with_much_under_way_delivers_whole_messages_and_gives_the_pages_back) {
  for (int turns = 0; turns < 30; ++turns) {
    Peer host;
    Peer client;
    auto other = make(RdmaOptions{});
    const auto there =
        transport->listen(Url::parse("ofi+" + GetParam() + "://127.0.0.1").value(), host.options())
            .value();
    const auto id = other->connect(transport->listening_url(there), client.options()).value();
    ASSERT_TRUE(run_until([&] { return !client.opened.empty() && !host.opened.empty(); }));
    std::uint64_t sent = 0;
    for (int i = 0; i <= turns; ++i) {
      while (client.send(*other, id, sent, 8000) == SendOutcome::accepted) ++sent;
      other->flush();
      if (i > 0) (void)loop.turn();
    }
    other->close(id, true);
    // What is not held any more is used again: nobody may read the new bytes as old ones.
    ASSERT_TRUE(run_until([&] {
      if (const memory::Loan page = client.send_pool->take())
        std::fill_n(page.data(), client.send_pool->page_size(), std::byte{0xee});
      return !host.closed.empty();
    }));
    EXPECT_EQ(host.closed.front().second, CloseReason::peer_died);
    transport->close_listener(there);
    EXPECT_TRUE(run_until([&] { return host.pages_are_home() && client.pages_are_home(); }));
    drop(other);
  }
}

TEST_P(OfiRdm, a_listener_that_never_answers_is_given_up) {
  RdmaOptions options;
  options.handshake_timeout = std::chrono::milliseconds{20};
  auto other = make(std::move(options));
  Descriptor silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(silent.get(), generic, size), 0);
  ASSERT_EQ(::listen(silent.get(), 8), 0);
  ASSERT_EQ(::getsockname(silent.get(), generic, &size), 0);
  Url there = url();
  there.port = ntohs(address.sin_port);
  Peer client;
  ASSERT_TRUE(other->connect(there, client.options()));
  while (client.closed.empty()) (void)loop.turn();
  EXPECT_EQ(client.closed.front().second, CloseReason::connect_failed);
  EXPECT_NE(said.find("no answer within 20 ms"), std::string::npos) << said;
  EXPECT_TRUE(run_until([&] { return client.pages_are_home(); }));
  drop(other);
}

TEST_P(OfiRdm, a_listener_of_another_kind_is_no_peer) {
  for (const bool talks : {false, true}) {
    Descriptor odd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(::bind(odd.get(), generic, size), 0);
    ASSERT_EQ(::listen(odd.get(), 8), 0);
    ASSERT_EQ(::getsockname(odd.get(), generic, &size), 0);
    Url there = url();
    there.port = ntohs(address.sin_port);
    Peer client;
    ASSERT_TRUE(transport->connect(there, client.options()));
    for (int i = 0; i < 10; ++i) (void)loop.turn();
    Descriptor accepted(::accept4(odd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (talks) say(accepted, std::as_bytes(std::span("SSH-2.0-OpenSSH_9.2", 19)));
    if (!talks) accepted = {};
    EXPECT_TRUE(run_until([&] { return !client.closed.empty(); }));
    EXPECT_EQ(client.closed.front().second, CloseReason::connect_failed);
    EXPECT_TRUE(run_until([&] { return client.pages_are_home(); }));
  }
}

// Stopped, and so not within the provider: a process that dies there may leave its locks.
TEST_P(OfiRdm, a_process_that_is_killed_leaves_nothing) {
  const pid_t child = fork();
  if (child == 0) {
    Loop own{clock};
    Peer client;
    RdmaTransport sender(own, ofi::make_provider(own, GetParam()).value());
    own.add(sender);
    const auto id = sender.connect(url(), client.options()).value();
    std::uint64_t sent = 0;
    while (sent < 20) {
      while (sent < 20 && client.send(sender, id, sent, 900) == SendOutcome::accepted) ++sent;
      (void)own.turn();
    }
    for (int i = 0; i < 1000; ++i) (void)own.turn();
    (void)::raise(SIGSTOP);
    ::_exit(0);
  }
  EXPECT_TRUE(run_until([&] { return server.messages == 20; }));
  int status = 0;
  while (::waitpid(child, &status, WUNTRACED | WNOHANG) == 0) (void)loop.turn();
  EXPECT_TRUE(WIFSTOPPED(status));
  for (std::uint64_t i = 0; i < 5; ++i)
    (void)server.send(*transport, server.opened.front(), i, 3000); // it will take none
  for (int i = 0; i < 1000; ++i) (void)loop.turn();
  (void)::kill(child, SIGKILL);
  (void)::waitpid(child, &status, 0);
  EXPECT_TRUE(run_until([&] { return !server.closed.empty(); }));
  EXPECT_EQ(server.closed.front().second, CloseReason::peer_died);
  EXPECT_TRUE(run_until([&] { return server.pages_are_home(); }));
  const std::string left = std::to_string(child) + ":"; // what shm leaves of a process
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm")) {
    if (file.path().filename().string().starts_with(left)) files.push_back(file.path());
  }
  for (const auto& file : files) std::filesystem::remove(file);
}

// The first one's queue takes one connection, and then nothing is answered.
TEST_P(OfiRdm, where_one_address_of_a_host_swallows_packets_the_next_is_tried) {
  const auto listening = [](int backlog) {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket.get(), backlog), 0);
    return socket;
  };
  const Descriptor full = listening(0);
  const Descriptor good = listening(8);
  const auto url_of = [](const Descriptor& socket) {
    return Url{.scheme = "tcp", .host = "127.0.0.1", .port = local_address(socket.get()).port()};
  };
  const Descriptor first = connect_to(url_of(full));
  Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  Descriptor sockets(epoll_create1(EPOLL_CLOEXEC));
  ofi::RdmProvider provider(loop, GetParam(), std::move(epoll), std::move(sockets));
  {
    std::vector<Address> both;
    for (const Descriptor* const socket : {&full, &good})
      both.push_back(resolve(url_of(*socket), false).value().front());
    ofi::RdmConnection connection(provider, url_of(full), both);
    ASSERT_TRUE(connection.open(*server.receive_pool));
    ASSERT_TRUE(connection.start(encode(Hello{.max_message = 4000, .credits = 1})));
    const auto accepted = [&] {
      rdma::ProviderEvent event;
      EXPECT_FALSE(provider.next_event(event));
      (void)loop.turn();
      return Descriptor(::accept(good.get(), nullptr, nullptr)).get() >= 0;
    };
    for (int i = 0; i < 100; ++i) ASSERT_FALSE(accepted());
    clock.ahead += std::chrono::milliseconds{2600};
    EXPECT_TRUE(run_until(accepted));
  }
  provider.stop();
}

INSTANTIATE_TEST_SUITE_P(Providers, OfiRdm, testing::Values("shm", "tcp-rxm"),
                         [](const auto& parameter) {
                           return std::string(parameter.param == "shm" ? "shm" : "rxm");
                         });

} // namespace
} // namespace fanin::net
