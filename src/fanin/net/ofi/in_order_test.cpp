#include "fanin/net/ofi/in_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace fanin::net::ofi {
namespace {

using Numbers = std::vector<std::uint32_t>;

class InOrderTest : public ::testing::Test {
protected:
  InOrderTest() {
    for (std::uint32_t i = 0; i < operations_.size(); ++i) operations_[i].number = i;
  }
  void post(std::uint32_t count) {
    for (; count > 0; --count) completions_.posted(&operations_[next_++]);
  }
  // What can be told after the completion of this one.
  Numbers complete(std::uint32_t number) {
    Numbers told;
    completions_.completed({.operation = &operations_[number], .size = 100 + number},
                           [&](const rdma::Completion& one) {
                             EXPECT_EQ(one.size, 100 + one.operation->number);
                             told.push_back(one.operation->number);
                           });
    return told;
  }
  Numbers not_done() const {
    Numbers numbers;
    completions_.for_each_not_done(
        [&](const rdma::Operation* one) { numbers.push_back(one->number); });
    return numbers;
  }
  std::array<rdma::Operation, 8> operations_{};
  std::uint32_t next_ = 0;
  InOrder completions_;
};

TEST_F(InOrderTest, each_completion_is_told_once_and_in_the_order_of_posting) {
  Numbers order{0, 1, 2, 3, 4};
  do {
    InOrder all;
    for (const std::uint32_t number : {0U, 1U, 2U, 3U, 4U}) all.posted(&operations_[number]);
    Numbers told;
    std::array<bool, 5> done{};
    for (const std::uint32_t number : order) {
      all.completed({.operation = &operations_[number]},
                    [&](const rdma::Completion& one) { told.push_back(one.operation->number); });
      done[number] = true;
      const auto waits_for = std::ranges::find(done, false) - done.begin();
      ASSERT_EQ(std::ssize(told), waits_for); // all that can be told
    }
    ASSERT_EQ(told, (Numbers{0, 1, 2, 3, 4}));
  } while (std::ranges::next_permutation(order).found);
}

TEST_F(InOrderTest, later_ones_wait_with_what_is_known_of_them) {
  post(3);
  EXPECT_EQ(complete(2), Numbers{});
  EXPECT_EQ(not_done(), (Numbers{0, 1}));
  EXPECT_EQ(complete(0), Numbers{0});
  post(1);
  EXPECT_EQ(complete(1), (Numbers{1, 2}));
  EXPECT_EQ(not_done(), Numbers{3});
}

TEST_F(InOrderTest, what_was_not_posted_or_is_forgotten_is_told_to_nobody) {
  EXPECT_EQ(complete(0), Numbers{});
  post(2);
  EXPECT_EQ(complete(5), Numbers{});
  EXPECT_EQ(completions_.size(), 2U);
  completions_.forget();
  EXPECT_EQ(completions_.size(), 0U);
  EXPECT_EQ(complete(0), Numbers{});
  EXPECT_EQ(not_done(), Numbers{});
  completions_.posted(&operations_[1]); // once more
  EXPECT_EQ(complete(1), Numbers{1});
}

} // namespace
} // namespace fanin::net::ofi
