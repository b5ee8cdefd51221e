#include "fanin/builder/control/control_channel.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "fanin/base/random.hpp"
#include "fanin/builder/testing/stub_transport.hpp"

namespace fanin::builder {
namespace {

std::unique_ptr<memory::PagePool> make_pool(std::uint32_t pages) {
  return memory::PagePool::make(
             {.page_size = 4096, .pages = pages, .arena = {.huge_pages = memory::HugePages::off}})
      .value();
}

// One end, with what it has said and heard.
struct End {
  explicit End(std::uint32_t pages) : pool(make_pool(pages)), channel(*pool) {}
  std::unique_ptr<memory::PagePool> pool;
  testing::StubTransport wire;
  ControlChannel channel;
  EventNumber said = 0;
  EventNumber heard = 0;

  void say() { channel.append(wire::Uncut{said++}); }
  // The next page that `other` sent.
  bool hear(End& other) {
    if (other.wire.sent.empty()) return true;
    const memory::View page = other.wire.sent.front();
    other.wire.sent.pop_front();
    channel.begin_page();
    return for_each_message(page.bytes(),
                            [&](wire::MessageType type, std::span<const std::byte> body) {
                              const auto taken = channel.take(type, body);
                              if (taken != ControlChannel::Taken::message)
                                return taken == ControlChannel::Taken::done;
                              wire::MessageReader reader{body};
                              wire::Uncut uncut;
                              return reader.read(uncut) && uncut.event == heard++;
                            });
  }
};

void connect(End& a, End& b) {
  for (End* end : {&a, &b}) {
    end->channel.detach();
    end->wire.sent.clear();
  }
  ASSERT_TRUE(a.channel.resume(a.wire.link(), b.channel.received()));
  ASSERT_TRUE(b.channel.resume(b.wire.link(), a.channel.received()));
}

TEST(ControlChannel, every_message_comes_once_and_in_order_over_connections_that_break) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Random random{seed};
    End a{8};
    End b{8};
    a.channel.begin(a.wire.link());
    b.channel.begin(b.wire.link());
    for (int step = 0; step < 2000; ++step) {
      End& one = random.chance(1, 2) ? a : b;
      End& other = &one == &a ? b : a;
      switch (random.below(8)) {
      case 0:
        if (random.chance(1, 10)) connect(a, b);
        break;
      case 1: one.wire.blocked = random.chance(1, 3); break;
      case 2:
      case 3: one.channel.flush(); break;
      case 4: one.channel.acknowledge(); break;
      case 5:
      case 6: ASSERT_TRUE(one.hear(other)); break;
      default:
        for (std::uint64_t i = random.below(80); i > 0; --i) one.say();
      }
    }
    a.wire.blocked = b.wire.blocked = false;
    for (int i = 0; i < 4000 && (a.heard < b.said || b.heard < a.said); ++i) {
      for (End* end : {&a, &b}) {
        end->channel.acknowledge();
        end->channel.flush();
      }
      ASSERT_TRUE(a.hear(b) && b.hear(a));
    }
    EXPECT_EQ(a.heard, b.said);
    EXPECT_EQ(b.heard, a.said);
    EXPECT_FALSE(a.channel.failed() || b.channel.failed());
  }
}

TEST(ControlChannel, pages_go_home_when_all_is_acknowledged) {
  End a{4};
  End b{4};
  a.channel.begin(a.wire.link());
  b.channel.begin(b.wire.link());
  for (int i = 0; i < 50; ++i) a.say();
  a.channel.flush();
  ASSERT_TRUE(b.hear(a));
  EXPECT_LT(a.pool->available(), 4U);
  b.channel.acknowledge();
  ASSERT_TRUE(a.hear(b));
  for (End* end : {&a, &b}) {
    end->channel.flush();
    end->wire.sent.clear();
    EXPECT_EQ(end->pool->available(), 4U);
  }
}

TEST(ControlChannel, who_is_not_acknowledged_has_no_room_and_loses_nothing) {
  End a{16};
  End b{16};
  a.channel.begin(a.wire.link());
  b.channel.begin(b.wire.link());
  while (a.channel.roomy()) {
    a.say();
    a.channel.flush();
  }
  EXPECT_TRUE(a.channel.full());
  EXPECT_GE(a.pool->available(), 12U); // pages are bounded, whatever the number of messages
  for (int i = 0; i < 1000; ++i) a.say(); // what has to be said waits
  EXPECT_FALSE(a.channel.failed());
  EXPECT_GE(a.pool->available(), 12U);
  while (b.heard < a.said) {
    ASSERT_TRUE(b.hear(a));
    b.channel.acknowledge();
    b.channel.flush();
    ASSERT_TRUE(a.hear(b));
    a.channel.flush();
  }
  EXPECT_TRUE(a.channel.roomy());
}

TEST(ControlChannel, what_waits_for_room_is_bounded) {
  constexpr EventNumber most = (4U << 20) / (sizeof(message::FrameHeader) + sizeof(wire::Uncut));
  End a{4};
  a.channel.begin(a.wire.link());
  while (a.channel.roomy()) {
    a.say();
    a.channel.flush();
  }
  const EventNumber before = a.said;
  while (!a.channel.failed() && a.said < before + 2 * most) a.say();
  EXPECT_GE(a.said, before + most - 1);
  EXPECT_LE(a.said, before + most + 8);
  EXPECT_FALSE(a.channel.roomy());
  a.channel.begin(a.wire.link());
  EXPECT_FALSE(a.channel.failed());
  EXPECT_TRUE(a.channel.roomy());
}

// A node that only listens acknowledges all the same, and not each page.
TEST(ControlChannel, many_pages_or_many_bytes_are_acknowledged_without_being_asked) {
  End a{32};
  End b{4};
  a.channel.begin(a.wire.link());
  b.channel.begin(b.wire.link());
  const auto hear_a_page_of = [&](int messages) {
    for (int i = 0; i < messages; ++i) a.say();
    a.channel.flush();
    EXPECT_TRUE(b.hear(a));
    b.channel.flush();
    return !b.wire.sent.empty();
  };
  for (int page = 1; page < 16; ++page) EXPECT_FALSE(hear_a_page_of(1)) << page;
  EXPECT_TRUE(hear_a_page_of(1));
  ASSERT_TRUE(a.hear(b));
  constexpr int quarter = 1024 / (sizeof(message::FrameHeader) + sizeof(wire::Uncut));
  EXPECT_FALSE(hear_a_page_of(quarter - 1));
  EXPECT_TRUE(hear_a_page_of(1));
}

TEST(ControlChannel, what_is_said_while_others_wait_comes_after_them) {
  End a{16};
  End b{16};
  a.channel.begin(a.wire.link());
  b.channel.begin(b.wire.link());
  while (a.channel.roomy()) {
    a.say();
    a.channel.flush();
  }
  for (int i = 0; i < 10; ++i) a.say(); // they wait
  while (!a.wire.sent.empty()) ASSERT_TRUE(b.hear(a));
  b.channel.acknowledge();
  ASSERT_TRUE(a.hear(b)); // and now there is room
  a.say();
  a.channel.flush();
  while (!a.wire.sent.empty()) ASSERT_TRUE(b.hear(a));
  EXPECT_EQ(b.heard, a.said);
}

TEST(ControlChannel, what_the_network_does_not_take_is_sent_later_and_once) {
  End a{8};
  End b{8};
  a.channel.begin(a.wire.link());
  b.channel.begin(b.wire.link());
  a.wire.blocked = true;
  a.say();
  a.channel.flush();
  EXPECT_TRUE(a.wire.sent.empty());
  a.wire.blocked = false;
  a.channel.flush();
  a.channel.flush();
  ASSERT_EQ(a.wire.sent.size(), 1U);
  ASSERT_TRUE(b.hear(a));
  a.channel.detach(); // without a connection it is kept
  a.say();
  a.channel.flush();
  EXPECT_TRUE(a.wire.sent.empty());
  ASSERT_TRUE(a.channel.resume(a.wire.link(), b.channel.received()));
  a.channel.flush();
  ASSERT_TRUE(b.hear(a));
  EXPECT_EQ(b.heard, 2U);
}

TEST(ControlChannel, of_nobody_says_nothing) {
  ControlChannel none;
  EXPECT_FALSE(none.roomy());
  none.append(wire::Uncut{});
  none.flush();
  none.acknowledge();
  EXPECT_TRUE(none.sent());
}

TEST(ControlChannel, an_empty_pool_delays_what_is_said_and_is_no_failure_of_the_peer) {
  End a{1};
  End b{4};
  a.channel.begin(a.wire.link());
  b.channel.begin(b.wire.link());
  memory::Loan taken = a.pool->take();
  a.channel.greet(a.wire.link(), wire::Acknowledge{0});
  a.say();
  a.channel.flush();
  EXPECT_FALSE(a.channel.failed());
  EXPECT_FALSE(a.channel.sent());
  EXPECT_FALSE(a.channel.full());
  EXPECT_TRUE(a.wire.sent.empty());
  taken.reset();
  a.channel.flush();
  ASSERT_EQ(a.wire.sent.size(), 1U); // first what opens the connection
  ASSERT_TRUE(b.hear(a));
  EXPECT_EQ(b.heard, 0U);
  a.channel.flush();
  ASSERT_TRUE(b.hear(a));
  EXPECT_EQ(b.heard, 1U);
}

TEST(ControlChannel, what_no_peer_takes_is_a_failure) {
  End a{8};
  a.channel.begin(a.wire.link());
  a.wire.too_small = true;
  a.say();
  a.channel.flush();
  EXPECT_TRUE(a.channel.failed());
  EXPECT_FALSE(a.channel.roomy());
}

TEST(ControlChannel, is_acknowledged_once_and_not_without_a_connection) {
  End a{8};
  End b{8};
  a.channel.begin(a.wire.link());
  b.channel.begin(b.wire.link());
  a.say();
  a.channel.flush();
  ASSERT_TRUE(b.hear(a));
  b.channel.acknowledge();
  b.channel.acknowledge();
  EXPECT_EQ(b.wire.sent.size(), 1U);
  a.say();
  a.channel.flush();
  ASSERT_TRUE(b.hear(a));
  b.channel.detach();
  b.channel.acknowledge();
  EXPECT_EQ(b.wire.sent.size(), 1U);
}

TEST(ControlChannel, a_page_acknowledged_before_it_left_again_stops_nothing) {
  End a{8};
  a.channel.begin(a.wire.link());
  a.wire.blocked = true;
  a.say();
  a.channel.flush();
  const wire::Acknowledge all{1}; // it came over an earlier connection
  EXPECT_EQ(a.channel.take(all.type, std::as_bytes(std::span{&all, 1})),
            ControlChannel::Taken::done);
  a.wire.blocked = false;
  a.say();
  a.channel.flush();
  EXPECT_EQ(a.wire.sent.size(), 1U);
}

TEST(ControlChannel, a_page_that_comes_again_is_skipped_and_counts_nothing_back) {
  End a{4};
  a.channel.begin(a.wire.link());
  const auto take = [&](const auto& body) {
    return a.channel.take(body.type, std::as_bytes(std::span{&body, 1}));
  };
  for (const std::uint64_t number : {1U, 2U, 1U})
    EXPECT_EQ(take(wire::Numbered{number, 0}), ControlChannel::Taken::done);
  EXPECT_EQ(take(wire::Uncut{}), ControlChannel::Taken::done); // of the one known already
  EXPECT_EQ(a.channel.received(), 2U);
  EXPECT_EQ(take(wire::Numbered{3, 0}), ControlChannel::Taken::done);
  EXPECT_EQ(take(wire::Uncut{}), ControlChannel::Taken::message);
}

TEST(ControlChannel, numbers_that_nobody_sent_make_no_sense) {
  End a{4};
  a.channel.begin(a.wire.link());
  const auto take = [&](const auto& body) {
    return a.channel.take(body.type, std::as_bytes(std::span{&body, 1}));
  };
  EXPECT_EQ(take(wire::Numbered{2, 0}), ControlChannel::Taken::bad);
  EXPECT_EQ(take(wire::Numbered{1, 1}), ControlChannel::Taken::bad);
  EXPECT_EQ(take(wire::Acknowledge{1}), ControlChannel::Taken::bad);
  EXPECT_FALSE(a.channel.resume(a.wire.link(), 1));
  EXPECT_EQ(take(wire::Numbered{1, 0}), ControlChannel::Taken::done);
}

} // namespace
} // namespace fanin::builder
