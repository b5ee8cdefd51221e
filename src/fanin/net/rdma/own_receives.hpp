// The receives that a connection has posted for itself. A page whose slots are all held is replaced
// by another one of the pool, or used again when nobody holds anything of it any more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/net/rdma/receives.hpp"
#include "fanin/net/rdma/slot_layout.hpp"

namespace fanin::net::rdma {

class OwnReceives final : public Receives {
public:
  // `pages` are owned, in so far as the pool has them; `most` receives are posted at once.
  OwnReceives(Endpoint& endpoint, memory::PagePool& pool, std::uint32_t max_message,
              std::uint32_t pages, std::uint32_t most)
      : pool_(pool),
        layout_(pool, max_message, most / pages),
        pages_(pages),
        states_(std::size_t{pages} * layout_.per_page()),
        operations_(states_.size()) {
    for (std::uint32_t slot = 0; slot < operations_.size(); ++slot)
      operations_[slot] = {.endpoint = &endpoint, .number = slot, .kind = Operation::Kind::receive};
  }

  [[nodiscard]] std::uint32_t most() const override {
    return static_cast<std::uint32_t>(states_.size());
  }
  [[nodiscard]] std::uint32_t slot_size() const override { return layout_.size(); }
  [[nodiscard]] bool shared() const override { return false; }

  [[nodiscard]] std::uint32_t replenish(std::vector<Receive>& to) override {
    std::uint32_t count = 0;
    starved_ = false;
    const std::size_t allowed = limited_ ? 1 : pages_.size();
    for (std::uint32_t page = 0; page < allowed; ++page) count += replenish_page(page, to);
    return count;
  }
  [[nodiscard]] std::uint32_t replenish(std::uint32_t slot, std::vector<Receive>& to) override {
    return replenish_page(layout_.page_of(slot), to);
  }
  [[nodiscard]] bool starved() const override { return starved_; }
  [[nodiscard]] bool can_replenish() const override {
    if (!starved_) return false;
    if (pool_.available() > 0) return true;
    return std::ranges::any_of(pages_, [](const Owned& owned) {
      return owned.posted == 0 && owned.page && owned.page.page()->references == 1;
    });
  }

  [[nodiscard]] memory::View take(std::uint32_t slot, std::uint32_t size, bool roomy,
                                  PageFiller& filler, bool& moved) override {
    Owned& owned = pages_[layout_.page_of(slot)];
    const std::uint32_t offset = layout_.offset(slot);
    memory::View view;
    moved = layout_.move_out(owned.page.data() + offset, size, roomy, filler, view);
    drop(slot);
    if (moved || size == 0) return view;
    states_[slot] = State::held;
    return owned.page.freeze(offset, size);
  }
  void drop(std::uint32_t slot) override {
    FANIN_ASSERT(states_[slot] == State::posted);
    states_[slot] = State::free;
    --pages_[layout_.page_of(slot)].posted;
  }

  void replace_used(std::vector<Receive>&) override {}
  void give_back() override { pages_.clear(); }
  void set_limited(bool limited) override { limited_ = limited; }

private:
  enum class State : std::uint8_t { free, posted, held };
  struct Owned {
    memory::Loan page;
    std::uint32_t posted = 0;
  };

  std::uint32_t replenish_page(std::uint32_t index, std::vector<Receive>& to) {
    Owned& owned = pages_[index];
    const std::uint32_t first = index * layout_.per_page();
    const std::span<State> states = std::span(states_).subspan(first, layout_.per_page());
    if (owned.posted == states.size()) return 0;
    const bool alone = owned.page && owned.page.page()->references == 1;
    const bool all_held =
        std::ranges::all_of(states, [](State state) { return state == State::held; });
    if (!owned.page || (all_held && !alone)) {
      memory::Loan fresh = pool_.take();
      if (!fresh) {
        starved_ = true;
        return 0;
      }
      owned.page = std::move(fresh);
    }
    if (alone || all_held) {
      std::ranges::replace(states, State::held, State::free);
    }
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < states.size(); ++i) {
      if (states[i] != State::free) continue;
      states[i] = State::posted;
      const std::uint32_t slot = first + i;
      to.push_back({owned.page.data() + layout_.offset(slot), &operations_[slot]});
      ++owned.posted;
      ++count;
    }
    return count;
  }

  memory::PagePool& pool_;
  SlotLayout layout_;
  bool starved_ = false;
  bool limited_ = false;
  std::vector<Owned> pages_;
  std::vector<State> states_; // by slot
  std::vector<Operation> operations_; // by slot
};

} // namespace fanin::net::rdma
