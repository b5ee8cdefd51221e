/// \file
/// Packs messages one after the other into pages of one pool. Many small messages share a page, so
/// that a holder of messages pins little more memory than their sizes. Messages are at most half a
/// page, so every page is at least half full when the filler takes the next one.
///
/// Between messages the filler owns no page: when its last view is released, the page returns to
/// the pool. The next message takes the page used last, often the same one. Of pages that another
/// process has read, it takes the one unused for longest.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fanin/memory/copy.hpp"
#include "fanin/memory/page_pool.hpp"

namespace fanin::net {

inline void copy_extents(std::byte* to, std::span<const memory::View> extents) {
  for (const memory::View& extent : extents) {
    memory::copy(to, extent.bytes());
    to += extent.size;
  }
}

class PageFiller {
public:
  static constexpr std::uint32_t alignment = 8; ///< of every message

  explicit PageFiller(memory::PagePool& pool) : pool_(pool) {}

  [[nodiscard]] memory::PagePool& pool() const { return pool_; }

  /// The page that is being filled, and where its free space begins.
  struct Room {
    memory::Loan page; ///< empty: the pool has none
    std::uint32_t offset = 0;
  };

  [[nodiscard]] bool can_reserve(std::uint32_t size) const {
    return pool_.available() > 0 || has_room(size);
  }

  /// A page with room for at least `size` bytes (at most a page). Until give_back() only the caller
  /// may use it.
  [[nodiscard]] Room reserve(std::uint32_t size) {
    if (has_room(size)) return {memory::Loan{std::exchange(page_, nullptr)}, filled_};
    Room room{pool_.take(), 0};
    if (room.page) page_ = nullptr;
    return room;
  }

  /// A message of `size` bytes, which write(std::byte* to) writes. An empty view: the pool has no
  /// page.
  template <class Write>
  [[nodiscard]] memory::View make(std::uint32_t size, Write write) {
    auto [page, offset] = reserve(size);
    if (!page) return {};
    write(page.data() + offset);
    memory::View view = page.freeze(offset, size);
    give_back(std::move(page), offset + size);
    return view;
  }
  /// A copy of the message, likewise.
  [[nodiscard]] memory::View copy(std::span<const std::byte> message) {
    return make(static_cast<std::uint32_t>(message.size()),
                [&](std::byte* to) { memory::copy(to, message); });
  }

  /// Gives back the page; its rest after `offset` is for the next message.
  void give_back(memory::Loan page, std::uint32_t offset) {
    const std::uint32_t aligned = (offset + alignment - 1) / alignment * alignment;
    if (aligned >= page.size()) return;
    if (has_room(page.size() - aligned)) return; // the page that is here already has more room
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

/// The fillers of a transport: one for each receive pool of its connections.
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
