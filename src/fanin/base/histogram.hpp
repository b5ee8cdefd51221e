/// \file
/// A histogram of durations with logarithmic bins of 1/32 octave (2 % wide), which gives
/// percentiles without keeping the values. Its size is fixed; it allocates nothing.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "fanin/base/clock.hpp"

namespace fanin {

class Histogram {
public:
  void add(Duration value, std::uint64_t weight = 1) {
    const auto ns = value.count() < 0 ? 0U : static_cast<std::uint64_t>(value.count());
    bins_[bin(ns)] += weight;
    count_ += weight;
  }
  [[nodiscard]] std::uint64_t count() const { return count_; }
  /// The value below which a `fraction` of all values lies (the upper end of its bin). 0 if there
  /// are no values.
  [[nodiscard]] Duration quantile(double fraction) const {
    if (count_ == 0) return Duration{0};
    auto rank = static_cast<std::uint64_t>(fraction * static_cast<double>(count_));
    if (rank >= count_) rank = count_ - 1;
    for (std::size_t i = 0; i < bins_.size(); ++i) {
      if (rank < bins_[i]) return Duration{static_cast<Duration::rep>(upper(i))};
      rank -= bins_[i];
    }
    return Duration{static_cast<Duration::rep>(upper(bins_.size() - 1))};
  }
  /// What was added after `earlier`, a copy of this histogram, was made.
  [[nodiscard]] Histogram since(const Histogram& earlier) const {
    Histogram added;
    for (std::size_t i = 0; i < bins_.size(); ++i) added.bins_[i] = bins_[i] - earlier.bins_[i];
    added.count_ = count_ - earlier.count_;
    return added;
  }
  /// Calls visit(value, count) for each bin that is not empty. add(value, count) to another
  /// histogram gives the same bins.
  void each(auto visit) const {
    for (std::size_t i = 0; i < bins_.size(); ++i) {
      if (bins_[i] != 0) visit(Duration{static_cast<Duration::rep>(upper(i))}, bins_[i]);
    }
  }

private:
  static constexpr unsigned sub_bits = 5;
  static constexpr std::uint64_t sub = 1U << sub_bits;
  static std::size_t bin(std::uint64_t value) {
    if (value < sub) return value;
    const auto shift = static_cast<unsigned>(std::bit_width(value)) - sub_bits - 1;
    return ((shift + 1) << sub_bits) + ((value >> shift) & (sub - 1));
  }
  static std::uint64_t upper(std::size_t index) {
    if (index < sub) return index;
    const auto shift = (index >> sub_bits) - 1;
    return ((((index & (sub - 1)) | sub) + 1) << shift) - 1;
  }
  std::array<std::uint64_t, (64 - sub_bits + 1) * sub> bins_{};
  std::uint64_t count_ = 0;
};

} // namespace fanin
