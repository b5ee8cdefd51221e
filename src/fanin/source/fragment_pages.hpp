/// \file
/// The bytes of a source's fragments, in the pages that are lent to it. Each byte has a position,
/// which counts all bytes that were written before it and the empty ends of pages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/memory/page_pool.hpp"

namespace fanin::source {

/// It knows no event number. Thread: one at a time.
class FragmentPages {
public:
  explicit FragmentPages(memory::PagePool& pool)
      : pool_(pool), page_size_(pool.page_size()), held_(pool.pages() + 1) {}

  void clear(); ///< forgets all; positions begin at 0

  // --- writing -----------------------------------------------------------------------------------

  /// Of the next byte.
  [[nodiscard]] std::uint64_t position() const { return position_; }
  /// Bytes left in the page that is being filled.
  [[nodiscard]] std::uint32_t room() const {
    return static_cast<std::uint32_t>(page_end_ - position_);
  }
  /// The next bytes of this page. Requires so much room().
  [[nodiscard]] std::span<std::byte> next(std::uint32_t size) {
    return {page_.data() + (page_size_ - room()), size};
  }
  void advance(std::uint32_t bytes) { position_ += bytes; }
  /// Fills the next page. Requires make_room() for all that is written.
  FANIN_API void next_page();
  /// What was written is a complete fragment.
  void complete() { end_ = position_; }
  /// Forgets what was written from `position` on, which nobody has seen.
  void take_back(std::uint64_t position);

  /// Whether a fragment of this size fits into all pages.
  [[nodiscard]] bool could_hold(std::uint32_t size) const {
    return size <= std::uint64_t{pool_.pages()} * page_size_;
  }
  /// What is not released takes more than half of them.
  [[nodiscard]] bool half_full() const {
    return end_ - base_ > std::uint64_t{pool_.pages()} * page_size_ / 2;
  }
  /// Makes room for a fragment. `unused`: nothing that was written is needed any more. False: there
  /// are not enough pages.
  [[nodiscard]] bool make_room(std::uint32_t size, bool unused);

  // --- reading -----------------------------------------------------------------------------------

  /// After the last fragment that is complete.
  [[nodiscard]] std::uint64_t end() const { return end_; }
  /// Of the first byte that is not released.
  [[nodiscard]] std::uint64_t base() const { return base_; }
  /// Bytes from this position to the end of its page.
  [[nodiscard]] std::uint32_t to_page_end(std::uint64_t at) const {
    return static_cast<std::uint32_t>(page_size_ - at % page_size_);
  }
  [[nodiscard]] memory::View view(std::uint64_t position, std::uint32_t size) const;
  /// Releases what is below. Pages stay as long as views of them.
  void release_until(std::uint64_t position);
  /// Forgets all below `position`, where what is complete begins and ends now.
  void begin_at(std::uint64_t position);

private:
  [[nodiscard]] memory::PageRef& held(std::uint64_t sequence) {
    return held_[sequence % held_.size()];
  }
  void release_pages_until(std::uint64_t sequence) {
    for (; held_first_ < sequence; ++held_first_) held(held_first_).reset();
  }

  memory::PagePool& pool_;
  const std::uint32_t page_size_;
  std::vector<memory::PageRef> held_; // with bytes not yet released, by sequence
  std::uint64_t held_first_ = 0; // sequence of the oldest of them
  memory::Loan page_; // being filled
  std::uint64_t page_end_ = 0; // position of its end
  std::uint64_t position_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t base_ = 0;
};

} // namespace fanin::source
