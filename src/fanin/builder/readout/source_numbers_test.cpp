#include "fanin/builder/readout/source_numbers.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace fanin::builder {
namespace {

// Two sources that ask others about jumps of 100 or more.
class SourceNumbers : public ::testing::Test {
protected:
  static constexpr std::uint64_t window = 100;

  static std::unique_ptr<memory::PagePool> pages() {
    return memory::PagePool::make(
               {.page_size = 4096, .pages = 8, .arena = {.huge_pages = memory::HugePages::off}})
        .value();
  }
  static source::FragmentQueueOptions options(SourceId source) {
    return {
        .source = source, .window = 64, .fragment_max = 1024, .near = window, .asks_others = true};
  }
  void write(std::size_t source, std::initializer_list<EventNumber> numbers) {
    const std::array<std::byte, 8> payload{};
    for (const EventNumber number : numbers) (void)queues_[source]->write(number, payload);
  }

  std::array<std::unique_ptr<memory::PagePool>, 2> pools_{pages(), pages()};
  source::FragmentQueue first_{options(1), *pools_[0]};
  source::FragmentQueue second_{options(2), *pools_[1]};
  std::array<source::FragmentQueue*, 2> queues_{&first_, &second_};
};

TEST_F(SourceNumbers, lowest_number_is_that_of_sources_that_have_begun) {
  EXPECT_FALSE(lowest_number(queues_));
  first_.start(50);
  EXPECT_EQ(lowest_number(queues_), 50U);
  second_.start(40);
  EXPECT_EQ(lowest_number(queues_), 40U);
}

TEST_F(SourceNumbers, number_that_jumps_is_held_until_another_source_holds_it_too) {
  first_.start(0);
  second_.start(0);
  EXPECT_FALSE(lowest_held(queues_));
  write(0, {0, 5000});
  EXPECT_EQ(lowest_held(queues_), 5000U);
  confirm_equal(queues_);
  EXPECT_EQ(lowest_held(queues_), 5000U);
  write(1, {0, 5000});
  confirm_equal(queues_);
  EXPECT_FALSE(lowest_held(queues_));
  EXPECT_EQ(first_.next_event(), 5001U);
  EXPECT_EQ(second_.next_event(), 5001U);
}

TEST_F(SourceNumbers, number_that_another_readout_unit_holds_is_confirmed_where_it_is_held) {
  first_.start(0);
  second_.start(0);
  write(0, {0, 5000});
  write(1, {0, 9000});
  confirm_held(queues_, 5000);
  EXPECT_EQ(first_.next_event(), 5001U);
  EXPECT_EQ(second_.numbers().held(), 9000U);
}

TEST_F(SourceNumbers, number_beyond_the_limit_is_not_confirmed) {
  first_.start(0);
  second_.start(0);
  first_.numbers().set_limit(5000);
  write(0, {0, 5000});
  confirm_held(queues_, 5000);
  EXPECT_EQ(first_.next_event(), 1U);
}

TEST_F(SourceNumbers, jump_is_right_where_another_source_has_come_within_the_window) {
  first_.start(0);
  write(0, {0, 5000, 10000});
  ASSERT_TRUE(first_.numbers().unclear());
  second_.start(4000);
  confirm_near(queues_, window);
  EXPECT_TRUE(first_.numbers().unclear());
  second_.start(4950);
  confirm_near(queues_, window);
  EXPECT_FALSE(first_.numbers().held());
  EXPECT_EQ(first_.next_event(), 5001U);
}

TEST_F(SourceNumbers, sources_that_begin_more_than_a_window_from_each_other_are_apart) {
  EXPECT_FALSE(find_apart(queues_, window));
  first_.start(5000);
  EXPECT_FALSE(find_apart(queues_, window));
  second_.start(5100);
  EXPECT_FALSE(find_apart(queues_, window));
  second_.start(4899);
  const auto apart = find_apart(queues_, window);
  ASSERT_TRUE(apart);
  EXPECT_EQ(apart->first, 1U);
  EXPECT_EQ(apart->far, 0U);
}

TEST_F(SourceNumbers, source_that_has_gone_on_to_where_the_other_one_begins_is_not_apart) {
  first_.start(0);
  second_.start(150);
  ASSERT_TRUE(find_apart(queues_, window));
  for (EventNumber event = 0; event < 60; ++event) write(0, {event});
  EXPECT_FALSE(find_apart(queues_, window));
}

} // namespace
} // namespace fanin::builder
