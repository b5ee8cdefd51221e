/// \file
/// A page on the heap, for bytes that have no place in a pool: rare ones, or more than a pool has
/// pages for. It is freed with its last view.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "fanin/memory/page_pool.hpp"

namespace fanin::memory {

class HeapPage final : public PageHome {
public:
  /// A view of `size` bytes. Write them through data() before anyone else has the view. Throws
  /// std::bad_alloc.
  [[nodiscard]] static View make(std::uint32_t size, std::byte*& data);
  [[nodiscard]] static View copy(std::span<const std::byte> bytes);

private:
  explicit HeapPage(std::uint32_t size);
  void put(Page*) override { delete this; }

  std::unique_ptr<std::byte[]> bytes_;
  Page page_;
};

} // namespace fanin::memory
