#include "fanin/source/receive_hello.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "fanin/source/testing/sender.hpp"

namespace fanin::source {
namespace {

using testing::Bytes;
using testing::SenderBytes;

// What a connection that begins with `bytes` says, when it comes in pieces of that size at most.
ReceiveHello hello_of(const Bytes& bytes, std::size_t piece = 100) {
  ReceiveHello hello;
  for (std::size_t at = 0; at < bytes.size() && !hello.complete();) {
    const auto room = hello.room();
    const std::size_t size = std::min({room.size(), piece, bytes.size() - at});
    std::memcpy(room.data(), bytes.data() + at, size);
    hello.received(size);
    at += size;
  }
  return hello;
}

Bytes preface(std::size_t at, std::uint8_t value) {
  SenderBytes sender(5);
  sender.preface();
  sender.bytes()[at] = std::byte{value};
  return sender.bytes();
}

TEST(ReceiveHello, a_plain_sender_names_its_source_and_nothing_else) {
  for (const std::size_t piece : {1U, 7U, 100U}) {
    const ReceiveHello hello = hello_of(SenderBytes(0x01020304).preface().bytes(), piece);
    EXPECT_TRUE(hello.complete());
    EXPECT_EQ(hello.fault(), ReceiveFault::none);
    EXPECT_EQ(hello.source(), 0x01020304U);
    EXPECT_EQ(hello.sender(), 0U);
  }
}

TEST(ReceiveHello, a_reliable_sender_has_a_number_and_a_checksum_covers_its_preface) {
  SenderBytes sender(5);
  sender.preface(0x1122334455667788);
  ASSERT_EQ(sender.bytes().size(), 32U);
  EXPECT_EQ(sender.bytes()[8], std::byte{1});
  EXPECT_EQ(sender.bytes()[10], std::byte{3});
  EXPECT_EQ(sender.bytes()[16], std::byte{0x88});
  EXPECT_EQ(sender.bytes()[23], std::byte{0x11});
  for (const std::size_t piece : {1U, 7U, 100U}) {
    const ReceiveHello hello = hello_of(sender.bytes(), piece);
    EXPECT_TRUE(hello.complete());
    EXPECT_EQ(hello.fault(), ReceiveFault::none);
    EXPECT_EQ(hello.source(), 5U);
    EXPECT_EQ(hello.sender(), 0x1122334455667788U);
  }
  for (std::size_t bit = 0; bit < 32 * 8; ++bit) {
    Bytes bytes = sender.bytes();
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    const ReceiveHello hello = hello_of(bytes);
    EXPECT_TRUE(hello.complete()) << bit;
    EXPECT_EQ(hello.fault(),
              bit / 16 == 4 ? ReceiveFault::other_version : ReceiveFault::bad_preface)
        << bit;
  }
}

TEST(ReceiveHello, no_byte_behind_the_preface_is_taken) {
  EXPECT_EQ(ReceiveHello{}.room().size(), 16U);
  ReceiveHello plain = hello_of(SenderBytes(5).preface().bytes());
  EXPECT_TRUE(plain.room().empty());
  ReceiveHello reliable = hello_of(preface(10, 3));
  EXPECT_FALSE(reliable.complete());
  EXPECT_EQ(reliable.room().size(), 16U);
}

TEST(ReceiveHello, other_bytes_are_a_named_fault) {
  EXPECT_EQ(hello_of(preface(0, 'X')).fault(), ReceiveFault::bad_preface);
  EXPECT_EQ(hello_of(preface(10, 1)).fault(), ReceiveFault::bad_preface);
  EXPECT_EQ(hello_of(SenderBytes(5).preface(0).bytes()).fault(), ReceiveFault::bad_preface)
      << "a reliable sender has a number";
  for (const int version : {0, 2, 3, 4}) {
    ReceiveHello hello = hello_of(preface(8, static_cast<std::uint8_t>(version)));
    EXPECT_TRUE(hello.complete());
    EXPECT_TRUE(hello.room().empty());
    EXPECT_EQ(hello.fault(), ReceiveFault::other_version);
    EXPECT_EQ(hello.version(), version);
  }
}

} // namespace
} // namespace fanin::source
