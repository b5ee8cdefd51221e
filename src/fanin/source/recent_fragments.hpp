// The fragments that a source has sent last, so that one that comes once more is told from another
// one with the same number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "fanin/base/identity.hpp"
#include "fanin/source/fragment_table.hpp"
#include "fanin/wire/fragment.hpp"

namespace fanin::source {

// A fragment takes the place of an earlier one, in a source that has every number of the one `kept`
// numbers below. Thread: one at a time.
class RecentFragments {
public:
  static constexpr std::uint64_t kept = 16384;

  void forget() { std::ranges::fill(blocks_, no_block); }
  // Those of consecutive numbers from `first` on, or that there is none. Once a fragment.
  void add(EventNumber first, std::span<const FragmentTable::Slot> slots) {
    if (entries_.empty()) {
      entries_.resize(kept);
      blocks_.resize(kept, no_block);
    }
    while (!slots.empty()) {
      const auto part = slots.first(std::min<std::size_t>(slots.size(), kept - first % kept));
      const std::uint32_t block = block_of(first);
      std::uint64_t near = first % kept;
      for (const FragmentTable::Slot& slot : part) {
        const std::uint64_t place = near++ ^ block % kept;
        entries_[place] = slot.entry;
        blocks_[place] = block;
      }
      first += part.size();
      slots = slots.subspan(part.size());
    }
  }
  // Of this number; absent, if it is not known.
  [[nodiscard]] wire::FragmentEntry entry(EventNumber event) const {
    const std::uint64_t place = event % kept ^ block_of(event) % kept;
    const bool known = !entries_.empty() && blocks_[place] == block_of(event);
    return known ? entries_[place] : wire::FragmentEntry::make_absent(wire::AbsentReason::none);
  }

private:
  static constexpr std::uint32_t no_block = ~std::uint32_t{0};
  // The number without its last bits. Numbers of different blocks have different places, where they
  // are a power of two apart.
  static std::uint32_t block_of(EventNumber event) {
    return static_cast<std::uint32_t>(event / kept);
  }

  // Allocated with the first one.
  std::vector<wire::FragmentEntry> entries_;
  std::vector<std::uint32_t> blocks_; // of each entry
};

} // namespace fanin::source
