/// \file
/// Pages on the heap as HeapPage, with a bound for all of them together: for bytes of others, of
/// which nobody knows how many there will be and how long they stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fanin/base/export.hpp"
#include "fanin/memory/page_pool.hpp"

namespace fanin::memory {

/// Thread: one, also for its views. These may outlive it.
class BoundedHeap {
public:
  explicit BoundedHeap(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

  /// A view of `size` bytes; write them through `data` before anyone else has the view. Empty where
  /// there would be more than `bytes_max` in all. Throws std::bad_alloc.
  [[nodiscard]] FANIN_INTERNAL_API View make(std::uint64_t size, std::byte*& data);
  [[nodiscard]] std::uint64_t bytes() const { return *bytes_; } ///< of all pages that are in use

private:
  std::uint64_t bytes_max_;
  std::shared_ptr<std::uint64_t> bytes_ = std::make_shared<std::uint64_t>(0);
};

} // namespace fanin::memory
