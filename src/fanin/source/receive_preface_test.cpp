#include "fanin/source/receive_preface.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "fanin/source/testing/sender.hpp"

namespace fanin::source {
namespace {

using testing::Bytes;
using testing::SenderBytes;

// What a connection that begins with `bytes` says, when it comes in pieces of that size at most.
PrefaceReader preface_of(const Bytes& bytes, std::size_t piece = 100) {
  PrefaceReader reader;
  for (std::size_t at = 0; at < bytes.size() && !reader.complete();) {
    const auto room = reader.room();
    const std::size_t size = std::min({room.size(), piece, bytes.size() - at});
    std::memcpy(room.data(), bytes.data() + at, size);
    reader.received(size);
    at += size;
  }
  return reader;
}

Bytes preface(std::size_t at, std::uint8_t value) {
  SenderBytes sender(5);
  sender.preface();
  sender.bytes()[at] = std::byte{value};
  return sender.bytes();
}

TEST(PrefaceReader, a_plain_sender_names_its_source_and_nothing_else) {
  for (const std::size_t piece : {1U, 7U, 100U}) {
    const PrefaceReader reader = preface_of(SenderBytes(0x01020304).preface().bytes(), piece);
    EXPECT_TRUE(reader.complete());
    EXPECT_EQ(reader.fault(), ReceiveFault::none);
    EXPECT_EQ(reader.source(), 0x01020304U);
    EXPECT_EQ(reader.sender(), 0U);
  }
}

TEST(PrefaceReader, a_reliable_sender_has_a_number_and_a_checksum_covers_its_preface) {
  SenderBytes sender(5);
  sender.preface(0x1122334455667788);
  ASSERT_EQ(sender.bytes().size(), 32U);
  EXPECT_EQ(sender.bytes()[8], std::byte{1});
  EXPECT_EQ(sender.bytes()[10], std::byte{3});
  EXPECT_EQ(sender.bytes()[16], std::byte{0x88});
  EXPECT_EQ(sender.bytes()[23], std::byte{0x11});
  for (const std::size_t piece : {1U, 7U, 100U}) {
    const PrefaceReader reader = preface_of(sender.bytes(), piece);
    EXPECT_TRUE(reader.complete());
    EXPECT_EQ(reader.fault(), ReceiveFault::none);
    EXPECT_EQ(reader.source(), 5U);
    EXPECT_EQ(reader.sender(), 0x1122334455667788U);
  }
  for (std::size_t bit = 0; bit < 32 * 8; ++bit) {
    Bytes bytes = sender.bytes();
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    const PrefaceReader reader = preface_of(bytes);
    EXPECT_TRUE(reader.complete()) << bit;
    EXPECT_EQ(reader.fault(),
              bit / 16 == 4 ? ReceiveFault::other_version : ReceiveFault::bad_preface)
        << bit;
  }
}

TEST(PrefaceReader, no_byte_behind_the_preface_is_taken) {
  EXPECT_EQ(PrefaceReader{}.room().size(), 16U);
  PrefaceReader plain = preface_of(SenderBytes(5).preface().bytes());
  EXPECT_TRUE(plain.room().empty());
  PrefaceReader reliable = preface_of(preface(10, 3));
  EXPECT_FALSE(reliable.complete());
  EXPECT_EQ(reliable.room().size(), 16U);
}

TEST(PrefaceReader, other_bytes_are_a_named_fault) {
  EXPECT_EQ(preface_of(preface(0, 'X')).fault(), ReceiveFault::bad_preface);
  EXPECT_EQ(preface_of(preface(10, 1)).fault(), ReceiveFault::bad_preface);
  EXPECT_EQ(preface_of(SenderBytes(5).preface(0).bytes()).fault(), ReceiveFault::bad_preface)
      << "a reliable sender has a number";
  for (const int version : {0, 2, 3, 4}) {
    PrefaceReader reader = preface_of(preface(8, static_cast<std::uint8_t>(version)));
    EXPECT_TRUE(reader.complete());
    EXPECT_TRUE(reader.room().empty());
    EXPECT_EQ(reader.fault(), ReceiveFault::other_version);
    EXPECT_EQ(reader.version(), version);
  }
}

} // namespace
} // namespace fanin::source
