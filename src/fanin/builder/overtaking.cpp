#include "fanin/builder/overtaking.hpp"

#include <algorithm>

namespace fanin::builder {

// Only those are listed that are more than a window ahead of the last one.
void Overtaking::find_leaders(std::span<const End> ends) {
  leaders_.clear();
  EventNumber last = ~EventNumber{0};
  for (const End& end : ends) {
    if (end.follows) last = std::min(last, end.next);
  }
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (!ends[i].leads || ends[i].next <= last || ends[i].next - last <= window_) continue;
    leaders_.push_back({ends[i].next, ends[i].moved_at, i});
  }
  std::ranges::sort(leaders_, [](const Leader& a, const Leader& b) {
    return a.next != b.next ? a.next > b.next : a.end < b.end;
  });
  for (std::size_t i = 1; i < leaders_.size(); ++i) {
    if (leaders_[i].moved_at > leaders_[i - 1].moved_at) continue;
    leaders_[i].moved_at = leaders_[i - 1].moved_at;
    leaders_[i].end = leaders_[i - 1].end;
  }
}

// One that is more than a window ahead, and lives as long.
const Overtaking::Leader* Overtaking::leader_of(const End& end) const {
  const auto behind = std::ranges::partition_point(leaders_, [&](const Leader& leader) {
    return leader.next > end.next && leader.next - end.next > window_;
  });
  if (behind == leaders_.begin()) return nullptr;
  const Leader& leader = *std::prev(behind);
  return leader.moved_at + deadline_ >= end.moved_at ? &leader : nullptr;
}

std::span<const Overtaking::Pair> Overtaking::update(std::span<const End> ends, Duration now) {
  reports_.clear();
  find_leaders(ends);
  overtaken_ = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    const Leader* const leader = ends[i].follows ? leader_of(ends[i]) : nullptr;
    if (leader == nullptr) {
      entry = {};
      continue;
    }
    ++overtaken_;
    if (entry.state == State::level) {
      entry.state = State::overtaken;
      entry.since = now;
    }
    entry.ahead = leader->end;
    const Duration quiet = now - std::max(entry.since, ends[i].moved_at);
    if (quiet >= std::min(deadline_ / 2, report_after_) && entry.state == State::overtaken) {
      entry.state = State::reported;
      reports_.push_back({i, entry.ahead});
    }
    if (quiet >= deadline_) {
      entry.state = State::passed_over;
    } else if (entry.state == State::passed_over) {
      entry.state = State::reported;
    }
  }
  return reports_;
}

} // namespace fanin::builder
