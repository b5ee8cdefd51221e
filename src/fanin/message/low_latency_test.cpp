// Low-latency sockets over each transport.
#include <gtest/gtest.h>

#include <stdexcept>

#include "fanin/message/testing/two_ends.hpp"

namespace fanin::message {
namespace {

using testing::pattern;
using testing::TwoEnds;
using testing::view_of;

using Bytes = std::vector<std::byte>;

class LowLatency : public ::testing::TestWithParam<testing::NetworkKind> {
protected:
  void start(LowLatencyReceiverOptions receiving = {}, LowLatencySenderOptions sending = {}) {
    if (!receiving.on_message) {
      receiving.on_message = [this](Message& message) {
        const auto bytes = message.bytes();
        received.emplace_back(bytes.begin(), bytes.end());
      };
    }
    receiver =
        LowLatencyReceiver::listen(ends.server(), ends.address(), std::move(receiving)).value();
    sender = LowLatencySender::connect(ends.client(), receiver->url(), std::move(sending)).value();
    ASSERT_TRUE(ends.until([&] { return sender->connected(); })) << ends.said();
  }

  TwoEnds ends{GetParam()};
  std::vector<Bytes> received;
  std::unique_ptr<LowLatencyReceiver> receiver;
  std::unique_ptr<LowLatencySender> sender;
};

TEST_P(LowLatency, messages_arrive_whole_and_in_order) {
  start();
  std::vector<Bytes> sent;
  for (const std::size_t size : {0U, 1U, 63U, 64U, 65U, 4096U, 16383U, 16384U})
    sent.push_back(pattern(size, size));
  for (const Bytes& bytes : sent) ASSERT_EQ(sender->send(bytes), net::SendOutcome::accepted);
  ASSERT_TRUE(ends.until([&] { return received.size() == sent.size(); }));
  EXPECT_EQ(received, sent);
  EXPECT_EQ(sender->counters().messages, sent.size());
  EXPECT_EQ(receiver->counters().bytes, sender->counters().bytes);
}

TEST_P(LowLatency, a_header_and_a_payload_are_one_message) {
  start();
  const Bytes head = pattern(24, 1);
  const Bytes body = pattern(5000, 2);
  auto& pool = ends.client().send_pool();
  ASSERT_EQ(sender->send(view_of(pool, head), view_of(pool, body)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends.until([&] { return received.size() == 1; }));
  Bytes both = head;
  both.insert(both.end(), body.begin(), body.end());
  EXPECT_EQ(received.front(), both);
}

TEST_P(LowLatency, what_the_peer_does_not_take_is_too_large) {
  start();
  auto& pool = ends.client().send_pool();
  EXPECT_EQ(sender->message_max(), 16384U);
  EXPECT_EQ(sender->send(pattern(16385, 1)), net::SendOutcome::too_large);
  EXPECT_EQ(sender->send(view_of(pool, pattern(16384, 1)), view_of(pool, pattern(1, 1))),
            net::SendOutcome::too_large);
  EXPECT_EQ(sender->counters().messages, 0U);
}

TEST_P(LowLatency, a_message_that_is_moved_out_of_the_callback_stays) {
  std::vector<Message> kept;
  start({.on_message = [&](Message& message) { kept.push_back(std::move(message)); }});
  for (std::uint64_t i = 0; i < 5; ++i)
    ASSERT_EQ(sender->send(pattern(100, i)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends.until([&] { return kept.size() == 5; }));
  for (std::uint64_t i = 0; i < 5; ++i) {
    const auto bytes = kept[i].bytes();
    EXPECT_EQ(Bytes(bytes.begin(), bytes.end()), pattern(100, i));
    EXPECT_EQ(receiver->peer_name(kept[i].peer()).empty(), false);
  }
}

TEST_P(LowLatency, a_callback_that_throws_costs_its_connection_and_no_other) {
  std::vector<CloseReason> ended;
  int messages = 0;
  PeerId thrower = PeerId::none;
  start({.on_message =
             [&](Message& message) {
               thrower = message.peer();
               if (message.size() == 1) throw std::runtime_error("on purpose");
               ++messages;
             },
         .on_disconnected = [&](PeerId, CloseReason reason) { ended.push_back(reason); }});
  const auto other = LowLatencySender::connect(ends.client(), receiver->url()).value();
  ASSERT_TRUE(ends.until([&] { return other->connected(); }));
  ASSERT_EQ(sender->send(pattern(1, 1)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends.until([&] { return sender->counters().connections == 2; })); // it comes back
  EXPECT_EQ(ended, std::vector{CloseReason::callback_threw});
  EXPECT_EQ(receiver->peer_name(thrower), "");
  EXPECT_NE(ends.said().find("disconnected: the callback threw"), std::string::npos);
  EXPECT_EQ(receiver->counters().closed[static_cast<std::size_t>(CloseReason::callback_threw)], 1U);
  ASSERT_EQ(other->send(pattern(2, 1)), net::SendOutcome::accepted);
  ASSERT_EQ(sender->send(pattern(2, 1)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends.until([&] { return messages == 2; }));
  EXPECT_EQ(other->counters().connections, 1U);
}

TEST_P(LowLatency, a_receiver_that_was_closed_in_on_message_stays_so_even_if_that_throws) {
  std::vector<CloseReason> ended;
  start({.on_message =
             [&](Message&) {
               receiver->close();
               throw std::runtime_error("on purpose");
             },
         .on_disconnected = [&](PeerId, CloseReason reason) { ended.push_back(reason); }});
  ASSERT_EQ(sender->send(pattern(1, 1)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends.until([&] { return !sender->connected(); }));
  EXPECT_TRUE(ended.empty());
  EXPECT_EQ(receiver->connections(), 0U);
  EXPECT_EQ(receiver->counters().closed[static_cast<std::size_t>(CloseReason::callback_threw)], 0U);
}

TEST_P(LowLatency, a_receiver_without_on_message_is_refused) {
  const auto deaf = LowLatencyReceiver::listen(ends.server(), ends.address(), {});
  ASSERT_FALSE(deaf);
  EXPECT_EQ(deaf.error().kind, ErrorKind::usage);
}

TEST_P(LowLatency, backpressure_is_an_outcome_and_writable_follows) {
  bool writable = false;
  std::vector<Message> kept;
  start({.on_message = [&](Message& message) { kept.push_back(std::move(message)); }},
        {.send_queue_bytes = 20'000, .on_writable = [&] { writable = true; }});
  std::uint64_t sent = 0;
  for (std::uint64_t before = 1; before != sent; ends.turn()) { // until the receiver has no pages
    before = sent;
    while (sender->send(pattern(10'000, sent)) == net::SendOutcome::accepted) ++sent;
  }
  EXPECT_EQ(sender->send(pattern(10'000, sent)), net::SendOutcome::backpressure);
  writable = false;
  ends.turn();
  EXPECT_FALSE(writable);
  std::uint64_t read = 0;
  ASSERT_TRUE(ends.until([&] {
    read += kept.size();
    kept.clear();
    return writable && read == sent;
  }));
  EXPECT_EQ(sender->send(pattern(10'000, sent)), net::SendOutcome::accepted);
}

TEST_P(LowLatency, a_sender_without_a_page_is_told_when_there_is_one) {
  bool writable = false;
  start({}, {.on_writable = [&] { writable = true; }});
  std::vector<memory::Loan> all;
  while (memory::Loan page = ends.client().send_pool().take()) all.push_back(std::move(page));
  EXPECT_EQ(sender->send(pattern(10, 1)), net::SendOutcome::backpressure);
  ends.turn();
  EXPECT_FALSE(writable);
  all.clear();
  ASSERT_TRUE(ends.until([&] { return writable; }));
  EXPECT_EQ(sender->send(pattern(10, 1)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends.until([&] { return received.size() == 1; }));
  EXPECT_EQ(received.front(), pattern(10, 1));
}

TEST_P(LowLatency, a_receiver_answers_over_the_same_connection) {
  std::vector<Bytes> answers;
  start({.on_message =
             [&](Message& message) {
               ASSERT_EQ(receiver->answer(message.peer(), message.bytes()),
                         net::SendOutcome::accepted);
               ASSERT_EQ(receiver->answer(message.peer(), message.piece(0)),
                         net::SendOutcome::accepted);
             }},
        {.on_answer = [&](Message& answer) {
          const auto bytes = answer.bytes();
          answers.emplace_back(bytes.begin(), bytes.end());
        }});
  const auto other = LowLatencySender::connect(ends.client(), receiver->url()).value();
  ASSERT_TRUE(ends.until([&] { return other->connected(); }));
  std::vector<Bytes> expected;
  for (const std::size_t size : {0U, 1U, 64U, 16384U}) {
    expected.insert(expected.end(), 2, pattern(size, size));
    ASSERT_EQ(sender->send(pattern(size, size)), net::SendOutcome::accepted);
  }
  ASSERT_TRUE(ends.until([&] { return answers.size() == expected.size(); }));
  EXPECT_EQ(answers, expected);
  EXPECT_EQ(receiver->counters().answers, expected.size());
  EXPECT_EQ(sender->counters().answers, expected.size());
}

TEST_P(LowLatency, a_sender_that_was_closed_in_on_answer_stays_so_even_if_that_throws) {
  std::vector<CloseReason> ended;
  start({.on_message =
             [&](Message& message) {
               ASSERT_EQ(receiver->answer(message.peer(), message.bytes()),
                         net::SendOutcome::accepted);
             }},
        {.on_disconnected = [&](CloseReason reason) { ended.push_back(reason); },
         .on_answer =
             [&](Message&) {
               sender->close();
               throw std::runtime_error("on purpose");
             }});
  ASSERT_EQ(sender->send(pattern(1, 1)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends.until([&] { return receiver->connections() == 0; }));
  ends.turn(100);
  EXPECT_TRUE(ended.empty());
  EXPECT_EQ(sender->counters().connections, 1U);
}

TEST_P(LowLatency, who_takes_no_answers_gets_none) {
  PeerId peer = PeerId::none;
  start({.on_connected = [&](PeerId id) { peer = id; }});
  EXPECT_EQ(receiver->answer(peer, pattern(1, 1)), net::SendOutcome::too_large);
  sender->close();
  ASSERT_TRUE(ends.until([&] { return receiver->connections() == 0; }));
  EXPECT_EQ(receiver->answer(peer, pattern(1, 1)), net::SendOutcome::closed);
}

TEST_P(LowLatency, an_answer_that_is_too_large_is_said) {
  PeerId peer = PeerId::none;
  start({.on_connected = [&](PeerId id) { peer = id; }}, {.on_answer = [](Message&) {}});
  EXPECT_EQ(receiver->answer(peer, pattern(16385, 1)), net::SendOutcome::too_large);
  EXPECT_EQ(receiver->answer(peer, pattern(1 << 20, 1)), net::SendOutcome::too_large);
}

TEST_P(LowLatency, who_does_not_read_answers_is_backpressure_and_writable_follows) {
  PeerId peer = PeerId::none;
  PeerId writable = PeerId::none;
  std::vector<Message> kept;
  start({.on_connected = [&](PeerId id) { peer = id; },
         .on_writable = [&](PeerId id) { writable = id; }},
        {.on_answer = [&](Message& answer) { kept.push_back(std::move(answer)); }});
  std::uint64_t sent = 0;
  for (std::uint64_t before = 1; before != sent; ends.turn()) { // until the sender has no pages
    before = sent;
    while (receiver->answer(peer, pattern(10'000, sent)) == net::SendOutcome::accepted) ++sent;
  }
  EXPECT_EQ(receiver->answer(peer, pattern(10'000, sent)), net::SendOutcome::backpressure);
  writable = PeerId::none;
  std::uint64_t read = 0;
  ASSERT_TRUE(ends.until([&] {
    read += kept.size();
    kept.clear();
    return writable == peer && read == sent;
  }));
  EXPECT_EQ(receiver->answer(peer, pattern(10'000, sent)), net::SendOutcome::accepted);
}

TEST_P(LowLatency, an_on_answer_that_throws_costs_its_connection) {
  start({.on_message =
             [&](Message& message) {
               ASSERT_EQ(receiver->answer(message.peer(), message.bytes()),
                         net::SendOutcome::accepted);
             }},
        {.on_answer = [](Message&) { throw std::runtime_error("on purpose"); }});
  ASSERT_EQ(sender->send(pattern(1, 1)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends.until([&] { return sender->counters().connections == 2; })); // it comes back
  EXPECT_EQ(sender->counters().closed[static_cast<std::size_t>(CloseReason::callback_threw)], 1U);
}

TEST_P(LowLatency, what_was_accepted_before_close_arrives) {
  start();
  std::uint64_t sent = 0;
  while (sender->send(pattern(1000, sent)) == net::SendOutcome::accepted && sent < 100) ++sent;
  sender->close();
  EXPECT_EQ(sender->send(pattern(1, 1)), net::SendOutcome::closed);
  ASSERT_TRUE(ends.until([&] { return receiver->connections() == 0; }));
  EXPECT_EQ(received.size(), sender->counters().messages);
  EXPECT_EQ(receiver->counters().closed[static_cast<std::size_t>(CloseReason::peer_closed)], 1U);
}

TEST_P(LowLatency, a_sender_may_be_there_before_its_receiver_and_comes_back_after_it) {
  start();
  const net::Url url = receiver->url();
  std::vector<CloseReason> ended;
  sender.reset();
  receiver.reset();
  sender = LowLatencySender::connect(
               ends.client(), url,
               {.on_disconnected = [&](CloseReason reason) { ended.push_back(reason); }})
               .value();
  ASSERT_TRUE(ends.until([&] { return ended.size() == 2; }));
  EXPECT_EQ(ended.front(), CloseReason::unreachable);
  EXPECT_EQ(sender->send(pattern(1, 1)), net::SendOutcome::closed);
  for (int i = 0; i < 2; ++i) {
    receiver =
        LowLatencyReceiver::listen(
            ends.server(), url,
            {.on_message = [this](Message& message) { received.emplace_back(message.size()); }})
            .value();
    ASSERT_TRUE(ends.until([&] { return sender->connected(); })) << ends.said();
    ASSERT_EQ(sender->send(pattern(7, 1)), net::SendOutcome::accepted);
    ASSERT_TRUE(ends.until([&] { return received.size() == static_cast<std::size_t>(i) + 1; }));
    receiver.reset();
    ASSERT_TRUE(ends.until([&] { return !sender->connected(); }));
  }
}

TEST(Handshake, is_made_where_every_message_meets_backpressure_first) {
  TwoEnds ends{{"fault", [] {
                  return std::make_unique<testing::ProcessNetwork>(
                      "fault+tcp://127.0.0.1:0?backpressure=1");
                }}};
  const auto receiver =
      LowLatencyReceiver::listen(ends.server(), ends.address(), {.on_message = [](Message&) {}})
          .value();
  std::vector<CloseReason> ended;
  int writable = 0;
  const auto sender =
      LowLatencySender::connect(ends.client(), receiver->url(),
                                {.on_disconnected = [&](CloseReason why) { ended.push_back(why); },
                                 .on_writable = [&] { ++writable; }})
          .value();
  ASSERT_TRUE(ends.until([&] { return sender->connected(); }));
  EXPECT_TRUE(ended.empty());
  EXPECT_EQ(writable, 0); // it was for the hello
}

INSTANTIATE_TEST_SUITE_P(Sockets, LowLatency, ::testing::ValuesIn(testing::networks()),
                         [](const auto& network) { return network.param.name; });

} // namespace
} // namespace fanin::message
