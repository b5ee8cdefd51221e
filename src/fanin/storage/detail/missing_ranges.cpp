#include "fanin/storage/detail/missing_ranges.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"

namespace fanin::storage::detail {
namespace {

// "event 3 lacks", "events 3, 7 to 9 and 12 more ranges lack".
std::string text_of(const std::vector<EventRange>& ranges, bool full) {
  constexpr std::size_t shown = 8;
  if (ranges.size() == 1 && ranges.front().count() == 1)
    return fmt::format("event {} lacks", ranges.front().first);
  std::string text = "events";
  for (std::size_t i = 0; i < std::min(ranges.size(), shown); ++i) {
    text += fmt::format("{} {}", i == 0 ? "" : ",", ranges[i].first);
    if (ranges[i].count() > 1) text += fmt::format(" to {}", ranges[i].end - 1);
  }
  if (ranges.size() > shown)
    text += full ? " and many more" : " and " + counted(ranges.size() - shown, "more range");
  return text + " lack";
}

} // namespace

void MissingRanges::add(EventNumber event, const std::string& lack) {
  if (full() || (events_.size() >= lacks_max && !events_.contains(lack))) return leave_out();
  std::vector<EventRange>& ranges = events_[lack];
  if (!ranges.empty() && ranges.back().end == event) {
    ++ranges.back().end;
  } else {
    ranges.push_back({event, event + 1});
    ++ranges_;
  }
}

std::vector<std::string> MissingRanges::lines(RunNumber run) const {
  std::map<std::pair<EventNumber, std::string>, std::vector<EventRange>> sorted;
  for (const auto& [lack, ranges] : events_) {
    auto apart = merged(ranges);
    sorted[{apart.front().first, lack}] = std::move(apart);
  }
  std::vector<std::string> lines;
  for (const auto& [key, ranges] : sorted)
    lines.push_back(fmt::format("run {}: {} {}", run, text_of(ranges, full()), key.second));
  return lines;
}

} // namespace fanin::storage::detail
