#include "fanin/source/fragment_queue.hpp"

#include <algorithm>
#include <bit>

#include "fanin/memory/copy.hpp"

namespace fanin::source {

namespace {
constexpr std::uint64_t first_ring = 4096; // slots in use at first
}

const char* name(DropReason reason) {
  switch (reason) {
  case DropReason::number_back: return "number_back";
  case DropReason::number_repeat: return "number_repeat";
  case DropReason::number_jump: return "number_jump";
  case DropReason::oversize: return "oversize";
  case DropReason::late: return "late";
  }
  return "unknown";
}

FragmentQueue::FragmentQueue(const FragmentQueueOptions& options, memory::PagePool& pool)
    : options_(options),
      pool_(pool),
      page_size_(pool.page_size()),
      window_(options.window),
      slots_(options.window),
      held_(pool.pages() + 1) {
  FANIN_ASSERT(std::has_single_bit(options.window));
  FANIN_ASSERT(options.fragment_max <= wire::fragment_size_mask);
  start_unnumbered();
}

void FragmentQueue::start(EventNumber first) {
  start_unnumbered();
  numbered_ = true;
  next_ = base_ = absent_end_ = first; // nothing written yet: a lower number is late
}

void FragmentQueue::start_unnumbered() {
  for (auto& page : held_) page.reset();
  page_.reset();
  position_ = page_end_ = base_position_ = end_position_ = 0;
  held_first_ = 0;
  next_ = ~EventNumber{0}; // no number is the next one: begin() takes the slow path
  base_ = 0;
  written_end_ = absent_end_ = 0;
  open_ = 0;
  writing_ = Writing::none;
  numbered_ = throttled_ = false;
  others_ = {0, event_number_end};
  mask_ = std::min(window_, first_ring) - 1;
}

WriteOutcome FragmentQueue::reject(DropReason reason) {
  ++dropped_[static_cast<std::size_t>(reason)];
  return WriteOutcome::rejected;
}

// Not a number to begin with.
bool FragmentQueue::absurd(EventNumber event) const {
  const auto ahead = [](EventNumber a, EventNumber b) { return a > b ? a - b : 0; };
  return event >= event_number_end || ahead(event, others_.end) >= window_ ||
         ahead(others_.first, event) >= window_;
}

// Everything that is not the next number in the room at hand.
WriteOutcome FragmentQueue::begin_slow(EventNumber event, std::uint32_t size) {
  throttled_ = false;
  if (!numbered_) {
    if (absurd(event)) return reject(DropReason::number_jump);
    if (event >= limit_) return WriteOutcome::full;
    start(event);
  }
  if (event < next_) {
    if (event + 1 == written_end_) return reject(DropReason::number_repeat);
    return reject(event >= written_end_ ? DropReason::late : DropReason::number_back);
  }
  if (event - next_ >= window_ || event >= event_number_end) return reject(DropReason::number_jump);
  if (size > options_.fragment_max) return reject(DropReason::oversize);
  if (event >= limit_) return WriteOutcome::full;
  if (event - base_ >= window_) {
    throttled_ = true;
    return WriteOutcome::full;
  }
  if (size > page_room() || !page_) {
    const std::uint32_t pages = std::max(1U, (size + page_size_ - 1) / page_size_);
    if (pages > pool_.pages()) return reject(DropReason::oversize);
    if (pool_.available() < pages && base_ == next_) drop_pages();
    if (pool_.available() < pages) {
      throttled_ = true;
      return WriteOutcome::full;
    }
    next_page();
  }
  fill_absent(event);
  if (event - base_ > mask_) grow(event);
  return WriteOutcome::ok;
}

// Nothing is held any more, so the page being filled may go as well: it could be the one missing.
void FragmentQueue::drop_pages() {
  for (; held_first_ * page_size_ < page_end_; ++held_first_) held_page(held_first_).reset();
  page_.reset();
  position_ = end_position_ = base_position_ = page_end_;
}

void FragmentQueue::next_page() {
  position_ = page_end_;
  page_ = pool_.take();
  FANIN_ASSERT(page_);
  held_page(page_end_ / page_size_) = page_.freeze(0, 0).page;
  page_end_ += page_size_;
}

// So that the ring has a slot for `event` too. What is held keeps its slot, or moves up by half.
void FragmentQueue::grow(EventNumber event) {
  while (event - base_ > mask_) {
    const std::uint64_t size = mask_ + 1;
    for (EventNumber held = base_; held < next_; ++held) {
      if ((held & size) != 0) slots_[(held & mask_) + size] = slots_[held & mask_];
    }
    mask_ = 2 * size - 1;
  }
}

void FragmentQueue::fill_absent(EventNumber end) {
  if (next_ >= end) return;
  if (end - 1 - base_ > mask_) grow(end - 1);
  absent_end_ = end;
  for (; next_ < end; ++next_) {
    slots_[next_ & mask_] = {end_position_, {wire::fragment_absent, 0}};
  }
}

WriteOutcome FragmentQueue::write(EventNumber event, std::span<const std::byte> payload,
                                  std::uint32_t flags) {
  const auto size = static_cast<std::uint32_t>(
      std::min<std::size_t>(payload.size(), std::size_t{options_.fragment_max} + 1));
  const auto copy = [&](std::span<std::byte> room) {
    memory::copy(room.data(), payload.first(room.size()));
  };
  if (flags == 0 && !payload.empty() && write_next(event, size, copy)) return WriteOutcome::ok;
  const WriteOutcome outcome = begin(event, size);
  if (outcome != WriteOutcome::ok) return outcome;
  while (!payload.empty()) {
    const auto space = room();
    memory::copy(space.data(), payload.first(space.size()));
    advance(static_cast<std::uint32_t>(space.size()));
    payload = payload.subspan(space.size());
  }
  end(flags);
  return WriteOutcome::ok;
}

void FragmentQueue::cancel() {
  // Nobody has seen the bytes: of the page at hand they are taken back.
  position_ = std::max(end_position_, page_end_ - page_size_);
  end_position_ = position_;
  open_ = 0;
  writing_ = Writing::none;
}

bool FragmentQueue::skip_to(EventNumber event) {
  FANIN_ASSERT(writing_ == Writing::none);
  throttled_ = false;
  if (event >= event_number_end || (!numbered_ && absurd(event))) {
    (void)reject(DropReason::number_jump);
    return true;
  }
  if (!numbered_) start(std::min(event, limit_));
  const EventNumber wanted = std::min(event, limit_);
  const EventNumber reachable = base_ + window_;
  if (wanted > next_) fill_absent(std::min(wanted, reachable));
  throttled_ = wanted > reachable;
  return next_ >= event;
}

bool FragmentQueue::give_up_until(EventNumber event) {
  if (!numbered_) start(event);
  if (event > next_ && writing_ == Writing::open) writing_ = Writing::given_up;
  if (event > next_) fill_absent(std::min(event, base_ + window_));
  return next_ >= event;
}

memory::View FragmentQueue::view(std::uint64_t position, std::uint32_t size) const {
  if (size == 0) return {};
  const auto& page = held_[position / page_size_ % held_.size()];
  return memory::View{page, static_cast<std::uint32_t>(position % page_size_), size};
}

Piece FragmentQueue::cut(Cursor& cursor, EventNumber end, std::uint32_t payload_max,
                         std::uint32_t entries_max, wire::FragmentEntry* table) const {
  const EventNumber first = cursor.event;
  const auto fits_one_page = [this](std::uint64_t at, std::uint32_t size) {
    return at % page_size_ + size <= page_size_;
  };
  const wire::FragmentEntry head = entry(first);
  if (head.size() > payload_max || !fits_one_page(position(first), head.size())) {
    const std::uint64_t at = position(first) + cursor.payload_offset;
    const auto in_page = static_cast<std::uint32_t>(page_size_ - at % page_size_);
    const std::uint32_t size =
        std::min({head.size() - cursor.payload_offset, payload_max, in_page});
    const Piece piece{{first, first + 1}, cursor.payload_offset, true, view(at, size)};
    table[0] = head;
    cursor.payload_offset += size;
    if (cursor.payload_offset == head.size()) cursor = {first + 1, 0};
    return piece;
  }

  EventNumber event = first;
  const EventNumber stop = std::min(end, first + entries_max);
  while (event < stop && event < base_) table[event++ - first] = {wire::fragment_absent, 0};
  std::uint64_t start = 0;
  std::uint32_t bytes = 0;
  for (; event < stop; ++event) {
    const Slot& slot = slots_[event & mask_];
    const std::uint32_t size = slot.entry.size();
    if (size != 0) {
      if (bytes == 0) {
        start = slot.position;
        if (size > payload_max || !fits_one_page(start, size)) break;
      } else if (slot.position != start + bytes || size > payload_max - bytes ||
                 !fits_one_page(start, bytes + size)) {
        break;
      }
      bytes += size;
    }
    table[event - first] = slot.entry;
  }
  cursor = {event, 0};
  return {{first, event}, 0, false, view(start, bytes)};
}

void FragmentQueue::release_until(EventNumber event) {
  event = std::min(event, next_);
  if (event <= base_) return;
  base_position_ = position(event);
  base_ = event;
  // The page being filled stays, and so does one that holds a byte of a later event.
  const std::uint64_t newest = position_ == 0 ? 0 : position_ - 1;
  const std::uint64_t keep = std::min(base_position_, newest) / page_size_;
  for (; held_first_ < keep; ++held_first_) held_page(held_first_).reset();
}

} // namespace fanin::source
