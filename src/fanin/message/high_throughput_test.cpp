// High-throughput sockets over each transport.
#include <gtest/gtest.h>

#include <deque>
#include <stdexcept>

#include "fanin/base/random.hpp"
#include "fanin/memory/heap_page.hpp"
#include "fanin/message/handshake.hpp"
#include "fanin/message/page_queue.hpp"
#include "fanin/message/testing/two_ends.hpp"

namespace fanin::message {
namespace {

using testing::pattern;
using testing::TwoEnds;

class HighThroughput : public ::testing::TestWithParam<testing::NetworkKind> {
protected:
  void start(HighThroughputReceiverOptions receiving = {}, HighThroughputSenderOptions sending = {},
             const ContextOptions& context = TwoEnds::small_pages()) {
    ends = std::make_unique<TwoEnds>(GetParam(), context);
    receiver = HighThroughputReceiver::listen(ends->server(), ends->address(), std::move(receiving))
                   .value();
    sender =
        HighThroughputSender::connect(ends->client(), receiver->url(), std::move(sending)).value();
    ASSERT_TRUE(ends->until([&] { return sender->connected(); })) << ends->said();
  }
  // Sends it as soon as there is room, reading what comes meanwhile.
  void send(const std::vector<std::byte>& bytes) {
    net::SendOutcome outcome{};
    ASSERT_TRUE(ends->until([&] {
      outcome = sender->send(bytes);
      read();
      return outcome != net::SendOutcome::backpressure;
    }));
    ASSERT_EQ(outcome, net::SendOutcome::accepted);
    expected.push_back(bytes);
  }
  void read() {
    while (receiver->recv(message)) {
      ASSERT_FALSE(expected.empty());
      const auto bytes = message.bytes();
      ASSERT_EQ(bytes.size(), expected.front().size());
      ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.front().begin()));
      expected.pop_front();
    }
  }
  void read_all() {
    ASSERT_TRUE(ends->until([&] {
      read();
      return expected.empty();
    })) << expected.size()
        << " messages have not come; " << ends->said();
  }
  // A receiver at the same address that takes less at once.
  void restart_with_small_pages() {
    const net::Url url = receiver->url();
    receiver.reset();
    transports.add(url.scheme, *ends->server().transport(url).value());
    with_small_pages.emplace(ContextParts{.loop = ends->server().loop(),
                                          .transports = transports,
                                          .send_pool = ends->server().send_pool(),
                                          .receive_pool = *small_pages});
    receiver = HighThroughputReceiver::listen(*with_small_pages, url).value();
    ASSERT_TRUE(ends->until([&] { return sender->counters().connections == 2; })) << ends->said();
  }

  const std::unique_ptr<memory::PagePool> small_pages =
      memory::PagePool::make({.page_size = 8192, .pages = 32, .arena = {}}).value();
  std::unique_ptr<TwoEnds> ends;
  net::TransportSet transports;
  std::optional<Context> with_small_pages;
  Message message;
  std::unique_ptr<HighThroughputReceiver> receiver;
  std::unique_ptr<HighThroughputSender> sender;
  std::deque<std::vector<std::byte>> expected;
};

TEST_P(HighThroughput, messages_arrive_whole_and_in_order_around_the_size_of_a_page) {
  start();
  for (const std::size_t size : {0U, 1U, 7U, 8U, 9U, 64U, 4095U, 4096U, 4097U})
    send(pattern(size, size));
  for (const std::size_t page : {16384U, 32768U, 65536U}) {
    for (std::size_t size = page - 17; size <= page + 17; ++size) send(pattern(size, size));
  }
  send(pattern(1U << 20, 1));
  read_all();
  EXPECT_EQ(receiver->counters().messages, sender->counters().messages);
  EXPECT_EQ(receiver->counters().bytes, sender->counters().bytes);
}

TEST_P(HighThroughput, messages_of_random_sizes_arrive_whole_and_in_order) {
  start();
  const std::uint64_t seed = 17;
  SCOPED_TRACE(seed);
  Random random{seed};
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t most = random.chance(1, 20) ? 100'000 : 2'000;
    send(pattern(random.below(most), random.next()));
  }
  read_all();
}

TEST_P(HighThroughput, views_and_copies_of_all_sizes_keep_their_order) {
  start();
  auto& pool = ends->client().send_pool();
  for (std::size_t size = 1; size <= 16384; size = size * 2 + 1) {
    send(pattern(size / 2, size));
    const auto bytes = pattern(size, size + 1);
    ASSERT_TRUE(ends->until([&] {
      read();
      return pool.available() > 0;
    }));
    const memory::View view = testing::view_of(pool, bytes);
    ASSERT_TRUE(ends->until([&] {
      read();
      return sender->send(view) == net::SendOutcome::accepted;
    }));
    expected.push_back(bytes);
  }
  const memory::View huge = memory::HeapPage::copy(pattern(500'000, 3));
  ASSERT_TRUE(ends->until([&] {
    read();
    return sender->send(huge) == net::SendOutcome::accepted;
  }));
  expected.push_back(pattern(500'000, 3));
  send(pattern(5, 5));
  read_all();
}

TEST_P(HighThroughput, a_message_can_be_read_as_a_copy) {
  start();
  const auto large = pattern(100'000, 1);
  ASSERT_EQ(sender->send(large), net::SendOutcome::accepted);
  std::vector<std::byte> copy;
  ASSERT_TRUE(ends->until([&] { return receiver->recv(copy); }));
  EXPECT_EQ(copy, large);
}

TEST_P(HighThroughput, a_message_over_the_limit_of_the_receiver_is_too_large) {
  start({.message_max = 50'000});
  EXPECT_EQ(sender->message_max(), 50'000U);
  EXPECT_EQ(sender->send(pattern(50'001, 1)), net::SendOutcome::too_large);
  send(pattern(50'000, 1));
  read_all();
}

TEST_P(HighThroughput, small_messages_share_pages_and_an_idle_sender_holds_none) {
  start();
  for (int i = 0; i < 1000; ++i) send(pattern(100, 1));
  read_all();
  EXPECT_LT(receiver->counters().pages, 50U);
  ends->turn();
  EXPECT_EQ(ends->client().send_pool().available(), ends->client().send_pool().pages());
  EXPECT_TRUE(sender->sent());
}

TEST_P(HighThroughput, backpressure_reaches_the_sender_and_nothing_is_lost) {
  bool writable = false;
  start({}, {.send_queue_bytes = 32768, .on_writable = [&] { writable = true; }});
  for (std::size_t before = 1; before != expected.size(); ends->turn()) {
    before = expected.size();
    while (true) {
      const auto bytes = pattern(3000, expected.size());
      if (sender->send(bytes) != net::SendOutcome::accepted) break;
      expected.push_back(bytes);
    }
  }
  EXPECT_EQ(sender->send(pattern(3000, 1)), net::SendOutcome::backpressure);
  EXPECT_EQ(sender->send(pattern(100'000, 1)), net::SendOutcome::backpressure);
  writable = false;
  ends->turn();
  EXPECT_FALSE(writable);
  ASSERT_TRUE(ends->until([&] {
    read();
    return writable;
  }));
  send(pattern(1, 1));
  read_all();
}

TEST_P(HighThroughput, messages_that_are_kept_stop_the_sender_and_no_other_connection) {
  start();
  std::vector<Message> kept;
  std::uint64_t sent = 0;
  for (std::uint64_t before = 1; before != sent; ends->turn()) {
    before = sent;
    while (sender->send(pattern(9000, sent)) == net::SendOutcome::accepted) ++sent;
    while (receiver->recv(message)) kept.push_back(std::move(message));
  }
  EXPECT_EQ(sender->send(pattern(9000, sent)), net::SendOutcome::backpressure);
  for (std::uint64_t i = 0; i < kept.size(); ++i) {
    const auto bytes = kept[i].bytes();
    ASSERT_EQ(std::vector(bytes.begin(), bytes.end()), pattern(9000, i));
  }
  std::uint64_t received = kept.size();
  kept.clear();
  ASSERT_TRUE(ends->until([&] {
    while (receiver->recv(message)) ++received;
    return received == sent;
  }));
}

TEST_P(HighThroughput, unfinished_messages_of_many_senders_never_block_each_other) {
  start();
  std::vector<std::unique_ptr<HighThroughputSender>> senders;
  std::vector<int> done(5, 0);
  for (std::size_t i = 0; i < done.size(); ++i)
    senders.push_back(HighThroughputSender::connect(ends->client(), receiver->url()).value());
  ASSERT_TRUE(ends->until([&] { return receiver->connections() == 1 + done.size(); }));
  // Each message takes half of the pages that the receiver has for all.
  const auto large = pattern(200'000, 1);
  std::size_t received = 0;
  ASSERT_TRUE(ends->until([&] {
    for (std::size_t i = 0; i < done.size(); ++i) {
      if (done[i] < 4 && senders[i]->send(large) == net::SendOutcome::accepted) ++done[i];
    }
    while (receiver->recv(message)) {
      ++received;
      const auto bytes = message.bytes();
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), large.begin(), large.end()));
    }
    return received == 4 * done.size();
  })) << received;
}

TEST_P(HighThroughput, what_is_closed_has_delivered_everything_before) {
  start({}, {.send_queue_bytes = 32768});
  while (true) {
    const auto bytes = pattern(2000, expected.size());
    if (sender->send(bytes) != net::SendOutcome::accepted) break;
    expected.push_back(bytes);
  }
  sender->close();
  EXPECT_EQ(sender->send(pattern(1, 1)), net::SendOutcome::closed);
  read_all();
  ASSERT_TRUE(ends->until([&] { return receiver->connections() == 0; }));
  EXPECT_EQ(receiver->counters().closed[static_cast<std::size_t>(CloseReason::peer_closed)], 1U);
}

TEST_P(HighThroughput, what_the_network_had_not_taken_goes_out_after_the_reconnection) {
  std::vector<CloseReason> ended;
  start({}, {.send_queue_bytes = 16384,
             .on_disconnected = [&](CloseReason reason) { ended.push_back(reason); }});
  std::uint64_t sent = 0;
  for (std::uint64_t before = 1; before != sent; ends->turn()) { // nobody reads
    before = sent;
    while (sender->send(pattern(1000, sent)) == net::SendOutcome::accepted) ++sent;
  }
  const net::Url url = receiver->url();
  receiver.reset();
  receiver = HighThroughputReceiver::listen(ends->server(), url).value();
  ASSERT_TRUE(ends->until([&] { return sender->counters().connections == 2; })) << ends->said();
  EXPECT_FALSE(ended.empty());
  ASSERT_TRUE(
      ends->until([&] { return sender->send(pattern(1000, sent)) == net::SendOutcome::accepted; }));
  ++sent;
  std::vector<std::vector<std::byte>> got;
  ASSERT_TRUE(ends->until([&] {
    while (receiver->recv(message)) {
      const auto bytes = message.bytes();
      got.emplace_back(bytes.begin(), bytes.end());
    }
    return !got.empty() && got.back() == pattern(1000, sent - 1);
  }));
  for (std::size_t i = 0; i < got.size(); ++i) // the last ones, without a gap
    ASSERT_EQ(got[i], pattern(1000, sent - got.size() + i));
}

TEST_P(HighThroughput, a_message_that_was_cut_is_counted_and_the_next_ones_arrive) {
  start({}, {.send_queue_bytes = 16384});
  // Larger than what the network and the receiver can hold: some of it is still here.
  ASSERT_EQ(sender->send(pattern(40U << 20, 1)), net::SendOutcome::accepted);
  ends->turn();
  EXPECT_FALSE(sender->sent());
  const net::Url url = receiver->url();
  receiver.reset();
  receiver = HighThroughputReceiver::listen(ends->server(), url).value();
  ASSERT_TRUE(ends->until([&] { return sender->counters().connections == 2; })) << ends->said();
  EXPECT_EQ(sender->counters().lost, 1U);
  send(pattern(7, 7));
  read_all();
}

TEST_P(HighThroughput, the_rest_of_a_message_in_pages_that_are_too_large_is_not_sent) {
  start({}, {.send_queue_bytes = 16384});
  ASSERT_EQ(sender->send(pattern(40U << 20, 1)), net::SendOutcome::accepted); // keeps it busy
  while (sender->send(pattern(100'000, 2)) == net::SendOutcome::accepted) ends->turn();
  const std::uint64_t sent = sender->counters().messages;
  ASSERT_NO_FATAL_FAILURE(restart_with_small_pages());
  EXPECT_EQ(sender->counters().lost, sent);
  ASSERT_EQ(sender->send(pattern(20'000, 7)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends->until([&] { return receiver->recv(message); }));
  EXPECT_EQ(message.size(), 20'000U);
  message = {};
  EXPECT_EQ(sender->counters().connections, 2U);
}

TEST_P(HighThroughput, on_ready_is_called_until_all_is_read) {
  std::uint64_t received = 0;
  start({.on_ready = [&] {
    if (receiver->recv(message)) ++received; // one at a time
  }});
  for (int i = 0; i < 100; ++i) ASSERT_EQ(sender->send(pattern(10, 1)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends->until([&] { return received == 100; }));
}

TEST_P(HighThroughput, an_on_ready_that_throws_costs_the_connection_it_read_and_no_other) {
  std::uint64_t received = 0;
  start({.on_ready = [&] {
    while (receiver->recv(message)) {
      if (message.size() == 13) throw std::runtime_error("on purpose");
      ++received;
    }
  }});
  const auto other = HighThroughputSender::connect(ends->client(), receiver->url()).value();
  ASSERT_TRUE(ends->until([&] { return other->connected(); }));
  ASSERT_EQ(sender->send(pattern(13, 1)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends->until([&] { return sender->counters().connections == 2; }));
  EXPECT_EQ(receiver->counters().closed[static_cast<std::size_t>(CloseReason::callback_threw)], 1U);
  ASSERT_EQ(other->send(pattern(5, 1)), net::SendOutcome::accepted);
  ASSERT_EQ(sender->send(pattern(5, 1)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends->until([&] { return received == 2; }));
  EXPECT_EQ(other->counters().connections, 1U);
}

TEST_P(HighThroughput, an_on_ready_that_throws_before_it_reads_costs_the_connection_that_is_next) {
  std::uint64_t received = 0;
  int threw = 0;
  bool broken = true;
  start({.on_ready = [&] {
    if (broken) {
      ++threw;
      throw std::runtime_error("on purpose");
    }
    while (receiver->recv(message)) ++received;
  }});
  ASSERT_EQ(sender->send(pattern(5, 1)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends->until([&] { return sender->counters().connections == 2; }));
  ends->turn();
  EXPECT_EQ(receiver->counters().closed[static_cast<std::size_t>(CloseReason::callback_threw)], 1U);
  EXPECT_EQ(threw, 1); // it is not asked again what nobody can read
  broken = false;
  ASSERT_EQ(sender->send(pattern(6, 1)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends->until([&] { return received == 1; }));
}

TEST_P(HighThroughput, an_on_ready_that_throws_when_all_is_read_costs_the_connection_it_read_last) {
  std::uint64_t received = 0;
  start({.on_ready = [&] {
    while (receiver->recv(message)) ++received;
    if (received == 1) throw std::runtime_error("on purpose");
  }});
  ASSERT_EQ(sender->send(pattern(5, 1)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends->until([&] { return sender->counters().connections == 2; }));
  EXPECT_EQ(receiver->counters().closed[static_cast<std::size_t>(CloseReason::callback_threw)], 1U);
  ASSERT_EQ(sender->send(pattern(5, 1)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends->until([&] { return received == 2; }));
  EXPECT_EQ(receiver->counters().closed[static_cast<std::size_t>(CloseReason::callback_threw)], 1U);
}

TEST_P(HighThroughput, messages_gathered_for_a_peer_that_took_larger_pages_are_counted_as_lost) {
  start({}, {.flush = {.idle = false, .deadline = FlushPolicy::never_flush}});
  for (std::uint64_t i = 0; i < 10; ++i)
    ASSERT_EQ(sender->send(pattern(1000, i)), net::SendOutcome::accepted);
  ASSERT_NO_FATAL_FAILURE(restart_with_small_pages());
  EXPECT_EQ(sender->counters().lost, 10U);
  ASSERT_EQ(sender->send(pattern(7, 7)), net::SendOutcome::accepted);
  sender->flush();
  ASSERT_TRUE(ends->until([&] { return receiver->recv(message); }));
  EXPECT_EQ(message.size(), 7U);
  message = {};
}

TEST_P(HighThroughput, a_receiver_says_who_comes_and_who_goes_and_why) {
  std::vector<PeerId> came;
  std::vector<std::pair<PeerId, CloseReason>> went;
  start({.on_connected = [&](PeerId peer) { came.push_back(peer); },
         .on_disconnected = [&](PeerId peer, CloseReason why) { went.emplace_back(peer, why); }});
  ASSERT_EQ(came.size(), 1U);
  EXPECT_TRUE(went.empty());
  sender->close();
  ASSERT_TRUE(ends->until([&] { return !went.empty(); }));
  EXPECT_EQ(went, (std::vector{std::pair{came[0], CloseReason::peer_closed}}));
  EXPECT_EQ(receiver->peer_name(came[0]), "");
}

TEST(AReceiver, listens_at_several_networks_at_once) {
  TwoEnds ends{
      {"process", [] { return std::make_unique<testing::ProcessNetwork>("tcp://127.0.0.1:0"); }}};
  const auto receiver = HighThroughputReceiver::listen(ends.server(), ends.address()).value();
  const auto shm = receiver->also_listen(net::Url::parse("shm://").value());
  ASSERT_TRUE(shm) << shm.error().text;
  std::vector<std::unique_ptr<HighThroughputSender>> senders;
  for (const net::Url& url : {receiver->url(), *shm})
    senders.push_back(HighThroughputSender::connect(ends.client(), url).value());
  ASSERT_TRUE(ends.until([&] { return senders[0]->connected() && senders[1]->connected(); }));
  EXPECT_EQ(receiver->connections(), 2U);
  Message message;
  std::vector<PeerId> peers;
  for (const auto& sender : senders) {
    ASSERT_EQ(sender->send(pattern(100, 1)), net::SendOutcome::accepted);
    ASSERT_TRUE(ends.until([&] { return receiver->recv(message); }));
    EXPECT_EQ(message.size(), 100U);
    peers.push_back(message.peer());
  }
  EXPECT_NE(peers[0], peers[1]);
  EXPECT_EQ(receiver->counters().messages, 2U);
}

TEST_P(HighThroughput, a_receive_pool_of_two_pages_takes_a_message_of_many) {
  if (GetParam().name == "strict") GTEST_SKIP() << "not applicable: posts more pages than that";
  ContextOptions options = TwoEnds::small_pages();
  options.receive_pool.pages = 2;
  start({}, {}, options);
  send(pattern(300'000, 1));
  read_all();
}

TEST_P(HighThroughput, pages_smaller_than_any_peer_may_ask_for_are_an_error) {
  TwoEnds two{GetParam()};
  for (const std::uint32_t size : {1U, 8U, Hello::page_max_least - 1}) {
    const auto made =
        HighThroughputSender::connect(two.client(), two.address(), {.page_size = size});
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().kind, ErrorKind::usage);
  }
}

TEST(PageQueue, keeps_nothing_of_a_connection_that_ended_with_nothing_queued) {
  TwoEnds two{testing::networks().back()};
  SocketCounters counters;
  PageQueue queue(two.server(), counters, {.message_max = 100}, [](PageSource&, CloseReason) {});
  auto source = std::make_shared<PageSource>();
  const std::weak_ptr<PageSource> seen = source;
  queue.end(std::move(source));
  EXPECT_TRUE(seen.expired());
}

INSTANTIATE_TEST_SUITE_P(Sockets, HighThroughput, ::testing::ValuesIn(testing::networks()),
                         [](const auto& network) { return network.param.name; });

} // namespace
} // namespace fanin::message
