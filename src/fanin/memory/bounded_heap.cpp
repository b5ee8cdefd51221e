#include "fanin/memory/bounded_heap.hpp"

#include <limits>

#include "fanin/memory/heap_page.hpp"

namespace fanin::memory {

View BoundedHeap::make(std::uint64_t size, std::byte*& data) {
  if (size > bytes_max_ - *bytes_ || size > std::numeric_limits<std::uint32_t>::max()) return {};
  return HeapPage::make(static_cast<std::uint32_t>(size), data, bytes_);
}

} // namespace fanin::memory
