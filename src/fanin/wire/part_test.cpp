#include "fanin/wire/part.hpp"

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
std::vector<std::byte> make_part(const std::function<void(PartHeader&)>& change = {},
                                 bool seal = true) {
  PartHeader header;
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
  if (seal) seal_part(std::span{message}.first(sizeof header + sizeof table), true);
  return message;
}

TEST(Part, what_was_encoded_is_decoded) {
  const auto message = make_part();
  const auto part = decode_part(message);
  ASSERT_TRUE(part.has_value()) << part.error().text;
  EXPECT_EQ(part->header.events(), (EventRange{101, 104}));
  EXPECT_EQ(part->header.batch(), (EventRange{100, 108}));
  ASSERT_EQ(part->table.size(), 3U);
  EXPECT_EQ(part->table[0].size(), 3U);
  EXPECT_TRUE(part->table[2].absent());
  EXPECT_EQ(part->payload.size(), 3U);
  EXPECT_FALSE(part->partial());
}

TEST(Part, may_come_in_two_pieces) {
  const auto message = make_part();
  const std::size_t head = message.size() - 3;
  const auto part = decode_part(std::span{message}.first(head), std::span{message}.subspan(head));
  ASSERT_TRUE(part.has_value()) << part.error().text;
  EXPECT_EQ(part->payload.data(), message.data() + head);
  EXPECT_EQ(part->payload.size(), 3U);
  for (std::size_t cut = 1; cut < message.size(); ++cut) {
    const auto whole = std::span{message};
    EXPECT_EQ(decode_part(whole.first(cut), whole.subspan(cut)).has_value(), cut == head) << cut;
  }
  EXPECT_FALSE(decode_part(std::span{message}.first(head), std::span{message}.last(2)));
}

TEST(Part, every_truncation_and_extension_is_refused) {
  auto message = make_part();
  for (std::size_t size = 0; size < message.size(); ++size) { // with nothing behind it to read
    const std::vector<std::byte> cut(message.begin(),
                                     message.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(decode_part(cut).has_value()) << size;
  }
  message.push_back(std::byte{0});
  EXPECT_FALSE(decode_part(message).has_value());
}

TEST(Part, every_flipped_bit_of_header_and_table_is_noticed) {
  const auto good = make_part();
  for (std::size_t bit = 0; bit < (sizeof(PartHeader) + 24) * 8; ++bit) {
    auto message = good;
    message[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_part(message).has_value()) << "bit " << bit;
  }
}

TEST(Part, events_outside_the_batch_are_refused) {
  EXPECT_FALSE(decode_part(make_part([](PartHeader& h) { h.first_event = 99; })).has_value());
  EXPECT_FALSE(decode_part(make_part([](PartHeader& h) { h.first_event = 106; })).has_value());
  EXPECT_FALSE(decode_part(make_part([](PartHeader& h) { h.first_event = 110; })).has_value());
  EXPECT_FALSE(decode_part(make_part([](PartHeader& h) { h.first_event = 0; })).has_value());
  EXPECT_TRUE(decode_part(make_part([](PartHeader& h) { h.first_event = 105; })).has_value());
  EXPECT_TRUE(decode_part(make_part([](PartHeader& h) { h.first_event = 100; })).has_value());
  EXPECT_FALSE(decode_part(make_part([](PartHeader& h) { h.batch_events = 0; })).has_value());
  EXPECT_FALSE(decode_part(make_part([](PartHeader& h) { h.batch_first = ~0ULL; })).has_value());
  EXPECT_FALSE(decode_part(make_part([](PartHeader& h) { h.payload_offset = 1; })).has_value());
}

TEST(Part, without_a_checksum_is_taken_as_it_is) {
  auto message = make_part({}, false);
  EXPECT_TRUE(decode_part(message).has_value());
  message = make_part();
  seal_part(std::span{message}.first(message.size() - 3), false);
  EXPECT_TRUE(decode_part(message).has_value());
}

TEST(Part, at_an_odd_address_is_refused) {
  const auto message = make_part();
  std::vector<std::byte> moved(message.size() + 2);
  std::ranges::copy(message, moved.begin() + 2);
  EXPECT_FALSE(decode_part(std::span{moved}.subspan(2)).has_value());
}

// One fragment of 10 bytes, of which a part is here.
TEST(Part, pieces_that_do_not_fit_their_fragment_are_refused) {
  const auto good = [](std::uint32_t offset, std::uint32_t size, std::size_t entries = 1) {
    PartHeader header;
    header.batch_events = 8;
    header.entries = static_cast<std::uint32_t>(entries);
    header.payload_offset = offset;
    header.payload_size = size;
    const std::vector<FragmentEntry> table(entries, FragmentEntry{10, 0});
    const std::size_t head = sizeof header + entries * sizeof(FragmentEntry);
    std::vector<std::byte> message(head + size);
    std::memcpy(message.data(), &header, sizeof header);
    std::memcpy(message.data() + sizeof header, table.data(), head - sizeof header);
    seal_part(std::span{message}.first(head), true);
    return decode_part(message).has_value();
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
TEST(Part, headers_that_lie_are_refused) {
  EXPECT_FALSE(decode_part(make_part([](PartHeader& header) { header.fills_carrier = 2; })));
  EXPECT_FALSE(decode_part(make_part([](PartHeader& header) { ++header.magic; })));
  EXPECT_FALSE(decode_part(make_part([](PartHeader& header) { header.batch_events = 0; })));
  EXPECT_FALSE(decode_part(make_part([](PartHeader& header) { // its end is beyond all numbers
    header.batch_first = header.first_event = ~EventNumber{0} - 6;
  })));
  std::vector<std::byte> message = make_part([](PartHeader& header) {
    header.entries = 0;
    header.payload_size = 0;
  });
  message.resize(sizeof(PartHeader)); // no table
  seal_part(message, true);
  EXPECT_FALSE(decode_part(message));
}

TEST(Part, the_header_has_the_documented_layout) {
  const auto message = make_part([](PartHeader& h) {
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
