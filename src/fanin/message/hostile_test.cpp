// Peers that say what no socket says, over each transport: each costs its own connection, with a
// counted reason, and the others go on.
#include <gtest/gtest.h>

#include "fanin/base/log_limiter.hpp"
#include "fanin/memory/heap_page.hpp"
#include "fanin/message/handshake.hpp"
#include "fanin/message/page_format.hpp"
#include "fanin/message/subscription.hpp"
#include "fanin/message/testing/two_ends.hpp"

namespace fanin::message {
namespace {

using testing::pattern;
using testing::TwoEnds;
using Bytes = std::vector<std::byte>;

// Speaks the transport's language and none above it.
class HostilePeer final : net::Handler {
public:
  HostilePeer(Context& context, const net::Url& url) {
    net::Transport& transport = *context.transport(url).value();
    const auto made =
        transport.connect(url, {.receive_pool = &context.receive_pool(), .handler = this});
    link_ = {&transport, made.value()};
  }
  ~HostilePeer() override { link_.close(true); }
  HostilePeer(const HostilePeer&) = delete;
  HostilePeer& operator=(const HostilePeer&) = delete;

  template <class T>
  void say(const T& what) {
    say_bytes(std::as_bytes(std::span{&what, 1}));
  }
  void say_bytes(std::span<const std::byte> bytes) { (void)try_to_say(bytes); }
  bool try_to_say(std::span<const std::byte> bytes) { // true: it was taken
    const memory::View view = memory::HeapPage::copy(bytes);
    return link_.send({&view, 1}) == net::SendOutcome::accepted;
  }

  void leave() { link_.close(); } // in order

  bool connected = false;
  bool closed = false;
  std::vector<Hello> answers;

private:
  void on_event(net::Transport&, net::Event& event) override {
    if (event.kind == net::EventKind::connected) connected = true;
    if (event.kind == net::EventKind::message) {
      if (const auto hello = read_hello(event.message.bytes())) answers.push_back(*hello);
    }
    if (event.kind == net::EventKind::closed) {
      closed = true;
      link_ = {};
    }
  }
  net::Link link_;
};

constexpr Hello good_hello(SocketKind kind) { return {.kind = kind, .page_max = 16384}; }

struct Piece {
  FrameHeader header;
  std::size_t bytes = 0; // that follow, whatever the header says
};

Bytes page_of(std::initializer_list<Piece> pieces) {
  Bytes page;
  for (const Piece& piece : pieces) {
    const auto header = std::as_bytes(std::span{&piece.header, 1});
    page.insert(page.end(), header.begin(), header.end());
    page.resize(page.size() + piece.bytes);
  }
  return page;
}

class Hostile : public ::testing::TestWithParam<testing::NetworkKind> {
protected:
  void SetUp() override {
    receiver = HighThroughputReceiver::listen(
                   ends.server(), ends.address(),
                   {.message_max = 30'000,
                    .unfinished_max = 20'000,
                    .on_disconnected = [this](PeerId, CloseReason why) { ended.push_back(why); }})
                   .value();
    sender = HighThroughputSender::connect(ends.client(), receiver->url()).value();
    ASSERT_TRUE(ends.until([&] { return sender->connected(); }));
  }
  void TearDown() override { // the good one is unharmed
    if (sender == nullptr) return;
    ASSERT_EQ(sender->send(pattern(100, 1)), net::SendOutcome::accepted);
    ASSERT_TRUE(ends.until([&] { return receiver->recv(message); }));
    EXPECT_EQ(message.size(), 100U);
    EXPECT_EQ(sender->counters().connections, 1U);
    message = {};
  }
  std::unique_ptr<HostilePeer> meet(const net::Url& url) {
    auto peer = std::make_unique<HostilePeer>(ends.client(), url);
    EXPECT_TRUE(ends.until([&] {
      // No room for a moment: others that were sent away are not gone yet.
      if (peer->closed) peer = std::make_unique<HostilePeer>(ends.client(), url);
      return peer->connected;
    }));
    return peer;
  }
  // A peer that has introduced itself says this; it is cut off for the reason.
  void expect_cut_off(const Bytes& page, CloseReason reason) {
    const auto peer = meet(receiver->url());
    peer->say(good_hello(SocketKind::high_throughput));
    ASSERT_TRUE(ends.until([&] { return !peer->answers.empty(); }));
    const auto before = count(reason);
    peer->say_bytes(page);
    ASSERT_TRUE(ends.until([&] {
      EXPECT_FALSE(receiver->recv(message));
      return peer->closed;
    }));
    EXPECT_EQ(count(reason), before + 1);
    EXPECT_EQ(ended.back(), reason);
  }
  [[nodiscard]] std::uint64_t count(CloseReason reason) const {
    return receiver->counters().closed[static_cast<std::size_t>(reason)];
  }

  TwoEnds ends{GetParam()};
  Message message;
  std::vector<CloseReason> ended; // connections of the receiver
  std::unique_ptr<HighThroughputReceiver> receiver;
  std::unique_ptr<HighThroughputSender> sender;
};

TEST_P(Hostile, who_is_no_socket_is_turned_away) {
  const auto garbage = meet(receiver->url());
  garbage->say_bytes(pattern(32, 3));
  const auto empty = meet(receiver->url());
  empty->say_bytes({});
  ASSERT_TRUE(ends.until([&] { return garbage->closed && empty->closed; }));
  EXPECT_EQ(count(CloseReason::not_a_socket), 2U);
  EXPECT_TRUE(garbage->answers.empty());
  EXPECT_NE(ends.said().find("not a message socket"), std::string::npos);
}

TEST_P(Hostile, another_version_and_another_kind_are_told_so) {
  const auto old = meet(receiver->url());
  Hello hello = good_hello(SocketKind::high_throughput);
  hello.version = 77;
  old->say(hello);
  const auto kind = meet(receiver->url());
  kind->say(good_hello(SocketKind::subscribe_low_latency));
  ASSERT_TRUE(ends.until([&] { return old->closed && kind->closed; }));
  ASSERT_EQ(old->answers.size(), 1U);
  EXPECT_EQ(old->answers[0].refusal, Refusal::wrong_version);
  ASSERT_EQ(kind->answers.size(), 1U);
  EXPECT_EQ(kind->answers[0].refusal, Refusal::wrong_kind);
  EXPECT_EQ(count(CloseReason::wrong_version), 1U);
  EXPECT_EQ(count(CloseReason::wrong_kind), 1U);
}

TEST_P(Hostile, a_sender_of_another_kind_learns_why) {
  std::vector<CloseReason> reasons;
  const auto wrong =
      LowLatencySender::connect(
          ends.client(), receiver->url(),
          {.on_disconnected = [&](CloseReason reason) { reasons.push_back(reason); }})
          .value();
  ASSERT_TRUE(ends.until([&] { return !reasons.empty(); }));
  EXPECT_EQ(reasons.front(), CloseReason::wrong_kind);
  EXPECT_EQ(wrong->send(pattern(1, 1)), net::SendOutcome::closed);
}

TEST_P(Hostile, a_page_whose_lengths_or_flags_lie_costs_its_connection) {
  constexpr auto continued = FrameHeader::continued;
  constexpr auto goes_on = FrameHeader::goes_on;
  expect_cut_off(page_of({{{0, 0, 100}, 8}}), CloseReason::bad_page);
  expect_cut_off(page_of({{{0, 0, 0xffff'ffff}, 8}}), CloseReason::bad_page);
  expect_cut_off(Bytes(5), CloseReason::bad_page);
  expect_cut_off(page_of({{{0, continued, 8}, 8}}), CloseReason::bad_page);
  expect_cut_off(page_of({{{0, 8, 8}, 8}}), CloseReason::bad_page);
  expect_cut_off(page_of({{{0, goes_on, 8}, 8}, {{0, 0, 8}, 8}}), CloseReason::bad_page);
  expect_cut_off(page_of({{{0, goes_on, 8}, 8}, {{0, goes_on, 8}, 8}}), CloseReason::bad_page);
}

TEST_P(Hostile, an_invalid_page_of_one_that_has_left_is_counted) {
  const auto peer = meet(receiver->url());
  peer->say(good_hello(SocketKind::high_throughput));
  ASSERT_TRUE(ends.until([&] { return !peer->answers.empty(); }));
  peer->say_bytes(Bytes(5));
  peer->leave();
  ASSERT_TRUE(ends.until([&] { return !ended.empty(); }));
  EXPECT_EQ(count(CloseReason::bad_page), 0U);
  EXPECT_FALSE(receiver->recv(message));
  EXPECT_EQ(count(CloseReason::bad_page), 1U);
  EXPECT_EQ(ended, std::vector{CloseReason::peer_closed});
}

TEST_P(Hostile, an_unfinished_message_of_one_that_has_left_is_lost_and_a_whole_one_is_not) {
  const auto say_and_leave = [this](const Bytes& page, bool read_before_the_end) {
    const std::size_t before = ended.size();
    const auto peer = meet(receiver->url());
    peer->say(good_hello(SocketKind::high_throughput));
    ASSERT_TRUE(ends.until([&] { return !peer->answers.empty(); }));
    const std::uint64_t pages = receiver->counters().pages;
    peer->say_bytes(page);
    ASSERT_TRUE(ends.until([&] { return receiver->counters().pages > pages; }));
    if (read_before_the_end) (void)receiver->recv(message);
    peer->leave();
    ASSERT_TRUE(ends.until([&] { return ended.size() > before; }));
    (void)receiver->recv(message);
    (void)receiver->recv(message);
  };
  const Bytes whole = page_of({{{0, 0, 8}, 8}});
  const Bytes begun = page_of({{{0, FrameHeader::goes_on, 8}, 8}});
  for (const bool read : {true, false}) {
    const std::uint64_t before = receiver->counters().lost;
    say_and_leave(whole, read);
    EXPECT_EQ(receiver->counters().lost, before);
    say_and_leave(begun, read);
    EXPECT_EQ(receiver->counters().lost, before + 1);
  }
}

TEST_P(Hostile, a_message_over_the_limit_costs_its_connection) {
  constexpr auto both = FrameHeader::continued | FrameHeader::goes_on;
  const auto peer = meet(receiver->url());
  peer->say(good_hello(SocketKind::high_throughput));
  peer->say_bytes(page_of({{{0, FrameHeader::goes_on, 16000}, 16000}}));
  peer->say_bytes(page_of({{{0, both, 16000}, 16000}}));
  ASSERT_TRUE(ends.until([&] {
    EXPECT_FALSE(receiver->recv(message));
    return peer->closed;
  }));
  EXPECT_EQ(count(CloseReason::message_too_large), 1U);
}

TEST_P(Hostile, unfinished_messages_are_bounded) {
  std::vector<std::unique_ptr<HostilePeer>> peers;
  for (int i = 0; i < 64; ++i) { // more than there are pages
    peers.push_back(meet(receiver->url()));
    peers.back()->say(good_hello(SocketKind::high_throughput));
    peers.back()->say_bytes(page_of({{{0, FrameHeader::goes_on, 16000}, 16000}}));
    EXPECT_FALSE(receiver->recv(message));
  }
  if (GetParam().name == "strict") {
    ends.turn();
    peers.clear();
    ends.turn();
    GTEST_SKIP() << "not applicable: each peer has pages posted, and they do not get that far";
  }
  ASSERT_TRUE(ends.until([&] {
    EXPECT_FALSE(receiver->recv(message));
    return count(CloseReason::unfinished_too_large) > 0;
  }));
}

// A view of each would be many times what it is a view of.
TEST_P(Hostile, one_byte_pieces_of_a_message_are_gathered_as_they_come) {
  constexpr auto both = FrameHeader::continued | FrameHeader::goes_on;
  constexpr std::size_t pieces = 10'000;
  const auto peer = meet(receiver->url());
  peer->say(good_hello(SocketKind::high_throughput));
  ASSERT_TRUE(ends.until([&] { return !peer->answers.empty(); }));
  const auto a_piece = [](std::uint16_t flags) { return page_of({{{0, flags, 1}, 8}}); };
  Bytes some;
  for (int i = 0; i < 500; ++i) {
    const Bytes one = a_piece(both);
    some.insert(some.end(), one.begin(), one.end());
  }
  const auto say = [&](const Bytes& page) {
    ASSERT_TRUE(ends.until([&] {
      EXPECT_FALSE(receiver->recv(message));
      return peer->try_to_say(page);
    }));
  };
  say(a_piece(FrameHeader::goes_on));
  for (std::size_t sent = 0; sent < pieces; sent += 500) say(some);
  say(a_piece(FrameHeader::continued));
  ASSERT_TRUE(ends.until([&] { return receiver->recv(message); }));
  EXPECT_EQ(message.size(), pieces + 2);
  EXPECT_LE(message.pieces(), 2 + pieces / 4096 + 1);
}

TEST_P(Hostile, pieces_are_charged_what_they_take_of_the_heap) {
  std::vector<std::unique_ptr<HostilePeer>> peers;
  const auto cut_off = [&] { return count(CloseReason::unfinished_too_large); };
  constexpr auto both = FrameHeader::continued | FrameHeader::goes_on;
  for (int i = 0; i < 6; ++i) { // 4 KiB each, of the 20,000 bytes that there may be
    peers.push_back(meet(receiver->url()));
    peers.back()->say(good_hello(SocketKind::high_throughput));
    ASSERT_TRUE(ends.until([&] { return !peers.back()->answers.empty(); }));
    peers.back()->say_bytes(page_of({{{0, FrameHeader::goes_on, 1}, 8}, {{0, both, 1}, 8}}));
    ends.turn();
    EXPECT_FALSE(receiver->recv(message));
  }
  ASSERT_TRUE(ends.until([&] {
    EXPECT_FALSE(receiver->recv(message));
    return cut_off() > 0;
  }));
}

TEST_P(Hostile, subscriptions_one_by_one_and_taken_back_add_up) {
  const auto publisher = Publisher::listen(ends.server(), ends.address()).value();
  const auto peer = meet(publisher->url());
  peer->say(good_hello(SocketKind::subscribe_high_throughput));
  ASSERT_TRUE(ends.until([&] { return !peer->answers.empty(); }));
  for (std::uint16_t tag = 1; tag <= 100; ++tag) { // only every third stays
    Bytes page = page_of({{{1, 0, 8}, 8},
                          {{2, 0, 8}, 8},
                          {{static_cast<std::uint16_t>(tag % 3 == 0 ? 1 : 2), 0, 8}, 8}});
    for (const std::size_t at : {8U, 24U, 40U}) page[at] = static_cast<std::byte>(tag);
    ASSERT_TRUE(ends.until([&] { return peer->try_to_say(page); }));
  }
  ASSERT_TRUE(ends.until([&] { return publisher->has_subscriber(99); }));
  for (Tag tag = 1; tag <= 100; ++tag) EXPECT_EQ(publisher->has_subscriber(tag), tag % 3 == 0);
}

// Merging costs the publisher as much as there are tags.
TEST_P(Hostile, subscriptions_are_merged_once_for_a_page_of_them) {
  const auto publisher = Publisher::listen(ends.server(), ends.address()).value();
  const auto peer = meet(publisher->url());
  peer->say(good_hello(SocketKind::subscribe_high_throughput));
  ASSERT_TRUE(ends.until([&] { return !peer->answers.empty(); }));
  constexpr Tag tags = 20'000; // 312 KiB, each tag in a frame of its own
  constexpr Tag in_a_page = 1000;
  constexpr auto subscribe = static_cast<std::uint16_t>(SubscriptionRequest::subscribe);
  for (Tag first = 0; first < tags; first += in_a_page) {
    Bytes page;
    for (Tag tag = first; tag < first + in_a_page; ++tag) {
      const struct {
        FrameHeader header;
        Tag tag;
      } frame{{subscribe, 0, sizeof tag}, tag};
      const auto bytes = std::as_bytes(std::span{&frame, 1});
      page.insert(page.end(), bytes.begin(), bytes.end());
    }
    ASSERT_TRUE(ends.until([&] { return peer->try_to_say(page); }));
  }
  ASSERT_TRUE(ends.until([&] { return publisher->has_subscriber(tags - 1); }));
  EXPECT_GE(publisher->counters().merges, 1U);
  EXPECT_LE(publisher->counters().merges, tags / in_a_page);
}

TEST_P(Hostile, a_subscriber_that_asks_for_nonsense_is_cut_off) {
  const auto publisher = Publisher::listen(ends.server(), ends.address(), {.tags_max = 10}).value();
  const auto ask = [&](const Bytes& page) {
    const auto peer = meet(publisher->url());
    peer->say(good_hello(SocketKind::subscribe_high_throughput));
    ASSERT_TRUE(ends.until([&] { return !peer->answers.empty(); }));
    peer->say_bytes(page);
    ASSERT_TRUE(ends.until([&] { return peer->closed; }));
  };
  ask(page_of({{{7, 0, 8}, 8}}));
  ask(page_of({{{1, 0, 9}, 9}}));
  ask(page_of({{{1, 1, 8}, 8}}));
  ask(page_of({{{1, 0, 80}, 8}}));
  Bytes many = page_of({{{1, 0, 88}, 88}});
  for (std::size_t i = 8; i < many.size(); i += 8) many[i] = static_cast<std::byte>(i);
  ask(many);
  EXPECT_EQ(publisher->counters().closed[static_cast<std::size_t>(CloseReason::bad_page)], 5U);
  EXPECT_EQ(publisher->connections(), 0U);
}

TEST_P(Hostile, where_there_are_too_many_tags_in_all_those_who_have_most_go) {
  const auto publisher =
      Publisher::listen(ends.server(), ends.address(), {.tags_max = 10, .tags_sum_max = 25})
          .value();
  const auto ask = [&](std::uint8_t first, std::uint8_t count) {
    auto peer = meet(publisher->url());
    peer->say(good_hello(SocketKind::subscribe_high_throughput));
    EXPECT_TRUE(ends.until([&] { return !peer->answers.empty(); }));
    Bytes page = page_of({{{1, 0, 8U * count}, 8U * count}});
    for (std::uint8_t i = 0; i < count; ++i)
      page[8 + 8 * std::size_t{i}] = static_cast<std::byte>(first + i);
    peer->say_bytes(page);
    EXPECT_TRUE(ends.until([&] { return peer->closed || publisher->has_subscriber(first); }));
    return peer;
  };
  const auto modest = ask(200, 3);
  std::vector<std::unique_ptr<HostilePeer>> greedy;
  for (std::uint8_t i = 0; i < 6; ++i) greedy.push_back(ask(static_cast<std::uint8_t>(10 * i), 9));
  EXPECT_EQ(publisher->counters().closed[static_cast<std::size_t>(CloseReason::bad_page)], 4U);
  EXPECT_EQ(publisher->connections(), 3U);
  EXPECT_TRUE(publisher->has_subscriber(200));
  EXPECT_FALSE(modest->closed);
  greedy.clear();
  ASSERT_TRUE(ends.until([&] { return publisher->connections() == 1; }));
  const auto again = ask(100, 10); // what has gone does not count
  EXPECT_FALSE(again->closed);
}

TEST_P(Hostile, a_subscriber_of_tiny_pages_gets_a_message_that_needs_many) {
  const auto publisher = Publisher::listen(ends.server(), ends.address()).value();
  const auto peer = meet(publisher->url());
  Hello hello = good_hello(SocketKind::subscribe_high_throughput);
  hello.page_max = Hello::page_max_least;
  hello.message_max = Message::size_max;
  peer->say(hello);
  peer->say_bytes(page_of({{{1, 0, 8}, 8}})); // to tag 0
  ASSERT_TRUE(ends.until([&] { return publisher->has_subscriber(0); }));
  // The headers of its pieces fill more pages than there are.
  const memory::View view = memory::HeapPage::copy(Bytes(6U << 20));
  EXPECT_EQ(publisher->publish(0, view), net::SendOutcome::accepted);
}

TEST_P(Hostile, a_receiver_that_claims_to_take_everything_gets_no_more_than_the_network_carries) {
  // It answers as a receiver would, with limits that no network has.
  class Liar final : public net::Handler {
  public:
    void on_event(net::Transport& transport, net::Event& event) override {
      link = {&transport, event.connection};
      if (event.kind == net::EventKind::closed) link = {};
      if (event.kind != net::EventKind::message) return;
      bytes += event.message.size + event.rest.size;
      if (!read_hello(event.message.bytes())) return;
      const Hello hello{.kind = SocketKind::high_throughput,
                        .page_max = 0xffff'ffff,
                        .message_max = ~std::uint64_t{0},
                        .lent_max = ~std::uint64_t{0}};
      const memory::View view = memory::HeapPage::copy(std::as_bytes(std::span{&hello, 1}));
      (void)transport.send(event.connection, {&view, 1});
    }
    net::Link link;
    std::uint64_t bytes = 0;
  } liar;
  net::Transport& transport = *ends.server().transport(ends.address()).value();
  const auto listener = transport.listen(
      ends.address(), {.receive_pool = &ends.server().receive_pool(), .handler = &liar});
  ASSERT_TRUE(listener);
  const auto victim =
      HighThroughputSender::connect(ends.client(), transport.listening_url(*listener)).value();
  ASSERT_TRUE(ends.until([&] { return victim->connected(); }));
  for (const std::size_t size : {10U, 16376U, 16377U, 100'000U, 3'000'000U}) {
    (void)victim->send(pattern(size, 1));
    (void)victim->send(memory::HeapPage::copy(pattern(size, 1)));
    ends.turn(5);
  }
  EXPECT_GT(liar.bytes, 16376U);
  transport.close_listener(*listener);
  liar.link.close(true);
}

// Whoever listens answers the hello late, and then says more than was asked.
TEST_P(Hostile, a_sender_waits_for_the_answer_to_its_hello_and_takes_no_others) {
  struct Answerer final : net::Handler {
    void on_event(net::Transport& transport, net::Event& event) override {
      if (event.kind == net::EventKind::closed) link = {};
      if (event.kind == net::EventKind::message) link = {&transport, event.connection};
    }
    void say(std::span<const std::byte> bytes) {
      const memory::View view = memory::HeapPage::copy(bytes);
      EXPECT_EQ(link.send({&view, 1}), net::SendOutcome::accepted);
    }
    net::Link link;
  } answerer;
  net::Transport& transport = *ends.server().transport(ends.address()).value();
  const auto listener = transport.listen(
      ends.address(), {.receive_pool = &ends.server().receive_pool(), .handler = &answerer});
  ASSERT_TRUE(listener);
  const auto victim =
      LowLatencySender::connect(ends.client(), transport.listening_url(*listener)).value();
  ASSERT_TRUE(ends.until([&] { return static_cast<bool>(answerer.link); }));
  EXPECT_EQ(victim->send(memory::HeapPage::copy(pattern(10, 1))), net::SendOutcome::closed);
  EXPECT_EQ(victim->send(pattern(10, 1)), net::SendOutcome::closed);
  const Hello hello = good_hello(SocketKind::low_latency);
  answerer.say(std::as_bytes(std::span{&hello, 1}));
  ASSERT_TRUE(ends.until([&] { return victim->connected(); }));
  answerer.say(pattern(1, 1));
  const auto& closed = victim->counters().closed;
  ASSERT_TRUE(
      ends.until([&] { return closed[static_cast<std::size_t>(CloseReason::bad_page)] == 1; }));
  transport.close_listener(*listener);
  answerer.link.close(true);
}

// Who answers a hello with something else is no socket of this kind.
TEST_P(Hostile, a_sender_that_gets_no_good_answer_goes_away) {
  struct Answerer final : net::Handler {
    void on_event(net::Transport& transport, net::Event& event) override {
      const net::Link link{&transport, event.connection};
      if (event.kind == net::EventKind::accepted) open.push_back(link);
      if (event.kind == net::EventKind::closed) std::erase(open, link);
      if (event.kind != net::EventKind::message) return;
      const memory::View view = memory::HeapPage::copy(answer);
      (void)link.send({&view, 1});
    }
    Bytes answer;
    std::vector<net::Link> open;
  } answerer;
  net::Transport& transport = *ends.server().transport(ends.address()).value();
  const auto listener = transport.listen(
      ends.address(), {.receive_pool = &ends.server().receive_pool(), .handler = &answerer});
  ASSERT_TRUE(listener);
  const Hello hello = good_hello(SocketKind::low_latency);
  const auto other = std::as_bytes(std::span{&hello, 1});
  for (const Bytes& answer : {pattern(5, 1), Bytes(other.begin(), other.end())}) {
    answerer.answer = answer;
    const auto victim =
        HighThroughputSender::connect(ends.client(), transport.listening_url(*listener)).value();
    const auto& closed = victim->counters().closed;
    ASSERT_TRUE(ends.until(
        [&] { return closed[static_cast<std::size_t>(CloseReason::not_a_socket)] == 1; }));
    EXPECT_EQ(victim->counters().connections, 0U);
  }
  transport.close_listener(*listener);
  for (net::Link& link : answerer.open) link.close(true);
}

class Refusals : public Hostile {};

TEST_P(Refusals, in_large_numbers_leave_few_lines) {
  const Time begin = ends.now();
  for (int i = 0; i < 40; ++i) {
    const auto garbage = meet(receiver->url());
    garbage->say_bytes(pattern(32, 3));
    ASSERT_TRUE(ends.until([&] { return garbage->closed; }));
  }
  ASSERT_LT(ends.now() - begin, LogLimiter::period) << "in virtual time";
  EXPECT_EQ(count(CloseReason::not_a_socket), 40U);
  std::size_t lines = 0;
  const std::string& said = ends.said();
  for (auto at = said.find("refused"); at != std::string::npos; at = said.find("refused", at + 1))
    ++lines;
  EXPECT_EQ(lines, LogLimiter::lines_max);
}

class Silence : public Hostile {};

TEST_P(Silence, of_who_connects_ends_the_connection_when_its_hello_is_overdue) {
  const Time begin = ends.now();
  const auto first = meet(receiver->url());
  ASSERT_TRUE(ends.until([&] { return ends.now() - begin > hello_timeout / 2; }));
  const auto second = meet(receiver->url());
  ASSERT_TRUE(ends.until([&] { return first->closed; }));
  EXPECT_GE(ends.now() - begin, hello_timeout);
  EXPECT_FALSE(second->closed);
  EXPECT_EQ(count(CloseReason::no_answer), 1U);
  ASSERT_TRUE(ends.until([&] { return second->closed; }));
  EXPECT_EQ(count(CloseReason::no_answer), 2U);
  EXPECT_TRUE(first->answers.empty());
  const auto third = meet(receiver->url()); // after a time when nobody was silent
  ASSERT_TRUE(ends.until([&] { return third->closed; }));
  EXPECT_EQ(count(CloseReason::no_answer), 3U);
}

INSTANTIATE_TEST_SUITE_P(Sockets, Hostile, ::testing::ValuesIn(testing::networks_and_datagrams()),
                         [](const auto& network) { return network.param.name; });
INSTANTIATE_TEST_SUITE_P(Sockets, Refusals, ::testing::ValuesIn(testing::virtual_networks()),
                         [](const auto& network) { return network.param.name; });
INSTANTIATE_TEST_SUITE_P(Sockets, Silence, ::testing::ValuesIn(testing::virtual_networks()),
                         [](const auto& network) { return network.param.name; });

} // namespace
} // namespace fanin::message
