#include "fanin/source/receive_acknowledger.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "fanin/net/virtual_world.hpp"

namespace fanin::source {
namespace {

struct Pair {
  Pair() {
    net::Streams& streams = node.streams();
    const auto url = net::Url::parse("tcp://node:7").value();
    const auto addresses = streams.addresses_to_listen(url).value();
    const auto listener = streams.listen(url, addresses).value();
    net::Address address = addresses.front();
    address.set_port(7);
    there = streams.connect(address).value();
    pass();
    here = listener->accept().stream;
  }
  void pass() { world.run_until(world.now() + std::chrono::milliseconds{1}); }
  // What has come.
  void receive() {
    pass();
    std::array<std::byte, 4096> some{};
    while (const std::size_t got = there->read(some).bytes) {
      bytes.insert(bytes.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(got));
    }
    pass();
  }
  [[nodiscard]] std::vector<ReceiveReply> replies() const {
    std::vector<ReceiveReply> result;
    constexpr std::size_t size = sizeof(CheckedBytes<ReceiveReply>);
    EXPECT_EQ(bytes.size() % size, 0U);
    for (std::size_t at = 0; at + size <= bytes.size(); at += size) {
      EXPECT_TRUE(own_checksum_fits(std::span(bytes).subspan(at, size)));
      ReceiveReply& reply = result.emplace_back();
      std::memcpy(&reply, bytes.data() + at, sizeof reply);
      EXPECT_EQ(reply.mark, receive_mark);
      EXPECT_EQ(reply.kind, ReceiveKind::announced);
      EXPECT_EQ(reply.source, 7U);
    }
    return result;
  }
  [[nodiscard]] std::vector<std::uint64_t> ends() const {
    std::vector<std::uint64_t> result;
    for (const ReceiveReply& reply : replies()) result.push_back(reply.end);
    return result;
  }
  net::VirtualWorld world{1, {}};
  net::VirtualNode& node = world.add_node("node");
  std::unique_ptr<net::Stream> here;
  std::unique_ptr<net::Stream> there;
  std::vector<std::byte> bytes;
};

TEST(ReceiveAcknowledger, the_bytes_are_these) {
  Pair pair;
  ReceiveAcknowledger acknowledger(0x01020304);
  acknowledger.set_dropped(7); // of another sender
  acknowledger.begin_sender();
  acknowledger.connect(true);
  acknowledger.announced(0x1122334455667788);
  acknowledger.set_dropped(0x0102030405060708 + 7);
  acknowledger.send(*pair.here);
  pair.receive();
  constexpr std::array<unsigned char, 32> golden{
      0xa6, 0xf4, 3, 0, 4, 3, 2, 1, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
      8,    7,    6, 5, 4, 3, 2, 1, 0x5c, 0x52, 0xa8, 0x37, 0,    0,    0,    0};
  ASSERT_EQ(pair.bytes.size(), golden.size());
  EXPECT_EQ(std::memcmp(pair.bytes.data(), golden.data(), golden.size()), 0);
}

TEST(ReceiveAcknowledger, a_number_is_said_once_over_a_connection_and_again_over_the_next) {
  Pair pair;
  ReceiveAcknowledger acknowledger(7);
  acknowledger.connect(true);
  acknowledger.send(*pair.here); // nothing is announced yet
  for (const std::uint64_t end : {5U, 5U, 4U, 9U}) {
    acknowledger.announced(end);
    acknowledger.send(*pair.here);
  }
  pair.receive();
  EXPECT_EQ(pair.ends(), (std::vector<std::uint64_t>{5, 9}));
  Pair next;
  acknowledger.connect(true);
  acknowledger.send(*next.here);
  next.receive();
  EXPECT_EQ(next.ends(), std::vector<std::uint64_t>{9});
  Pair plain;
  acknowledger.connect(false);
  acknowledger.send(*plain.here);
  plain.receive();
  EXPECT_TRUE(plain.bytes.empty());
}

TEST(ReceiveAcknowledger, what_is_dropped_is_said_at_once_and_only_to_its_sender) {
  Pair pair;
  ReceiveAcknowledger acknowledger(7);
  acknowledger.connect(true);
  acknowledger.announced(5);
  acknowledger.send(*pair.here);
  acknowledger.set_dropped(2);
  acknowledger.send(*pair.here);
  acknowledger.send(*pair.here);
  pair.receive();
  EXPECT_EQ(pair.ends(), (std::vector<std::uint64_t>{5, 5}));
  EXPECT_EQ(pair.replies().back().dropped, 2U);
  Pair other;
  acknowledger.begin_sender();
  acknowledger.connect(true);
  acknowledger.set_dropped(3);
  acknowledger.send(*other.here);
  other.receive();
  EXPECT_EQ(other.replies().back().dropped, 1U);
}

TEST(ReceiveAcknowledger, who_does_not_read_gets_the_latest_number_later_and_no_half_message) {
  Pair pair;
  ReceiveAcknowledger acknowledger(7);
  acknowledger.connect(true);
  constexpr std::uint64_t many = 100'000; // more than the kernel holds
  for (std::uint64_t end = 1; end <= many; ++end) {
    acknowledger.announced(end);
    acknowledger.send(*pair.here);
  }
  for (int i = 0; i < 3; ++i) {
    pair.receive();
    acknowledger.send(*pair.here);
  }
  const auto numbers = pair.ends();
  ASSERT_FALSE(numbers.empty());
  EXPECT_LT(numbers.size(), many);
  EXPECT_EQ(numbers.back(), many);
  for (std::size_t i = 1; i < numbers.size(); ++i) ASSERT_GT(numbers[i], numbers[i - 1]);
}

TEST(ReceiveAcknowledger, a_run_begins_with_what_is_decided_before_it_is_joined) {
  Pair pair;
  ReceiveAcknowledger acknowledger(7);
  acknowledger.announced(90);
  acknowledger.start(0); // another run
  acknowledger.connect(true);
  acknowledger.send(*pair.here);
  acknowledger.start(40);
  acknowledger.send(*pair.here);
  pair.receive();
  EXPECT_EQ(pair.ends(), std::vector<std::uint64_t>{40});
}

} // namespace
} // namespace fanin::source
