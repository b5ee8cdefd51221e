#include "fanin/wire/super_fragment.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "fanin/wire/slice.hpp"

namespace fanin::wire {
namespace {

std::vector<std::byte> bytes_of(const SuperHeader& header, const std::vector<SuperEntry>& table,
                                std::size_t payload) {
  std::vector<std::byte> bytes(super_head_size(table.size()) + payload);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, table.data(), table.size() * sizeof(SuperEntry));
  return bytes;
}

const std::vector<SuperEntry> two{
    {0x10, {3, 0xabcd}},
    {0x11, {fragment_absent, static_cast<std::uint32_t>(MissingReason::lost)}}};

TEST(SuperFragment, the_bytes_are_these) {
  const auto bytes = bytes_of(
      {.flags = super_incomplete, .event = 0x1122334455667788, .count = 2, .run = 7}, two, 3);
  constexpr std::array<unsigned char, 51> golden{
      'F',  'N',  'S',  'F',  1, 0, 1, 0,    0x88, 0x77, 0x66, 0x55,
      0x44, 0x33, 0x22, 0x11, 2, 0, 0, 0,    7,    0,    0,    0, // header
      16,   0,    0,    0,    3, 0, 0, 0,    0xcd, 0xab, 0,    0, // present
      17,   0,    0,    0,    0, 0, 0, 0x80, 3,    0,    0,    0, // lost
      0,    0,    0};
  ASSERT_EQ(bytes.size(), golden.size());
  EXPECT_EQ(std::memcmp(bytes.data(), golden.data(), golden.size()), 0);
  const SuperHead head(bytes, bytes.size(), 2);
  ASSERT_TRUE(head.good());
  EXPECT_EQ(head.header().event, 0x1122334455667788U);
  EXPECT_EQ(head.entry(0).entry.size(), 3U);
  EXPECT_TRUE(head.entry(1).entry.absent());
}

TEST(SuperFragment, what_is_none_is_refused) {
  const SuperHeader good{.event = 5, .count = 2};
  const auto refused = [](const std::vector<std::byte>& bytes, std::size_t sources = 2) {
    return !SuperHead(bytes, bytes.size(), sources).good();
  };
  EXPECT_FALSE(refused(bytes_of(good, two, 3)));
  EXPECT_TRUE(refused(bytes_of(good, two, 3), 1)) << "another number of sources";
  EXPECT_TRUE(refused(bytes_of(good, two, 3), 100'000'000)) << "more than there are bytes";
  EXPECT_TRUE(refused(bytes_of(good, two, 2))) << "a payload that is too short";
  EXPECT_TRUE(refused(bytes_of(good, two, 4))) << "and one that is too long";
  EXPECT_TRUE(refused(bytes_of({.event = 5, .count = 3}, two, 3))) << "another count";
  EXPECT_TRUE(refused(bytes_of({.magic = 1, .event = 5, .count = 2}, two, 3)));
  EXPECT_TRUE(refused(bytes_of({.version = 2, .event = 5, .count = 2}, two, 3)));
  EXPECT_TRUE(refused(bytes_of({.event = event_number_end, .count = 2}, two, 3)));
  EXPECT_TRUE(refused(bytes_of(good, {two[0], two[0]}, 6))) << "a source twice";
  EXPECT_TRUE(refused(bytes_of(good, {two[1], two[0]}, 3))) << "not in order";
  EXPECT_TRUE(refused(bytes_of(good, {two[0], {0x11, {fragment_absent | 1, 1}}}, 4)))
      << "absent, with a size";
  const auto bytes = bytes_of(good, two, 3);
  EXPECT_FALSE(SuperHead(std::span(bytes).first(47), 51, 2).good()) << "half a head";
  EXPECT_TRUE(SuperHead(std::span(bytes).first(48), 51, 2).good()) << "the head alone";
  EXPECT_FALSE(refused(bytes_of({.event = 5, .count = 1}, {two[1]}, 0), 1)) << "no payload";
}

TEST(Slice, blocks_of_numbers_are_dealt_in_turn) {
  const Slice slice{.number = 1, .of = 3, .block = 4};
  EXPECT_EQ(slice.detector_number(0), 4U);
  EXPECT_EQ(slice.detector_number(3), 7U);
  EXPECT_EQ(slice.detector_number(4), 16U);
  EXPECT_EQ(slice.detector_range({0, 4}).end, 8U);
  EXPECT_EQ(slice.detector_range({4, 6}).first, 16U);
  EXPECT_EQ(slice.detector_range({4, 6}).end, 18U);
  EXPECT_EQ(slice.detector_end(0), 0U);
  for (EventNumber own = 0; own < 100; ++own) EXPECT_EQ(Slice{}.detector_number(own), own);
}

} // namespace
} // namespace fanin::wire
