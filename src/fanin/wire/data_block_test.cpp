#include "fanin/wire/data_block.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include "fanin/wire/checksum.hpp"

namespace fanin::wire {
namespace {

// Two fragments of 3 and 0 bytes and an absent one, for events 101 to 103 of a batch of 8 from 100.
std::vector<std::byte> make_block(const std::function<void(DataBlockHeader&)>& change = {},
                                  bool seal = true) {
  DataBlockHeader header;
  header.run = 9;
  header.batch_first = 100;
  header.batch_events = 8;
  header.source = 5;
  header.first_event = 101;
  header.entries = 3;
  header.payload_size = 3;
  if (change) change(header);
  const std::array<FragmentEntry, 3> table{{{3, 0x11}, {0, 0}, {fragment_absent, 0}}};
  std::vector<std::byte> message(sizeof header + sizeof table + 3, std::byte{'x'});
  std::memcpy(message.data(), &header, sizeof header);
  std::memcpy(message.data() + sizeof header, table.data(), sizeof table);
  if (seal) seal_data_block(std::span{message}.first(sizeof header + sizeof table), true);
  return message;
}

TEST(DataBlock, what_was_encoded_is_decoded) {
  const auto message = make_block();
  const auto block = decode_data_block(message);
  ASSERT_TRUE(block.has_value()) << block.error().text;
  EXPECT_EQ(block->header.events(), (EventRange{101, 104}));
  EXPECT_EQ(block->header.batch(), (EventRange{100, 108}));
  ASSERT_EQ(block->table.size(), 3U);
  EXPECT_EQ(block->table[0].size(), 3U);
  EXPECT_TRUE(block->table[2].absent());
  EXPECT_EQ(block->payload.size(), 3U);
  EXPECT_FALSE(block->partial());
}

TEST(DataBlock, may_come_in_two_pieces) {
  const auto message = make_block();
  const std::size_t head = message.size() - 3;
  const auto block =
      decode_data_block(std::span{message}.first(head), std::span{message}.subspan(head));
  ASSERT_TRUE(block.has_value()) << block.error().text;
  EXPECT_EQ(block->payload.data(), message.data() + head);
  EXPECT_EQ(block->payload.size(), 3U);
  for (std::size_t cut = 1; cut < message.size(); ++cut) {
    const auto whole = std::span{message};
    EXPECT_EQ(decode_data_block(whole.first(cut), whole.subspan(cut)).has_value(), cut == head)
        << cut;
  }
  EXPECT_FALSE(decode_data_block(std::span{message}.first(head), std::span{message}.last(2)));
}

TEST(DataBlock, every_truncation_and_extension_is_refused) {
  auto message = make_block();
  for (std::size_t size = 0; size < message.size(); ++size) { // with nothing behind it to read
    const std::vector<std::byte> cut(message.begin(),
                                     message.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(decode_data_block(cut).has_value()) << size;
  }
  message.push_back(std::byte{0});
  EXPECT_FALSE(decode_data_block(message).has_value());
}

TEST(DataBlock, every_flipped_bit_of_header_and_table_is_noticed) {
  const auto good = make_block();
  for (std::size_t bit = 0; bit < (sizeof(DataBlockHeader) + 24) * 8; ++bit) {
    auto message = good;
    message[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_data_block(message).has_value()) << "bit " << bit;
  }
}

TEST(DataBlock, events_outside_the_batch_are_refused) {
  EXPECT_FALSE(
      decode_data_block(make_block([](DataBlockHeader& h) { h.first_event = 99; })).has_value());
  EXPECT_FALSE(
      decode_data_block(make_block([](DataBlockHeader& h) { h.first_event = 106; })).has_value());
  EXPECT_FALSE(
      decode_data_block(make_block([](DataBlockHeader& h) { h.first_event = 110; })).has_value());
  EXPECT_FALSE(
      decode_data_block(make_block([](DataBlockHeader& h) { h.first_event = 0; })).has_value());
  EXPECT_TRUE(
      decode_data_block(make_block([](DataBlockHeader& h) { h.first_event = 105; })).has_value());
  EXPECT_TRUE(
      decode_data_block(make_block([](DataBlockHeader& h) { h.first_event = 100; })).has_value());
  EXPECT_FALSE(
      decode_data_block(make_block([](DataBlockHeader& h) { h.batch_events = 0; })).has_value());
  EXPECT_FALSE(
      decode_data_block(make_block([](DataBlockHeader& h) { h.batch_first = ~0ULL; })).has_value());
  EXPECT_FALSE(
      decode_data_block(make_block([](DataBlockHeader& h) { h.payload_offset = 1; })).has_value());
}

TEST(DataBlock, fills_a_carrier_or_does_not) {
  EXPECT_TRUE(decode_data_block(make_block([](DataBlockHeader& h) { h.fills_carrier = 1; })));
  EXPECT_FALSE(decode_data_block(make_block([](DataBlockHeader& h) { h.fills_carrier = 2; })));
}

TEST(DataBlock, without_a_checksum_is_taken_as_it_is) {
  auto message = make_block({}, false);
  EXPECT_TRUE(decode_data_block(message).has_value());
  message = make_block();
  seal_data_block(std::span{message}.first(message.size() - 3), false);
  EXPECT_TRUE(decode_data_block(message).has_value());
}

TEST(DataBlock, at_an_odd_address_is_refused) {
  const auto message = make_block();
  std::vector<std::byte> moved(message.size() + 2);
  std::ranges::copy(message, moved.begin() + 2);
  EXPECT_FALSE(decode_data_block(std::span{moved}.subspan(2)).has_value());
}

// One fragment of 10 bytes, of which a part is here.
TEST(DataBlock, pieces_that_do_not_fit_their_fragment_are_refused) {
  const auto good = [](std::uint32_t offset, std::uint32_t size, std::size_t entries = 1) {
    DataBlockHeader header;
    header.batch_events = 8;
    header.entries = static_cast<std::uint32_t>(entries);
    header.payload_offset = offset;
    header.payload_size = size;
    const std::vector<FragmentEntry> table(entries, FragmentEntry{10, 0});
    const std::size_t head = sizeof header + entries * sizeof(FragmentEntry);
    std::vector<std::byte> message(head + size);
    std::memcpy(message.data(), &header, sizeof header);
    std::memcpy(message.data() + sizeof header, table.data(), head - sizeof header);
    seal_data_block(std::span{message}.first(head), true);
    return decode_data_block(message).has_value();
  };
  EXPECT_TRUE(good(0, 10));
  EXPECT_TRUE(good(0, 6));
  EXPECT_TRUE(good(6, 4));
  EXPECT_FALSE(good(6, 5));
  EXPECT_FALSE(good(0, 11));
  EXPECT_FALSE(good(0, 0));
  EXPECT_FALSE(good(10, 0));
  EXPECT_TRUE(good(0, 20, 2));
  EXPECT_FALSE(good(0, 15, 2));
}

// Well sealed, so that no checksum notices.
TEST(DataBlock, headers_that_lie_are_refused) {
  EXPECT_FALSE(
      decode_data_block(make_block([](DataBlockHeader& header) { header.fills_carrier = 2; })));
  EXPECT_FALSE(decode_data_block(make_block([](DataBlockHeader& header) { ++header.magic; })));
  EXPECT_FALSE(
      decode_data_block(make_block([](DataBlockHeader& header) { header.batch_events = 0; })));
  EXPECT_FALSE(
      decode_data_block(make_block([](DataBlockHeader& header) { // its end is beyond all numbers
        header.batch_first = header.first_event = ~EventNumber{0} - 6;
      })));
  std::vector<std::byte> message = make_block([](DataBlockHeader& header) {
    header.entries = 0;
    header.payload_size = 0;
  });
  message.resize(sizeof(DataBlockHeader)); // no table
  seal_data_block(message, true);
  EXPECT_FALSE(decode_data_block(message));
}

TEST(DataBlock, the_header_has_the_documented_layout) {
  const auto message = make_block([](DataBlockHeader& h) {
    h.readout_unit = 0x0201;
    h.attempt = 0x0403;
  });
  EXPECT_EQ(message[0], std::byte{'F'});
  EXPECT_EQ(message[3], std::byte{'T'});
  EXPECT_EQ(message[4], std::byte{9});
  EXPECT_EQ(message[8], std::byte{100});
  EXPECT_EQ(message[24], std::byte{101});
  EXPECT_EQ(message[44], std::byte{1});
  EXPECT_EQ(message[47], std::byte{4});
}

} // namespace
} // namespace fanin::wire
