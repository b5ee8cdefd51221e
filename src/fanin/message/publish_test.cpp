// Publish and subscribe over each transport.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <stdexcept>

#include "fanin/memory/heap_page.hpp"
#include "fanin/message/gathering_page.hpp"
#include "fanin/message/testing/two_ends.hpp"

namespace fanin::message {
namespace {

using testing::pattern;
using testing::TwoEnds;
using testing::view_of;

using Bytes = std::vector<std::byte>;

// A subscriber that keeps what it gets, by tag.
struct Listener {
  explicit Listener(Context& context, std::uint64_t message_max = SubscriberOptions{}.message_max)
      : subscriber(Subscriber::make(
            context,
            {.message_max = message_max,
             .on_message = [this](Message& message) { note(message); },
             .on_ready =
                 [this] {
                   Message message;
                   while (reads && subscriber->recv(message)) note(message);
                 },
             .on_disconnected = [this](PeerId, CloseReason reason) { ended.push_back(reason); }})) {
  }

  void note(Message& message) {
    const auto bytes = message.bytes();
    got[message.tag()].emplace_back(bytes.begin(), bytes.end());
  }
  [[nodiscard]] std::size_t messages() const {
    std::size_t sum = 0;
    for (const auto& [tag, messages] : got) sum += messages.size();
    return sum;
  }

  std::map<Tag, std::vector<Bytes>> got;
  std::vector<CloseReason> ended;
  bool reads = true;
  std::unique_ptr<Subscriber> subscriber;
};

class Publish : public ::testing::TestWithParam<testing::NetworkKind> {
protected:
  explicit Publish(const ContextOptions& options = TwoEnds::small_pages())
      : ends(GetParam(), options) {}
  void start(PublisherOptions options = {}) {
    publisher = Publisher::listen(ends.server(), ends.address(), std::move(options)).value();
  }
  std::unique_ptr<Listener> listen(std::initializer_list<Tag> tags, Mode mode) {
    return listen(ends.client(), tags, mode);
  }
  std::unique_ptr<Listener> listen(Context& context, std::initializer_list<Tag> tags, Mode mode,
                                   std::uint64_t message_max = SubscriberOptions{}.message_max) {
    auto listener = std::make_unique<Listener>(context, message_max);
    for (const Tag tag : tags)
      EXPECT_TRUE(listener->subscriber->subscribe(publisher->url(), tag, mode));
    EXPECT_TRUE(ends.until([&] { return listener->subscriber->connected(); }));
    ends.turn(); // the subscriptions arrive
    return listener;
  }
  void send(Tag tag, const Bytes& bytes) {
    net::SendOutcome outcome{};
    ASSERT_TRUE(ends.until([&] {
      outcome = publisher->publish(tag, bytes);
      return outcome != net::SendOutcome::backpressure;
    }));
    ASSERT_EQ(outcome, net::SendOutcome::accepted);
  }

  TwoEnds ends;
  std::unique_ptr<Publisher> publisher;
};

TEST_P(Publish, a_publisher_is_told_of_the_first_and_the_last_subscriber_of_a_tag) {
  std::vector<Tag> first;
  std::vector<Tag> last;
  start({.on_first_subscriber =
             [&](Tag tag) {
               first.push_back(tag);
               EXPECT_TRUE(publisher->has_subscriber(tag));
               EXPECT_EQ(publisher->publish(tag, pattern(10, tag)), net::SendOutcome::accepted);
             },
         .on_last_subscriber_gone =
             [&](Tag tag) {
               last.push_back(tag);
               EXPECT_FALSE(publisher->has_subscriber(tag));
             }});
  auto one = listen({3, 1}, Mode::high_throughput);
  ASSERT_TRUE(ends.until([&] { return one->messages() == 2; })) << "published in the callback";
  EXPECT_EQ(one->got[3], std::vector<Bytes>{pattern(10, 3)});
  auto two = listen({1, 5}, Mode::low_latency);
  ASSERT_TRUE(ends.until([&] { return two->messages() == 1; }));
  EXPECT_EQ((std::multiset<Tag>(first.begin(), first.end())), (std::multiset<Tag>{1, 3, 5}));
  EXPECT_TRUE(last.empty());
  one.reset(); // tag 1 still has one
  ASSERT_TRUE(ends.until([&] { return !last.empty(); }));
  EXPECT_EQ(last, std::vector<Tag>{3});
  const auto id = two->subscriber->subscribe(publisher->url(), 6, Mode::low_latency).value();
  two->subscriber->unsubscribe(id, 5, Mode::low_latency);
  ASSERT_TRUE(ends.until([&] { return last.size() == 2 && two->messages() == 2; }));
  EXPECT_EQ(last.back(), 5U);
  EXPECT_EQ(first.back(), 6U);
  EXPECT_EQ(first.size(), 4U); // tag 1 went from group to group, and was never without a subscriber
  publisher->close();
  ends.turn();
  EXPECT_EQ(last.size(), 2U);
}

TEST_P(Publish, each_subscriber_gets_its_tags_and_no_others_in_both_modes) {
  start();
  const auto low = listen({1, 2}, Mode::low_latency);
  const auto high = listen({2, 3}, Mode::high_throughput);
  const auto same = listen({3, 2}, Mode::high_throughput);
  for (std::uint64_t i = 0; i < 300; ++i) send(i % 4, pattern(i, i));
  ASSERT_TRUE(ends.until([&] {
    return low->messages() == 150 && high->messages() == 150 && same->messages() == 150;
  }));
  for (std::uint64_t i = 0; i < 75; ++i) {
    EXPECT_EQ(low->got[1][i], pattern(4 * i + 1, 4 * i + 1));
    EXPECT_EQ(low->got[2][i], pattern(4 * i + 2, 4 * i + 2));
    EXPECT_EQ(high->got[2][i], pattern(4 * i + 2, 4 * i + 2));
    EXPECT_EQ(same->got[3][i], pattern(4 * i + 3, 4 * i + 3));
  }
  EXPECT_EQ(publisher->counters().messages, 300U);
  EXPECT_TRUE(publisher->has_subscriber(3));
  EXPECT_FALSE(publisher->has_subscriber(0));
}

TEST_P(Publish, large_messages_arrive_in_order_with_small_ones_and_views_are_not_copied) {
  start();
  const auto low = listen({7}, Mode::low_latency);
  const auto high = listen({7}, Mode::high_throughput);
  std::vector<Bytes> sent;
  for (const std::size_t size : {10U, 16368U, 16376U, 16377U, 20U, 100'000U, 30U, 30U})
    sent.push_back(pattern(size, size));
  for (const Bytes& bytes : sent) send(7, bytes);
  sent.push_back(pattern(12'000, 5));
  ASSERT_EQ(publisher->publish(7, view_of(ends.server().send_pool(), sent.back())),
            net::SendOutcome::accepted);
  ASSERT_TRUE(ends.until([&] { return high->messages() == sent.size(); })) << ends.said();
  EXPECT_EQ(high->got[7], sent);
  std::erase_if(sent, [](const Bytes& bytes) { return bytes.size() > 16376; });
  ASSERT_TRUE(ends.until([&] { return low->messages() == sent.size(); }));
  EXPECT_EQ(low->got[7], sent);
  EXPECT_EQ(publisher->counters().skipped, 2U); // by the low-latency one: more than a page
}

TEST_P(Publish, a_subscriber_has_several_publishers_and_may_change_its_mind) {
  start();
  const auto first = std::move(publisher);
  start();
  Listener listener(ends.client());
  const auto one = listener.subscriber->subscribe(first->url(), 1, Mode::low_latency).value();
  const auto two =
      listener.subscriber->subscribe(publisher->url(), 1, Mode::high_throughput).value();
  EXPECT_NE(one, two);
  EXPECT_EQ(listener.subscriber->subscribe(first->url(), 2, Mode::high_throughput).value(), one);
  ASSERT_TRUE(ends.until([&] { return first->has_subscriber(2) && publisher->has_subscriber(1); }));
  listener.subscriber->unsubscribe(one, 2, Mode::high_throughput);
  ASSERT_TRUE(ends.until([&] { return !first->has_subscriber(2); }));
  ASSERT_EQ(first->publish(1, pattern(3, 3)), net::SendOutcome::accepted);
  ASSERT_EQ(first->publish(2, pattern(3, 3)), net::SendOutcome::accepted);
  ASSERT_EQ(publisher->publish(1, pattern(4, 4)), net::SendOutcome::accepted);
  ASSERT_TRUE(ends.until([&] { return listener.messages() == 2; }));
  EXPECT_EQ(listener.got[1].size(), 2U);
}

TEST_P(Publish, who_has_closed_subscribes_to_nothing_more) {
  start();
  const auto listener = listen({1}, Mode::high_throughput);
  listener->subscriber->close();
  const auto again = listener->subscriber->subscribe(publisher->url(), 2, Mode::high_throughput);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, ErrorKind::usage);
}

TEST_P(Publish, a_subscriber_that_comes_or_dies_disturbs_no_other) {
  start();
  const auto stays = listen({1}, Mode::high_throughput);
  std::uint64_t sent = 0;
  for (int round = 0; round < 5; ++round) {
    const auto comes = listen({1}, round % 2 == 0 ? Mode::high_throughput : Mode::low_latency);
    for (int i = 0; i < 50; ++i) send(1, pattern(700, sent++));
    ASSERT_TRUE(ends.until([&] { return comes->messages() == 50; }));
  }
  ASSERT_TRUE(ends.until([&] { return publisher->connections() == 1; }));
  for (int i = 0; i < 50; ++i) send(1, pattern(700, sent++));
  ASSERT_TRUE(ends.until([&] { return stays->messages() == sent; }));
  for (std::uint64_t i = 0; i < sent; ++i) ASSERT_EQ(stays->got[1][i], pattern(700, i));
}

TEST_P(Publish, subscriptions_are_renewed_after_a_reconnection) {
  start();
  const net::Url url = publisher->url();
  const auto listener = listen({5, 6}, Mode::high_throughput);
  publisher.reset();
  ASSERT_TRUE(ends.until([&] { return !listener->subscriber->connected(); }));
  publisher = Publisher::listen(ends.server(), url).value();
  ASSERT_TRUE(ends.until([&] { return publisher->has_subscriber(6); }));
  send(6, pattern(9, 9));
  ASSERT_TRUE(ends.until([&] { return listener->messages() == 1; }));
}

TEST_P(Publish, a_message_that_is_large_for_one_mode_only_reaches_both_once) {
  start();
  const auto high = listen({1}, Mode::high_throughput);
  const auto low = listen({1}, Mode::low_latency);
  send(1, pattern(16376, 1)); // with its tag a whole page: in high throughput, in pieces
  ASSERT_TRUE(ends.until([&] { return high->messages() == 1 && low->messages() == 1; }));
  EXPECT_EQ(high->got[1][0], pattern(16376, 1));
  EXPECT_EQ(low->got[1][0], pattern(16376, 1));
}

TEST_P(Publish, what_is_larger_than_a_subscriber_takes_is_skipped_for_it_alone) {
  constexpr std::size_t most = 1000;
  start();
  std::uint64_t skipped = 0;
  for (const Mode mode : {Mode::high_throughput, Mode::low_latency}) {
    const auto modest = listen(ends.client(), {1}, mode, most);
    for (const std::size_t size : {most, most + 1, std::size_t{5000}, std::size_t{100'000}})
      send(1, pattern(size, 1));
    ASSERT_EQ(publisher->publish(1, memory::HeapPage::copy(pattern(5000, 1))),
              net::SendOutcome::accepted);
    send(1, pattern(10, 2));
    ASSERT_TRUE(ends.until([&] { return modest->messages() == 2; }));
    skipped += 4;
    EXPECT_EQ(publisher->counters().skipped, skipped);
    const auto other = listen({1}, Mode::high_throughput);
    send(1, pattern(5000, 3));
    send(1, pattern(20, 4));
    ASSERT_TRUE(ends.until([&] { return other->messages() == 2 && modest->messages() == 3; }));
    EXPECT_EQ(modest->got[1], (std::vector{pattern(most, 1), pattern(10, 2), pattern(20, 4)}));
    EXPECT_EQ(publisher->counters().skipped, ++skipped);
    EXPECT_EQ(publisher->counters().too_large, skipped);
    EXPECT_TRUE(modest->ended.empty());
  }
}

TEST_P(Publish, who_comes_and_goes_is_said_and_nothing_is_published_after_close) {
  std::vector<PeerId> came;
  std::vector<PeerId> gone;
  start({.on_subscriber = [&](PeerId id) { came.push_back(id); },
         .on_subscriber_gone = [&](PeerId id, CloseReason) { gone.push_back(id); }});
  auto leaves = listen({1}, Mode::high_throughput);
  EXPECT_EQ(came.size(), 1U);
  EXPECT_TRUE(gone.empty());
  leaves.reset();
  ASSERT_TRUE(ends.until([&] { return !gone.empty(); }));
  EXPECT_EQ(gone, came);
  const auto stays = listen({1}, Mode::high_throughput);
  EXPECT_EQ(came.size(), 2U);
  send(1, pattern(10, 1));
  for (int i = 0; i < 2; ++i) {
    publisher->close();
    EXPECT_EQ(publisher->publish(1, pattern(10, 2)), net::SendOutcome::closed);
    EXPECT_EQ(publisher->publish(1, memory::HeapPage::copy(pattern(5000, 3))),
              net::SendOutcome::closed);
  }
  ASSERT_TRUE(ends.until([&] { return !stays->ended.empty(); }));
  EXPECT_EQ(stays->messages(), 1U);
}

TEST_P(Publish, who_comes_when_there_are_enough_is_turned_away_until_one_leaves) {
  std::vector<PeerId> came;
  std::vector<PeerId> gone;
  start({.subscribers_max = 1,
         .on_subscriber = [&](PeerId id) { came.push_back(id); },
         .on_subscriber_gone = [&](PeerId id, CloseReason) { gone.push_back(id); }});
  auto first = listen({1}, Mode::high_throughput);
  Listener late(ends.client());
  ASSERT_TRUE(late.subscriber->subscribe(publisher->url(), 1, Mode::high_throughput));
  const auto& turned_away =
      publisher->counters().closed[static_cast<std::size_t>(CloseReason::too_many)];
  ASSERT_TRUE(ends.until([&] { return turned_away > 0 && !late.ended.empty(); }));
  send(1, pattern(10, 1));
  ASSERT_TRUE(ends.until([&] { return first->messages() == 1; }));
  EXPECT_EQ(came.size(), 1U);
  EXPECT_TRUE(gone.empty());
  first.reset();
  ASSERT_TRUE(ends.until([&] { return came.size() == 2 && publisher->has_subscriber(1); }));
  send(1, pattern(10, 2));
  ASSERT_TRUE(ends.until([&] { return late.messages() == 1; }));
}

class FewSendPages : public Publish {
protected:
  FewSendPages() : Publish(options()) {}
  static ContextOptions options() {
    ContextOptions options = TwoEnds::small_pages();
    options.send_pool.pages = 2;
    return options;
  }
};

TEST_P(FewSendPages, are_enough_for_more_groups_than_there_are_pages) {
  start({.slow = SlowSubscriber::block});
  std::vector<std::unique_ptr<Listener>> listeners;
  for (Tag i = 0; i < 4; ++i) listeners.push_back(listen({1, 100 + i}, Mode::high_throughput));
  listeners.push_back(listen({1}, Mode::low_latency));
  std::vector<Bytes> sent;
  for (std::uint64_t i = 0; i < 30; ++i) {
    sent.push_back(pattern(100, i));
    send(1, sent.back());
    sent.push_back(pattern(5000, i));
    const memory::View view = memory::HeapPage::copy(sent.back());
    ASSERT_TRUE(
        ends.until([&] { return publisher->publish(1, view) == net::SendOutcome::accepted; }));
  }
  for (const auto& listener : listeners) {
    ASSERT_TRUE(ends.until([&] { return listener->messages() == sent.size(); }));
    EXPECT_EQ(listener->got[1], sent);
  }
}

class SlowSubscribers : public Publish {
protected:
  // Publishes until `done`, which gets the last outcome.
  void flood(const std::function<bool(net::SendOutcome)>& done) {
    ASSERT_TRUE(ends.until([&] {
      for (int i = 0; i < 10; ++i) {
        last = publisher->publish(1, pattern(1000, published));
        if (last == net::SendOutcome::accepted) ++published;
      }
      return done(last);
    }));
  }
  void start_with(SlowSubscriber slow, Mode mode = Mode::high_throughput) {
    start({.slow = slow, .send_queue_bytes = 65536, .on_writable = [this] { writable = true; }});
    reader = listen({1}, Mode::high_throughput);
    sleeper = listen(ends.add(), {1}, mode);
    sleeper->reads = false;
  }
  void expect_the_reader_got_all() {
    ASSERT_TRUE(ends.until([&] { return reader->messages() == published; }));
    for (std::uint64_t i = 0; i < published; ++i) ASSERT_EQ(reader->got[1][i], pattern(1000, i));
  }

  net::SendOutcome last{};
  std::uint64_t published = 0;
  bool writable = false;
  std::unique_ptr<Listener> reader;
  std::unique_ptr<Listener> sleeper;
};

TEST_P(SlowSubscribers, is_cut_off_and_the_others_get_everything) {
  start_with(SlowSubscriber::disconnect);
  const auto& cut = publisher->counters().closed[static_cast<std::size_t>(CloseReason::too_slow)];
  flood([&](net::SendOutcome) { return cut == 1; });
  expect_the_reader_got_all();
  EXPECT_EQ(reader->ended.size(), 0U);
  // What waited for it when it was cut off: half of what may wait, in messages of 1000 B.
  EXPECT_GE(publisher->counters().skipped, 32U);
  EXPECT_LE(publisher->counters().skipped, published);
}

TEST_P(SlowSubscribers, blocks_the_publisher_until_it_reads) {
  start_with(SlowSubscriber::block);
  flood([](net::SendOutcome outcome) { return outcome == net::SendOutcome::backpressure; });
  ends.turn();
  flood([](net::SendOutcome outcome) { return outcome == net::SendOutcome::backpressure; });
  sleeper->reads = true;
  writable = false;
  ASSERT_TRUE(ends.until([&] { return writable && sleeper->messages() == published; }));
  expect_the_reader_got_all();
  EXPECT_EQ(publisher->counters().skipped, 0U);
  EXPECT_EQ(sleeper->got, reader->got);
}

TEST_P(SlowSubscribers, gets_a_sample_of_whole_messages_and_what_it_missed_is_counted) {
  start_with(SlowSubscriber::sample);
  flood([&](net::SendOutcome) { return publisher->counters().skipped > 100; });
  expect_the_reader_got_all();
  sleeper->reads = true;
  ASSERT_TRUE(
      ends.until([&] { return sleeper->messages() + publisher->counters().skipped == published; }));
  std::size_t found = 0;
  for (std::uint64_t i = 0; i < published && found < sleeper->messages(); ++i)
    found += sleeper->got[1][found] == pattern(1000, i) ? 1U : 0U;
  EXPECT_EQ(found, sleeper->messages());
}

TEST_P(SlowSubscribers, that_misses_large_messages_gets_whole_ones_too) {
  start_with(SlowSubscriber::sample);
  std::uint64_t large = 0;
  ASSERT_TRUE(ends.until([&] {
    if (reader->messages() == large) {
      EXPECT_EQ(publisher->publish(1, pattern(50'000, large)), net::SendOutcome::accepted);
      ++large;
    }
    return publisher->counters().skipped > 10;
  }));
  ASSERT_TRUE(ends.until([&] { return reader->messages() == large; }));
  sleeper->reads = true;
  ASSERT_TRUE(
      ends.until([&] { return sleeper->messages() + publisher->counters().skipped == large; }));
  for (const Bytes& bytes : sleeper->got[1]) EXPECT_EQ(bytes.size(), 50'000U);
}

TEST_P(SlowSubscribers, of_low_latency_has_each_message_or_misses_it_once) {
  start({.slow = SlowSubscriber::sample, .send_queue_bytes = 65536});
  const auto low = listen({1}, Mode::low_latency);
  const std::uint64_t& skipped = publisher->counters().skipped;
  while (skipped < 100) { // without a turn, nobody reads
    ASSERT_EQ(publisher->publish(1, pattern(1000, published)), net::SendOutcome::accepted);
    ++published;
  }
  ASSERT_LE(skipped, published);
  EXPECT_TRUE(ends.until([&] { return low->messages() == published - skipped; }));
}

TEST_P(SlowSubscribers, that_reads_after_all_gets_what_was_accepted_before_close) {
  start_with(SlowSubscriber::sample);
  flood([&](net::SendOutcome) { return publisher->counters().skipped > 0; });
  const std::uint64_t accepted = published - publisher->counters().skipped;
  publisher->close();
  EXPECT_EQ(publisher->publish(1, pattern(10, 1)), net::SendOutcome::closed);
  sleeper->reads = true;
  EXPECT_TRUE(ends.until([&] { return sleeper->messages() == accepted; })) << sleeper->messages();
  expect_the_reader_got_all();
}

TEST_P(SlowSubscribers, has_few_small_messages_waiting) {
  start({.send_queue_bytes = 65536});
  const auto low = listen({1}, Mode::low_latency);
  while (publisher->connections() > 0) // without a turn, nobody reads
    ASSERT_EQ(publisher->publish(1, pattern(1, 0)), net::SendOutcome::accepted);
  EXPECT_LE(publisher->counters().skipped, 65536 / sizeof(Parcel));
}

class LongClose : public SlowSubscribers {};

TEST_P(LongClose, goes_on_as_long_as_a_subscriber_reads) {
  start_with(SlowSubscriber::sample);
  flood([&](net::SendOutcome) { return publisher->counters().skipped > 0; });
  const std::uint64_t accepted = published - publisher->counters().skipped;
  publisher->close();
  Message message;
  for (int page = 0; page < 3; ++page) { // the transport and the publisher have as many
    for (int i = 0; i < 16; ++i)
      ASSERT_TRUE(ends.until([&] { return sleeper->subscriber->recv(message); }));
    const Time start = ends.now();
    while (ends.now() - start < std::chrono::seconds{3}) ends.turn();
  }
  for (std::uint64_t i = 3 * 16; i < accepted; ++i)
    ASSERT_TRUE(ends.until([&] { return sleeper->subscriber->recv(message); })) << i;
  EXPECT_TRUE(ends.until([&] { return !sleeper->ended.empty(); }));
}

INSTANTIATE_TEST_SUITE_P(Sockets, LongClose, ::testing::ValuesIn(testing::virtual_networks()),
                         [](const auto& network) { return network.param.name; });
INSTANTIATE_TEST_SUITE_P(Sockets, Publish, ::testing::ValuesIn(testing::networks()),
                         [](const auto& network) { return network.param.name; });
INSTANTIATE_TEST_SUITE_P(Sockets, FewSendPages, ::testing::ValuesIn(testing::networks()),
                         [](const auto& network) { return network.param.name; });
INSTANTIATE_TEST_SUITE_P(Sockets, SlowSubscribers, ::testing::ValuesIn(testing::networks()),
                         [](const auto& network) { return network.param.name; });

} // namespace
} // namespace fanin::message
