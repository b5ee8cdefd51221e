// How the pages of a receive pool are cut into slots, each as large as the largest message. A
// message that fills half of its slot stays where it is; a smaller one is moved to a page that
// small messages share, and its slot is free at once. So a page that is held is at least half full,
// except where there is room for more pages.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fanin/memory/page_pool.hpp"
#include "fanin/net/page_filler.hpp"

namespace fanin::net::rdma {

class SlotLayout {
public:
  // Where there is room, a message of so many bytes stays: that saves a copy.
  static constexpr std::uint32_t stay_size_with_room = 32U << 10;

  // At most so many slots a page.
  SlotLayout(const memory::PagePool& pool, std::uint32_t max_message, std::uint32_t most)
      : size_(std::max(max_message + 7U, 64U) & ~7U),
        per_page_(std::clamp(most, 1U, pool.page_size() / size_)) {
    const bool fill_pages = per_page_ * size_ >= pool.page_size() / 2;
    stay_size_min_ = fill_pages ? size_ / 2 : size_ + 1;
  }

  [[nodiscard]] std::uint32_t size() const { return size_; } // of a slot, bytes
  [[nodiscard]] std::uint32_t per_page() const { return per_page_; }
  // Slots are numbered through the pages of a connection or queue.
  [[nodiscard]] std::uint32_t page_of(std::uint32_t slot) const { return slot / per_page_; }
  [[nodiscard]] std::uint32_t offset(std::uint32_t slot) const { return slot % per_page_ * size_; }

  // False: the message stays in its slot, `from`.
  [[nodiscard]] bool move_out(const std::byte* from, std::uint32_t size, bool roomy,
                              PageFiller& filler, memory::View& to) const {
    if (size == 0 || size >= stay_size_min_ || (roomy && size >= stay_size_with_room)) return false;
    to = filler.copy({from, size});
    return static_cast<bool>(to.page);
  }

private:
  std::uint32_t size_;
  std::uint32_t per_page_;
  std::uint32_t stay_size_min_ = 0; // bytes of a message
};

} // namespace fanin::net::rdma
