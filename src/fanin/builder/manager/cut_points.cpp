#include "fanin/builder/manager/cut_points.hpp"

#include <algorithm>

#include "fanin/base/assert.hpp"
#include "fanin/wire/fragment.hpp"

namespace fanin::builder {

namespace {
// What a source's data blocks add to its payload: per event a table entry, per block a header, a
// frame and padding; blocks beyond the first come with every message's worth of payload.
constexpr std::uint64_t block_overhead = 256;
constexpr std::uint64_t payload_per_overhead_byte = 512;
} // namespace

std::uint64_t CutPoints::with_metadata(std::uint64_t events, std::uint64_t payload) const {
  return payload + sources_ * (events * sizeof(wire::FragmentEntry) + block_overhead) +
         payload / payload_per_overhead_byte;
}

void CutPoints::add(const AnnouncedRange& announced) {
  const auto& [range, bytes] = announced;
  FANIN_ASSERT(!range.empty() && range.end > start_);
  if (range.first < start_) {
    open_bytes_ += bytes;
  } else {
    points_[range.first].begin_bytes += bytes;
  }
  Point& end = points_[range.end];
  end.end_bytes += bytes;
  ++end.ends;
}

void CutPoints::remove(const AnnouncedRange& announced) {
  const auto& [range, bytes] = announced;
  FANIN_ASSERT(range.end > start_);
  if (range.first < start_) {
    open_bytes_ -= bytes;
  } else if (const auto begin = points_.find(range.first); begin != points_.end()) {
    begin->second.begin_bytes -= bytes;
    if (begin->second.unused()) points_.erase(begin);
  }
  const auto end = points_.find(range.end);
  FANIN_ASSERT(end != points_.end() && end->second.ends > 0);
  end->second.end_bytes -= bytes;
  --end->second.ends;
  if (end->second.unused()) points_.erase(end);
}

void CutPoints::move_to(EventNumber start) {
  FANIN_ASSERT(start >= start_);
  start_ = start;
  while (!points_.empty() && points_.begin()->first <= start) {
    Point& point = points_.begin()->second;
    open_bytes_ -= point.end_bytes;
    point.end_bytes = point.ends = 0;
    if (points_.begin()->first == start && !point.unused()) return;
    open_bytes_ += point.begin_bytes;
    points_.erase(points_.begin());
  }
}

Cut CutPoints::next(EventNumber end) const {
  const EventNumber boundary = (start_ | (batch_events_ - 1)) + 1;
  const EventNumber stop = std::min(end, boundary);
  Cut cut{{start_, start_}, 0};
  std::uint64_t payload = open_bytes_;
  auto point = points_.begin();
  while (cut.range.end < stop) {
    EventNumber candidate = stop;
    for (; point != points_.end() && point->first < stop; ++point) {
      if (point->first > cut.range.end && point->second.ends > 0) {
        candidate = point->first;
        break;
      }
      payload += point->second.begin_bytes;
    }
    const std::uint64_t bytes = with_metadata(candidate - start_, payload);
    if (bytes > batch_bytes_ && !cut.range.empty()) break;
    cut = {{start_, candidate}, bytes};
  }
  return cut;
}

} // namespace fanin::builder
