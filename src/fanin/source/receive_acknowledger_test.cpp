#include "fanin/source/receive_acknowledger.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <vector>

namespace fanin::source {
namespace {

struct Pair {
  Pair() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    here = Descriptor(ends[0]);
    there = Descriptor(ends[1]);
  }
  // What has come, without waiting.
  void receive() {
    std::array<std::byte, 4096> some{};
    ssize_t got = 0;
    while ((got = ::recv(there.get(), some.data(), some.size(), MSG_DONTWAIT)) > 0) {
      bytes.insert(bytes.end(), some.begin(), some.begin() + got);
    }
  }
  [[nodiscard]] std::vector<std::uint64_t> numbers() const {
    std::vector<std::uint64_t> result;
    EXPECT_EQ(bytes.size() % sizeof(ReceiveHeader), 0U);
    for (std::size_t at = 0; at + sizeof(ReceiveHeader) <= bytes.size();
         at += sizeof(ReceiveHeader)) {
      ReceiveHeader header;
      std::memcpy(&header, bytes.data() + at, sizeof header);
      EXPECT_EQ(header.mark, receive_mark);
      EXPECT_EQ(header.kind, ReceiveKind::announced);
      EXPECT_EQ(header.source, 7U);
      EXPECT_EQ(header.flags + header.size + header.crc32c, 0U);
      result.push_back(header.event);
    }
    return result;
  }
  Descriptor here;
  Descriptor there;
  std::vector<std::byte> bytes;
};

TEST(ReceiveAcknowledger, the_bytes_are_these) {
  Pair pair;
  ReceiveAcknowledger acknowledger(0x01020304);
  acknowledger.connect(3);
  acknowledger.announced(0x1122334455667788);
  acknowledger.send(pair.here);
  pair.receive();
  constexpr std::array<unsigned char, 24> golden{0xa6, 0xf4, 3,    0,    4,    3,    2,    1,
                                                 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};
  ASSERT_EQ(pair.bytes.size(), golden.size());
  EXPECT_EQ(std::memcmp(pair.bytes.data(), golden.data(), golden.size()), 0);
}

TEST(ReceiveAcknowledger, from_version_4_on_a_checksum_follows) {
  Pair pair;
  ReceiveAcknowledger acknowledger(0x01020304);
  acknowledger.connect(4);
  acknowledger.announced(0x1122334455667788);
  acknowledger.send(pair.here);
  pair.receive();
  constexpr std::array<unsigned char, 32> golden{
      0xa6, 0xf4, 3, 0, 4, 3, 2, 1, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
      0,    0,    0, 0, 0, 0, 0, 0, 0xca, 0xe2, 0x79, 0x9d, 0,    0,    0,    0};
  ASSERT_EQ(pair.bytes.size(), golden.size());
  EXPECT_EQ(std::memcmp(pair.bytes.data(), golden.data(), golden.size()), 0);
}

TEST(ReceiveAcknowledger, a_number_is_said_once_over_a_connection_and_again_over_the_next) {
  Pair pair;
  ReceiveAcknowledger acknowledger(7);
  acknowledger.connect(3);
  acknowledger.send(pair.here); // nothing is announced yet
  for (const std::uint64_t end : {5U, 5U, 4U, 9U}) {
    acknowledger.announced(end);
    acknowledger.send(pair.here);
  }
  pair.receive();
  EXPECT_EQ(pair.numbers(), (std::vector<std::uint64_t>{5, 9}));
  Pair next;
  acknowledger.connect(3);
  acknowledger.send(next.here);
  next.receive();
  EXPECT_EQ(next.numbers(), std::vector<std::uint64_t>{9});
  Pair old;
  acknowledger.connect(2);
  acknowledger.send(old.here);
  old.receive();
  EXPECT_TRUE(old.bytes.empty());
}

TEST(ReceiveAcknowledger, who_does_not_read_gets_the_latest_number_later_and_no_half_message) {
  Pair pair;
  ReceiveAcknowledger acknowledger(7);
  acknowledger.connect(3);
  constexpr std::uint64_t many = 100'000; // more than the kernel holds
  for (std::uint64_t end = 1; end <= many; ++end) {
    acknowledger.announced(end);
    acknowledger.send(pair.here);
  }
  for (int i = 0; i < 3; ++i) {
    pair.receive();
    acknowledger.send(pair.here);
  }
  const auto numbers = pair.numbers();
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
  acknowledger.connect(3);
  acknowledger.send(pair.here);
  acknowledger.start(40);
  acknowledger.send(pair.here);
  pair.receive();
  EXPECT_EQ(pair.numbers(), std::vector<std::uint64_t>{40});
}

} // namespace
} // namespace fanin::source
