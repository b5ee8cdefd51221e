#include "fanin/source/numbering.hpp"

#include <gtest/gtest.h>

#include <optional>

namespace fanin::source {
namespace {

// Each number is the one nearest to the one before.
class Counting {
public:
  explicit Counting(int bits = 64, std::int64_t offset = 0) : numbering_(bits, offset) {}
  EventNumber extend(std::uint64_t counter) {
    last_ = last_ ? numbering_.near(counter, *last_) : numbering_.without_wraps(counter);
    return *last_;
  }

private:
  Numbering numbering_;
  std::optional<EventNumber> last_;
};

TEST(Numbering, a_24_bit_counter_goes_on_over_its_wraps) {
  Counting numbering(24);
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
  Counting numbering(24);
  constexpr EventNumber range = EventNumber{1} << 24;
  (void)numbering.extend(0xfffff0);
  EXPECT_EQ(numbering.extend(5), range + 5);
  EXPECT_EQ(numbering.extend(0xfffffe), range - 2);
  EXPECT_EQ(numbering.extend(6), range + 6);
}

TEST(Numbering, half_the_range_decides_between_forth_and_back) {
  Counting forth(8);
  EXPECT_EQ(forth.extend(200), 200U);
  EXPECT_EQ(forth.extend((200 + 127) & 0xff), 327U);
  Counting back(8);
  EXPECT_EQ(back.extend(200), 200U);
  EXPECT_EQ(back.extend((200 + 128) & 0xff), 72U);
}

TEST(Numbering, a_32_bit_counter_wraps) {
  Counting numbering(32);
  EXPECT_EQ(numbering.extend(0xffffffff), 0xffffffffU);
  EXPECT_EQ(numbering.extend(0), 0x100000000U);
  EXPECT_EQ(numbering.extend(0xffffffff), 0xffffffffU);
}

TEST(Numbering, a_64_bit_counter_is_taken_as_it_is) {
  Counting numbering;
  EXPECT_EQ(numbering.extend(7), 7U);
  EXPECT_EQ(numbering.extend(0x123456789abcdef0), 0x123456789abcdef0U);
  EXPECT_EQ(numbering.extend(8), 8U);
}

TEST(Numbering, a_one_bit_counter_counts) {
  Counting numbering(1);
  EXPECT_EQ(numbering.extend(0), 0U);
  // With one bit every change is half the range: a step back by the rule.
  EXPECT_EQ(numbering.extend(0), 0U);
}

TEST(Numbering, bits_above_the_counter_are_ignored) {
  Counting numbering(16);
  EXPECT_EQ(numbering.extend(0xabcd0001), 1U);
  EXPECT_EQ(numbering.extend(0x12340002), 2U);
}

TEST(Numbering, the_offset_is_added_and_may_be_negative) {
  Counting later(32, 1000);
  EXPECT_EQ(later.extend(1), 1001U);
  Counting earlier(32, -50001);
  EXPECT_EQ(earlier.extend(50002), 1U);
  EXPECT_EQ(earlier.extend(50003), 2U);
}

TEST(Numbering, a_number_far_beyond_the_wraps_is_near_its_neighbours) {
  const Numbering numbering(24, 10);
  const EventNumber last = (EventNumber{5} << 24) + 10;
  EXPECT_EQ(numbering.near(3, last), last + 3);
  EXPECT_EQ(numbering.near(0x800000 - 1, last), last + 0x800000 - 1);
  EXPECT_EQ(numbering.without_wraps(3), 13U);
  EXPECT_EQ(numbering.counter_of(20), 10U);
  EXPECT_EQ(numbering.counter_of(5), 0U);
}

} // namespace
} // namespace fanin::source
