/// \file
/// Items under way to a transport in memory, by the time of their arrival.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fanin/net/in_memory/item.hpp"

namespace fanin::net::in_memory {

class Arrivals {
public:
  struct Arrival {
    Time due;
    std::uint64_t sequence; ///< decides between items that are due at the same time
    Item* item;
  };

  void add(Time due, std::uint64_t sequence, Item& item) {
    heap_.push_back({due, sequence, &item});
    std::push_heap(heap_.begin(), heap_.end(), Later{});
  }
  /// The next item that is due until then; null: none.
  [[nodiscard]] Item* take(Time now) {
    if (heap_.empty() || heap_.front().due > now) return nullptr;
    Item* const item = heap_.front().item;
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    heap_.pop_back();
    return item;
  }
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] Time next() const { return heap_.empty() ? never : heap_.front().due; }
  /// Calls change(Arrival&) for each, in the order in which they were sent; it may set `due`.
  template <class Change>
  void reschedule(Change change) {
    std::ranges::sort(heap_, {}, &Arrival::sequence);
    for (Arrival& arrival : heap_) change(arrival);
    std::ranges::make_heap(heap_, Later{});
  }
  template <class Use>
  void for_each(Use use) const {
    for (const Arrival& arrival : heap_) use(*arrival.item);
  }

private:
  struct Later {
    bool operator()(const Arrival& a, const Arrival& b) const {
      return a.due != b.due ? a.due > b.due : a.sequence > b.sequence;
    }
  };
  std::vector<Arrival> heap_;
};

} // namespace fanin::net::in_memory
