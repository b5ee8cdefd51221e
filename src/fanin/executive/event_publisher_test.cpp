// Readers over inproc://, all on one loop. A reader that does not turn or read is a frozen one.
#include "fanin/executive/event_publisher.hpp"

#include <map>

#include <gtest/gtest.h>

#include "fanin/message/subscriber.hpp"
#include "fanin/net/inproc/inproc.hpp"
#include "fanin/wire/super_fragment.hpp"

namespace fanin::executive {
namespace {

using Bytes = std::vector<std::byte>;

struct Pools {
  std::unique_ptr<memory::PagePool> send = make(publisher_page, publisher_pages);
  std::unique_ptr<memory::PagePool> receive = make(reader_page, reader_pages);

private:
  static std::unique_ptr<memory::PagePool> make(std::uint32_t page_size, std::uint32_t pages) {
    return memory::PagePool::make({.page_size = page_size, .pages = pages, .arena = {}}).value();
  }
};

struct Publishing : ::testing::Test {
  Publishing() {
    loop.add(transport);
    transports.add("inproc", transport);
    publisher =
        EventPublisher::listen(net::Url::parse("inproc://here").value(), parts(own)).value();
  }
  message::ContextParts parts(Pools& pools) {
    return {.loop = loop,
            .transports = transports,
            .send_pool = *pools.send,
            .receive_pool = *pools.receive,
            .seed = 1,
            .log = [](LogLevel, std::string_view) {}};
  }

  struct Reader {
    Reader(Publishing& test, std::initializer_list<message::Tag> tags)
        : context(test.parts(pools)) {
      for (const message::Tag tag : tags) {
        EXPECT_TRUE(
            subscriber->subscribe(test.publisher->url(), tag, message::Mode::high_throughput));
      }
      test.turn([this] { return subscriber->connected(); });
      test.turn(); // the subscriptions arrive
    }
    void read() {
      message::Message message;
      while (reads && subscriber->recv(message)) {
        const auto bytes = message.bytes();
        got[message.tag()].emplace_back(bytes.begin(), bytes.end());
      }
    }
    Pools pools;
    bool reads = true;
    std::map<message::Tag, std::vector<Bytes>> got;
    message::Context context;
    std::unique_ptr<message::Subscriber> subscriber =
        message::Subscriber::make(context, {.on_ready = [this] { read(); }});
  };

  void turn(const std::function<bool()>& done = {}) {
    for (int i = 0; done ? !done() : i < 20; ++i) {
      ASSERT_LT(i, 100'000);
      clock.advance(std::chrono::microseconds{20});
      loop.turn();
    }
  }
  // `count` fragments of 1 MiB.
  void publish(std::size_t count, std::uint32_t streams) {
    std::vector<storage::EventFragment> fragments;
    for (std::size_t i = 0; i < count; ++i)
      fragments.push_back({.source = static_cast<SourceId>(i), .payload = payload});
    publisher->publish(1, {.number = 7, .streams = streams, .fragments = fragments});
  }
  static std::uint64_t bytes_of(std::size_t count) {
    return wire::super_head_size(count) + (std::uint64_t{count} << 20);
  }

  Bytes payload = Bytes(1U << 20, std::byte{5});
  VirtualClock clock;
  net::Loop loop{clock};
  net::InprocTransport transport;
  net::TransportSet transports;
  Pools own;
  std::unique_ptr<EventPublisher> publisher;
};

TEST_F(Publishing, has_one_copy_of_a_large_event_for_all_readers_and_tags_until_all_have_it) {
  Reader all(*this, {all_events_tag});
  Reader both(*this, {1, 2});
  Reader second(*this, {2});
  publish(3, 3);
  EXPECT_EQ(publisher->large_bytes(), bytes_of(3));
  turn([&] { return all.got.size() + both.got.size() + second.got.size() == 3; });
  // Where it still waits for its turn with another tag, a reader misses it.
  EXPECT_EQ(publisher->skipped(), 1U);
  turn();
  EXPECT_EQ(publisher->large_bytes(), 0U);
  for (const Bytes& got : {all.got.at(0).at(0), both.got.at(1).at(0), second.got.at(2).at(0)}) {
    ASSERT_EQ(got.size(), bytes_of(3));
    const wire::SuperHead head(got, got.size(), 3);
    EXPECT_TRUE(head.good());
    EXPECT_EQ(got.back(), std::byte{5});
  }
}

TEST_F(Publishing, skips_large_events_while_readers_that_are_slow_hold_too_many_bytes) {
  std::vector<std::unique_ptr<Reader>> readers;
  for (message::Tag stream = 0; stream < 4; ++stream) {
    readers.push_back(
        std::make_unique<Reader>(*this, std::initializer_list<message::Tag>{1 + stream}));
    readers.back()->reads = false;
  }
  for (std::uint32_t stream = 0; stream < 4; ++stream) publish(20, 1U << stream);
  EXPECT_EQ(publisher->published(), 3U);
  EXPECT_EQ(publisher->skipped(), 1U);
  EXPECT_EQ(publisher->large_bytes(), 3 * bytes_of(20));
  EXPECT_LE(publisher->large_bytes(), large_events_max);
  readers[0]->reads = true;
  readers[0]->read();
  turn([&] { return !readers[0]->got.empty(); });
  turn();
  EXPECT_EQ(publisher->large_bytes(), 2 * bytes_of(20));
  publish(20, 8);
  EXPECT_EQ(publisher->published(), 4U);
  EXPECT_EQ(publisher->skipped(), 1U);
}

TEST_F(Publishing, skips_an_event_that_is_larger_than_all_that_may_be_under_way) {
  Reader reader(*this, {all_events_tag});
  publish(64, 0); // with its head more than 64 MiB
  EXPECT_EQ(publisher->published(), 0U);
  EXPECT_EQ(publisher->skipped(), 1U);
  publish(1, 0);
  turn([&] { return !reader.got.empty(); });
  EXPECT_EQ(publisher->published(), 1U);
}

TEST_F(Publishing, small_events_need_no_heap) {
  Reader reader(*this, {all_events_tag});
  payload.resize(60'000);
  publish(1, 0);
  EXPECT_EQ(publisher->published(), 1U);
  EXPECT_EQ(publisher->large_bytes(), 0U);
  turn([&] { return !reader.got.empty(); });
  EXPECT_EQ(reader.got.at(0).at(0).size(), wire::super_head_size(1) + 60'000);
}

} // namespace
} // namespace fanin::executive
