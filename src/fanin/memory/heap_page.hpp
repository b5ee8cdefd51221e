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
  HeapPage(const HeapPage&) = delete;
  HeapPage& operator=(const HeapPage&) = delete;
  /// A view of `size` bytes. Write them through data() before anyone else has the view. Throws
  /// std::bad_alloc.
  /// `sum`, if there is one, counts the bytes of its pages as long as they exist.
  [[nodiscard]] static View make(std::uint32_t size, std::byte*& data,
                                 std::shared_ptr<std::uint64_t> sum = {});
  [[nodiscard]] static View copy(std::span<const std::byte> bytes);

private:
  HeapPage(std::uint32_t size, std::shared_ptr<std::uint64_t> sum);
  ~HeapPage() override;
  void put(Page*) override { delete this; }

  std::unique_ptr<std::byte[]> bytes_;
  std::shared_ptr<std::uint64_t> sum_;
  Page page_;
};

} // namespace fanin::memory
