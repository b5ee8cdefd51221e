#include "fanin/source/fragment_table.hpp"

#include <bit>

namespace fanin::source {

namespace {
constexpr std::uint32_t first_ring = 4096; // slots in use at first
constexpr std::uint32_t gaps_least = 4;
} // namespace

FragmentTable::FragmentTable(std::uint32_t window)
    : slots_(window), gaps_(std::max(gaps_least, static_cast<std::uint32_t>(window / gap_least))) {
  FANIN_ASSERT(std::has_single_bit(window));
  begin_at(0);
}

void FragmentTable::begin_at(EventNumber first) {
  next_ = base_ = absent_end_ = first;
  base_slot_ = static_cast<std::uint32_t>(first);
  shift_ = base_shift_ = 0;
  mask_ = std::min(static_cast<std::uint32_t>(slots_.size()), first_ring) - 1;
  first_gap_ = gap_count_ = 0;
}

bool FragmentTable::has_room(EventNumber event) const {
  if (used() == slots_.size()) return false;
  return event == next_ || !needs_range(event) || gap_count_ < gaps_.size();
}

// What is held keeps its slot, or moves up by half.
void FragmentTable::grow() {
  const std::uint32_t size = mask_ + 1;
  FANIN_ASSERT(size < slots_.size());
  const std::uint32_t end = base_slot_ + used();
  for (std::uint32_t slot = base_slot_; slot != end; ++slot) {
    if ((slot & size) != 0) slots_[(slot & mask_) + size] = slots_[slot & mask_];
  }
  mask_ = 2 * size - 1;
}

bool FragmentTable::add_absent(EventNumber end, std::uint64_t position, wire::AbsentReason why) {
  FANIN_ASSERT(end > next_);
  const EventNumber count = end - next_;
  const bool longer =
      gap_count_ > 0 && gap(gap_count_ - 1).range.end == next_ && gap(gap_count_ - 1).why == why;
  const bool in_slots = !needs_range(end) || (gap_count_ == gaps_.size() && fits_slots(count));
  if (!longer && in_slots) {
    while (next_ < end) {
      if (next_ == room_end()) grow();
      next_slot() = {position, wire::FragmentEntry::make_absent(why)};
      add_next();
    }
  } else if (longer || gap_count_ < gaps_.size()) {
    if (!longer) gap(gap_count_++) = {{next_, next_}, position, 0, why};
    shift_ -= static_cast<std::uint32_t>(count);
    next_ = end;
    Gap& last = gap(gap_count_ - 1);
    last.range.end = end;
    last.shift = shift_;
  } else {
    return false;
  }
  absent_end_ = end;
  return true;
}

FragmentTable::Section FragmentTable::section_between_gaps(EventNumber event) const {
  std::size_t begun = gap_count_; // gaps that begin at `event` or below
  if (event < gap(gap_count_ - 1).range.first) {
    std::size_t further = begun - 1; // this one and those behind it begin above
    begun = 0;
    while (begun < further) {
      const std::size_t middle = begun + (further - begun) / 2;
      if (gap(middle).range.first <= event) {
        begun = middle + 1;
      } else {
        further = middle;
      }
    }
  }
  const EventNumber end = begun < gap_count_ ? gap(begun).range.first : next_;
  if (begun == 0) return {nullptr, end, base_shift_};
  const Gap& before = gap(begun - 1);
  if (event < before.range.end) return {&before, before.range.end, before.shift};
  return {nullptr, end, before.shift};
}

void FragmentTable::release_until(EventNumber event) {
  FANIN_ASSERT(event >= base_ && event <= next_);
  for (; gap_count_ > 0 && gap(0).range.end <= event; --gap_count_) {
    base_shift_ = gap(0).shift;
    first_gap_ = (first_gap_ + 1) & (gaps_.size() - 1);
  }
  base_ = event;
  const bool in_gap = gap_count_ > 0 && gap(0).range.first <= event;
  base_slot_ = static_cast<std::uint32_t>(in_gap ? gap(0).range.end : event) +
               (in_gap ? gap(0).shift : base_shift_);
}

void FragmentTable::cut_back(EventNumber event) {
  FANIN_ASSERT(event > base_ && event < next_);
  while (gap_count_ > 0 && gap(gap_count_ - 1).range.first >= event) --gap_count_;
  shift_ = base_shift_;
  if (gap_count_ > 0) {
    Gap& last = gap(gap_count_ - 1);
    if (last.range.end > event) { // what follows keeps its slots
      last.shift += static_cast<std::uint32_t>(last.range.end - event);
      last.range.end = event;
    }
    shift_ = last.shift;
  }
  next_ = event;
  absent_end_ = std::min(absent_end_, event);
}

} // namespace fanin::source
