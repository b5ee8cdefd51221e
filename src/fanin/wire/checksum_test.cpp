#include "fanin/wire/checksum.hpp"

#include <gtest/gtest.h>

#include <string_view>
#include <utility>
#include <vector>

#include "fanin/base/random.hpp"

namespace fanin::wire {
namespace {

std::uint32_t bit_by_bit(std::span<const std::byte> bytes, std::uint32_t previous) {
  std::uint32_t state = ~previous;
  for (const std::byte byte : bytes) {
    state ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78U : 0U);
  }
  return ~state;
}

std::vector<std::byte> random_bytes(std::size_t size, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random.below(256));
  return bytes;
}

TEST(Checksum, agrees_with_the_examples_of_rfc_3720) {
  EXPECT_EQ(crc32c({}), 0U);
  EXPECT_EQ(crc32c(std::as_bytes(std::span(std::string_view("123456789")))), 0xe3069283U);
  std::vector<std::byte> bytes(32);
  EXPECT_EQ(crc32c(bytes), 0x8a9136aaU);
  std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
  EXPECT_EQ(crc32c(bytes), 0x62a8ab43U);
  for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(bytes), 0x46dd794eU);
}

TEST(Checksum, agrees_with_the_definition_at_every_length_and_alignment) {
  const auto bytes = random_bytes(1200, 1);
  for (std::size_t offset = 0; offset < 9; ++offset) {
    for (std::size_t size = 0; size < 600; ++size) {
      const auto part = std::span(bytes).subspan(offset, size);
      ASSERT_EQ(crc32c(part), bit_by_bit(part, 0)) << "offset " << offset << " size " << size;
    }
  }
}

TEST(Checksum, of_two_parts_is_the_checksum_of_both_together) {
  const auto bytes = random_bytes(1000, 2);
  const std::uint32_t whole = crc32c(bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    const auto first = std::span(bytes).first(cut);
    ASSERT_EQ(crc32c(std::span(bytes).subspan(cut), crc32c(first)), whole) << cut;
  }
}

TEST(Checksum, of_both_parts_follows_from_those_of_each) {
  const auto bytes = random_bytes(1000, 3);
  const std::uint32_t whole = crc32c(bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    const auto [first, second] =
        std::pair(std::span(bytes).first(cut), std::span(bytes).subspan(cut));
    const auto size = static_cast<std::uint32_t>(second.size());
    ASSERT_EQ(crc32c_of_both(crc32c(first), crc32c(second), size), whole) << cut;
  }
  const std::vector<std::byte> zeros(5U << 24);
  for (const std::uint32_t size : {65536U, 65537U, 1U << 24, (4U << 24) + 77, 5U << 24}) {
    const auto second = std::span(zeros).first(size);
    ASSERT_EQ(crc32c_of_both(whole, crc32c(second), size), crc32c(second, whole)) << size;
  }
}

} // namespace
} // namespace fanin::wire
