#include "fanin/source/event_numbers.hpp"

#include <algorithm>
#include <utility>

namespace fanin::source {

namespace {
// What is held may have no fragment.
constexpr auto skipped_entry = wire::FragmentEntry::make_absent(wire::AbsentReason::none);
constexpr auto dropped_entry = wire::FragmentEntry::make_absent(wire::AbsentReason::dropped);
} // namespace

EventNumbers::EventNumbers(const FragmentQueueOptions& options, FragmentTable& table,
                           FragmentPages& pages, FastPath& fast)
    : options_(options),
      table_(table),
      pages_(pages),
      fast_(fast),
      numbering_(options.counter_bits, options.offset),
      judge_(options.near, options.first),
      recent_(RecentFragments::kept_for(options.window)) {
  table_.begin_at(FragmentTable::not_begun);
  start();
}

// --- the run -------------------------------------------------------------------------------------

void EventNumbers::start() {
  begun_ = jumped_ = written_ = written();
  table_.begin_at(FragmentTable::not_begun);
  known_next_ = table_.next();
  accepted_end_ = reported_end_ = late_end_ = 0;
  last_decided_.reset();
  beyond_last_ = 0;
  limit_is_last_ = false;
  allow_reset(CounterReset::no);
  judge_.restart();
  dropped_before_ = early_ = {};
  given_up_before_ = before_joining_ = {};
  dropped_there_ = 0;
  dropped_since_ = 0;
  left_out_ = {};
  recent_.forget();
  repeated_.reset();
  restart_.start();
  mark_in_doubt();
  forget_held();
}

void EventNumbers::join(EventNumber first) {
  const RestartJudge restart = restart_; // in this run
  start();
  judge_.join();
  begin_at(first);
  restart_ = restart;
  restart_.join();
  mark_in_doubt();
  find_fast_end();
}

void EventNumbers::forget() {
  FANIN_ASSERT(nothing_said() && !held_);
  table_.begin_at(FragmentTable::not_begun);
  known_next_ = table_.next();
  late_end_ = 0;
  judge_.restart();
  find_fast_end();
}

void EventNumbers::allow_reset(CounterReset may) {
  reset_ = may;
  requests_reset_ = false;
  if (may == CounterReset::yes) {
    judge_.take_early(true);
  } else if (judge_.takes_early()) {
    judge_.join();
    find_fast_end();
  }
}

void EventNumbers::set_limit(EventNumber limit, bool last) {
  limit_ = std::min(limit, event_number_end);
  limit_is_last_ = last;
  judge_.set_end(options_.triggered && !last ? limit_ : event_number_end);
  find_fast_end();
}

void EventNumbers::set_others(const OtherSources& others) {
  judge_.set_others(others);
  if (held_ && !held_->others_first_at) held_->others_first_at = others.high;
}

// Nothing is written yet: a lower number is late. What was dropped before had numbers of its own.
void EventNumbers::begin_at(EventNumber first) {
  given_up_before_ = {};
  if (!table_.begun() && dropped_at_ == table_.next()) {
    dropped_before_ = {first - std::min(first, dropped_there_), first};
  }
  if (early_.end == first) dropped_before_ = early_;
  table_.begin_at(first);
  known_next_ = first_ = first;
  find_fast_end();
}

// Numbers that are held, counters of which more is to be known, and numbers for which the table has
// no slot yet are not for the fast path.
void EventNumbers::find_fast_end() {
  const bool slow =
      held_ || !numbering_.plain() || judge_.waits_for_first() || is_back() || in_doubt();
  fast_.end = slow ? 0 : std::min(limit_, table_.room_end());
}

// What took the fast path.
void EventNumbers::note_written() {
  if (table_.next() == known_next_) return;
  restart_.goes_on(known_next_, accepted_end_);
  written_ = written();
  last_decided_ = last_decided();
  accepted_end_ = known_next_ = table_.next();
  judge_.accepted_up_to(accepted_end_ - 1);
}

// --- what the source sends -----------------------------------------------------------------------

std::optional<std::uint64_t> EventNumbers::last_decided() const {
  if (held_ && fallen(held_->event)) return {};
  if (table_.next() == known_next_) return last_decided_;
  return numbering_.plain() ? table_.next() - 1 : offered_;
}

// Extended from what the source itself has said: that it was given up moves its counter by nothing.
EventNumber EventNumbers::number_of(std::uint64_t counter) const {
  const EventNumber event = numbering_.without_wraps(counter);
  if (judge_.waits_for_first()) {
    const EventNumber near = numbering_.near(counter, *options_.first);
    if (near >= *options_.first && near - *options_.first <= lost_at_first_max) return near;
  }
  if (!table_.begun() && !held_) return event;
  const EventNumber last = table_.begun() ? table_.next() : held_->event;
  const EventNumber near = numbering_.near(counter, reported_end_ != 0 ? reported_end_ : last);
  const bool confirms = table_.begun() || (near > last && near - last < options_.near);
  return confirms && !is_left_over_before(event, near) ? near : event;
}

// The counter seems to wrap. But a few numbers before may be left over from an earlier run: then
// the others begin where the counter is without the wrap. If none has begun, the number after a
// wrap is the next one, or repeats the last step.
bool EventNumbers::is_left_over_before(EventNumber event, EventNumber wrapped) const {
  if (event == wrapped || !may_wrap_early()) return false;
  if (const auto nearer = judge_.is_nearer_to_others(event, wrapped)) return *nearer;
  return table_.begun() ? !judge_.follows(wrapped, next()) : wrapped != held_->event + 1;
}

// A narrow counter that lacks more than half of its range falls as well; but it falls to where it
// has been.
bool EventNumbers::may_be_reset_to(EventNumber event) const {
  const bool was_there = numbering_.narrow() && event > first_ + lost_at_first_max && has(event);
  return may_be_reset() && !was_there;
}

EventNumbers::Decision EventNumbers::offer(std::uint64_t counter, std::uint32_t size) {
  note_written();
  fast_.throttled = false;
  const EventNumber event = number_of(counter);
  offered_ = std::min(counter, counter_of(event)); // without bits that are ignored
  if (event >= event_number_end) return drop_outside(event, counter);
  if (early() && !judge_.others_have_begun() && half_full()) forget_early();
  if (judge_.too_early(event, held())) return drop(event, wire::DropReason::before_first);
  if (is_passed(event)) return drop_passed(event, size);
  const bool repeats = held() == event;
  if (held_ && !judge_held(event)) return {Action::wait};
  const bool too_early = judge_.too_early(event); // what it might confirm was dropped
  if (too_early) return drop(event, wire::DropReason::before_first);
  if (repeats && event + 1 == table_.next()) return drop(event, wire::DropReason::number_repeat);
  if (!judge_.follows(event, next())) return {Action::hold, event};
  if (event >= limit_) {
    pass_limit();
    return {Action::wait};
  }
  if (!table_.begun()) begin_at(event);
  return {has_room(event) ? Action::take : Action::wait, event};
}

// Of pages, or of the fragments with gaps between them that the table holds at least.
bool EventNumbers::half_full() const {
  return pages_.half_full() || since_begin() >= options_.window / 32;
}

// It is below what was answered, and so below a number that is held, which is wrong then. But a
// sparse source holds each of its numbers.
EventNumbers::Decision EventNumbers::drop_passed(EventNumber event, std::uint32_t size) {
  if (judge_.waits_for_first()) {
    judge_.join();
    find_fast_end();
  }
  const bool waits = held_ && held_->state != Held::State::right;
  if (waits && !judge_.follows_loosely(held_->event, next())) drop_held();
  if (event >= accepted_end_) {
    goes_on_at(event);
    return drop(event, wire::DropReason::late);
  }
  if (event + 1 == accepted_end_ && !restart_.is_back() && !restart_.may_be_other()) {
    return drop(event, wire::DropReason::number_repeat);
  }
  const auto before = accepted_at(event);
  const bool may_repeat = before && !before->absent() && before->size() == size;
  return may_repeat ? Decision{Action::compare, event} : drop_back(event);
}

// Nothing, if it is not known any more.
std::optional<wire::FragmentEntry> EventNumbers::accepted_at(EventNumber event) const {
  return event >= table_.base() ? table_.entry(event) : recent_.entry(event);
}

void EventNumbers::compare(EventNumber event, wire::FragmentEntry entry) {
  const auto before = accepted_at(event);
  if (!before || is_other(*before, entry)) {
    drop_back(event);
  } else {
    goes_back_to(event, says_repeat(event, *before));
    drop(event, wire::DropReason::number_repeat);
  }
}

bool EventNumbers::is_other(wire::FragmentEntry before, wire::FragmentEntry entry) const {
  return before.size() != entry.size() || (options_.checksum && before.crc32c != entry.crc32c);
}

bool EventNumbers::contradicts(std::uint64_t counter, wire::FragmentEntry entry) const {
  const EventNumber event = number_of(counter);
  if (!table_.begun() || event >= table_.next()) return false;
  const auto before = accepted_at(event);
  return before && !before->absent() && is_other(*before, entry);
}

EventNumbers::Decision EventNumbers::drop_back(EventNumber event) {
  // Among repeats those that are not known are repeats, too.
  const auto known = accepted_at(event);
  const bool repeats = restart_.repeats() && (!known || known->absent());
  if (std::exchange(dropped_behind_, written()) != written()) dropped_since_ = 0;
  if (!repeats) ++dropped_since_;
  goes_back_to(event, says_other(event));
  return drop(event, wire::DropReason::number_back);
}

// Its number had no fragment, or another one. It may have had one that was not taken; and among
// repeats it may be one of a fragment that was lost. Where the source left numbers out last they
// may be right, if what followed was wrong.
RestartJudge::Says EventNumbers::says_other(EventNumber event) const {
  const auto before = accepted_at(event);
  if (!before) return RestartJudge::Says::alike;
  if (!before->absent()) return RestartJudge::Says::other;
  const bool not_taken = *before != skipped_entry;
  const bool left_out = left_out_.contains(event) && !restart_.may_be_other();
  const bool nothing = not_taken || left_out || restart_.repeats();
  return nothing ? RestartJudge::Says::nothing : RestartJudge::Says::other;
}

// It equals the fragment of its number. Many others may do so, too: empty ones, and where all data
// are alike or have no checksum.
RestartJudge::Says EventNumbers::says_repeat(EventNumber event, wire::FragmentEntry before) {
  const auto last = std::exchange(repeated_, before);
  const auto end = accepted_at(accepted_end_ - 1);
  const bool alike = !options_.checksum || before.size() == 0 ||
                     (last && !is_other(*last, before)) ||
                     (event + 1 != accepted_end_ && end && !is_other(*end, before));
  return alike ? RestartJudge::Says::alike : RestartJudge::Says::repeat;
}

void EventNumbers::goes_back_to(EventNumber event, RestartJudge::Says says) {
  restart_.goes_back(event, says, {first_, accepted_end_});
  mark_in_doubt();
  find_fast_end();
}

// Its number is above all that were accepted.
void EventNumbers::goes_on_at(EventNumber event) {
  restart_.goes_on(event, accepted_end_);
  mark_in_doubt();
}

void EventNumbers::mark_in_doubt() { fast_.flags = in_doubt() ? wire::fragment_in_doubt : 0U; }

void EventNumbers::begin_sender(RestartJudge::Sender sender) {
  note_written();
  restart_.begin_sender(sender);
  find_fast_end();
}

void EventNumbers::remember_until(EventNumber event) {
  for (EventNumber at = table_.base(); at < event;) {
    const FragmentTable::Section section = table_.section(at);
    const EventNumber end = std::min(event, section.end);
    if (section.gap != nullptr && section.gap->why != wire::AbsentReason::none) {
      recent_.add(end - 1, wire::FragmentEntry::make_absent(section.gap->why));
    }
    while (section.gap == nullptr && at < end) {
      for (const FragmentTable::Slot& slot : table_.slots(at, end, section)) {
        if (slot.entry != skipped_entry) recent_.add(at, slot.entry);
        ++at;
      }
    }
    at = end;
  }
}

EventNumbers::Decision EventNumbers::drop(EventNumber event, wire::DropReason reason) {
  using Reason = wire::DropReason;
  ++dropped_[static_cast<std::size_t>(reason)];
  last_refused_ = event;
  last_dropped_[static_cast<std::size_t>(reason)] = event;
  const bool wrong = reason == Reason::number_jump || reason == Reason::before_first;
  // The inlined path of the queue offers nothing.
  if (!wrong && held() != event) last_decided_ = numbering_.plain() ? event : offered_;
  if (reason == Reason::late) {
    reported_end_ = event + 1;
    late_end_ = std::max(late_end_, reported_end_);
  } else if (reason == Reason::before_first) {
    early_ = {early_.end == event ? early_.first : event, event + 1};
    judge_.dropped_early(event);
  } else if (wire::is_about_number(reason)) {
    dropped_there_ = dropped_at_ == table_.next() ? dropped_there_ + 1 : 1;
    dropped_at_ = table_.next();
  }
  return {Action::drop, event};
}

// It is no event: for the log it has the number that was sent.
EventNumbers::Decision EventNumbers::drop_outside(EventNumber event, std::uint64_t counter) {
  constexpr auto reason = wire::DropReason::number_jump;
  const Decision decision = drop(event, reason);
  last_dropped_[static_cast<std::size_t>(reason)] = counter;
  return decision;
}

void EventNumbers::take(EventNumber event) {
  goes_on_at(event);
  fill_skipped(event);
  make_slot(event);
  judge_.accepted(event);
  reported_end_ = event + 1;
  find_fast_end();
}

void EventNumbers::drop_fragment(const Decision& decision, wire::DropReason reason) {
  const EventNumber event = decision.event;
  if (decision.action == Action::take) {
    goes_on_at(event);
    fill_skipped(event);
    fill_absent(event + 1, wire::AbsentReason::dropped);
    accepted_end_ = reported_end_ = table_.next();
    judge_.accepted(event);
  } else {
    hold(event, {pages_.position(), dropped_entry});
  }
  drop(event, reason);
}

void EventNumbers::hold(EventNumber event, const FragmentTable::Slot& slot) {
  held_ = {.event = event, .counter = offered_, .slot = slot};
  find_fast_end();
}

bool EventNumbers::skip_to(std::uint64_t counter) {
  fast_.throttled = false;
  if (counter == 0) return true;
  note_written();
  const EventNumber last = number_of(counter - 1); // it has none
  if (last >= event_number_end) {
    drop_outside(last, counter);
    return true;
  }
  if (judge_.waits_for_first()) return true;
  restart_.says_position(last + 1);
  if (fallen(last)) {
    if (last >= accepted_end_) {
      late_end_ = std::max(late_end_, last + 1);
    } else if (last + 1 < accepted_end_ && is_passed(last)) {
      goes_back_to(last, RestartJudge::Says::alike);
    }
    return true;
  }
  if (held() == last) return confirm_at_pause();
  if (held_ && !judge_held(last)) return false;
  if (judge_.follows(last, next())) return skip_now(last + 1);
  hold(last, {pages_.position(), skipped_entry});
  return true;
}

bool EventNumbers::give_up_until(EventNumber event, wire::AbsentReason why) {
  note_written();
  if (held_ && held_->event < event) {
    if (fallen(held_->event)) {
      drop_held();
    } else if (!take_held()) {
      return false;
    }
  }
  if (!table_.begun()) {
    begin_at(event);
    given_up_before_ = why;
  }
  if (event <= table_.next()) return true;
  if (why == wire::AbsentReason::none) why = reason_of_skip(event); // what came last was dropped
  if (!table_.add_absent(event, pages_.end(), why)) return false;
  known_next_ = event;
  find_fast_end();
  return true;
}

// Whether there is room for `event`, and for the gap in front of it.
bool EventNumbers::has_room(EventNumber event) {
  if (table_.has_room(event)) return true;
  fast_.throttled = true;
  return false;
}

// There is room.
void EventNumbers::fill_absent(EventNumber end, wire::AbsentReason why) {
  if (table_.next() >= end) return;
  const bool added = table_.add_absent(end, pages_.end(), why);
  FANIN_ASSERT(added);
  known_next_ = table_.next();
}

// Numbers that were left out after fragments that were dropped: those were theirs.
void EventNumbers::fill_skipped(EventNumber end) { fill_absent(end, reason_of_skip(end)); }

wire::AbsentReason EventNumbers::reason_of_skip(EventNumber end) const {
  const bool theirs =
      dropped_at_ == table_.next() && end > table_.next() && end - table_.next() <= dropped_there_;
  if (theirs) return wire::AbsentReason::dropped;
  return accepted_end_ == 0 ? before_joining_ : wire::AbsentReason::none;
}

// For the fragment of `event`, which is the next one.
void EventNumbers::make_slot(EventNumber event) {
  if (table_.next() == table_.room_end()) table_.grow();
  if (accepted_end_ == 0 || event == accepted_end_) return;
  left_out_ = {accepted_end_, event};
  if (event - accepted_end_ >= judge_.reach()) jumped_ = written_;
}

bool EventNumbers::skip_now(EventNumber end) {
  const EventNumber wanted = std::min(end, limit_);
  if (wanted > table_.next() && has_room(wanted - 1)) fill_skipped(wanted);
  reported_end_ = table_.next();
  return table_.next() >= end;
}

// The source has a right number at the limit or beyond: then it has nothing up to there. What is
// not triggered yet may be wrong all the same.
void EventNumbers::pass_limit() {
  if (table_.begun() && (!options_.triggered || limit_is_last_)) (void)skip_now(limit_);
}

// --- the number that is held ---------------------------------------------------------------------

std::optional<EventNumbers::HeldFragment> EventNumbers::held_fragment() const {
  if (!held_ || held_->slot.entry == skipped_entry) return {};
  return HeldFragment{held_->event, held_->counter, fallen(held_->event)};
}

// False: it is right, and there is no room for it now; or others are asked about it.
bool EventNumbers::judge_held(EventNumber following) {
  if (held_->state == Held::State::right) return take_held();
  if (options_.asks_others && judge_.asks(held_->event, following, next())) {
    held_->state = Held::State::asked;
    held_->following = following;
    fast_.throttled = true;
    return false;
  }
  return decide_held(following);
}

bool EventNumbers::decide_held(EventNumber following) {
  switch (judge_.by_next(held_->event, following, next())) {
  case NumberJudge::Verdict::right: return take_held();
  case NumberJudge::Verdict::wrong:
    if (following > held_->event) judge_.dropped_jump();
    break;
  case NumberJudge::Verdict::counter_reset:
    // One of a number that has a fragment is not the counter: what follows may fall as well.
    if (has(held_->event) && !has(following)) break;
    if (reset_ == CounterReset::ask) {
      requests_reset_ = fast_.throttled = true;
      return false;
    }
    if (reset_ == CounterReset::yes) {
      begin_again();
      return take_held();
    }
  }
  drop_held(following);
  return true;
}

void EventNumbers::decide_asked() {
  const EventNumber following = std::exchange(held_->following, held_->event);
  held_->state = Held::State::unconfirmed;
  (void)decide_held(following);
}

bool EventNumbers::judge_held_again() {
  if (!held_ || fallen(held_->event)) return false;
  if (held_->state == Held::State::right || judge_.reached(held_->event)) return take_held();
  if (held_->state != Held::State::asked) return false;
  if (!judge_.waits_for_others(held_->event, next())) {
    decide_asked();
    return true;
  }
  if (!judge_.jumps(held_->event, next()) || !others_have_gone_on()) return false;
  drop_held();
  return true;
}

bool EventNumbers::others_have_gone_on() const {
  return judge_.left_behind(table_.next(), held_->others_first_at.value_or(event_number_end));
}

void EventNumbers::decide_unclear() {
  if (!unclear()) return;
  if (held_->state == Held::State::right) return drop_held();
  if (!judge_.jumps(held_->event, next()) && !others_have_gone_on()) {
    (void)take_held();
  } else {
    decide_asked();
  }
}

void EventNumbers::take_at_end() {
  if (!held_ || held_->state == Held::State::right || fallen(held_->event)) return;
  if (judge_.right_at_end(held_->event) || judge_.follows_loosely(held_->event, next())) {
    (void)take_held();
  }
}

// The source says its number once more, since nothing follows for now. A jump may be wrong twice.
bool EventNumbers::confirm_at_pause() {
  const bool right = !judge_.jumps(held_->event, next()) || judge_.right_at_end(held_->event);
  return held_->slot.entry.absent() || !right || fallen(held_->event) || take_held();
}

void EventNumbers::end_held() {
  take_at_end();
  if (held_ && held_->state != Held::State::right) drop_held();
}

// It is right: numbers below are skipped. False: there is no room, or it is not wanted.
bool EventNumbers::take_held() {
  held_->state = Held::State::right;
  const Held held = *held_;
  if (held.event >= limit_ && limit_is_last_) return leave_beyond_last();
  if (held.event >= limit_) {
    pass_limit();
    return false;
  }
  if (!table_.begun()) begin_at(held.event + (held.slot.entry == skipped_entry ? 1 : 0));
  if (held.event >= table_.next() && !has_room(held.event)) return false;
  judge_.taken(held.event);
  if (held.slot.entry != skipped_entry) {
    goes_on_at(held.event);
    last_decided_ = held.counter;
  }
  fill_skipped(held.event);
  if (held.slot.entry.absent()) {
    fill_absent(held.event + 1, static_cast<wire::AbsentReason>(held.slot.entry.crc32c));
  } else {
    make_slot(held.event);
    table_.next_slot() = held.slot;
    table_.next_slot().entry.size_and_flags |= fast_.flags;
    table_.add_next();
    pages_.complete();
    accepted_end_ = known_next_ = table_.next();
    ++written_;
    judge_.accepted(held.event);
  }
  reported_end_ = table_.next();
  forget_held();
  return true;
}

// Beyond the last event. A dense source may go on below, behind two wrong numbers. Few of them
// follow each other.
bool EventNumbers::leave_beyond_last() {
  if (std::exchange(beyond_since_, written_) != written_) beyond_last_ = 0;
  ++beyond_last_;
  if (judge_.follows_loosely(held_->event, next()) || beyond_last_ >= enough_in_a_row) pass_limit();
  leave_held();
  return true;
}

// It holds the source back no more.
void EventNumbers::forget_held() {
  held_.reset();
  fast_.throttled = false;
  find_fast_end();
}

void EventNumbers::leave_held() {
  if (!held_->slot.entry.absent()) pages_.take_back(held_->slot.position);
  forget_held();
}

// Nothing confirmed it, so that it says nothing of where the source is.
void EventNumbers::drop_held(std::optional<EventNumber> following) {
  const Held held = *held_;
  leave_held();
  if (held.slot.entry == dropped_entry) return;
  const std::optional<std::uint64_t> decided = last_decided_;
  const bool repeat = (!table_.begun() && held.event == following) || repeats(held);
  const auto wrong =
      judge_.takes_early() ? wire::DropReason::before_first : wire::DropReason::number_jump;
  drop(held.event, repeat ? wire::DropReason::number_repeat : wrong);
  last_decided_ = decided;
}

// It was held because it fell, and the counter might have been reset.
bool EventNumbers::repeats(const Held& held) const {
  if (!fallen(held.event)) return false;
  return held.event + 1 == accepted_end() || accepted_at(held.event) == held.slot.entry;
}

bool EventNumbers::has(EventNumber event) const {
  return event >= table_.base() && event < table_.next() && !table_.entry(event).absent();
}

// The numbers fell before the run began. If they fall to one that had no fragment between others
// that had, wrong ones had confirmed each other, and the source goes on where it was. Otherwise its
// counter was reset: all that it gave before was of no event.
void EventNumbers::begin_again() {
  const EventNumber from = held_->event;
  const bool goes_on = from > table_.base() && !has(from);
  drop_from(goes_on ? from : table_.base());
  if (goes_on) {
    table_.cut_back(from);
    known_next_ = from;
    judge_.fell_back();
    return;
  }
  begun_ = written_;
  pages_.begin_at(held_->slot.position);
  recent_.forget();
  restart_.start();
  mark_in_doubt();
  judge_.restart();
  judge_.take_early(true);
  begin_at(from);
}

// What was taken from `event` on.
void EventNumbers::drop_from(EventNumber event) {
  const auto reason =
      judge_.takes_early() ? wire::DropReason::before_first : wire::DropReason::number_jump;
  for (; event < table_.next(); event = table_.alike_until(event)) {
    const wire::FragmentEntry entry = table_.entry(event);
    if (entry.absent()) continue;
    drop(event, reason);
    unused_bytes_ += entry.size();
    --written_;
  }
  accepted_end_ = reported_end_ = late_end_ = 0;
  jumped_ = std::min(jumped_, written_);
}

void EventNumbers::refuse_early() {
  FANIN_ASSERT(early());
  note_written();
  forget_early();
  judge_.take_early(false);
}

// The source has no number again.
void EventNumbers::forget_early() {
  if (held_) drop_held();
  drop_from(table_.base());
  last_decided_.reset();
  pages_.begin_at(pages_.end());
  begun_ = written_;
  judge_.restart();
  judge_.take_early(true);
  table_.begin_at(FragmentTable::not_begun);
  known_next_ = table_.next();
  find_fast_end();
}

} // namespace fanin::source
