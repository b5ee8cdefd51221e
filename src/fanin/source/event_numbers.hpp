// The event numbers of one source: the one place where it is decided what becomes of a number. Its
// parts say what a value of the source's counter means (Numbering), which numbers are right
// (NumberJudge), and whether the source counts again (RestartJudge). docs/modules/source.md says
// which rule is where.
//
// FragmentQueue takes the next number without asking, up to FastPath::end, and asks here about each
// other one. A decision changes the table, and gives back the pages of what was written and is
// dropped. What is known of all sources together comes from the readout unit (builder/readout/).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "fanin/base/state.hpp"
#include "fanin/source/fragment_pages.hpp"
#include "fanin/source/fragment_queue.hpp"
#include "fanin/source/fragment_table.hpp"
#include "fanin/source/number_judge.hpp"
#include "fanin/source/numbering.hpp"
#include "fanin/source/recent_fragments.hpp"
#include "fanin/source/restart_judge.hpp"
#include "fanin/wire/reasons.hpp"

namespace fanin::source {

// Whether the source's counter may be reset. Until the run has an event of the source it may: the
// numbers begin again, and what came before is dropped. `ask`: the source waits for an answer.
enum class CounterReset : std::uint8_t { no, ask, yes };

// Knows no byte of a fragment, and no time. It stays one type of more than 400 lines, since each
// decision changes what the next one is decided by: the number that is held, the table, and what
// the source has said. Thread: the loop of the readout unit.
class EventNumbers {
public:
  // All must outlive it.
  EventNumbers(const FragmentQueueOptions& options, FragmentTable& table, FragmentPages& pages,
               FastPath& fast);

  // --- the run -----------------------------------------------------------------------------------

  // The run begins: nothing is known of the source's numbers.
  void start();
  // The readout unit joins a run under way at `first`.
  void join(EventNumber first);
  // After join(): an incarnation before has died, so that nobody knows what the source had below
  // its first fragment.
  void join_after_death() { before_joining_ = wire::AbsentReason::unread; }
  // The source was given up before it said anything: it has no number again. Requires
  // nothing_said(), no fragment that is open, and no number that is held.
  void forget();
  // Sets limit(). `last`: nothing beyond it will be wanted; a number held there is forgotten.
  void set_limit(EventNumber limit, bool last = false);
  [[nodiscard]] EventNumber limit() const { return limit_; }
  // Sets FastPath::end. Call it when numbers were released.
  void find_fast_end();
  // Sets what the judging of numbers uses of the other sources.
  void set_others(const OtherSources& others);
  // What is taken before `first` may be dropped again only while resets need no answer. After that
  // the source does not wait for `first`, unless refuse_early() was called.
  void allow_reset(CounterReset may);
  // The counter was reset; the source waits until allow_reset() is called again.
  [[nodiscard]] bool requests_reset() const { return requests_reset_; }
  // The next numbers of a narrow counter may be behind a wrap or a reset; the others know.
  [[nodiscard]] bool may_wrap_early() const {
    return numbering_.narrow() && may_be_reset() && since_begin() < enough_in_a_row;
  }
  // The run has no event of the source yet.
  [[nodiscard]] bool may_be_reset() const { return reset_ != CounterReset::no; }

  // --- what the source sends ---------------------------------------------------------------------

  enum class Action : std::uint8_t {
    take, // it is right, and there is room: take() or drop_fragment()
    hold, // nothing confirms it yet: hold() or drop_fragment()
    compare, // it may have come before: compare()
    drop, // it was dropped and counted
    wait // it is not decided, or not wanted yet: it has to be offered again
  };
  struct Decision {
    Action action;
    EventNumber event = 0;
  };
  // Decides about a fragment with this value of the source's counter. The number that is held is
  // decided first.
  [[nodiscard]] Decision offer(std::uint64_t counter, std::uint32_t size);
  // The fragment of this number is begun. Numbers that were left out become absent.
  void take(EventNumber event);
  // What was written last is a fragment whose number is held; or nothing was written for it, and
  // the slot is absent.
  void hold(EventNumber event, const FragmentTable::Slot& slot);
  // Drops a fragment whose number is below one that was accepted: one that has come once more, or
  // another one.
  void compare(EventNumber event, wire::FragmentEntry entry);
  // Another fragment is known that had this value of the source's counter.
  [[nodiscard]] bool contradicts(std::uint64_t counter, wire::FragmentEntry entry) const;
  // The fragments below `event` will be released.
  void remember_until(EventNumber event);
  // Its fragment is late: it was given up, and the numbers cannot fall.
  [[nodiscard]] bool is_passed(EventNumber event) const {
    return fallen(event) && !may_be_reset_to(event);
  }
  // What follows comes from this sender.
  void begin_sender(RestartJudge::Sender sender);
  // Counts a fragment that is dropped.
  Decision drop(EventNumber event, wire::DropReason reason);
  // The number counts, but the fragment cannot be taken.
  void drop_fragment(const Decision& decision, wire::DropReason reason);
  // As the functions of FragmentQueue.
  [[nodiscard]] bool skip_to(std::uint64_t counter);
  [[nodiscard]] bool give_up_until(EventNumber event, wire::AbsentReason why);

  // The value of the source's counter, as it was sent, of the last fragment of the run whose number
  // is decided and not a wrong one. None while a number is held that fell: the counter may have
  // been reset.
  [[nodiscard]] std::optional<std::uint64_t> last_decided() const;
  // The value of the source's counter at `event`.
  [[nodiscard]] std::uint64_t counter_of(EventNumber event) const {
    return numbering_.counter_of(event);
  }

  // --- the number that is held -------------------------------------------------------------------

  // It waits to be confirmed; of a fragment or of a skip.
  [[nodiscard]] std::optional<EventNumber> held() const {
    return held_ ? std::optional{held_->event} : std::nullopt;
  }
  // The same where it is of a fragment.
  struct HeldFragment {
    EventNumber event = 0;
    std::uint64_t counter = 0; // as it was sent
    bool fell = false; // its number is below what was answered
  };
  [[nodiscard]] std::optional<HeldFragment> held_fragment() const;
  // The number after the last one that is right: the next one, or one held that waits for room.
  [[nodiscard]] EventNumber right_end() const {
    const bool waits = held_ && held_->state == Held::State::right && held_->event >= table_.next();
    return waits ? held_->event + 1 : table_.next();
  }
  // Judges it again: the other sources may have reached it. True: it was decided.
  bool judge_held_again();
  // True: the other sources are asked about it, since the next number is a jump; or the next number
  // has confirmed it, and it is not triggered yet. The source is held back meanwhile.
  [[nodiscard]] bool unclear() const {
    return held_ && (held_->state == Held::State::right ? is_untriggered(held_->event)
                                                        : held_->state == Held::State::asked);
  }
  // Requires unclear(). The jump: the held number or the number that follows it. The held number is
  // right if others have come near the jump: then this source has nothing else below.
  [[nodiscard]] EventNumber jump() const {
    return judge_.jumps(held_->event, next()) ? held_->event : held_->following;
  }
  // Decides an unclear number for which no answer of the others has come. A jump is judged by the
  // number that follows it. A number that is no jump is right, unless the others have continued
  // without it. A number that was not triggered is wrong.
  void decide_unclear();
  // Confirms it, for example because another source has the same one. False: the window has no room
  // for it yet, or it is not wanted yet; judge_held_again() will try again.
  bool confirm_held() { return held_ && !fallen(held_->event) && take_held(); }
  // No fragment will follow: it is taken if it is right by what is known of the others now.
  void take_at_end();
  // As take_at_end(), but a number that is not right is dropped: nothing more will be known.
  void end_held();
  // At the end of the source: whether it is wrong if the others do not reach it soon. A number of a
  // sparse source waits for them until the end of the run.
  [[nodiscard]] bool waits_at_end() const {
    return held_ && held_->state != Held::State::right &&
           (!judge_.sparse() || fallen(held_->event));
  }
  [[nodiscard]] bool waits_for_first() const { return judge_.waits_for_first(); }

  // --- the number `first` ------------------------------------------------------------------------

  // It has not come, and what was taken of higher numbers may come before a reset of the counter.
  [[nodiscard]] bool early() const { return judge_.takes_early() && !nothing_said(); }
  // It is lost.
  void take_early() { judge_.join(); }
  // It will come: what was taken is dropped, and so is what follows until then. Requires early(),
  // and no fragment that is open.
  void refuse_early();

  // --- reports -----------------------------------------------------------------------------------

  // The source began to count again in a run that has its events. Its fragments are marked.
  [[nodiscard]] bool in_doubt() const { return restart_.in_doubt(); }

  // No fragment and no skip was accepted since start().
  [[nodiscard]] bool nothing_said() const { return accepted_end() == 0 && reported_end_ == 0; }
  // Fragments, of all runs.
  [[nodiscard]] std::uint64_t written() const { return written_ + (table_.next() - known_next_); }
  // Bytes of their payload, of all runs; also of one that is open or held.
  [[nodiscard]] std::uint64_t payload_bytes() const {
    return earlier_bytes_ + pages_.position() - unused_bytes_;
  }
  // The queue has left so many bytes at the end of a page.
  void leave_bytes(std::uint64_t bytes) { unused_bytes_ += bytes; }
  // The pages are cleared next: positions begin at 0.
  void end_positions() {
    earlier_bytes_ = payload_bytes();
    unused_bytes_ = 0;
  }
  // Fragments since numbers last jumped out of reach (NumberJudge). Wrong numbers jump, and few of
  // them follow each other.
  [[nodiscard]] std::uint64_t in_a_row() const { return written() - jumped_; }
  // Fragments since start(), or since the counter was reset.
  [[nodiscard]] std::uint64_t since_begin() const { return written() - begun_; }
  [[nodiscard]] std::uint64_t dropped(wire::DropReason reason) const {
    return dropped_[static_cast<std::size_t>(reason)];
  }
  // For log lines: the last number that was accepted (0: none), the last one that was dropped for
  // this reason; and from where to where its numbers fell most lately.
  [[nodiscard]] EventNumber last_accepted() const {
    return accepted_end() == 0 ? 0 : accepted_end() - 1;
  }
  [[nodiscard]] EventNumber last_dropped(wire::DropReason reason) const {
    return last_dropped_[static_cast<std::size_t>(reason)];
  }
  [[nodiscard]] EventNumber fell_from() const { return restart_.fell_from(); }
  [[nodiscard]] EventNumber fell_to() const { return restart_.fell_to(); }
  // They have fallen since a fragment was accepted.
  [[nodiscard]] bool is_back() const { return restart_.is_back(); }
  // Fragments that were dropped since the last one was accepted, because their numbers are not
  // above it; without repeats.
  [[nodiscard]] std::uint64_t dropped_since_accepted() const {
    return dropped_behind_ == written() ? dropped_since_ : 0;
  }
  // The number of the last fragment that was dropped for its number, or late.
  [[nodiscard]] EventNumber last_refused() const { return last_refused_; }
  // The number after the highest one that the source has come to, accepted or late; 0: none yet.
  [[nodiscard]] EventNumber reached_end() const { return std::max(accepted_end(), late_end_); }
  // Why an event before the first one has no fragment.
  [[nodiscard]] wire::AbsentReason reason_below(EventNumber event) const {
    return dropped_before_.contains(event) ? wire::AbsentReason::dropped : given_up_before_;
  }

private:
  struct Held {
    enum class State : std::uint8_t {
      unconfirmed,
      asked, // about the jump that follows; the others know
      right // it waits for room, or until it is wanted
    };
    friend constexpr bool may_follow(State from, State to) {
      return from != State::right || to == State::right;
    }
    EventNumber event = 0;
    std::uint64_t counter = 0; // as it was sent
    FragmentTable::Slot slot; // of its fragment, the last written; absent: a skip over `event`
    CheckedState<State> state = State::unconfirmed;
    EventNumber following = event; // if it is asked
    std::optional<EventNumber> others_first_at; // where the others were at the first look
  };

  // The number after the last one that was accepted; 0: none.
  [[nodiscard]] EventNumber accepted_end() const {
    return table_.next() == known_next_ ? accepted_end_ : table_.next();
  }
  void note_written();
  void begin_at(EventNumber first);
  void begin_again();
  void drop_from(EventNumber event);
  void forget_early();
  [[nodiscard]] bool half_full() const;
  [[nodiscard]] EventNumber number_of(std::uint64_t counter) const;
  [[nodiscard]] bool is_left_over_before(EventNumber event, EventNumber wrapped) const;
  [[nodiscard]] std::optional<EventNumber> next() const {
    return table_.begun() ? std::optional{table_.next()} : std::nullopt;
  }
  // It is below what was answered.
  [[nodiscard]] bool fallen(EventNumber event) const {
    return table_.begun() && event < table_.next();
  }
  [[nodiscard]] bool has(EventNumber event) const; // a fragment of it, not released
  [[nodiscard]] bool may_be_reset_to(EventNumber event) const;
  [[nodiscard]] bool is_untriggered(EventNumber event) const {
    return options_.triggered && event >= limit_ && !limit_is_last_;
  }

  Decision drop_passed(EventNumber event, std::uint32_t size);
  [[nodiscard]] std::optional<wire::FragmentEntry> accepted_at(EventNumber event) const;
  [[nodiscard]] bool is_other(wire::FragmentEntry before, wire::FragmentEntry entry) const;
  Decision drop_back(EventNumber event);
  [[nodiscard]] RestartJudge::Says says_other(EventNumber event) const;
  [[nodiscard]] RestartJudge::Says says_repeat(EventNumber event, wire::FragmentEntry before);
  void goes_back_to(EventNumber event, RestartJudge::Says says);
  Decision drop_outside(EventNumber event, std::uint64_t counter);
  void goes_on_at(EventNumber event);
  void mark_in_doubt();
  [[nodiscard]] wire::AbsentReason reason_of_skip(EventNumber end) const;

  [[nodiscard]] bool has_room(EventNumber event);
  void fill_absent(EventNumber end, wire::AbsentReason why);
  void fill_skipped(EventNumber end);
  void make_slot(EventNumber event);
  bool skip_now(EventNumber end);
  void pass_limit();

  bool judge_held(EventNumber following);
  bool decide_held(EventNumber following);
  void decide_asked();
  [[nodiscard]] bool others_have_gone_on() const;
  bool confirm_at_pause();
  bool take_held();
  bool leave_beyond_last();
  void drop_held(std::optional<EventNumber> following = {});
  [[nodiscard]] bool repeats(const Held& held) const;
  void leave_held();
  void forget_held();

  const FragmentQueueOptions& options_;
  FragmentTable& table_;
  FragmentPages& pages_;
  FastPath& fast_;
  Numbering numbering_;
  NumberJudge judge_;
  std::optional<Held> held_;
  EventNumber limit_ = event_number_end;
  bool limit_is_last_ = false;
  CounterReset reset_ = CounterReset::no;
  bool requests_reset_ = false;

  std::uint64_t written_ = 0; // up to known_next_
  std::uint64_t earlier_bytes_ = 0; // of payload, before positions began at 0 last
  std::uint64_t unused_bytes_ = 0; // positions that are no payload
  EventNumber known_next_ = FragmentTable::not_begun; // from here on the queue wrote without asking
  EventNumber accepted_end_ = 0;
  std::uint64_t offered_ = 0; // the counter of the last fragment
  std::optional<std::uint64_t> last_decided_; // up to known_next_
  // The number after the last one that the source said and that was accepted, or late; 0: none yet.
  // Kept where numbers are looked at (narrow counters).
  EventNumber reported_end_ = 0;
  EventNumber late_end_ = 0; // the number after the highest one that came late; 0: none
  std::uint64_t jumped_ = 0; // written() when numbers last jumped
  std::uint64_t begun_ = 0; // written() when numbers began
  std::uint64_t beyond_last_ = 0; // right numbers beyond the last event, in a row
  std::uint64_t beyond_since_ = 0; // written() then

  std::array<std::uint64_t, wire::drop_reasons> dropped_{};
  std::array<EventNumber, wire::drop_reasons> last_dropped_{};
  EventRange early_; // the last numbers in a row that came before the source's `first`
  wire::AbsentReason given_up_before_{}; // why, if it was given up before it had a number
  wire::AbsentReason before_joining_{}; // why numbers before its first fragment are absent
  EventRange dropped_before_; // right before the first number: those of fragments that were dropped
  std::uint64_t dropped_there_ = 0; // fragments, when dropped_at_ was the next number
  EventNumber dropped_at_ = 0;
  std::uint64_t dropped_since_ = 0; // below the last accepted one, without repeats
  std::uint64_t dropped_behind_ = 0; // written() then
  EventNumber last_refused_ = 0;
  EventNumber first_ = 0; // where numbers began
  EventRange left_out_; // the last numbers that it left out
  RecentFragments recent_; // of those released
  std::optional<wire::FragmentEntry> repeated_; // the last one that equals the one of its number
  RestartJudge restart_;
};

} // namespace fanin::source
