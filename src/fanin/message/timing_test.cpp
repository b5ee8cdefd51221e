// What depends on time, in virtual time: flushing and back-off.
#include <gtest/gtest.h>

#include <stdexcept>

#include "fanin/message/testing/two_ends.hpp"

namespace fanin::message {
namespace {

using namespace std::chrono_literals;
using testing::pattern;
using testing::TwoEnds;

class Timing : public ::testing::Test {
protected:
  void start(FlushPolicy flush) {
    receiver = HighThroughputReceiver::listen(ends.server(), ends.address(),
                                              {.on_ready =
                                                   [this] {
                                                     while (receiver->recv(message)) ++received;
                                                   }})
                   .value();
    sender =
        HighThroughputSender::connect(ends.client(), receiver->url(), {.flush = flush}).value();
    ASSERT_TRUE(ends.until([&] { return sender->connected(); }));
  }
  // How long it takes until there are so many.
  Duration until_received(std::uint64_t messages) {
    const Time begin = ends.now();
    EXPECT_TRUE(ends.until([&] { return received == messages; }));
    return ends.now() - begin;
  }

  TwoEnds ends{
      testing::NetworkKind{"sim", [] { return std::make_unique<testing::VirtualNetwork>(false); }}};
  std::uint64_t received = 0;
  Message message;
  std::unique_ptr<HighThroughputReceiver> receiver;
  std::unique_ptr<HighThroughputSender> sender;
};

TEST_F(Timing, a_message_leaves_when_the_loop_has_nothing_more_to_do) {
  start({.idle = true, .deadline = FlushPolicy::never_flush});
  ASSERT_EQ(sender->send(pattern(10, 1)), net::SendOutcome::accepted);
  EXPECT_LE(until_received(1), 100us); // the latency of this network is up to 50 us
}

TEST_F(Timing, a_message_leaves_at_its_deadline_and_not_before) {
  start({.idle = false, .deadline = 3ms});
  for (std::uint64_t i = 1; i < 4; ++i) {
    ASSERT_EQ(sender->send(pattern(10, i)), net::SendOutcome::accepted);
    const Duration taken = until_received(i);
    EXPECT_GE(taken, 3ms);
    EXPECT_LE(taken, 3100us);
  }
}

// Beside other senders whose pages go first, the network is full and free again at any moment.
TEST_F(Timing, every_message_has_a_deadline_whatever_the_network_takes) {
  start({.idle = false, .deadline = 3ms});
  std::uint64_t sent = 0;
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(round);
    Random random(static_cast<std::uint64_t>(round));
    for (int burst = 0; burst < 400; ++burst) { // more than the network takes
      if (sender->send(pattern(500 + random.below(4000), sent)) != net::SendOutcome::accepted) {
        ends.turn(static_cast<int>(random.below(3)));
        continue;
      }
      ++sent;
    }
    ASSERT_TRUE(ends.until([&] { return received == sent; }));
  }
}

// As above, of a publisher: while a subscriber takes nothing, its page waits.
TEST_F(Timing, every_published_message_has_a_deadline_whatever_the_network_takes) {
  std::unique_ptr<Subscriber> subscriber;
  subscriber = Subscriber::make(ends.client(), {.on_ready = [&] {
                                  while (subscriber->recv(message)) ++received;
                                }});
  const auto publisher =
      Publisher::listen(ends.server(), ends.address(),
                        {.slow = SlowSubscriber::block, .flush = {.idle = false, .deadline = 3ms}})
          .value();
  ASSERT_TRUE(subscriber->subscribe(publisher->url(), 7, Mode::high_throughput));
  ASSERT_TRUE(ends.until([&] { return publisher->has_subscriber(7); }));
  std::uint64_t sent = 0;
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(round);
    Random random(static_cast<std::uint64_t>(round));
    for (int burst = 0; burst < 400; ++burst) { // more than the network takes
      const auto bytes = pattern(500 + random.below(4000), sent);
      if (publisher->publish(7, bytes) != net::SendOutcome::accepted) {
        ends.turn(static_cast<int>(random.below(3)));
        continue;
      }
      ++sent;
    }
    ASSERT_TRUE(ends.until([&] { return received == sent; }));
  }
}

TEST_F(Timing, a_full_page_leaves_without_a_deadline_and_the_rest_when_it_is_told_to) {
  start({.idle = false, .deadline = FlushPolicy::never_flush});
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(sender->send(pattern(1000, 1)), net::SendOutcome::accepted);
  EXPECT_LE(until_received(16), 100us);
  ends.turn(1000);
  EXPECT_EQ(received, 16U);
  sender->flush();
  EXPECT_LE(until_received(20), 100us);
}

TEST_F(Timing, attempts_to_connect_back_off_with_jitter_up_to_a_limit) {
  std::vector<Time> attempts;
  const auto lonely = LowLatencySender::connect(
      ends.client(), ends.address(),
      {.reconnect = {.initial = 10ms, .max = 80ms},
       .on_disconnected = [&](CloseReason) { attempts.push_back(ends.now()); }});
  ASSERT_TRUE(ends.until([&] { return attempts.size() == 10; }));
  Duration most = 10ms;
  for (std::size_t i = 1; i < attempts.size(); ++i) {
    const Duration wait = attempts[i] - attempts[i - 1];
    EXPECT_GE(wait, most / 2) << i;
    EXPECT_LE(wait, most + 1ms) << i;
    most = std::min<Duration>(2 * most, 80ms);
  }
}

TEST_F(Timing, short_connections_back_off_and_a_long_one_begins_again) {
  bool throws = true;
  std::vector<Time> connected;
  std::vector<Time> ended;
  const auto target = LowLatencyReceiver::listen(ends.server(), ends.address(),
                                                 {.on_message =
                                                      [&](Message&) {
                                                        if (throws) throw std::runtime_error("no");
                                                      }})
                          .value();
  std::unique_ptr<LowLatencySender> source;
  source = LowLatencySender::connect(
               ends.client(), target->url(),
               {.reconnect = {.initial = 10ms, .max = 80ms},
                .on_connected =
                    [&] {
                      connected.push_back(ends.now());
                      EXPECT_EQ(source->send(pattern(1, 1)), net::SendOutcome::accepted);
                    },
                .on_disconnected = [&](CloseReason) { ended.push_back(ends.now()); }})
               .value();
  ASSERT_TRUE(ends.until([&] { return connected.size() == 6; }));
  Duration most = 10ms;
  for (std::size_t i = 1; i < connected.size(); ++i) {
    const Duration wait = connected[i] - ended[i - 1];
    EXPECT_GE(wait, most / 2) << i;
    EXPECT_LE(wait, most + 1ms) << i;
    most = std::min<Duration>(2 * most, 80ms);
  }
  throws = false; // the message of the sixth connection is still on its way
  bool rested = false;
  net::Timer rest([&] { rested = true; });
  rest.start(ends.client().loop(), ends.client().loop().now() + 100ms);
  ASSERT_TRUE(ends.until([&] { return rested; }));
  throws = true;
  ASSERT_EQ(source->send(pattern(1, 1)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends.until([&] { return connected.size() == 7; }));
  EXPECT_LE(connected[6] - ended[5], 11ms);
}

TEST_F(Timing, a_publisher_that_is_closed_waits_five_seconds_for_who_does_not_read) {
  const auto publisher =
      Publisher::listen(ends.server(), net::Url::parse("sim://node0").value(),
                        {.slow = SlowSubscriber::sample, .send_queue_bytes = 65536})
          .value();
  const auto sleeper = Subscriber::make(ends.client(), {});
  ASSERT_TRUE(sleeper->subscribe(publisher->url(), 1, Mode::high_throughput));
  ASSERT_TRUE(ends.until([&] {
    (void)publisher->publish(1, pattern(1000, 1));
    return publisher->counters().skipped > 0;
  }));
  const Time begin = ends.now();
  publisher->close();
  ASSERT_EQ(publisher->connections(), 1U);
  ASSERT_TRUE(ends.until([&] { return publisher->connections() == 0; }));
  EXPECT_GE(ends.now() - begin, 5s);
  EXPECT_LE(ends.now() - begin, 5001ms);
}

} // namespace
} // namespace fanin::message
