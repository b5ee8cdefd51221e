// What the conformance suite cannot know: unidentified peers, wrong bytes, addresses, descriptors,
// deadlines.
#include "fanin/net/tcp/tcp.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/pkt_sched.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fanin/base/random.hpp"
#include "fanin/base/testing/failing_calls.hpp"
#include "fanin/net/conformance/peer.hpp"

namespace fanin::net {
namespace {

using conformance::Peer;
using namespace std::chrono_literals;

// A socket without manners.
class Raw {
public:
  Raw() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  explicit Raw(int accepted) : socket_(accepted) {}

  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  void connect(std::uint16_t port) const {
    const sockaddr_in address = loopback(port);
    ASSERT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
  }
  [[nodiscard]] std::uint16_t listen(int backlog = 8) const {
    const sockaddr_in address = loopback(0);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    EXPECT_EQ(::listen(socket_.get(), backlog), 0);
    return local_address(socket_.get()).port();
  }
  [[nodiscard]] Raw accept() const { return Raw(::accept(socket_.get(), nullptr, nullptr)); }
  void send(std::span<const std::byte> bytes) const {
    (void)!::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // The other side has closed or reset it; what it sent before is thrown away.
  [[nodiscard]] bool at_end() const {
    char ignored[4096];
    const ssize_t got = ::recv(socket_.get(), ignored, sizeof ignored, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }
  // Up to 64 KiB of what is there; `last`: the last bytes of all that was read, at most 16.
  void read(std::vector<std::byte>& last) const {
    std::array<std::byte, 64U << 10> bytes;
    const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    const auto count = static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    const auto end = std::span(bytes).first(count).last(std::min<std::size_t>(count, 16));
    last.insert(last.end(), end.begin(), end.end());
    if (last.size() > 16) last.erase(last.begin(), last.end() - 16);
  }
  // The descriptor of the other side, which is of this process.
  [[nodiscard]] int other_side() const {
    const auto same = [](const Address& a, const Address& b) {
      return a.port() == b.port() && a.host() == b.host();
    };
    const Address here = local_address(socket_.get());
    const Address there = peer_address(socket_.get());
    for (int other = 0; other < 1024; ++other) {
      if (same(local_address(other), there) && same(peer_address(other), here)) return other;
    }
    ADD_FAILURE() << "the other side is not of this process";
    return -1;
  }
  void shut_down() const { (void)::shutdown(socket_.get(), SHUT_WR); }
  void close() { socket_.reset(); }

private:
  Descriptor socket_;
};

using Bytes = std::vector<std::byte>;

Bytes preface(std::uint8_t version = tcp::protocol_version) {
  Bytes bytes(tcp::preface_size);
  tcp::encode_preface(std::span<std::byte, tcp::preface_size>(bytes.data(), tcp::preface_size),
                      {.version = version, .max_message = 1000});
  return bytes;
}

Bytes header(std::uint32_t length) {
  Bytes bytes(tcp::header_size);
  tcp::encode_header(std::span<std::byte, tcp::header_size>(bytes.data(), tcp::header_size),
                     length);
  return bytes;
}

Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Bytes end_frame(std::uint64_t taken) {
  Bytes bytes(tcp::taken_size);
  tcp::encode_taken(std::span<std::byte, tcp::taken_size>(bytes.data(), tcp::taken_size), taken);
  return header(tcp::end_of_stream) + bytes;
}

class Tcp : public testing::Test {
protected:
  Tcp() {
    TcpOptions options;
    options.report = [this](CloseReason reason, std::string_view text) {
      reports.emplace_back(reason, text);
    };
    transport = std::make_unique<TcpTransport>(loop, options);
    loop.add(*transport);
  }
  void TearDown() override {
    server.kept.clear();
    client.kept.clear();
    transport.reset();
    EXPECT_EQ(server.receive_pool->available(), server.receive_pool->pages());
    EXPECT_EQ(client.send_pool->available(), client.send_pool->pages());
  }

  template <class Condition>
  bool run_until(Condition condition) {
    for (int i = 0; i < 3'000'000; ++i) {
      if (condition()) return true;
      if (!loop.turn()) sched_yield();
    }
    return false;
  }
  void run_until_idle() {
    for (int idle = 0; idle < 200; ++idle) {
      if (loop.turn()) idle = 0;
      sched_yield();
    }
  }
  std::uint16_t listen() {
    const auto made = transport->listen(*Url::parse("tcp"), server.options());
    EXPECT_TRUE(made) << made.error().text;
    url = transport->listening_url(*made);
    return url.port;
  }
  [[nodiscard]] std::uint64_t closed(CloseReason reason) const {
    return transport->accounts().closed(reason);
  }
  // A raw client after its introduction.
  Raw introduced() {
    Raw raw;
    raw.connect(listen());
    raw.send(preface());
    EXPECT_TRUE(run_until([&] { return server.opened.size() == 1; }));
    return raw;
  }
  CloseReason end_of(const Bytes& bytes) {
    Raw raw = introduced();
    raw.send(bytes);
    raw.shut_down();
    EXPECT_TRUE(run_until([&] { return server.closed.size() == 1; }));
    EXPECT_TRUE(run_until([&] { return raw.at_end(); }));
    return server.closed.empty() ? CloseReason::local : server.closed.front().second;
  }
  Result<ConnectionId> connect(const std::string& address) {
    return transport->connect(*Url::parse(address), client.options());
  }

  Peer server;
  Peer client;
  VirtualClock clock; // deadlines come when the test says so
  Loop loop{clock};
  std::unique_ptr<TcpTransport> transport;
  std::vector<std::pair<CloseReason, std::string>> reports;
  Url url;
};

TEST_F(Tcp, random_bytes_on_the_port_are_counted_and_the_others_go_on) {
  const std::uint16_t port = listen();
  const auto good = connect(url.text());
  ASSERT_TRUE(good);
  ASSERT_TRUE(run_until([&] { return !client.opened.empty(); }));
  Random random(1);
  for (std::uint64_t i = 0; i < 100; ++i) {
    Raw raw;
    raw.connect(port);
    Bytes bytes(1 + random.below(5000));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
    bytes[0] = std::byte{0};
    raw.send(bytes);
    ASSERT_TRUE(run_until([&] { return raw.at_end(); }));
    EXPECT_EQ(client.send(*transport, *good, i, 100), SendOutcome::accepted);
  }
  EXPECT_TRUE(run_until([&] { return server.messages == 100; }));
  EXPECT_EQ(closed(CloseReason::protocol_violation), 100U);
  EXPECT_EQ(server.opened.size(), 1U); // nobody was told of the others
  EXPECT_TRUE(server.closed.empty());
}

TEST_F(Tcp, an_http_request_is_closed_at_its_first_letter) {
  Raw raw;
  raw.connect(listen());
  raw.send(Bytes(1, std::byte{'G'}));
  EXPECT_TRUE(run_until([&] { return raw.at_end(); }));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_NE(reports.front().second.find("not a fanin process"), std::string::npos);
}

TEST_F(Tcp, what_has_come_of_a_message_shows_before_it_is_whole) {
  Raw raw = introduced();
  const auto unfinished = [&] { return transport->unfinished(server.opened.front()); };
  Bytes message(800);
  conformance::fill(message, 0);
  const std::span<const std::byte> bytes(message);
  raw.send(header(800));
  raw.send(bytes.first(300));
  EXPECT_TRUE(run_until([&] { return unfinished() == 300; }));
  raw.send(bytes.subspan(300, 400));
  EXPECT_TRUE(run_until([&] { return unfinished() == 700; }));
  raw.send(bytes.last(100));
  EXPECT_TRUE(run_until([&] { return server.messages == 1; }));
  EXPECT_EQ(unfinished(), 0U);
}

TEST_F(Tcp, a_silent_peer_is_dropped_at_its_deadline) {
  Raw raw;
  raw.connect(listen());
  raw.send(Bytes(3, std::byte{'F'}));
  Raw second;
  second.connect(url.port);
  second.send(Bytes(1, std::byte{'F'}));
  run_until_idle();
  EXPECT_FALSE(second.at_end());
  clock.advance(5s);
  EXPECT_TRUE(run_until([&] { return second.at_end(); }));
  EXPECT_EQ(transport->accounts().handshake_timeouts, 1U);
}

TEST_F(Tcp, a_peer_of_another_version_is_named) {
  Raw raw;
  raw.connect(listen());
  raw.send(preface(77));
  EXPECT_TRUE(run_until([&] { return raw.at_end(); }));
  EXPECT_EQ(closed(CloseReason::version_mismatch), 1U);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_NE(reports.front().second.find("version 77"), std::string::npos) << reports.front().second;
}

TEST_F(Tcp, a_server_of_another_version_is_named) {
  const Raw listener;
  const std::uint16_t port = listener.listen();
  ASSERT_TRUE(connect("tcp://127.0.0.1:" + std::to_string(port)));
  const Raw accepted = listener.accept();
  accepted.send(preface(77));
  ASSERT_TRUE(run_until([&] { return !client.closed.empty(); }));
  EXPECT_EQ(client.closed.front().second, CloseReason::version_mismatch);
}

TEST_F(Tcp, where_one_address_of_a_host_swallows_packets_the_next_is_tried) {
  const Raw full; // its queue takes one connection, and then nothing is answered
  const std::uint16_t silent = full.listen(0);
  const Raw one;
  one.connect(silent);
  const std::uint16_t port = listen();
  BlockingResolver both([&](const std::string&) -> Resolver::Found {
    std::vector<Address> addresses;
    for (const std::uint16_t number : {silent, port}) {
      addresses.push_back(resolve_host("127.0.0.1").value().front());
      addresses.back().set_port(number);
    }
    return addresses;
  });
  loop.set_resolver(&both);
  TcpTransport here(loop);
  loop.add(here);
  ASSERT_TRUE(here.connect(*Url::parse("tcp://two.example:1"), client.options()));
  run_until_idle();
  EXPECT_TRUE(client.opened.empty());
  clock.advance(2500ms);
  EXPECT_TRUE(run_until([&] { return !client.opened.empty(); }));
  loop.remove(here);
  loop.set_resolver(nullptr);
}

TEST_F(Tcp, a_server_that_stays_silent_is_a_failed_connect) {
  const Raw listener;
  const std::uint16_t port = listener.listen();
  ASSERT_TRUE(connect("tcp://127.0.0.1:" + std::to_string(port)));
  run_until_idle();
  EXPECT_TRUE(client.closed.empty());
  clock.advance(5s);
  ASSERT_TRUE(run_until([&] { return !client.closed.empty(); }));
  EXPECT_EQ(client.closed.front().second, CloseReason::connect_failed);
}

TEST_F(Tcp, a_host_is_looked_up_again_only_after_a_connect_to_it_has_failed) {
  int asked = 0;
  bool gone = false;
  BlockingResolver names([&](const std::string&) -> Resolver::Found {
    ++asked;
    if (gone) return fail(ErrorKind::not_found, "no such host");
    return resolve_host("127.0.0.1");
  });
  loop.set_resolver(&names);
  TcpTransport caller{loop};
  loop.add(caller);
  const Url name = *Url::parse(fmt::format("tcp://daq-evm:{}", listen()));
  const auto connect = [&] {
    const auto id = caller.connect(name, client.options());
    if (!id) return false;
    const std::size_t opened = client.opened.size();
    const std::size_t closed = client.closed.size();
    EXPECT_TRUE(
        run_until([&] { return client.opened.size() > opened || client.closed.size() > closed; }));
    const bool connected = client.opened.size() > opened;
    caller.close(*id, true);
    return connected;
  };
  EXPECT_TRUE(connect());
  gone = true; // the name service knows it no more
  EXPECT_TRUE(connect());
  EXPECT_EQ(asked, 1);
  loop.remove(*transport);
  transport.reset(); // the host is gone
  EXPECT_FALSE(connect());
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(connect()); // at the address that was known
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(client.closed.back().second, CloseReason::connect_failed);
  loop.remove(caller);
  loop.set_resolver(nullptr);
}

TEST_F(Tcp, a_name_service_that_takes_its_time_holds_up_nobody_else) {
  ScriptedResolver names(loop);
  loop.set_resolver(&names);
  names.take(6s); // longer than a connect may take
  const std::uint16_t port = listen();
  const Url name = *Url::parse(fmt::format("tcp://daq-evm:{}", port));
  ASSERT_TRUE(transport->connect(name, client.options()));
  const auto closed = transport->connect(name, client.options());
  ASSERT_TRUE(closed);
  transport->close(*closed, true); // before there is an answer
  ASSERT_TRUE(connect(fmt::format("tcp://127.0.0.1:{}", port)));
  ASSERT_TRUE(run_until([&] { return client.opened.size() == 1; }));
  clock.advance(5s);
  ASSERT_TRUE(run_until([&] { return !client.closed.empty(); }));
  EXPECT_EQ(client.closed.front().second, CloseReason::connect_failed);
  clock.advance(1s); // nobody waits for the answer any more, but it is kept
  run_until_idle();
  names.fail(ErrorKind::not_found);
  ASSERT_TRUE(transport->connect(name, client.options()));
  ASSERT_TRUE(run_until([&] { return client.opened.size() == 2; }));
  EXPECT_EQ(names.asked(), 1U);
  names.take(1s);
  ASSERT_TRUE(transport->connect(*Url::parse("tcp://nobody:1"), client.options()));
  run_until_idle();
  EXPECT_EQ(client.closed.size(), 1U);
  clock.advance(1s);
  ASSERT_TRUE(run_until([&] { return client.closed.size() == 2; }));
  EXPECT_EQ(client.closed.back().second, CloseReason::unknown_host);
  loop.remove(*transport);
  transport.reset();
  loop.set_resolver(nullptr);
}

TEST_F(Tcp, a_lying_length_ends_the_connection) {
  EXPECT_EQ(end_of(header(0xfffffff0U)), CloseReason::message_too_large);
}

TEST_F(Tcp, a_header_that_is_none_ends_the_connection) {
  EXPECT_EQ(end_of(Bytes(8, std::byte{7})), CloseReason::protocol_violation);
}

TEST_F(Tcp, the_end_of_the_stream_within_a_message_is_a_death) {
  EXPECT_EQ(end_of(header(500) + Bytes(499)), CloseReason::peer_died);
  EXPECT_EQ(server.messages, 0U);
}

TEST_F(Tcp, the_end_of_the_stream_without_a_goodbye_is_a_death) {
  EXPECT_EQ(end_of(header(0) + header(0)), CloseReason::peer_died);
}

TEST_F(Tcp, a_goodbye_is_an_orderly_end) {
  EXPECT_EQ(end_of(end_frame(0)), CloseReason::peer_closed);
}

TEST_F(Tcp, a_goodbye_for_more_than_was_sent_is_a_violation) {
  EXPECT_EQ(end_of(end_frame(1)), CloseReason::protocol_violation);
}

TEST_F(Tcp, random_bytes_after_the_introduction_end_the_connection) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    server.opened.clear();
    server.closed.clear();
    Random random(seed);
    Bytes bytes(1 + random.below(20'000));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
    const CloseReason reason = end_of(bytes);
    EXPECT_TRUE(reason == CloseReason::protocol_violation || bytes.size() < tcp::header_size)
        << seed;
  }
}

TEST_F(Tcp, bytes_may_come_one_by_one) {
  Raw raw = introduced();
  Bytes message(30);
  conformance::fill(message, 0);
  for (const std::byte byte : header(30) + message) {
    raw.send(std::span(&byte, 1));
    (void)loop.turn();
  }
  EXPECT_TRUE(run_until([&] { return server.messages == 1; }));
}

TEST_F(Tcp, a_port_in_use_is_refused_with_the_remedy) {
  const std::uint16_t port = listen();
  const auto again = transport->listen(url, server.options());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, ErrorKind::refused);
  EXPECT_NE(again.error().text.find("in use"), std::string::npos);
  EXPECT_NE(again.error().text.find(std::to_string(port)), std::string::npos);
}

TEST_F(Tcp, a_port_for_privileged_programs_is_refused_with_the_remedy) {
  for (const int port : {80, 8080}) {
    const auto at = Url::parse(fmt::format("tcp://127.0.0.1:{}", port)).value();
    const FailingCalls binds(FailingCalls::Kind::bind, EACCES);
    const auto refused = transport->listen(at, server.options());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::refused);
    EXPECT_EQ(refused.error().text.contains("CAP_NET_BIND_SERVICE. Choose a higher one"),
              port == 80)
        << refused.error().text;
  }
}

TEST_F(Tcp, wrong_addresses_are_errors_that_say_why) {
  EXPECT_EQ(connect("tcp://127.0.0.1").error().kind, ErrorKind::usage);
  EXPECT_EQ(connect("tcp://127.0.0.1:7000?colour=red").error().kind, ErrorKind::usage);
  const auto foreign = transport->listen(*Url::parse("tcp://192.0.2.1:0"), server.options());
  ASSERT_FALSE(foreign);
  EXPECT_NE(foreign.error().text.find("not an address of this host"), std::string::npos)
      << foreign.error().text;
}

TEST_F(Tcp, host_names_and_both_families_work) {
  for (const char* text : {"tcp://localhost", "tcp://[::1]", "tcp://0.0.0.0", "tcp://[::]"}) {
    server.opened.clear();
    const auto made = transport->listen(*Url::parse(text), server.options());
    ASSERT_TRUE(made) << made.error().text;
    Url to = transport->listening_url(*made);
    if (to.host == "0.0.0.0" || to.host == "::") to.host = "127.0.0.1"; // [::] takes IPv4 as well
    const auto id = transport->connect(to, client.options());
    ASSERT_TRUE(id) << id.error().text;
    EXPECT_TRUE(run_until([&] { return !server.opened.empty(); })) << text;
  }
}

TEST_F(Tcp, an_unknown_congestion_control_is_an_error_that_names_it) {
  const auto made =
      transport->listen(*Url::parse("tcp://127.0.0.1?congestion=carrier-pigeon"), server.options());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().kind, ErrorKind::usage);
  EXPECT_NE(made.error().text.find("carrier-pigeon"), std::string::npos) << made.error().text;
}

// Of all TCP sockets of this process: how many have that value of an option.
std::size_t sockets_with(int level, int option, int value) {
  std::size_t found = 0;
  for (int socket = 0; socket < 1024; ++socket) {
    int protocol = 0;
    int is = 0;
    socklen_t size = sizeof is;
    const bool tcp = getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
                     protocol == IPPROTO_TCP;
    size = sizeof is;
    if (tcp && getsockopt(socket, level, option, &is, &size) == 0 && is == value) ++found;
  }
  return found;
}

TEST_F(Tcp, packets_of_both_ends_have_the_class_that_the_address_says) {
  ASSERT_EQ(sockets_with(IPPROTO_IP, IP_TOS, 46 << 2), 0U);
  const auto made = transport->listen(*Url::parse("tcp://127.0.0.1?dscp=46"), server.options());
  ASSERT_TRUE(made) << made.error().text;
  const Url to = transport->listening_url(*made);
  EXPECT_EQ(to.options.at("dscp"), "46");
  ASSERT_TRUE(transport->connect(to, client.options()));
  EXPECT_TRUE(run_until([&] { return !server.opened.empty(); }));
  // the listener, both ends of the connection
  EXPECT_EQ(sockets_with(IPPROTO_IP, IP_TOS, 46 << 2), 3U);
}

TEST_F(Tcp, the_hosts_queue_puts_the_urgent_end_of_a_connection_first) {
  ConnectionOptions urgent = server.options();
  urgent.urgent = true;
  const auto made = transport->listen(*Url::parse("tcp://127.0.0.1?dscp=46"), urgent);
  ASSERT_TRUE(made) << made.error().text;
  const Url to = transport->listening_url(*made);
  ASSERT_TRUE(transport->connect(to, client.options()));
  EXPECT_TRUE(run_until([&] { return server.opened.size() == 1; }));
  EXPECT_EQ(sockets_with(SOL_SOCKET, SO_PRIORITY, TC_PRIO_INTERACTIVE), 1U);
  urgent = client.options();
  urgent.urgent = true;
  ASSERT_TRUE(transport->connect(to, urgent));
  EXPECT_TRUE(run_until([&] { return server.opened.size() == 2; }));
  EXPECT_EQ(sockets_with(SOL_SOCKET, SO_PRIORITY, TC_PRIO_INTERACTIVE), 3U);
}

TEST_F(Tcp, a_wrong_dscp_is_an_error_that_names_it) {
  for (const char* text : {"64", "-1", "x", "46x", "ef"}) {
    const auto made = transport->listen(*Url::parse(fmt::format("tcp://127.0.0.1?dscp={}", text)),
                                        server.options());
    ASSERT_FALSE(made) << text;
    EXPECT_EQ(made.error().kind, ErrorKind::usage);
    EXPECT_NE(made.error().text.find("dscp"), std::string::npos) << made.error().text;
  }
}

TEST_F(Tcp, pages_are_at_least_half_full_however_many_connections_share_them) {
  const std::uint16_t port = listen();
  server.keep = true;
  constexpr std::uint64_t count = 100; // from each: more than the events of a turn
  Bytes stream = preface();
  for (std::uint64_t number = 0; number < count; ++number) {
    stream = std::move(stream) + header(16);
    for (std::size_t i = 0; i < 16; ++i) stream.push_back(conformance::content(number, i));
  }
  const std::vector<Raw> clients(60);
  for (const Raw& raw : clients) {
    raw.connect(port);
    raw.send(stream);
  }
  ASSERT_TRUE(run_until([&] { return server.messages == clients.size() * count; }));
  const std::uint32_t used = server.receive_pool->pages() - server.receive_pool->available();
  const std::uint64_t filled = server.bytes + server.messages * tcp::header_size;
  EXPECT_LE(used, 2 * (filled / conformance::page_size + 1));
}

TEST_F(Tcp, unidentified_peers_that_announce_large_messages_pin_nothing_until_they_are_identified) {
  ConnectionOptions options = server.options();
  options.peers_must_identify = true;
  const auto made = transport->listen(*Url::parse("tcp"), options);
  ASSERT_TRUE(made);
  const std::uint32_t half_a_page = conformance::page_size / 2;
  std::vector<Raw> unidentified(100);
  for (const Raw& raw : unidentified) {
    raw.connect(transport->listening_url(*made).port);
    raw.send(preface() + header(half_a_page));
  }
  ASSERT_TRUE(run_until([&] { return server.opened.size() == unidentified.size(); }));
  run_until_idle();
  EXPECT_EQ(server.receive_pool->available(), server.receive_pool->pages());
  Bytes message(half_a_page);
  conformance::fill(message, 0);
  for (const Raw& raw : unidentified) raw.send(message);
  transport->mark_identified(server.opened[7]);
  ASSERT_TRUE(run_until([&] { return server.messages == 1; }));
  EXPECT_EQ(server.next.begin()->first, server.opened[7]);
}

TEST_F(Tcp, where_unidentified_peers_crowd_the_oldest_is_evicted_after_a_while) {
  const std::uint16_t port = listen();
  std::vector<Raw> unidentified(TcpOptions{}.unidentified.peers_max);
  for (const Raw& raw : unidentified) raw.connect(port);
  run_until_idle();
  clock.advance(500ms);
  Raw late;
  late.connect(port);
  late.send(preface());
  run_until_idle();
  EXPECT_TRUE(server.opened.empty());
  EXPECT_EQ(closed(CloseReason::evicted), 0U);
  clock.advance(500ms);
  ASSERT_TRUE(run_until([&] { return server.opened.size() == 1; }));
  EXPECT_EQ(closed(CloseReason::evicted), 1U);
}

// As where a busy host has given it no processor.
TEST_F(Tcp, a_listener_that_was_away_reads_what_peers_have_sent_before_it_sends_them_away) {
  const std::uint16_t port = listen();
  std::vector<Raw> unidentified(TcpOptions{}.unidentified.peers_max);
  for (const Raw& raw : unidentified) raw.connect(port);
  run_until_idle();
  for (const Raw& raw : unidentified) raw.send(preface());
  Raw late;
  late.connect(port);
  late.send(preface());
  clock.advance(TcpOptions{}.handshake_timeout);
  ASSERT_TRUE(run_until([&] { return server.opened.size() == unidentified.size() + 1; }));
  EXPECT_EQ(closed(CloseReason::evicted), 0U);
  EXPECT_EQ(closed(CloseReason::protocol_violation), 0U);
}

TEST_F(Tcp, what_is_unread_excuses_a_peer_once) {
  const std::uint16_t port = listen();
  const Bytes whole = preface();
  std::vector<Raw> unidentified(TcpOptions{}.unidentified.peers_max);
  for (const Raw& raw : unidentified) raw.connect(port);
  run_until_idle();
  Raw late;
  late.connect(port);
  late.send(whole);
  for (const Raw& raw : unidentified) raw.send(Bytes(whole.begin(), whole.begin() + 1));
  clock.advance(1s);
  run_until_idle();
  EXPECT_TRUE(server.opened.empty());
  EXPECT_EQ(closed(CloseReason::evicted), 0U);
  for (const Raw& raw : unidentified) raw.send(Bytes(whole.begin() + 1, whole.begin() + 2));
  clock.advance(1s);
  ASSERT_TRUE(run_until([&] { return server.opened.size() == 1; }));
  EXPECT_EQ(closed(CloseReason::evicted), 1U);
}

TEST_F(Tcp, a_peer_that_was_closed_and_stays_is_evicted_without_an_event) {
  ConnectionOptions options = server.options();
  options.peers_must_identify = true;
  const auto made = transport->listen(*Url::parse("tcp"), options);
  ASSERT_TRUE(made);
  const std::uint16_t port = transport->listening_url(*made).port;
  server.react = [](Transport& here, Event& event) { here.close(event.connection); };
  std::vector<Raw> unidentified(TcpOptions{}.unidentified.peers_max);
  for (const Raw& raw : unidentified) {
    raw.connect(port);
    raw.send(preface());
  }
  ASSERT_TRUE(run_until([&] { return server.opened.size() == unidentified.size(); }));
  EXPECT_EQ(transport->closing(), unidentified.size());
  clock.advance(1s);
  std::vector<Raw> late(10);
  for (const Raw& raw : late) {
    raw.connect(port);
    raw.send(preface());
  }
  ASSERT_TRUE(run_until([&] { return server.opened.size() == unidentified.size() + late.size(); }));
  clock.advance(5s);
  EXPECT_TRUE(run_until([&] { return transport->closing() == 0; }));
  EXPECT_TRUE(server.closed.empty());
}

TEST_F(Tcp, a_hello_gets_through_while_others_hold_all_pages_and_many_have_begun_one) {
  Peer full({.receive_pages = 2});
  full.any_home = true;
  ConnectionOptions options = full.options();
  options.peers_must_identify = true;
  const auto made = transport->listen(*Url::parse("tcp"), options);
  ASSERT_TRUE(made);
  const std::uint16_t port = transport->listening_url(*made).port;
  full.react = [](Transport& here, Event& event) {
    if (event.kind == EventKind::message) here.mark_identified(event.connection);
  };
  std::vector<Raw> slow(50);
  for (const Raw& raw : slow) {
    raw.connect(port);
    raw.send(preface() + header(unidentified_message_max) + Bytes(1));
  }
  ASSERT_TRUE(run_until([&] { return full.opened.size() == slow.size(); }));
  run_until_idle();
  const memory::Loan first = full.receive_pool->take();
  const memory::Loan second = full.receive_pool->take();
  EXPECT_TRUE(first && second);
  Raw honest;
  honest.connect(port);
  Bytes hello(32);
  conformance::fill(hello, 0);
  honest.send(preface() + header(32) + hello);
  EXPECT_TRUE(run_until([&] { return full.messages == 1; }));
  loop.remove(*transport);
  transport.reset();
}

// Each of them has introduced itself, and its message would fill half a page.
class TcpUnfinished : public Tcp {
protected:
  void expect_that_one_gets_through_others_that_sent(std::size_t bytes) {
    Peer scarce({.receive_pages = 4});
    const auto made = transport->listen(*Url::parse("tcp"), scarce.options());
    ASSERT_TRUE(made);
    const std::uint16_t port = transport->listening_url(*made).port;
    const std::uint32_t half_a_page = conformance::page_size / 2;
    Bytes message(half_a_page);
    conformance::fill(message, 0);
    std::vector<Raw> slow(32);
    for (const Raw& raw : slow) {
      raw.connect(port);
      raw.send(preface() + header(half_a_page));
      raw.send(std::span(message).first(bytes));
    }
    ASSERT_TRUE(run_until([&] { return scarce.opened.size() == slow.size(); }));
    run_until_idle();
    EXPECT_EQ(scarce.receive_pool->available(), 0U);
    Raw honest;
    honest.connect(port);
    honest.send(preface() + header(half_a_page) + message);
    run_until_idle();
    EXPECT_EQ(scarce.messages, 0U);
    const Time begin = clock.now();
    EXPECT_TRUE(run_until([&] { // all take turns
      clock.advance(1ms);
      return scarce.messages == 1;
    }));
    EXPECT_LE(clock.now() - begin, 10s); // those that hold pages let go of them together
    for (const Raw& raw : slow) raw.send(std::span(message).subspan(bytes));
    EXPECT_TRUE(run_until([&] { return scarce.messages == 1 + slow.size(); }));
    loop.remove(*transport);
    transport.reset();
    EXPECT_EQ(scarce.receive_pool->available(), scarce.receive_pool->pages());
  }
};

TEST_F(TcpUnfinished, messages_that_have_hardly_begun_do_not_keep_the_pages_that_others_need) {
  expect_that_one_gets_through_others_that_sent(1);
}

TEST_F(TcpUnfinished, messages_that_do_not_go_on_do_not_keep_the_pages_that_others_need) {
  expect_that_one_gets_through_others_that_sent(conformance::page_size / 2 - 1);
}

TEST_F(Tcp, without_descriptors_accepting_pauses_instead_of_spinning) {
  Raw raw;
  Raw second;
  raw.connect(listen());
  raw.send(preface());
  std::vector<Descriptor> all;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{std::min<rlim_t>(before.rlim_cur, 256), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  while (true) {
    Descriptor more(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!more) break;
    all.push_back(std::move(more));
  }
  for (int i = 0; i < 1000; ++i) (void)loop.turn();
  EXPECT_EQ(transport->accounts().accept_failures, 1U);
  EXPECT_TRUE(transport->arm()); // it would sleep
  all.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  clock.advance(100ms);
  EXPECT_TRUE(run_until([&] { return server.opened.size() == 1; }));
}

TEST_F(Tcp,
       a_connection_that_the_kernel_cannot_watch_is_refused_with_a_line_and_the_next_is_served) {
  Raw raw;
  raw.connect(listen());
  {
    const FailingCalls watches(FailingCalls::Kind::watch, ENOSPC);
    EXPECT_TRUE(run_until([&] { return raw.at_end(); }));
    EXPECT_EQ(watches.count(), 1);
  }
  EXPECT_EQ(transport->accounts().accept_failures, 1U);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_NE(reports[0].second.find("No space left on device"), std::string::npos);
  Raw next;
  next.connect(url.port);
  next.send(preface());
  EXPECT_TRUE(run_until([&] { return server.opened.size() == 1; }));
  EXPECT_TRUE(server.closed.empty()); // nobody knew of the other one
}

TEST_F(Tcp, an_address_whose_socket_the_kernel_cannot_watch_is_not_waited_for) {
  (void)listen();
  const FailingCalls watches(FailingCalls::Kind::watch, ENOSPC);
  ASSERT_TRUE(connect(url.text()));
  EXPECT_TRUE(run_until([&] { return client.closed.size() == 1; }));
  EXPECT_EQ(client.closed[0].second, CloseReason::connect_failed);
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports[0].first, CloseReason::connect_failed);
  EXPECT_NE(reports[0].second.find("No space left on device"), std::string::npos);
}

TEST_F(Tcp, a_listener_that_the_kernel_cannot_watch_is_an_error_and_leaves_its_port_free) {
  Raw holder;
  const Url wanted{.scheme = "tcp", .host = "127.0.0.1", .port = holder.listen()};
  holder.close();
  {
    const FailingCalls watches(FailingCalls::Kind::watch, ENOSPC);
    const auto made = transport->listen(wanted, server.options());
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().kind, ErrorKind::exhausted);
    EXPECT_NE(made.error().text.find("No space left on device"), std::string::npos);
  }
  EXPECT_TRUE(transport->listen(wanted, server.options()));
}

class TcpClose : public Tcp {
protected:
  // Bytes that the other side's kernel has.
  static std::uint64_t acknowledged(int socket) {
    tcp_info info{};
    socklen_t size = sizeof info;
    EXPECT_EQ(getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size), 0);
    return info.tcpi_bytes_acked;
  }
  static int unacknowledged(int socket) {
    int bytes = -1;
    EXPECT_EQ(ioctl(socket, SIOCOUTQ, &bytes), 0);
    return bytes;
  }
  // Closes after more was accepted than the kernel's buffers of both sides hold.
  Raw close_with_much_under_way(std::uint32_t message = conformance::page_size) {
    client.set_pools({.send_page_size = message});
    const Raw listener;
    const std::uint16_t port = listener.listen();
    const auto id = connect("tcp://127.0.0.1:" + std::to_string(port));
    EXPECT_TRUE(id);
    Raw accepted = listener.accept();
    Bytes hello = preface();
    hello[11] = std::byte{1}; // takes messages of 16 MiB
    accepted.send(hello);
    EXPECT_TRUE(run_until([&] { return !client.opened.empty(); }));
    memory::Loan loan = client.send_pool->take(); // sent over and over
    view = loan.freeze(0, loan.size());
    loan.reset();
    EXPECT_TRUE(run_until(
        [&] { return transport->send(*id, std::span(&view, 1)) == SendOutcome::backpressure; }));
    transport->close(*id, false);
    EXPECT_EQ(transport->closing(), 1U);
    return accepted;
  }
  // The peer takes 64 KiB in each linger_timeout, and at last all.
  void expect_to_go_on(const Raw& peer) {
    const int ours = peer.other_side();
    Bytes end;
    for (int period = 0; period < 4; ++period) {
      const std::uint64_t before = acknowledged(ours);
      ASSERT_TRUE(run_until([&] {
        peer.read(end);
        return acknowledged(ours) >= before + (64U << 10);
      })) << period;
      clock.advance(5s);
      for (int turn = 0; turn < 10; ++turn) (void)loop.turn();
      ASSERT_EQ(transport->closing(), 1U) << period;
    }
    ASSERT_TRUE(run_until([&] {
      peer.read(end);
      return transport->closing() == 0 || std::ranges::equal(end, end_frame(0));
    }));
    peer.shut_down();
    EXPECT_TRUE(run_until([&] { return transport->closing() == 0; }));
    EXPECT_EQ(transport->given_up(), 0U);
  }
  void TearDown() override {
    EXPECT_EQ(view.page.get()->references, 1U); // only ours is left
    view = {};
    Tcp::TearDown();
  }
  memory::View view;
};

TEST_F(TcpClose, gives_up_on_a_peer_that_does_not_read_at_its_deadline) {
  const Raw peer = close_with_much_under_way();
  EXPECT_TRUE(run_until([&] { // the kernels may still be at what they had room for
    clock.advance(5s);
    return transport->closing() == 0;
  }));
  EXPECT_EQ(transport->given_up(), 1U);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_TRUE(reports.front().second.contains(peer_takes_nothing)) << reports.front().second;
}

TEST_F(TcpClose, goes_on_as_long_as_the_peer_reads) {
  expect_to_go_on(close_with_much_under_way());
}

TEST_F(TcpClose, goes_on_as_long_as_the_peer_reads_of_one_message) {
  expect_to_go_on(close_with_much_under_way(8U << 20));
}

// It may never read what its kernel has.
TEST_F(TcpClose, gives_up_on_a_peer_that_does_not_say_what_it_has_taken) {
  const Raw peer = close_with_much_under_way();
  Bytes end;
  ASSERT_TRUE(run_until([&] {
    peer.read(end);
    return std::ranges::equal(end, end_frame(0));
  }));
  ASSERT_TRUE(run_until([&] { return unacknowledged(peer.other_side()) == 0; }));
  clock.advance(5s);
  EXPECT_TRUE(run_until([&] {
    clock.advance(5s);
    return transport->closing() == 0;
  }));
  EXPECT_EQ(transport->given_up(), 1U);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_TRUE(reports.front().second.contains(peer_is_silent)) << reports.front().second;
}

TEST_F(TcpClose, says_what_a_peer_that_closes_has_not_taken) {
  Raw peer = close_with_much_under_way();
  peer.send(end_frame(1));
  Bytes end;
  ASSERT_TRUE(run_until([&] { // what was taken here arrives all the same
    peer.read(end);
    return std::ranges::equal(end, end_frame(0));
  }));
  EXPECT_TRUE(run_until([&] { return transport->closing() == 0; }));
  EXPECT_EQ(transport->given_up(), 1U);
}

TEST_F(TcpClose, says_that_a_peer_has_ended_without_a_word_before_it_had_acknowledged_all) {
  const Raw peer = close_with_much_under_way();
  peer.shut_down();
  EXPECT_TRUE(run_until([&] { return transport->closing() == 0; }));
  EXPECT_EQ(transport->given_up(), 1U);
}

TEST_F(TcpClose, says_that_a_peer_has_died_before_it_had_taken_all) {
  Raw peer = close_with_much_under_way();
  peer.close();
  EXPECT_TRUE(run_until([&] { return transport->closing() == 0; }));
  EXPECT_EQ(transport->given_up(), 1U);
}

TEST_F(Tcp, closing_a_listener_drops_those_who_have_not_introduced_themselves) {
  const auto made = transport->listen(*Url::parse("tcp"), server.options());
  ASSERT_TRUE(made);
  Raw raw;
  raw.connect(transport->listening_url(*made).port);
  run_until_idle();
  transport->close_listener(*made);
  raw.send(preface());
  EXPECT_TRUE(run_until([&] { return raw.at_end(); }));
  EXPECT_TRUE(server.opened.empty());
}

} // namespace
} // namespace fanin::net
