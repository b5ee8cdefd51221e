// The events of which a source has no fragment, as ascending ranges that do not touch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>

#include "fanin/base/identity.hpp"

namespace fanin::builder {

class AbsentRanges {
public:
  // Adds a range behind all others.
  void add(EventRange range) {
    if (range.empty()) return;
    if (!ranges_.empty() && ranges_.back().end == range.first) {
      ranges_.back().end = range.end;
    } else {
      ranges_.push_back(range);
    }
  }
  // Events below are not asked about any more.
  void forget_below(EventNumber event) {
    while (!ranges_.empty() && ranges_.front().end <= event) ranges_.pop_front();
  }
  void clear() { ranges_.clear(); }
  [[nodiscard]] std::size_t size() const { return ranges_.size(); }

  // The first event from `event` on that is present.
  [[nodiscard]] EventNumber present_from(EventNumber event) const {
    const auto range = at(event);
    return range != ranges_.end() && range->first <= event ? range->end : event;
  }
  // The first event from `event` on that is absent, or `end`.
  [[nodiscard]] EventNumber absent_from(EventNumber event, EventNumber end) const {
    const auto range = at(event);
    if (range == ranges_.end()) return end;
    return std::min(end, std::max(event, range->first));
  }

private:
  // The first range that ends behind `event`.
  [[nodiscard]] std::deque<EventRange>::const_iterator at(EventNumber event) const {
    return std::ranges::partition_point(
        ranges_, [&](const EventRange& range) { return range.end <= event; });
  }

  std::deque<EventRange> ranges_;
};

} // namespace fanin::builder
