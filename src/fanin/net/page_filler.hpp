// Packs messages one behind the other into pages of one pool: many small messages share a page, so
// that what a holder of messages pins is close to what it holds. Messages are at
// most half a page, hence every page that is left behind is at least half full.
//
// It owns no page in between: when the last view of its page is gone, the page is home again, and
// the next message takes the page used last, most often the same one (of those that another process
// has read, the one that has rested longest).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "fanin/memory/page_pool.hpp"

namespace fanin::net {

class PageFiller {
public:
  static constexpr std::uint32_t alignment = 8; // of every message

  explicit PageFiller(memory::PagePool& pool) : pool_(pool) {}

  [[nodiscard]] memory::PagePool& pool() const { return pool_; }

  // The page that is being filled and from where on it is free.
  struct Room {
    memory::Loan page; // empty: the pool has none
    std::uint32_t offset = 0;
  };

  [[nodiscard]] bool can_reserve(std::uint32_t size) const {
    return pool_.available() > 0 || has_room(size);
  }

  // A page with room for at least `size` bytes (at most a page). Until give_back(), it is the
  // caller's alone.
  [[nodiscard]] Room reserve(std::uint32_t size) {
    if (has_room(size)) return {memory::Loan{std::exchange(page_, nullptr)}, filled_};
    Room room{pool_.take(), 0};
    if (room.page) page_ = nullptr;
    return room;
  }

  // What is left of a page after `offset`, for the next message.
  void give_back(memory::Loan page, std::uint32_t offset) {
    const std::uint32_t aligned = (offset + alignment - 1) / alignment * alignment;
    if (aligned >= page.size()) return;
    if (has_room(page.size() - aligned)) return; // what is here already is the roomier one
    page_ = page.page();
    lends_ = page_->lends;
    filled_ = aligned;
  }

private:
  [[nodiscard]] bool has_room(std::uint32_t size) const {
    return page_ != nullptr && page_->references > 0 && page_->lends == lends_ &&
           pool_.page_size() - filled_ >= size;
  }

  memory::PagePool& pool_;
  memory::Page* page_ = nullptr; // not owned: see above
  std::uint64_t lends_ = 0; // the loan of page_ that was seen
  std::uint32_t filled_ = 0;
};

// Those of a transport: one for each receive pool that its connections were given.
class PageFillers {
public:
  [[nodiscard]] PageFiller& of(memory::PagePool& pool) {
    for (const auto& filler : fillers_) {
      if (&filler->pool() == &pool) return *filler;
    }
    return *fillers_.emplace_back(std::make_unique<PageFiller>(pool));
  }

private:
  std::vector<std::unique_ptr<PageFiller>> fillers_;
};

} // namespace fanin::net
