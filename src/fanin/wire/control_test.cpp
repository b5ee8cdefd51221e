#include "fanin/wire/control.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>

namespace fanin::wire {
namespace {

TEST(MessageReader, reads_bodies_records_and_text_in_order) {
  struct Message {
    Clear clear{.first = 5, .end = 7};
    std::array<Gap, 2> gaps{{{1, 2}, {3, 4}}};
    std::array<char, 8> text{'a', 'b', 'c'};
  } message;
  MessageReader reader{std::as_bytes(std::span{&message, 1})};
  Clear clear;
  ASSERT_TRUE(reader.read(clear));
  EXPECT_EQ(clear.range(), (EventRange{5, 7}));
  const auto gaps = reader.records<Gap>(2);
  ASSERT_EQ(gaps.size(), 2U);
  EXPECT_EQ(gaps[1].end, 4U);
  EXPECT_EQ(reader.text(3), "abc");
  EXPECT_TRUE(reader.ok());
}

TEST(Assign, seal_depends_on_the_key_and_on_what_a_readout_unit_cuts) {
  const Assign good{
      .first = 64, .events = 32, .attempt = 1, .builder = 2, .builder_incarnation = 3, .epoch = 4};
  const auto seal_with = [&](auto change) {
    Assign assign = good;
    change(assign);
    return seal_of(assign, 7);
  };
  const std::set<std::uint64_t> seals{
      seal_of(good, 7),
      seal_of(good, 8),
      seal_with([](Assign& assign) { ++assign.first; }),
      seal_with([](Assign& assign) { ++assign.events; }),
      seal_with([](Assign& assign) { ++assign.attempt; }),
      seal_with([](Assign& assign) { ++assign.builder; }),
      seal_with([](Assign& assign) { ++assign.builder_incarnation; }),
      seal_with([](Assign& assign) { ++assign.epoch; }),
  };
  EXPECT_EQ(seals.size(), 8U);
  EXPECT_EQ(seal_with([](Assign& assign) { assign.gaps = assign.lost = assign.more = 1; }),
            seal_of(good, 7)); // of the builder unit alone
}

TEST(Batches, have_as_many_events_as_numbers_that_are_in_no_gap) {
  const std::array<Gap, 3> gaps{{{0, 8}, {10, 12}, {14, 15}}}; // the first one is before the batch
  EXPECT_EQ(events_of({8, 16}, gaps), 5U);
  EXPECT_EQ(events_of({8, 16}, {}), 8U);
}

TEST(MessageReader, fails_for_good_once_a_read_goes_past_the_end) {
  alignas(8) std::array<std::byte, 16> bytes{};
  MessageReader reader{bytes};
  EXPECT_TRUE(reader.records<Gap>(~std::uint64_t{0}).empty());
  EXPECT_FALSE(reader.ok());
  Uncut uncut;
  EXPECT_FALSE(reader.read(uncut));
  EXPECT_TRUE(reader.text(1).empty());
}

} // namespace
} // namespace fanin::wire
