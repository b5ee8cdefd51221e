// The fragments that a source has sent last, so that one that comes once more is told from another
// one with the same number.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "fanin/base/identity.hpp"
#include "fanin/source/fragment_table.hpp"
#include "fanin/wire/fragment.hpp"

namespace fanin::source {

// Keeps size and checksum of each. A fragment takes the place of an earlier one, in a source that
// has every number of the one `kept` numbers below. Thread: one at a time.
class RecentFragments {
public:
  static constexpr std::uint64_t kept = 16384;

  void forget() { std::ranges::fill(marks_, none); }
  // Those of consecutive numbers from `first` on, or that there is none. Once a fragment.
  void add(EventNumber first, std::span<const FragmentTable::Slot> slots) {
    if (marks_.empty()) marks_.resize(kept, none);
    while (!slots.empty()) {
      const auto block = slots.first(std::min<std::size_t>(slots.size(), kept - first % kept));
      const std::uint64_t far = first / kept;
      std::uint64_t near = first % kept;
      for (const FragmentTable::Slot& slot : block) {
        marks_[near++ ^ far % kept] = std::bit_cast<std::uint64_t>(slot.entry) ^ far * odd;
      }
      first += block.size();
      slots = slots.subspan(block.size());
    }
  }
  // Of this number. If it is not known: absent, or one that no fragment has.
  [[nodiscard]] wire::FragmentEntry entry(EventNumber event) const {
    const std::uint64_t far = event / kept;
    if (marks_.empty()) return std::bit_cast<wire::FragmentEntry>(none);
    return std::bit_cast<wire::FragmentEntry>(marks_[event % kept ^ far % kept] ^ far * odd);
  }

private:
  static constexpr std::uint64_t none = ~std::uint64_t{0}; // absent
  static constexpr std::uint64_t odd = 0x9e3779b97f4a7c15U; // 2^64 divided by the golden ratio

  std::vector<std::uint64_t> marks_; // allocated with the first one
};

} // namespace fanin::source
