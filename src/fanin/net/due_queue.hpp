/// \file
/// What has to wait for a time: messages in memory on their way, events that are held back. What is
/// due at the same time comes out as it was put in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "fanin/base/clock.hpp"

namespace fanin::net {

template <class T>
class DueQueue {
public:
  void add(Time due, T one) {
    heap_.push_back({due, sequence_++, std::move(one)});
    std::ranges::push_heap(heap_, Later{});
  }
  [[nodiscard]] std::size_t size() const { return heap_.size(); }
  /// When the first one is due.
  [[nodiscard]] Time next() const { return heap_.empty() ? never : heap_.front().due; }
  [[nodiscard]] bool is_due(Time now) const { return !heap_.empty() && next() <= now; }
  /// Takes out the first one. Requires that there is one.
  [[nodiscard]] T take() {
    std::ranges::pop_heap(heap_, Later{});
    T first = std::move(heap_.back().one);
    heap_.pop_back();
    return first;
  }
  /// Calls change(T&, Time& due) for each, in the order in which they were put in.
  template <class Change>
  void reschedule(Change change) {
    std::ranges::sort(heap_, {}, &Entry::sequence);
    for (Entry& entry : heap_) change(entry.one, entry.due);
    std::ranges::make_heap(heap_, Later{});
  }
  template <class Use>
  void for_each(Use use) const {
    for (const Entry& entry : heap_) use(entry.one);
  }
  /// True: there was one.
  template <class Predicate>
  bool erase_if(Predicate predicate) {
    if (std::erase_if(heap_, [&](const Entry& entry) { return predicate(entry.one); }) == 0)
      return false;
    std::ranges::make_heap(heap_, Later{});
    return true;
  }

private:
  struct Entry {
    Time due;
    std::uint64_t sequence;
    T one;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const {
      return a.due != b.due ? a.due > b.due : a.sequence > b.sequence;
    }
  };
  std::vector<Entry> heap_;
  std::uint64_t sequence_ = 0;
};

} // namespace fanin::net
