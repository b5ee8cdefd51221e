// The receives that a connection has posted: each is a slot of a page, as large as the largest
// message. A message that fills half of its slot stays where it is; a smaller one is moved to a
// page that small messages share, and its slot is posted again at once. So a page that is held is
// at least half full. A page whose slots are all used is replaced by another one of the pool, or
// used again when nobody holds anything of it any more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "fanin/memory/copy.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/net/page_filler.hpp"

namespace fanin::net::posted {

class Receives {
public:
  // `pages` are owned, in so far as the pool has them; `most` receives are posted at once.
  Receives(memory::PagePool& pool, std::uint32_t max_message, std::uint32_t pages,
           std::uint32_t most)
      : pool_(pool),
        slot_size_(std::max(max_message + 7U, 64U) & ~7U),
        slots_per_page_(std::clamp(most / pages, 1U, pool.page_size() / slot_size_)),
        pages_(pages),
        states_(std::size_t{pages} * slots_per_page_) {
    const bool fill_pages = slots_per_page_ * slot_size_ >= pool.page_size() / 2;
    in_place_least_ = fill_pages ? slot_size_ / 2 : slot_size_ + 1;
  }

  [[nodiscard]] std::uint32_t slots() const { return static_cast<std::uint32_t>(states_.size()); }
  [[nodiscard]] std::uint32_t slot_size() const { return slot_size_; }
  [[nodiscard]] std::byte* data(std::uint32_t slot) {
    return pages_[slot / slots_per_page_].page.data() + offset(slot);
  }

  // Posts what can be: post(slot) has to take it. Returns how many.
  template <class Post>
  std::uint32_t replenish(Post post) {
    std::uint32_t count = 0;
    starving_ = false;
    for (std::uint32_t page = 0; page < pages_.size(); ++page) count += replenish_page(page, post);
    return count;
  }
  // The same, only for the page of this slot.
  template <class Post>
  std::uint32_t replenish(std::uint32_t slot, Post post) {
    return replenish_page(slot / slots_per_page_, post);
  }
  // Pages are missing.
  [[nodiscard]] bool starving() const { return starving_; }
  // It may be worth replenishing.
  [[nodiscard]] bool can_replenish() const {
    if (!starving_) return false;
    if (pool_.available() > 0) return true;
    return std::ranges::any_of(pages_, [](const Owned& owned) {
      return owned.posted == 0 && owned.page && owned.page.page()->references == 1;
    });
  }

  // A receive has completed with so many bytes, at most slot_size(). The message is in a shared
  // page if it was `moved`.
  [[nodiscard]] memory::View take(std::uint32_t slot, std::uint32_t size, PageFiller& filler,
                                  bool& moved) {
    Owned& owned = pages_[slot / slots_per_page_];
    if (size > 0 && size < in_place_least_) {
      if (PageFiller::Room room = filler.reserve(size); room.page) {
        memory::copy(room.page.data() + room.offset, {data(slot), size});
        const memory::View view = room.page.freeze(room.offset, size);
        filler.give_back(std::move(room.page), room.offset + size);
        drop(slot);
        moved = true;
        return view;
      }
    }
    drop(slot);
    if (size == 0) return {};
    states_[slot] = State::held;
    return owned.page.freeze(offset(slot), size);
  }
  // A receive has completed, and what it brought is not wanted.
  void drop(std::uint32_t slot) {
    states_[slot] = State::free;
    --pages_[slot / slots_per_page_].posted;
  }

  // The network does not write into them any more.
  void give_back() { pages_.clear(); }

private:
  enum class State : std::uint8_t { free, posted, held };
  struct Owned {
    memory::Loan page;
    std::uint32_t posted = 0;
  };

  [[nodiscard]] std::uint32_t offset(std::uint32_t slot) const {
    return slot % slots_per_page_ * slot_size_;
  }

  template <class Post>
  std::uint32_t replenish_page(std::uint32_t index, Post& post) {
    Owned& owned = pages_[index];
    const std::span<State> states =
        std::span(states_).subspan(std::size_t{index} * slots_per_page_, slots_per_page_);
    if (owned.posted == slots_per_page_) return 0;
    const bool alone = owned.page && owned.page.page()->references == 1;
    const bool all_held =
        std::ranges::all_of(states, [](State state) { return state == State::held; });
    if (!owned.page || (all_held && !alone)) {
      memory::Loan fresh = pool_.take();
      if (!fresh) {
        starving_ = true;
        return 0;
      }
      owned.page = std::move(fresh);
    }
    if (alone || all_held) {
      std::ranges::replace(states, State::held, State::free);
    }
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < slots_per_page_; ++i) {
      if (states[i] != State::free) continue;
      states[i] = State::posted;
      post(index * slots_per_page_ + i);
      ++owned.posted;
      ++count;
    }
    return count;
  }

  memory::PagePool& pool_;
  std::uint32_t slot_size_;
  std::uint32_t slots_per_page_;
  std::uint32_t in_place_least_ = 0;
  bool starving_ = false;
  std::vector<Owned> pages_;
  std::vector<State> states_;
};

} // namespace fanin::net::posted
