#include "fanin/source/fragment_queue.hpp"

#include <algorithm>
#include <bit>

#include "fanin/memory/copy.hpp"

namespace fanin::source {

namespace {
constexpr std::uint64_t first_ring = 4096; // slots in use at first
}

FragmentQueue::FragmentQueue(const FragmentQueueOptions& options, memory::PagePool& pool)
    : options_(options),
      pool_(pool),
      page_size_(pool.page_size()),
      window_(options.window),
      slots_(options.window),
      held_pages_(pool.pages() + 1),
      numbering_(options.counter_bits, options.offset),
      judge_(options.near, options.first) {
  FANIN_ASSERT(std::has_single_bit(options.window));
  FANIN_ASSERT(options.fragment_max <= wire::fragment_size_mask);
  start_unnumbered();
}

void FragmentQueue::start(EventNumber first) {
  start_unnumbered();
  judge_.join();
  number_from(first);
}

void FragmentQueue::start_unnumbered() {
  for (auto& page : held_pages_) page.reset();
  page_.reset();
  position_ = page_end_ = base_position_ = end_position_ = 0;
  held_first_ = 0;
  next_ = ~EventNumber{0}; // no number is the next one: begin() takes the slow path
  base_ = 0;
  written_end_ = said_end_ = late_end_ = absent_end_ = 0;
  jumped_ = written_;
  open_ = 0;
  writing_ = Writing::none;
  numbered_ = throttled_ = limit_is_last_ = false;
  set_may_fall(Fall::no);
  judge_.restart();
  held_.reset();
  leapt_ = {};
  dropped_there_ = 0;
  mask_ = std::min(window_, first_ring) - 1;
  find_fast_end();
}

// Nothing is written yet: a lower number is late. What was dropped before had numbers of its own.
void FragmentQueue::number_from(EventNumber first) {
  if (!numbered_ && dropped_at_ == next_) {
    leapt_ = {first - std::min(first, dropped_there_), first};
    leapt_why_ = wire::AbsentReason::dropped;
  }
  numbered_ = true;
  next_ = base_ = absent_end_ = first;
  find_fast_end();
}

// Numbers that are held, and counters of which more is to be known, are not for the fast path.
void FragmentQueue::find_fast_end() {
  const bool slow = held_ || !numbering_.plain() || judge_.waits_for_first();
  fast_end_ = slow ? 0 : limit_;
}

WriteOutcome FragmentQueue::reject(wire::DropReason reason) {
  ++dropped_[static_cast<std::size_t>(reason)];
  if (reason <= wire::DropReason::number_jump) { // of a fragment that may have been the next one
    dropped_there_ = dropped_at_ == next_ ? dropped_there_ + 1 : 1;
    dropped_at_ = next_;
  }
  return WriteOutcome::rejected;
}

// Extended from what the source itself has said: that it was given up moves its counter by nothing.
EventNumber FragmentQueue::number_of(std::uint64_t counter) const {
  if (numbered_) return numbering_.near(counter, said_end_ != 0 ? said_end_ : next_);
  const EventNumber event = numbering_.first_turn(counter);
  if (!held_) return event;
  const EventNumber near = numbering_.near(counter, held_->event); // over the counter's wrap
  return near > held_->event && near - held_->event < options_.near ? near : event;
}

bool FragmentQueue::too_large(std::uint32_t size) const {
  return size > options_.fragment_max || size > std::uint64_t{pool_.pages()} * page_size_;
}

// Everything that is not the next number in the room at hand.
WriteOutcome FragmentQueue::begin_slow(std::uint64_t counter, std::uint32_t size) {
  throttled_ = false;
  if (written_end_ != 0) judge_.accepted_up_to(written_end_ - 1); // what took the fast path
  const EventNumber event = number_of(counter);
  if (event >= event_number_end) return reject(wire::DropReason::number_jump);
  if (judge_.too_early(event)) return reject(wire::DropReason::before_first);
  if (numbered_ && event < next_ && fall_ == Fall::no) return reject_old(event);
  if (held_ && !judge_held(event)) return WriteOutcome::full;
  return judge_.follows(event, next()) ? begin_next(event, size) : begin_held(event, size);
}

// It is below what was answered, and so below a number that is held, which is wrong then.
WriteOutcome FragmentQueue::reject_old(EventNumber event) {
  if (judge_.waits_for_first()) {
    judge_.join();
    find_fast_end();
  }
  if (held_ && !held_->right) drop_held();
  if (event + 1 == written_end_) return reject(wire::DropReason::number_repeat);
  if (event < written_end_) {
    last_back_ = event;
    return reject(wire::DropReason::number_back);
  }
  return reject_late(event);
}

WriteOutcome FragmentQueue::reject_late(EventNumber event) {
  said_end_ = event + 1;
  late_end_ = std::max(late_end_, said_end_);
  return reject(wire::DropReason::late);
}

WriteOutcome FragmentQueue::begin_next(EventNumber event, std::uint32_t size) {
  if (event >= limit_) return WriteOutcome::full;
  if (!numbered_) number_from(event);
  if (!reach(event)) return WriteOutcome::full;
  if (too_large(size)) {
    fill_absent(event, reason_of_skip(event));
    fill_absent(event + 1, wire::AbsentReason::dropped);
    written_end_ = said_end_ = next_;
    judge_.accepted(event);
    return reject(wire::DropReason::oversize);
  }
  if (!make_room(size)) return WriteOutcome::full;
  fill_absent(event, reason_of_skip(event));
  if (event - base_ > mask_) grow(event);
  note_step(event);
  judge_.accepted(event);
  said_end_ = event + 1;
  find_fast_end();
  writing_ = Writing::open;
  open_ = size;
  crc_ = 0;
  slots_[event & mask_].position = position_;
  return WriteOutcome::ok;
}

WriteOutcome FragmentQueue::begin_held(EventNumber event, std::uint32_t size) {
  if (too_large(size)) {
    const auto dropped = wire::FragmentEntry::make_absent(wire::AbsentReason::dropped);
    held_ = {.event = event, .position = position_, .entry = dropped};
    find_fast_end();
    return reject(wire::DropReason::oversize);
  }
  if (!make_room(size)) {
    if (!numbered_ || event >= next_) return WriteOutcome::full;
    // What fills all pages is of no use if the counter was reset.
    held_ = {.event = event,
             .position = position_,
             .entry = wire::FragmentEntry::make_absent(wire::AbsentReason::dropped)};
    throttled_ = false;
    return reject(wire::DropReason::number_back);
  }
  aside_ = {.event = event, .position = position_, .entry = {}};
  writing_ = Writing::to_hold;
  open_ = size;
  crc_ = 0;
  return WriteOutcome::ok;
}

void FragmentQueue::end_aside(std::uint32_t flags) {
  const bool late = writing_ == Writing::given_up;
  if (late || (numbered_ && aside_.event < next_ && fall_ == Fall::no)) {
    reject_late(aside_.event);
    return cancel();
  }
  aside_.entry = {static_cast<std::uint32_t>(position_ - aside_.position) | flags, crc_};
  held_ = aside_;
  writing_ = Writing::none;
  find_fast_end();
}

// False: it is right, and there is no room for it now; or others are asked about it.
bool FragmentQueue::judge_held(EventNumber following) {
  if (held_->right) return take();
  if (options_.asks_others && judge_.jumps_twice(held_->event, following, next())) {
    held_->following = following;
    throttled_ = true;
    return false;
  }
  return settle(following);
}

bool FragmentQueue::settle(EventNumber following) {
  switch (judge_.by_next(held_->event, following, next())) {
  case NumberJudge::Verdict::right: return take();
  case NumberJudge::Verdict::wrong:
    if (following > held_->event) judge_.dropped_jump();
    drop_held();
    break;
  case NumberJudge::Verdict::afresh:
    if (fall_ == Fall::ask) {
      fall_wanted_ = throttled_ = true;
      return false;
    }
    if (fall_ == Fall::yes) {
      begin_afresh();
      return take();
    }
    drop_held();
  }
  return true;
}

// What is held is right: numbers below are skipped. False: there is no room, or it is not wanted.
bool FragmentQueue::take() {
  held_->right = true;
  const Held held = *held_;
  const bool skip = held.entry.absent();
  if (held.event >= limit_ && !limit_is_last_) return false;
  if (held.event >= limit_) {
    if (!skip) take_back(held.position);
    forget_held();
    return true;
  }
  if (written_end_ != 0) judge_.accepted_up_to(written_end_ - 1);
  const bool only_skipped = held.entry == wire::FragmentEntry::make_absent({});
  if (!numbered_) number_from(only_skipped ? held.event + 1 : held.event);
  if (held.event >= next_ && !reach(held.event)) return false;
  fill_absent(held.event, reason_of_skip(held.event));
  if (skip) {
    fill_absent(held.event + 1, static_cast<wire::AbsentReason>(held.entry.crc32c));
  } else {
    if (held.event - base_ > mask_) grow(held.event);
    slots_[held.event & mask_] = {held.position, held.entry};
    note_step(held.event);
    end_position_ = position_;
    written_end_ = ++next_;
    ++written_;
    judge_.accepted(held.event);
  }
  said_end_ = next_;
  forget_held();
  return true;
}

bool FragmentQueue::look_at_held() {
  if (!held_ || fallen()) return false;
  if (held_->right || judge_.reached(held_->event)) return take();
  if (!held_->following) return false;
  if (!judge_.waits_for_others(held_->event)) {
    decide_unclear();
    return true;
  }
  const EventNumber then = held_->others_then.value_or(event_number_end);
  if (!judge_.left_behind(next_, then)) return false;
  drop_held();
  return true;
}

void FragmentQueue::decide_unclear() {
  if (!unclear()) return;
  if (held_->right) return drop_held();
  const EventNumber following = *held_->following;
  held_->following.reset();
  (void)settle(following);
}

bool FragmentQueue::confirm_held() { return held_ && !fallen() && take(); }

void FragmentQueue::end_held(bool run) {
  if (!held_ || held_->right) return;
  if (fallen()) return drop_held();
  if (judge_.right_at_end(held_->event)) {
    (void)take();
  } else if (run || !judge_.sparse()) {
    drop_held();
  }
}

// It holds the source back no more.
void FragmentQueue::forget_held() {
  held_.reset();
  throttled_ = false;
  find_fast_end();
}

void FragmentQueue::drop_held() {
  const Held held = *held_;
  forget_held();
  if (!held.entry.absent()) take_back(held.position);
  // What was too large is counted already.
  if (held.entry.crc32c == 0 || !held.entry.absent()) reject(wire::DropReason::number_jump);
}

// The counter was reset before the run began: what it gave before was of no event.
void FragmentQueue::begin_afresh() {
  for (EventNumber event = base_; event < next_; ++event) {
    if (slots_[event & mask_].entry.absent()) continue;
    reject(wire::DropReason::number_jump);
    --written_;
  }
  base_position_ = end_position_ = held_->position;
  for (; held_first_ < base_position_ / page_size_; ++held_first_) held_page(held_first_).reset();
  written_end_ = said_end_ = late_end_ = 0;
  judge_.restart();
  number_from(held_->event);
}

// Whether `event` has a place in the window. What is more than a window ahead gets one when nothing
// is held below: then the numbers in between take no room.
bool FragmentQueue::reach(EventNumber event) {
  if (event - base_ < window_) return true;
  if (base_ == next_ && event > next_) {
    leap(event, reason_of_skip(event));
    return true;
  }
  throttled_ = true;
  return false;
}

void FragmentQueue::leap(EventNumber to, wire::AbsentReason why) {
  leapt_ = {next_, to};
  leapt_why_ = why;
  next_ = base_ = absent_end_ = to;
  base_position_ = end_position_;
}

// Numbers that were left out after fragments that were dropped: those were theirs.
wire::AbsentReason FragmentQueue::reason_of_skip(EventNumber end) const {
  const bool theirs = dropped_at_ == next_ && end > next_ && end - next_ <= dropped_there_;
  return theirs ? wire::AbsentReason::dropped : wire::AbsentReason::none;
}

bool FragmentQueue::make_room(std::uint32_t size) {
  if (size <= page_room() && page_) return true;
  const bool unused = page_ && position_ + page_size_ == page_end_; // a fragment was taken back
  const std::uint32_t pages = std::max(1U, (size + page_size_ - 1) / page_size_);
  if (unused && pool_.available() + 1 >= pages) return true;
  if (pool_.available() < pages && (base_ == next_ || !numbered_) && !held_) drop_pages();
  if (pool_.available() < pages) {
    throttled_ = true;
    return false;
  }
  next_page();
  return true;
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

void FragmentQueue::fill_absent(EventNumber end, wire::AbsentReason why) {
  if (next_ >= end) return;
  if (end - 1 - base_ > mask_) grow(end - 1);
  absent_end_ = end;
  for (; next_ < end; ++next_) {
    slots_[next_ & mask_] = {end_position_, wire::FragmentEntry::make_absent(why)};
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
  take_back(writing_ == Writing::open ? slots_[next_ & mask_].position : aside_.position);
  open_ = 0;
  writing_ = Writing::none;
}

// Nobody has seen what was written from there on. Of several pages the last takes the place of the
// first, and the others go home.
void FragmentQueue::take_back(std::uint64_t position) {
  const std::uint64_t first = position / page_size_;
  std::uint64_t last = page_end_ / page_size_ - 1;
  if (position < page_end_ && first != last) {
    held_page(first) = std::move(held_page(last));
    for (; last > first; --last) held_page(last).reset();
    page_end_ = (first + 1) * page_size_;
  }
  position_ = position;
}

bool FragmentQueue::skip_to(EventNumber counter) {
  FANIN_ASSERT(writing_ == Writing::none);
  throttled_ = false;
  if (counter == 0) return true;
  if (written_end_ != 0) judge_.accepted_up_to(written_end_ - 1);
  const EventNumber last = number_of(counter - 1); // it has none
  if (last >= event_number_end) {
    (void)reject(wire::DropReason::number_jump);
    return true;
  }
  if (judge_.waits_for_first()) return true;
  if (numbered_ && last < next_) {
    if (last >= written_end_) late_end_ = std::max(late_end_, last + 1);
    return true;
  }
  if (held_ && held_->event == last) return true; // says nothing new
  if (held_ && !judge_held(last)) return false;
  if (judge_.follows(last, next())) return skip_now(last + 1);
  held_ = {.event = last,
           .position = position_,
           .entry = wire::FragmentEntry::make_absent(wire::AbsentReason::none)};
  find_fast_end();
  return true;
}

bool FragmentQueue::skip_now(EventNumber end) {
  const EventNumber wanted = std::min(end, limit_);
  if (wanted > next_ && reach(wanted - 1)) fill_absent(wanted, reason_of_skip(wanted));
  said_end_ = next_;
  return next_ >= end;
}

bool FragmentQueue::give_up_until(EventNumber event, wire::AbsentReason why) {
  if (held_ && held_->event < event) {
    if (fallen()) {
      drop_held();
    } else if (!take()) {
      return false;
    }
  }
  if (!numbered_) number_from(event);
  if (event <= next_) return true;
  if (writing_ == Writing::open) {
    aside_ = {.event = next_, .position = slots_[next_ & mask_].position, .entry = {}};
    writing_ = Writing::given_up;
  }
  if (why == wire::AbsentReason::none) why = reason_of_skip(event); // what came last was dropped
  if (event - base_ > window_ && base_ == next_) leap(event, why);
  fill_absent(std::min(event, base_ + window_), why);
  return next_ >= event;
}

EventNumber FragmentQueue::sent_from(EventNumber event) const {
  const auto dropped = wire::FragmentEntry::make_absent(wire::AbsentReason::dropped);
  event = std::max(event, base_);
  if (event >= absent_end_) return event;
  for (; event < next_; ++event) {
    const wire::FragmentEntry& entry = slots_[event & mask_].entry;
    if (!entry.absent() || entry == dropped) break;
  }
  return event;
}

memory::View FragmentQueue::view(std::uint64_t position, std::uint32_t size) const {
  if (size == 0) return {};
  const auto& page = held_pages_[position / page_size_ % held_pages_.size()];
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
  for (; event < stop && event < base_; ++event) table[event - first] = entry(event);
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
