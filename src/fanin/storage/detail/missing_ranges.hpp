// Which events of a run lack the same sources for the same reasons: a line for each such lack,
// whatever the number of files over which its events are spread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fanin/base/identity.hpp"

namespace fanin::storage::detail {

// Ascending and disjoint; neighbours are one range.
template <class Range>
[[nodiscard]] std::vector<Range> merged(std::vector<Range> ranges) {
  std::ranges::sort(ranges, {}, &Range::first);
  std::vector<Range> result;
  for (const Range& range : ranges) {
    if (result.empty() || result.back().end < range.first) result.push_back(range);
    result.back().end = std::max(result.back().end, range.end);
  }
  return result;
}

class MissingRanges {
public:
  // So that the memory for them has a limit.
  static constexpr std::size_t lacks_max = 1000;
  static constexpr std::size_t ranges_max = 100'000;

  // `lack`: the missing sources, with reasons. Events of a file come one after the other.
  void add(EventNumber event, const std::string& lack);
  void leave_out() { ++left_out_; }
  [[nodiscard]] bool full() const { return ranges_ >= ranges_max; }
  // In the order of their first events.
  [[nodiscard]] std::vector<std::string> lines(RunNumber run) const;
  [[nodiscard]] std::uint64_t left_out() const { return left_out_; } // events

private:
  std::map<std::string, std::vector<EventRange>> events_; // by what they lack
  std::size_t ranges_ = 0;
  std::uint64_t left_out_ = 0;
};

} // namespace fanin::storage::detail
