// The fragments that a source has sent last, so that one that comes once more is told from another
// one with the same number.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/wire/fragment.hpp"

namespace fanin::source {

// Remembers so many numbers: a power of two. Numbers rise; the oldest is forgotten for a new one.
// Allocates nothing after construction. Thread: one at a time.
class RecentFragments {
public:
  static constexpr std::uint32_t kept_max = 16384;
  // Of the queue with this window, a power of two.
  [[nodiscard]] static constexpr std::uint32_t kept_for(std::uint32_t window) {
    return std::min(window, kept_max);
  }
  [[nodiscard]] static constexpr std::uint64_t bytes_for(std::uint32_t window) {
    return kept_for(window) * sizeof(Kept);
  }

  explicit RecentFragments(std::uint32_t kept) : kept_(kept) {
    FANIN_ASSERT(std::has_single_bit(kept));
  }

  void forget() { added_ = 0; }
  // The fragment of this number; or the reason why this number, and those before it that were not
  // added, have none. Numbers of which nothing is added have none, either. Once a fragment.
  void add(EventNumber number, wire::FragmentEntry entry) {
    kept_[added_ & mask()] = {number, entry};
    ++added_;
  }
  // Of this number, absent if it has none. Nothing: it was forgotten, or is above the last one.
  [[nodiscard]] std::optional<wire::FragmentEntry> entry(EventNumber number) const {
    std::uint64_t first = added_ - std::min<std::uint64_t>(added_, kept_.size());
    if (first == added_ || number < at(first).number) return {};
    for (std::uint64_t end = added_; first < end;) { // to the first one that is not below
      const std::uint64_t middle = first + (end - first) / 2;
      at(middle).number < number ? first = middle + 1 : end = middle;
    }
    if (first == added_) return {};
    const Kept& kept = at(first);
    const bool of_number = kept.number == number || kept.entry.absent();
    return of_number ? kept.entry : wire::FragmentEntry::make_absent(wire::AbsentReason::none);
  }

private:
  struct Kept {
    EventNumber number = 0;
    wire::FragmentEntry entry;
  };
  [[nodiscard]] std::uint64_t mask() const { return kept_.size() - 1; }
  [[nodiscard]] const Kept& at(std::uint64_t i) const { return kept_[i & mask()]; }

  std::vector<Kept> kept_; // a ring
  std::uint64_t added_ = 0;
};

} // namespace fanin::source
