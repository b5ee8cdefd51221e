/// \file
/// A heap whose members know their places, so that any of them can leave or change its rank.
#pragma once

#include <cstddef>
#include <vector>

#include "fanin/base/assert.hpp"

namespace fanin::net {

/// `place`: the member of T that is for the heap. `Before`: whether one T comes before another. It
/// owns nothing.
template <class T, std::size_t T::* place, class Before>
class IndexedHeap {
public:
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] std::size_t size() const { return heap_.size(); }
  [[nodiscard]] T& front() const { return *heap_.front(); }
  [[nodiscard]] const std::vector<T*>& all() const { return heap_; }

  void add(T& one) {
    heap_.push_back(&one);
    sift(&one, heap_.size() - 1);
  }
  /// Its rank has changed.
  void update(T& one) { sift(&one, one.*place); }
  void remove(T& one) {
    FANIN_ASSERT(heap_[one.*place] == &one);
    T* const last = heap_.back();
    heap_.pop_back();
    if (last != &one) sift(last, one.*place);
  }

private:
  // Up, or else down, from there.
  void sift(T* one, std::size_t index) {
    while (index > 0 && Before{}(*one, *heap_[(index - 1) / 2])) {
      put(heap_[(index - 1) / 2], index);
      index = (index - 1) / 2;
    }
    for (std::size_t child = 2 * index + 1; child < heap_.size(); child = 2 * index + 1) {
      if (child + 1 < heap_.size() && Before{}(*heap_[child + 1], *heap_[child])) ++child;
      if (!Before{}(*heap_[child], *one)) break;
      put(heap_[child], index);
      index = child;
    }
    put(one, index);
  }
  void put(T* one, std::size_t index) {
    heap_[index] = one;
    one->*place = index;
  }

  std::vector<T*> heap_;
};

} // namespace fanin::net
