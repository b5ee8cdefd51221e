#include "fanin/builder/manager/capacity.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

using Use = Capacity::Use;

// One readout unit with a lot of memory, and so many builder units of 1,000 bytes each.
Capacity make(std::size_t builders, std::uint64_t window = 1000) {
  Capacity capacity{2, builders, 10, window, false};
  capacity.readout_up(0, 1'000'000, 1'000'000);
  for (std::size_t i = 0; i < builders; ++i) capacity.builder_up(static_cast<NodeId>(i), 1000);
  return capacity;
}

TEST(Capacity, becomes_free_in_the_order_of_reservation) {
  Capacity capacity = make(1);
  const auto first = capacity.reserve(0, {300, 0});
  const auto second = capacity.reserve(0, {400, 0});
  capacity.release(0, second);
  EXPECT_EQ(capacity.reserved_by(0), 700U);
  capacity.release(0, first);
  EXPECT_EQ(capacity.reserved_by(0), 0U);
  EXPECT_EQ(capacity.bytes_reserved(), 0U);
}

TEST(Capacity, window_is_free_when_a_batch_is_received_or_given_back) {
  Capacity capacity = make(1, 100);
  const auto first = capacity.reserve(0, {80, 0});
  EXPECT_FALSE(capacity.has_room(0, {30, 0}, Use::first_attempt));
  capacity.received(0, first);
  EXPECT_TRUE(capacity.has_room(0, {30, 0}, Use::first_attempt));
  const auto second = capacity.reserve(0, {80, 0});
  capacity.release(0, second);
  EXPECT_TRUE(capacity.has_room(0, {30, 0}, Use::first_attempt));
  capacity.release(0, first);
  EXPECT_EQ(capacity.bytes_reserved(), 0U);
}

TEST(Capacity, part_of_it_is_kept_for_batches_that_are_assigned_again) {
  Capacity capacity = make(1);
  (void)capacity.reserve(0, {970, 0});
  EXPECT_TRUE(capacity.has_room(0, {10, 0}, Use::first_attempt));
  EXPECT_FALSE(capacity.has_room(0, {20, 0}, Use::first_attempt));
  EXPECT_TRUE(capacity.has_room(0, {20, 0}, Use::reassignment));
  EXPECT_FALSE(capacity.has_room(0, {40, 0}, Use::reassignment));
}

TEST(Capacity, in_order_what_was_handed_back_makes_room_for_the_next_attempt_at_once) {
  for (const bool in_order : {false, true}) {
    Capacity capacity{1, 1, 100, 1000, in_order};
    capacity.readout_up(0, 1'000'000, 1'000'000);
    capacity.builder_up(0, 1000);
    capacity.release(0, [&] {
      const auto oldest = capacity.reserve(0, {100, 0});
      (void)capacity.reserve(0, {700, 0}); // may wait for the oldest one
      return oldest;
    }());
    for (int attempt = 1; attempt <= 4; ++attempt) {
      EXPECT_EQ(capacity.has_room(0, {100, 0}, Use::reassignment), in_order || attempt <= 3);
      capacity.release(0, capacity.reserve(0, {100, 0}));
      EXPECT_EQ(capacity.reserved_by(0), 700U + 100U * static_cast<unsigned>(attempt));
    }
    EXPECT_FALSE(capacity.has_room(0, {100, 0}, Use::first_attempt)) << "its pages may be in use";
  }
}

TEST(Capacity, batch_larger_than_all_of_it_goes_to_a_builder_unit_that_has_nothing) {
  Capacity capacity = make(1, 100);
  EXPECT_TRUE(capacity.has_room(0, {5000, 0}, Use::first_attempt));
  (void)capacity.reserve(0, {5000, 0});
  EXPECT_FALSE(capacity.has_room(0, {1, 0}, Use::reassignment));
}

TEST(Capacity, one_builder_unit_gets_a_fair_share_of_memory_and_metadata) {
  Capacity capacity{2, 2, 10, 1'000'000, false};
  capacity.readout_up(0, 400, 90);
  capacity.readout_up(1, 200, 60);
  capacity.builder_up(0, 10'000);
  (void)capacity.reserve(0, {1, 1});
  EXPECT_TRUE(capacity.has_room(0, {299, 29}, Use::first_attempt)); // half of 600 and of 60
  EXPECT_FALSE(capacity.has_room(0, {300, 0}, Use::first_attempt));
  EXPECT_FALSE(capacity.has_room(0, {0, 30}, Use::first_attempt));
  EXPECT_TRUE(capacity.has_room(0, {0, 30}, Use::reassignment));
  capacity.builder_up(1, 10'000);
  EXPECT_FALSE(capacity.has_room(0, {200, 0}, Use::first_attempt)); // a third
  capacity.readout_down(1);
  EXPECT_TRUE(capacity.has_room(0, {132, 28}, Use::first_attempt));
  EXPECT_FALSE(capacity.has_room(0, {133, 0}, Use::first_attempt));
  EXPECT_TRUE(capacity.has_room(0, {0, 29}, Use::first_attempt));
  capacity.builder_down(1);
  EXPECT_TRUE(capacity.has_room(0, {199, 0}, Use::first_attempt));
}

TEST(Capacity, new_incarnation_of_a_builder_unit_has_all_of_its_capacity) {
  Capacity capacity = make(2);
  (void)capacity.reserve(0, {900, 5});
  EXPECT_EQ(capacity.bytes_reserved(), 1805U);
  capacity.builder_down(0);
  EXPECT_EQ(capacity.bytes_reserved(), 0U);
  capacity.builder_up(0, 500);
  EXPECT_EQ(capacity.reserved_by(0), 0U);
  EXPECT_EQ(capacity.capacity_of(0), 500U);
}

} // namespace
} // namespace fanin::builder
