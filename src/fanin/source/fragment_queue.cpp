#include "fanin/source/fragment_queue.hpp"

#include <algorithm>

#include "fanin/memory/copy.hpp"

namespace fanin::source {

FragmentQueue::FragmentQueue(const FragmentQueueOptions& options, memory::PagePool& pool)
    : options_(options),
      pool_(pool),
      page_size_(pool.page_size()),
      table_(options.window),
      held_pages_(pool.pages() + 1),
      numbering_(options.counter_bits, options.offset),
      judge_(options.near, options.first) {
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
  table_.begin_at(~EventNumber{0}); // no number is the next one: begin() takes the slow path
  written_end_ = reported_end_ = late_end_ = 0;
  jumped_ = written_;
  missing_ = 0;
  writing_ = Writing::none;
  numbered_ = throttled_ = limit_is_last_ = false;
  beyond_last_ = 0;
  set_may_fall(Fall::no);
  judge_.restart();
  held_.reset();
  dropped_before_ = early_ = {};
  dropped_there_ = 0;
  find_fast_end();
}

void FragmentQueue::forget_number() {
  FANIN_ASSERT(nothing_said() && !held_ && writing_ == Writing::none);
  table_.begin_at(~EventNumber{0});
  late_end_ = 0;
  numbered_ = false;
  judge_.restart();
  find_fast_end();
}

// Nothing is written yet: a lower number is late. What was dropped before had numbers of its own.
void FragmentQueue::number_from(EventNumber first) {
  if (!numbered_ && dropped_at_ == table_.next()) {
    dropped_before_ = {first - std::min(first, dropped_there_), first};
  }
  if (early_.end == first) dropped_before_ = early_;
  numbered_ = true;
  table_.begin_at(first);
  find_fast_end();
}

// Numbers that are held, counters of which more is to be known, and numbers for which the table has
// no slot yet are not for the fast path.
void FragmentQueue::find_fast_end() {
  const bool slow = held_ || !numbering_.plain() || judge_.waits_for_first();
  fast_end_ = slow ? 0 : std::min(limit_, table_.room_end());
}

WriteOutcome FragmentQueue::reject(wire::DropReason reason) {
  ++dropped_[static_cast<std::size_t>(reason)];
  if (wire::is_about_number(reason)) {
    dropped_there_ = dropped_at_ == table_.next() ? dropped_there_ + 1 : 1;
    dropped_at_ = table_.next();
  }
  return WriteOutcome::rejected;
}

// Extended from what the source itself has said: that it was given up moves its counter by nothing.
EventNumber FragmentQueue::number_of(std::uint64_t counter) const {
  if (numbered_)
    return numbering_.near(counter, reported_end_ != 0 ? reported_end_ : table_.next());
  const EventNumber event = numbering_.without_wraps(counter);
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
  if (judge_.too_early(event, held())) return reject_early(event);
  if (numbered_ && event < table_.next() && fall_ == Fall::no) return reject_old(event);
  const bool repeats = held_ && event == held_->event;
  if (held_ && !judge_held(event)) return WriteOutcome::full;
  if (judge_.too_early(event)) return reject_early(event); // what it might confirm was dropped
  if (repeats && event + 1 == table_.next()) return reject(wire::DropReason::number_repeat);
  return judge_.follows(event, next()) ? begin_next(event, size) : begin_held(event, size);
}

WriteOutcome FragmentQueue::reject_early(EventNumber event) {
  early_ = {early_.end == event ? early_.first : event, event + 1};
  judge_.dropped_early(event);
  return reject(wire::DropReason::before_first);
}

// It is below what was answered, and so below a number that is held, which is wrong then. But a
// sparse source holds each of its numbers.
WriteOutcome FragmentQueue::reject_old(EventNumber event) {
  if (judge_.waits_for_first()) {
    judge_.join();
    find_fast_end();
  }
  if (held_ && !held_->right && !judge_.follows_loosely(held_->event, next())) drop_held();
  if (event + 1 == written_end_) return reject(wire::DropReason::number_repeat);
  if (event < written_end_) {
    last_back_ = event;
    return reject(wire::DropReason::number_back);
  }
  return reject_late(event);
}

WriteOutcome FragmentQueue::reject_late(EventNumber event) {
  reported_end_ = event + 1;
  late_end_ = std::max(late_end_, reported_end_);
  return reject(wire::DropReason::late);
}

WriteOutcome FragmentQueue::begin_next(EventNumber event, std::uint32_t size) {
  if (event >= limit_) {
    pass_limit();
    return WriteOutcome::full;
  }
  if (!numbered_) number_from(event);
  if (!reach(event)) return WriteOutcome::full;
  if (too_large(size)) {
    fill_absent(event, reason_of_skip(event));
    fill_absent(event + 1, wire::AbsentReason::dropped);
    written_end_ = reported_end_ = table_.next();
    judge_.accepted(event);
    return reject(wire::DropReason::oversize);
  }
  if (!make_room(size)) return WriteOutcome::full;
  fill_absent(event, reason_of_skip(event));
  make_slot();
  note_step(event);
  judge_.accepted(event);
  reported_end_ = event + 1;
  find_fast_end();
  writing_ = Writing::open;
  missing_ = size;
  crc_ = 0;
  table_.next_slot().position = position_;
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
    if (!numbered_ || event >= table_.next()) return WriteOutcome::full;
    // What fills all pages is of no use if the counter was reset.
    held_ = {.event = event,
             .position = position_,
             .entry = wire::FragmentEntry::make_absent(wire::AbsentReason::dropped)};
    throttled_ = false;
    return reject(wire::DropReason::number_back);
  }
  detached_ = {.event = event, .position = position_, .entry = {}};
  writing_ = Writing::to_hold;
  missing_ = size;
  crc_ = 0;
  return WriteOutcome::ok;
}

void FragmentQueue::end_detached(std::uint32_t flags) {
  const bool late = writing_ == Writing::given_up;
  if (late || (numbered_ && detached_.event < table_.next() && fall_ == Fall::no)) {
    reject_late(detached_.event);
    return cancel();
  }
  detached_.entry = {static_cast<std::uint32_t>(position_ - detached_.position) | flags, crc_};
  held_ = detached_;
  writing_ = Writing::none;
  find_fast_end();
}

// False: it is right, and there is no room for it now; or others are asked about it.
bool FragmentQueue::judge_held(EventNumber following) {
  if (held_->right) return take();
  if (options_.asks_others && judge_.asks(held_->event, following, next())) {
    held_->following = following;
    throttled_ = true;
    return false;
  }
  return decide_held(following);
}

bool FragmentQueue::decide_held(EventNumber following) {
  switch (judge_.by_next(held_->event, following, next())) {
  case NumberJudge::Verdict::right: return take();
  case NumberJudge::Verdict::wrong:
    if (following > held_->event) judge_.dropped_jump();
    drop_held();
    break;
  case NumberJudge::Verdict::afresh:
    if (has(held_->event) && !has(following)) { // not the counter: what follows may fall as well
      drop_held();
      break;
    }
    if (fall_ == Fall::ask) {
      asks_to_fall_ = throttled_ = true;
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

// The source has a right number at the limit or beyond: then it has nothing up to there. What is
// not triggered yet may be wrong all the same.
void FragmentQueue::pass_limit() {
  if (numbered_ && (!options_.triggered || limit_is_last_)) (void)skip_now(limit_);
}

// What is held is right: numbers below are skipped. False: there is no room, or it is not wanted.
bool FragmentQueue::take() {
  held_->right = true;
  const Held held = *held_;
  const bool skip = held.entry.absent();
  if (held.event >= limit_ && !limit_is_last_) {
    pass_limit();
    return false;
  }
  if (held.event >= limit_) {
    // A dense source may go on below, behind two wrong numbers. Few of them follow each other.
    if (std::exchange(beyond_since_, written_) != written_) beyond_last_ = 0;
    ++beyond_last_;
    if (judge_.follows_loosely(held.event, next()) || beyond_last_ >= enough_in_a_row) pass_limit();
    if (!skip) take_back(held.position);
    forget_held();
    return true;
  }
  if (written_end_ != 0) judge_.accepted_up_to(written_end_ - 1);
  const bool only_skipped = held.entry == wire::FragmentEntry::make_absent({});
  if (!numbered_) number_from(only_skipped ? held.event + 1 : held.event);
  if (held.event >= table_.next() && !reach(held.event)) return false;
  judge_.taken(held.event);
  fill_absent(held.event, reason_of_skip(held.event));
  if (skip) {
    fill_absent(held.event + 1, static_cast<wire::AbsentReason>(held.entry.crc32c));
  } else {
    make_slot();
    note_step(held.event);
    table_.next_slot() = {held.position, held.entry};
    table_.add_next();
    end_position_ = position_;
    written_end_ = table_.next();
    ++written_;
    judge_.accepted(held.event);
  }
  reported_end_ = table_.next();
  forget_held();
  return true;
}

bool FragmentQueue::judge_held_again() {
  if (!held_ || fallen()) return false;
  if (held_->right || judge_.reached(held_->event)) return take();
  if (!held_->following) return false;
  if (!judge_.waits_for_others(held_->event, next())) {
    decide_unclear_held();
    return true;
  }
  if (!judge_.jumps(held_->event, next()) || !others_have_gone_on()) return false;
  drop_held();
  return true;
}

bool FragmentQueue::others_have_gone_on() const {
  const EventNumber then = held_->others_first_at.value_or(event_number_end);
  return judge_.left_behind(table_.next(), then);
}

void FragmentQueue::decide_unclear() {
  if (!unclear()) return;
  if (held_->right) return drop_held();
  if (!judge_.jumps(held_->event, next()) && !others_have_gone_on()) {
    (void)take();
  } else {
    decide_unclear_held();
  }
}

void FragmentQueue::decide_unclear_held() {
  const EventNumber following = *held_->following;
  held_->following.reset();
  (void)decide_held(following);
}

bool FragmentQueue::confirm_held() { return held_ && !fallen() && take(); }

void FragmentQueue::take_at_end() {
  if (!held_ || held_->right || fallen()) return;
  if (judge_.right_at_end(held_->event) || judge_.follows_loosely(held_->event, next())) {
    (void)take();
  }
}

// The source says its number once more, since nothing follows for now. A jump may be wrong twice.
bool FragmentQueue::confirm_at_pause() {
  const bool right = !judge_.jumps(held_->event, next()) || judge_.right_at_end(held_->event);
  return held_->entry.absent() || !right || fallen() || take();
}

void FragmentQueue::end_held() {
  take_at_end();
  if (held_ && !held_->right) drop_held();
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

bool FragmentQueue::has(EventNumber event) const {
  return event >= table_.base() && event < table_.next() && !table_.entry(event).absent();
}

// The numbers fell before the run began. If they fall to one that had no fragment between others
// that had, wrong ones had confirmed each other, and the source goes on where it was. Otherwise its
// counter was reset: all that it gave before was of no event.
void FragmentQueue::begin_afresh() {
  const EventNumber from = held_->event;
  const bool goes_on = from > table_.base() && !has(from);
  for (EventNumber event = goes_on ? from : table_.base(); event < table_.next();
       event = alike_until(event)) {
    if (table_.entry(event).absent()) continue;
    reject(wire::DropReason::number_jump);
    --written_;
  }
  written_end_ = reported_end_ = late_end_ = 0;
  if (goes_on) {
    table_.cut_back(from);
    judge_.fell_back();
    return;
  }
  base_position_ = end_position_ = held_->position;
  for (; held_first_ < base_position_ / page_size_; ++held_first_) held_page(held_first_).reset();
  judge_.restart();
  number_from(from);
}

// Whether there is room for `event`, and for the gap in front of it.
bool FragmentQueue::reach(EventNumber event) {
  if (table_.has_room(event)) return true;
  throttled_ = true;
  return false;
}

void FragmentQueue::make_slot() {
  if (table_.next() == table_.room_end()) table_.grow();
}

// Numbers that were left out after fragments that were dropped: those were theirs.
wire::AbsentReason FragmentQueue::reason_of_skip(EventNumber end) const {
  const bool theirs =
      dropped_at_ == table_.next() && end > table_.next() && end - table_.next() <= dropped_there_;
  return theirs ? wire::AbsentReason::dropped : wire::AbsentReason::none;
}

bool FragmentQueue::make_room(std::uint32_t size) {
  if (size <= page_room() && page_) return true;
  const bool unused = page_ && position_ + page_size_ == page_end_; // a fragment was taken back
  const std::uint32_t pages = std::max(1U, (size + page_size_ - 1) / page_size_);
  if (unused && pool_.available() + 1 >= pages) return true;
  if (pool_.available() < pages && (table_.empty() || !numbered_) && !held_) drop_pages();
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

// There is room.
void FragmentQueue::fill_absent(EventNumber end, wire::AbsentReason why) {
  if (table_.next() >= end) return;
  const bool added = table_.add_absent(end, end_position_, why);
  FANIN_ASSERT(added);
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
  take_back(writing_ == Writing::open ? table_.next_slot().position : detached_.position);
  missing_ = 0;
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
  if (numbered_ && last < table_.next()) {
    if (last >= written_end_) late_end_ = std::max(late_end_, last + 1);
    return true;
  }
  if (held_ && held_->event == last) return confirm_at_pause();
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
  if (wanted > table_.next() && reach(wanted - 1)) fill_absent(wanted, reason_of_skip(wanted));
  reported_end_ = table_.next();
  return table_.next() >= end;
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
  if (event <= table_.next()) return true;
  if (why == wire::AbsentReason::none) why = reason_of_skip(event); // what came last was dropped
  const Held open{.event = table_.next(), .position = table_.next_slot().position, .entry = {}};
  if (!table_.add_absent(event, end_position_, why)) return false;
  find_fast_end();
  if (writing_ == Writing::open) {
    detached_ = open;
    writing_ = Writing::given_up;
  }
  return true;
}

EventNumber FragmentQueue::sent_from(EventNumber event) const {
  const auto dropped = wire::FragmentEntry::make_absent(wire::AbsentReason::dropped);
  event = std::max(event, table_.base());
  if (event >= table_.absent_end()) return event;
  for (; event < table_.next(); event = alike_until(event)) {
    const wire::FragmentEntry entry = table_.entry(event);
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
  if (cursor.payload_offset != 0 || head.size() > payload_max ||
      !fits_one_page(position(first), head.size())) {
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
  for (; event < stop && event < table_.base(); ++event) table[event - first] = entry(event);
  std::uint64_t start = 0;
  std::uint32_t bytes = 0;
  // False: its payload does not follow the others in this page.
  const auto add = [&](const FragmentTable::Slot& slot) {
    const std::uint32_t size = slot.entry.size();
    if (size != 0) {
      if (bytes == 0) {
        start = slot.position;
        if (size > payload_max || !fits_one_page(start, size)) return false;
      } else if (slot.position != start + bytes || size > payload_max - bytes ||
                 !fits_one_page(start, bytes + size)) {
        return false;
      }
      bytes += size;
    }
    table[event - first] = slot.entry;
    return true;
  };
  for (bool fits = true; fits && event < stop;) {
    const FragmentTable::Section at = table_.section(event);
    const EventNumber until = std::min(stop, at.end);
    if (at.gap != nullptr) {
      std::fill(table + (event - first), table + (until - first),
                wire::FragmentEntry::make_absent(at.gap->why));
      event = until;
    }
    for (; event < until && (fits = add(table_.slot(event, at))); ++event) {
    }
  }
  cursor = {event, 0};
  return {{first, event}, 0, false, view(start, bytes)};
}

void FragmentQueue::release_until(EventNumber event) {
  event = std::min(event, table_.next());
  if (event <= table_.base()) return;
  base_position_ = position(event);
  table_.release_until(event);
  find_fast_end();
  // The page being filled stays, and so does one that holds a byte of a later event.
  const std::uint64_t newest = position_ == 0 ? 0 : position_ - 1;
  const std::uint64_t keep = std::min(base_position_, newest) / page_size_;
  for (; held_first_ < keep; ++held_first_) held_page(held_first_).reset();
}

} // namespace fanin::source
