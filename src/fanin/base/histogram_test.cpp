#include "fanin/base/histogram.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "fanin/base/random.hpp"

namespace fanin {
namespace {

TEST(Histogram, without_values_says_zero) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0U);
  EXPECT_EQ(histogram.quantile(0.5), Duration{0});
}

TEST(Histogram, is_within_a_bin_of_the_sorted_values) {
  Random random{7};
  Histogram histogram;
  std::vector<std::int64_t> values;
  for (int i = 0; i < 20'000; ++i) {
    values.push_back(static_cast<std::int64_t>(random.next() >> (1 + random.below(63))));
    histogram.add(Duration{values.back()});
  }
  std::ranges::sort(values);
  EXPECT_EQ(histogram.count(), values.size());
  for (const double fraction : {0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto rank = std::min(values.size() - 1, static_cast<std::size_t>(fraction * 20'000));
    const auto exact = static_cast<double>(values[rank]);
    const auto said = static_cast<double>(histogram.quantile(fraction).count());
    EXPECT_GE(said, exact) << fraction;
    EXPECT_LE(said, exact * (1 + 1.0 / 32) + 1) << fraction;
  }
}

TEST(Histogram, says_what_was_added_since_a_copy_was_made) {
  Histogram histogram;
  histogram.add(Duration{5}, 3);
  const Histogram before = histogram;
  histogram.add(Duration{5});
  histogram.add(Duration{1000}, 2);
  const Histogram added = histogram.since(before);
  EXPECT_EQ(added.count(), 3U);
  std::vector<std::uint64_t> counts;
  added.each([&](Duration, std::uint64_t count) { counts.push_back(count); });
  EXPECT_EQ(counts, (std::vector<std::uint64_t>{1, 2}));
}

TEST(Histogram, counts_by_weight_and_takes_what_is_negative_for_zero) {
  Histogram histogram;
  histogram.add(Duration{-5}, 99);
  histogram.add(Duration{1'000'000});
  EXPECT_EQ(histogram.count(), 100U);
  EXPECT_EQ(histogram.quantile(0.98), Duration{0});
  EXPECT_GE(histogram.quantile(0.99), Duration{1'000'000});
}

TEST(Histogram, a_histogram_made_of_anothers_bins_says_the_same) {
  Histogram histogram;
  Random random(7);
  for (int i = 0; i < 1000; ++i)
    histogram.add(Duration{static_cast<Duration::rep>(random.below(1'000'000'000))}, 3);
  Histogram copy;
  histogram.each([&](Duration value, std::uint64_t count) { copy.add(value, count); });
  EXPECT_EQ(copy.count(), histogram.count());
  for (const double fraction : {0.0, 0.5, 0.99, 0.999})
    EXPECT_EQ(copy.quantile(fraction), histogram.quantile(fraction)) << fraction;
}

} // namespace
} // namespace fanin
