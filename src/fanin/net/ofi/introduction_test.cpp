#include "fanin/net/ofi/introduction.hpp"

#include <gtest/gtest.h>

namespace fanin::net::ofi {
namespace {

Introduction introduction() {
  return {.number = 0x0abcdef1,
          .hello = encode(rdma::Hello{.max_message = 4000, .credits = 7}),
          .address = std::vector<std::byte>(33, std::byte{9})};
}

void put(std::vector<std::byte>& bytes, std::size_t offset, std::uint32_t number) {
  for (std::size_t i = 0; i < 4; ++i)
    bytes[offset + i] = static_cast<std::byte>(number >> (8 * i) & 0xff);
}

TEST(Introduction, comes_back_as_it_was_sent_once_all_of_it_is_there) {
  const Introduction sent = introduction();
  std::vector<std::byte> bytes = encode(sent);
  ASSERT_EQ(bytes.size(), size_of(sent));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto part = decode_introduction(std::span(bytes).first(size));
    ASSERT_TRUE(part) << size;
    EXPECT_FALSE(*part) << size;
  }
  bytes.resize(bytes.size() + farewell_size); // what follows is not looked at
  const auto whole = decode_introduction(bytes);
  ASSERT_TRUE(whole && *whole);
  EXPECT_EQ((*whole)->number, sent.number);
  EXPECT_EQ((*whole)->hello, sent.hello);
  EXPECT_EQ((*whole)->address, sent.address);
  EXPECT_FALSE((*whole)->refused);
}

TEST(Introduction, a_refusal_has_a_hello_and_nothing_else) {
  const auto bytes = encode(Introduction{.refused = true, .hello = encode(rdma::Hello{})});
  const auto back = decode_introduction(bytes);
  ASSERT_TRUE(back && *back);
  EXPECT_TRUE((*back)->refused);
  EXPECT_EQ(bytes.size(), introduction_least);
}

TEST(Introduction, of_another_kind_is_refused_with_its_first_byte) {
  std::vector<std::byte> bytes = encode(introduction());
  bytes[0] = std::byte{'G'};
  EXPECT_FALSE(decode_introduction(std::span(bytes).first(1)));
  EXPECT_FALSE(decode_introduction(bytes));
}

TEST(Introduction, numbers_that_cannot_be_are_refused) {
  for (const auto& [offset, number] : {std::pair<std::size_t, std::uint32_t>{8, numbers_most + 1},
                                       {8, 0}, // an end that takes messages has a number
                                       {12, 1}, // who refuses has no address
                                       {12, 2},
                                       {16, address_most + 1},
                                       {16, ~0U},
                                       {16, 0},
                                       {20, 1},
                                       {24, 0},
                                       {24 + 16, rdma::credits_most + 1}}) {
    std::vector<std::byte> bytes = encode(introduction());
    put(bytes, offset, number);
    EXPECT_FALSE(decode_introduction(bytes)) << offset << " " << number;
  }
}

TEST(Introduction, of_another_version_only_the_hello_is_looked_at) {
  Introduction other = introduction();
  other.hello = encode(rdma::Hello{.version = 77});
  std::vector<std::byte> bytes = encode(other);
  put(bytes, 16, ~0U);
  const auto back = decode_introduction(bytes);
  ASSERT_TRUE(back && *back);
  EXPECT_EQ((*back)->hello, other.hello);
  EXPECT_TRUE((*back)->address.empty());
}

TEST(Numbers, wrap_and_leave_out_those_that_are_in_use) {
  const auto none = [](std::uint32_t) { return false; };
  EXPECT_EQ(number_after(first_number - 1, none), first_number);
  EXPECT_EQ(number_after(numbers_most - 1, none), numbers_most);
  EXPECT_EQ(number_after(numbers_most, none), 1U);
  EXPECT_EQ(number_after(numbers_most, [](std::uint32_t number) { return number < 4; }), 4U);
  EXPECT_EQ(std::uint64_t{numbers_most} << number_shift >> 48, 0U); // the bits that tags have
}

TEST(Farewell, comes_back_as_it_was_sent) {
  auto bytes = encode_farewell(0x12345678);
  EXPECT_EQ(decode_farewell(bytes), 0x12345678U);
  bytes[0] = std::byte{'C'};
  EXPECT_FALSE(decode_farewell(bytes));
}

} // namespace
} // namespace fanin::net::ofi
