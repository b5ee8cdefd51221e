// A bounded queue from one thread to one other thread, without locks.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <vector>

namespace fanin::storage::detail {

template <class T>
class SpscRing {
public:
  explicit SpscRing(std::size_t capacity_min) : slots_(std::bit_ceil(capacity_min)) {}

  // Producer. False: full. Sequentially consistent with the other side's empty(), so that "push,
  // then look whether the consumer sleeps" and "go to sleep, then look again" never miss each
  // other.
  [[nodiscard]] bool push(T value) {
    const auto tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == slots_.size()) return false;
    slots_[tail & (slots_.size() - 1)] = value;
    tail_.store(tail + 1, std::memory_order_seq_cst);
    return true;
  }

  // Consumer.
  [[nodiscard]] bool empty() const {
    return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_seq_cst);
  }
  [[nodiscard]] const T& front() const { // not if empty()
    return slots_[head_.load(std::memory_order_relaxed) & (slots_.size() - 1)];
  }
  void pop() { // not if empty()
    head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

private:
  std::vector<T> slots_;
  alignas(64) std::atomic<std::size_t> head_{0};
  alignas(64) std::atomic<std::size_t> tail_{0};
};

} // namespace fanin::storage::detail
