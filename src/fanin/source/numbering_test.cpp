#include "fanin/source/numbering.hpp"

#include <gtest/gtest.h>

namespace fanin::source {
namespace {

// Every number is accepted.
class Accepting {
public:
  explicit Accepting(int bits = 64, std::int64_t offset = 0) : numbering_(bits, offset) {}
  EventNumber extend(std::uint64_t counter) {
    const EventNumber event = numbering_.extend(counter);
    numbering_.accept(event);
    return event;
  }

private:
  Numbering numbering_;
};

TEST(Numbering, a_24_bit_counter_goes_on_over_its_wraps) {
  Accepting numbering(24);
  constexpr EventNumber range = EventNumber{1} << 24;
  EXPECT_EQ(numbering.extend(0xfffffe), 0xfffffeU);
  EXPECT_EQ(numbering.extend(0xffffff), 0xffffffU);
  EXPECT_EQ(numbering.extend(0), range);
  EXPECT_EQ(numbering.extend(1), range + 1);
  for (EventNumber event = range + 2; event < 3 * range; event += 4099) {
    ASSERT_EQ(numbering.extend(event & 0xffffff), event);
  }
}

TEST(Numbering, a_step_back_across_the_wrap_is_no_wrap) {
  Accepting numbering(24);
  constexpr EventNumber range = EventNumber{1} << 24;
  (void)numbering.extend(0xfffff0);
  EXPECT_EQ(numbering.extend(5), range + 5);
  EXPECT_EQ(numbering.extend(0xfffffe), range - 2);
  EXPECT_EQ(numbering.extend(6), range + 6);
}

TEST(Numbering, half_the_range_decides_between_forth_and_back) {
  Accepting forth(8);
  EXPECT_EQ(forth.extend(200), 200U);
  EXPECT_EQ(forth.extend((200 + 127) & 0xff), 327U);
  Accepting back(8);
  EXPECT_EQ(back.extend(200), 200U);
  EXPECT_EQ(back.extend((200 + 128) & 0xff), 72U);
}

TEST(Numbering, a_32_bit_counter_wraps) {
  Accepting numbering(32);
  EXPECT_EQ(numbering.extend(0xffffffff), 0xffffffffU);
  EXPECT_EQ(numbering.extend(0), 0x100000000U);
  EXPECT_EQ(numbering.extend(0xffffffff), 0xffffffffU);
}

TEST(Numbering, a_64_bit_counter_is_taken_as_it_is) {
  Accepting numbering;
  EXPECT_EQ(numbering.extend(7), 7U);
  EXPECT_EQ(numbering.extend(0x123456789abcdef0), 0x123456789abcdef0U);
  EXPECT_EQ(numbering.extend(8), 8U);
}

TEST(Numbering, a_one_bit_counter_counts) {
  Accepting numbering(1);
  EXPECT_EQ(numbering.extend(0), 0U);
  // With one bit every change is half the range: a step back by the rule.
  EXPECT_EQ(numbering.extend(0), 0U);
}

TEST(Numbering, bits_above_the_counter_are_ignored) {
  Accepting numbering(16);
  EXPECT_EQ(numbering.extend(0xabcd0001), 1U);
  EXPECT_EQ(numbering.extend(0x12340002), 2U);
}

TEST(Numbering, the_offset_is_added_and_may_be_negative) {
  Accepting later(32, 1000);
  EXPECT_EQ(later.extend(1), 1001U);
  Accepting earlier(32, -50001);
  EXPECT_EQ(earlier.extend(50002), 1U);
  EXPECT_EQ(earlier.extend(50003), 2U);
}

TEST(Numbering, what_was_not_accepted_moves_nothing) {
  Numbering numbering(24, 10);
  numbering.accept((EventNumber{5} << 24) + 10);
  EXPECT_EQ(numbering.extend(3), (EventNumber{5} << 24) + 13);
  EXPECT_EQ(numbering.extend(0x800000 - 1), (EventNumber{5} << 24) + 0x800000 + 9);
  EXPECT_EQ(numbering.extend(4), (EventNumber{5} << 24) + 14);
  EXPECT_EQ(numbering.counter_of(20), 10U);
  EXPECT_EQ(numbering.counter_of(5), 0U);
  numbering.restart();
  EXPECT_EQ(numbering.extend(3), 13U);
}

} // namespace
} // namespace fanin::source
