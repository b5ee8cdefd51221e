// Receives that the connections of one device have in common, so that many peers need less memory
// (InfiniBand's shared receive queue; docs/modules/net/rdma.md says what it saves). Messages take
// them in the order of posting, whoever sends, so pages fill up one after the other. No more is
// promised to all peers together, in credits and receives reserved for them (credits.hpp), than is
// posted: a receive is always ready, as it is without sharing.
//
// A page whose slots all hold messages is released, and another one is taken when promises need it.
// While there are more pages than promises need, pages of which nobody holds a message any more are
// posted again first.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/net/rdma/credits.hpp"
#include "fanin/net/rdma/receives.hpp"
#include "fanin/net/rdma/slot_layout.hpp"

namespace fanin::net::rdma {

class SharedReceives {
public:
  class Share;

  static constexpr std::uint32_t slots_most = 32; // of a page

  // `device`: of the endpoints that may use it. `layout`: of slots_most.
  SharedReceives(const void* device, memory::PagePool& pool, SlotLayout layout,
                 std::unique_ptr<SharedReceiveQueue> queue)
      : device_(device), pool_(pool), layout_(layout), queue_(std::move(queue)) {}

  [[nodiscard]] SharedReceiveQueue& queue() { return *queue_; }
  // Whether a connection, whose peer may use so many receives at once, can have a share.
  [[nodiscard]] bool suits(const void* device, const memory::PagePool& pool,
                           const SlotLayout& layout, std::uint32_t window) const {
    return device == device_ && &pool == &pool_ && layout.size() == layout_.size() &&
           windows_ + window + layout_.per_page() <= queue_->most();
  }
  [[nodiscard]] bool unused() const { return shares_ == 0; }
  // Pages may have come back since can_post() looked for them.
  void try_again() { none_released_ = false; }

  // A receive has completed for an endpoint that is no more.
  void forget(std::uint32_t slot) {
    --posted_;
    free_slots_.push_back(slot);
  }

private:
  struct Page {
    memory::Loan page;
    std::uint32_t held = 0; // a bit for each slot
    std::vector<Operation> operations; // by slot
    [[nodiscard]] bool released() const { return held != 0 && page.page()->references == 1; }
  };

  [[nodiscard]] std::uint32_t spare() const {
    return posted_ > promised_ ? posted_ - promised_ : 0;
  }
  [[nodiscard]] bool can_post() {
    if (!free_slots_.empty() || pool_.available() > 0) return true;
    if (!none_released_) none_released_ = std::ranges::none_of(pages_, &Page::released);
    return !none_released_;
  }
  // There are more pages than the promises fill and the one that is being filled.
  [[nodiscard]] bool has_many_pages() const {
    return pages_.size() - free_pages_.size() > promised_ / layout_.per_page() + 1;
  }

  [[nodiscard]] bool post_more(std::vector<Receive>& to) {
    if (free_slots_.empty() && (has_many_pages() || pool_.available() == 0)) find_released();
    if (!free_slots_.empty()) {
      post(free_slots_.back(), to);
      free_slots_.pop_back();
      return true;
    }
    memory::Loan fresh = pool_.take();
    if (!fresh) return false;
    if (free_pages_.empty()) add_page();
    const std::uint32_t index = free_pages_.back();
    free_pages_.pop_back();
    pages_[index].page = std::move(fresh);
    for (std::uint32_t i = 0; i < layout_.per_page(); ++i) post(index * layout_.per_page() + i, to);
    return true;
  }
  void find_released() {
    for (std::uint32_t index = 0; index < pages_.size(); ++index) {
      Page& page = pages_[index];
      if (!page.released()) continue;
      for (std::uint32_t i = 0; i < layout_.per_page(); ++i) {
        if ((page.held >> i & 1) != 0) free_slots_.push_back(index * layout_.per_page() + i);
      }
      page.held = 0;
    }
  }
  void add_page() {
    const auto index = static_cast<std::uint32_t>(pages_.size());
    std::vector<Operation>& operations = pages_.emplace_back().operations;
    for (std::uint32_t i = 0; i < layout_.per_page(); ++i) {
      operations.push_back({.shared = this,
                            .number = index * layout_.per_page() + i,
                            .kind = Operation::Kind::receive});
    }
    free_pages_.push_back(index);
  }
  void post(std::uint32_t slot, std::vector<Receive>& to) {
    Page& page = pages_[layout_.page_of(slot)];
    to.push_back(
        {page.page.data() + layout_.offset(slot), &page.operations[slot % layout_.per_page()]});
    ++posted_;
  }

  const void* device_;
  memory::PagePool& pool_;
  SlotLayout layout_;
  std::deque<Page> pages_; // which stay where they are
  std::vector<std::uint32_t> free_pages_; // have no page
  std::vector<std::uint32_t> free_slots_;
  bool none_released_ = false; // no page had come back when they were looked through
  std::uint32_t posted_ = 0; // receives, not taken yet
  std::uint32_t promised_ = 0; // of them, to peers
  std::uint32_t windows_ = 0; // the most that could be promised
  std::uint32_t shares_ = 0;
  std::unique_ptr<SharedReceiveQueue> queue_; // ends before the pages
};

// One connection's.
class SharedReceives::Share final : public Receives {
public:
  Share(SharedReceives& all, std::uint32_t window) : all_(all), window_(window) {
    ++all_.shares_;
    all_.windows_ += window_;
  }
  // Its endpoint is no more.
  ~Share() override {
    --all_.shares_;
    all_.windows_ -= window_;
    all_.promised_ -= promised_;
  }

  [[nodiscard]] std::uint32_t most() const override { return window_; }
  [[nodiscard]] std::uint32_t slot_size() const override { return all_.layout_.size(); }
  [[nodiscard]] bool shared() const override { return true; }

  [[nodiscard]] std::uint32_t replenish(std::vector<Receive>& to) override {
    const std::uint32_t window = limited_ ? std::min(window_, Credits::reserved + 1) : window_;
    const std::uint32_t wanted = window > promised_ ? window - promised_ : 0;
    while (all_.spare() < wanted && all_.post_more(to)) {
    }
    const std::uint32_t more = std::min(wanted, all_.spare());
    starved_ = more < wanted;
    promised_ += more;
    all_.promised_ += more;
    return more;
  }
  [[nodiscard]] std::uint32_t replenish(std::uint32_t, std::vector<Receive>& to) override {
    return replenish(to);
  }
  [[nodiscard]] bool starved() const override { return starved_; }
  [[nodiscard]] bool can_replenish() const override {
    return starved_ && (all_.spare() > 0 || all_.can_post());
  }

  [[nodiscard]] memory::View take(std::uint32_t slot, std::uint32_t size, bool roomy,
                                  PageFiller& filler, bool& moved) override {
    const std::uint32_t index = all_.layout_.page_of(slot);
    const std::uint32_t offset = all_.layout_.offset(slot);
    Page& page = all_.pages_[index];
    memory::View view;
    moved = all_.layout_.move_out(page.page.data() + offset, size, roomy, filler, view);
    if (moved || size == 0) {
      drop(slot);
      return view;
    }
    use();
    view = page.page.freeze(offset, size);
    const std::uint32_t per_page = all_.layout_.per_page();
    page.held |= 1U << slot % per_page;
    if (static_cast<std::uint32_t>(std::popcount(page.held)) < per_page) return view;
    page.held = 0;
    page.page = {};
    all_.free_pages_.push_back(index);
    return view;
  }
  void drop(std::uint32_t slot) override {
    use();
    all_.free_slots_.push_back(slot);
  }
  void replace_used(std::vector<Receive>& to) override {
    while (all_.posted_ < all_.promised_ && all_.post_more(to)) {
    }
  }
  // What it was promised may be in use until its endpoint is no more.
  void give_back() override {}
  void set_limited(bool limited) override { limited_ = limited; }

private:
  void use() {
    FANIN_ASSERT(all_.posted_ > 0 && promised_ <= all_.promised_);
    --all_.posted_;
    if (promised_ == 0) return; // more than the peer was allowed to
    --promised_;
    --all_.promised_;
  }

  SharedReceives& all_;
  std::uint32_t window_;
  std::uint32_t promised_ = 0;
  bool starved_ = false;
  bool limited_ = false;
};

} // namespace fanin::net::rdma
