// The fragments that a source has sent last, so that one that comes once more is told from another
// one with the same number.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/source/fragment_table.hpp"
#include "fanin/wire/fragment.hpp"

namespace fanin::source {

// Remembers so many numbers: a power of two. A fragment takes the place of an earlier one, in a
// source that has every number of the one `kept` numbers below. Allocates nothing after
// construction. Thread: one at a time.
class RecentFragments {
public:
  static constexpr std::uint32_t kept_max = 16384;
  // Of the queue with this window, a power of two.
  [[nodiscard]] static constexpr std::uint32_t kept_for(std::uint32_t window) {
    return std::min(window, kept_max);
  }
  [[nodiscard]] static constexpr std::uint64_t bytes_for(std::uint32_t window) {
    return std::uint64_t{kept_for(window)} * (sizeof(wire::FragmentEntry) + sizeof(std::uint32_t));
  }

  explicit RecentFragments(std::uint32_t kept)
      : bits_(std::countr_zero(kept)), entries_(kept), blocks_(kept, no_block) {
    FANIN_ASSERT(std::has_single_bit(kept));
  }

  void forget() { std::ranges::fill(blocks_, no_block); }
  // Those of consecutive numbers from `first` on, or that there is none. Once a fragment.
  void add(EventNumber first, std::span<const FragmentTable::Slot> slots) {
    while (!slots.empty()) {
      const std::uint32_t block = block_of(first);
      std::size_t near = first & mask();
      const auto part = slots.first(std::min(slots.size(), entries_.size() - near));
      for (const FragmentTable::Slot& slot : part) {
        const std::size_t place = near++ ^ (block & mask());
        entries_[place] = slot.entry;
        blocks_[place] = block;
      }
      first += part.size();
      slots = slots.subspan(part.size());
    }
  }
  // Of this number; absent, if it is not known.
  [[nodiscard]] wire::FragmentEntry entry(EventNumber event) const {
    const std::uint32_t block = block_of(event);
    const std::size_t place = (event ^ block) & mask();
    return blocks_[place] == block ? entries_[place]
                                   : wire::FragmentEntry::make_absent(wire::AbsentReason::none);
  }

private:
  static constexpr std::uint32_t no_block = ~std::uint32_t{0};
  [[nodiscard]] std::size_t mask() const { return entries_.size() - 1; }
  // The number without its last bits. Numbers of different blocks have different places, where they
  // are a power of two apart.
  [[nodiscard]] std::uint32_t block_of(EventNumber event) const {
    return static_cast<std::uint32_t>(event >> bits_);
  }

  int bits_;
  std::vector<wire::FragmentEntry> entries_;
  std::vector<std::uint32_t> blocks_; // of each entry
};

} // namespace fanin::source
