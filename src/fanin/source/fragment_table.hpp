/// \file
/// Which consecutive event numbers of a source have a fragment: a slot for each number that has
/// one, and a range for each gap. So what is held is bounded by the number of fragments, and not by
/// how far their numbers are apart. Short gaps are stored as slots without a fragment.
///
/// It allocates nothing after construction, and knows no page. Thread: one at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/wire/fragment.hpp"

namespace fanin::source {

class FragmentTable {
public:
  struct Slot {
    std::uint64_t position = 0; ///< of the payload's first byte in what the source has written
    wire::FragmentEntry entry;
  };
  static_assert(sizeof(Slot) == 16);
  /// Consecutive numbers without slots. Numbers behind the gap, up to the next gap, have the slots
  /// number + shift.
  struct Gap {
    EventRange range;
    std::uint64_t position = 0;
    std::uint32_t shift = 0; // 32 bits, which wrap: there are far fewer slots
    wire::AbsentReason why{};
  };
  static_assert(sizeof(Gap) == 32);
  /// Gaps of fewer numbers are stored as slots.
  static constexpr EventNumber gap_least = 16;
  /// Memory of a table with this window.
  [[nodiscard]] static constexpr std::uint64_t bytes_for(std::uint64_t window) {
    return window * sizeof(Slot) + window / gap_least * sizeof(Gap);
  }

  /// `window`: slots, a power of two.
  FANIN_API explicit FragmentTable(std::uint32_t window);

  /// Forgets everything. Numbers begin at `first`; not_begun: no number is the next one.
  FANIN_API void begin_at(EventNumber first);
  static constexpr EventNumber not_begun = ~EventNumber{0};
  [[nodiscard]] bool begun() const { return next_ != not_begun; }

  /// All numbers below are answered.
  [[nodiscard]] EventNumber next() const { return next_; }
  /// Numbers below are released.
  [[nodiscard]] EventNumber base() const { return base_; }
  [[nodiscard]] bool empty() const { return base_ == next_; }
  /// The numbers from next() on and below this one can be added at once.
  [[nodiscard]] EventNumber room_end() const { return next_ + (mask_ + 1 - used()); }

  /// Whether there is room for a fragment of `event`, and for the gap in front of it. Requires an
  /// event not below next().
  [[nodiscard]] FANIN_API bool has_room(EventNumber event) const;
  /// Makes room_end() larger than next(). Requires has_room(next()).
  FANIN_API void grow();

  /// The slot of next(). Requires next() below room_end().
  [[nodiscard]] Slot& next_slot() { return slots_[index(next_, shift_)]; }
  /// Answers next() with the content of next_slot().
  void add_next() { ++next_; }
  /// Answers the numbers from next() on and below `end`: they have no fragment. False: there is no
  /// room, and nothing was done.
  [[nodiscard]] FANIN_API bool add_absent(EventNumber end, std::uint64_t position,
                                          wire::AbsentReason why);

  /// Consecutive numbers that are all in one gap, or all have slots.
  struct Section {
    const Gap* gap = nullptr; ///< of which they are a part; null: they have slots
    EventNumber end = 0;
    std::uint32_t shift = 0;
  };
  /// The section of `event`, which is answered and not released.
  [[nodiscard]] Section section(EventNumber event) const {
    FANIN_ASSERT(event >= base_ && event < next_);
    if (gap_count_ == 0) [[likely]] {
      return {nullptr, next_, shift_};
    }
    return section_between_gaps(event);
  }
  /// The slot of `event`, which is in `section`. Requires a section with slots.
  [[nodiscard]] const Slot& slot(EventNumber event, const Section& section) const {
    return slots_[index(event, section.shift)];
  }
  /// The slots from `event` on and below `end`, as far as they lie side by side. Requires a section
  /// with slots that `end` does not go beyond.
  [[nodiscard]] std::span<const Slot> slots(EventNumber event, EventNumber end,
                                            const Section& section) const {
    const std::size_t at = index(event, section.shift);
    return std::span(slots_).subspan(at, std::min<std::size_t>(end - event, mask_ + 1 - at));
  }
  /// Where the fragment of this number is, or would be; answered and not released.
  [[nodiscard]] std::uint64_t position(EventNumber event) const {
    const Section at = section(event);
    return at.gap != nullptr ? at.gap->position : slot(event, at).position;
  }
  [[nodiscard]] wire::FragmentEntry entry(EventNumber event) const {
    const Section at = section(event);
    return at.gap != nullptr ? wire::FragmentEntry::make_absent(at.gap->why)
                             : slot(event, at).entry;
  }
  /// All numbers from `event` on and below the result have the same entry: `event` alone, or a gap.
  /// Numbers from the result on may have it too.
  [[nodiscard]] EventNumber alike_until(EventNumber event) const {
    const Section at = section(event);
    return at.gap != nullptr ? at.end : event + 1;
  }
  /// No number from here on is absent, up to next().
  [[nodiscard]] EventNumber absent_end() const { return absent_end_; }

  FANIN_API void release_until(EventNumber event); ///< at most next()
  /// Forgets the numbers from `event` on; next() is `event` then. Requires an answered event above
  /// base().
  FANIN_API void cut_back(EventNumber event);

private:
  [[nodiscard]] std::size_t index(EventNumber event, std::uint32_t shift) const {
    return (static_cast<std::uint32_t>(event) + shift) & mask_;
  }
  // slots
  [[nodiscard]] std::uint32_t used() const {
    return static_cast<std::uint32_t>(next_) + shift_ - base_slot_;
  }
  [[nodiscard]] const Gap& gap(std::size_t i) const {
    return gaps_[(first_gap_ + i) & (gaps_.size() - 1)];
  }
  [[nodiscard]] Gap& gap(std::size_t i) { return gaps_[(first_gap_ + i) & (gaps_.size() - 1)]; }
  // Whether the numbers below `end` become a gap, and not slots: one stays free behind them.
  [[nodiscard]] bool needs_range(EventNumber end) const {
    return end - next_ >= gap_least || end - next_ >= slots_.size() - used();
  }
  [[nodiscard]] bool fits_slots(EventNumber count) const { return count <= slots_.size() - used(); }
  FANIN_API Section section_between_gaps(EventNumber event) const;

  EventNumber next_ = 0;
  EventNumber base_ = 0;
  std::uint32_t shift_ = 0; // of next()
  std::uint32_t mask_ = 0;
  std::uint32_t base_slot_ = 0; // of the first number that is not released and has a slot
  // As many as the window. The ring takes the first ones, and more of them as more is held: what is
  // not needed stays out of the cache.
  std::vector<Slot> slots_;
  std::vector<Gap> gaps_; // a ring
  std::size_t first_gap_ = 0;
  std::size_t gap_count_ = 0;
  std::uint32_t base_shift_ = 0; // of numbers below the first of them
  EventNumber absent_end_ = 0;
};

} // namespace fanin::source
