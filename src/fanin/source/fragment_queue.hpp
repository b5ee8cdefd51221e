/// \file
/// The queue between one source and the readout unit. The source writes fragments into pages that
/// the queue lends to it, in the order of event numbers. The queue numbers and checks them,
/// computes checksums and limits the source. The readout unit cuts consecutive events out of it,
/// without a copy.
///
/// A fragment whose number is not the next one is held in its page until the number of the next
/// fragment or the other sources show whether it is right (number_judge.hpp). A queue holds at most
/// one such fragment.
///
/// The queue is bounded by its own pool of pages and by its window. The window is a number of
/// fragments; if numbers are far apart, a sixteenth of it. When pool or window is used up, begin()
/// returns `full` and the source waits: backpressure up to the detector. The queue allocates
/// nothing after construction. Thread: the loop of the readout unit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/source/fragment_table.hpp"
#include "fanin/source/number_judge.hpp"
#include "fanin/source/numbering.hpp"
#include "fanin/wire/checksum.hpp"
#include "fanin/wire/fragment.hpp"
#include "fanin/wire/reasons.hpp"

namespace fanin::source {

enum class WriteOutcome : std::uint8_t {
  ok,
  full, ///< no room, or the number is not wanted yet; the fragment was not taken: offer it again
        ///< later
  rejected ///< dropped, and counted with its reason; continue with the next fragment
};

struct FragmentQueueOptions {
  SourceId source = 0;
  std::uint32_t window = 65536; ///< most fragments held at once; a power of two (FragmentTable)
  std::uint32_t fragment_max = 1U << 20; ///< bytes
  bool checksum = true;
  std::uint64_t near = 65536; ///< numbers less far apart than this confirm each other
                              ///< (event.window)
  int counter_bits = 64; ///< width of the source's own counter; higher bits are ignored
  std::int64_t offset = 0; ///< added to the source's numbers
  std::optional<EventNumber> first; ///< fragments are dropped until this number has come,
                                    ///< or one of the next (NumberJudge)
  bool asks_others = false; ///< the owner compares a jump of `near` or more with other sources:
                            ///< set_others() and judge_held_again()
  bool triggered = false; ///< events from limit() on do not exist yet
  Duration deadline = std::chrono::seconds{1}; ///< for which events wait for a silent source
};

/// The position of a cut: an event, and a byte of its fragment.
struct Cursor {
  EventNumber event = 0;
  std::uint32_t payload_offset = 0;
};

/// Consecutive events of one source whose payload is contiguous in one page; or a piece of one
/// fragment.
struct Piece {
  EventRange range;
  std::uint32_t payload_offset = 0; ///< within the fragment, if partial; else 0
  bool partial = false; ///< a piece of one fragment; range is its event
  memory::View payload;
};

/// It stays one type of more than 400 lines, since a decision about a number changes the table, the
/// pages and the held number together. Separate types: the table (FragmentTable), which numbers are
/// right (NumberJudge), what the source's counter means (Numbering).
class FragmentQueue {
public:
  /// `pool` belongs to this queue alone: a source that runs ahead cannot take the pages of another.
  FANIN_API FragmentQueue(const FragmentQueueOptions& options, memory::PagePool& pool);
  FragmentQueue(const FragmentQueue&) = delete;
  FragmentQueue& operator=(const FragmentQueue&) = delete;

  // --- the source's side -------------------------------------------------------------------------

  /// Opens the fragment of `event`, of exactly `size` bytes. Numbers that were skipped become
  /// absent. After `ok`, fill room() and call advance() until `size` bytes are in, then end().
  /// `event` is the number as the source sends it, with its counter's width and without the offset.
  [[nodiscard]] WriteOutcome begin(EventNumber event, std::uint32_t size) {
    FANIN_ASSERT(writing_ == Writing::none);
    if (!expected(event, size)) [[unlikely]] {
      return begin_slow(event, size);
    }
    throttled_ = false;
    writing_ = Writing::open;
    missing_ = size;
    crc_ = 0;
    table_.next_slot().position = position_;
    return WriteOutcome::ok;
  }
  /// Contiguous room for the open fragment: all of it, if it fits into a page. A fragment may stay
  /// open from one read() to the next.
  [[nodiscard]] std::span<std::byte> room() {
    const std::uint32_t rest = page_room();
    return {page_.data() + (page_size_ - rest), missing_ < rest ? missing_ : rest};
  }
  void advance(std::uint32_t bytes) {
    FANIN_ASSERT(bytes <= missing_ && bytes <= page_room());
    if (options_.checksum) {
      crc_ = wire::crc32c({page_.data() + (page_size_ - page_room()), bytes}, crc_);
    }
    missing_ -= bytes;
    position_ += bytes;
    if (missing_ != 0 && position_ == page_end_) next_page();
  }
  /// Closes the open fragment with `flags` of wire::FragmentFlag. If its event was given up
  /// meanwhile, it is dropped as late.
  void end(std::uint32_t flags = 0) {
    FANIN_ASSERT(missing_ == 0 && writing_ != Writing::none);
    if (writing_ != Writing::open) [[unlikely]] {
      return end_detached(flags);
    }
    FragmentTable::Slot& slot = table_.next_slot();
    slot.entry = {static_cast<std::uint32_t>(position_ - slot.position) | flags, crc_};
    table_.add_next();
    end_position_ = position_;
    written_end_ = table_.next();
    ++written_;
    writing_ = Writing::none;
  }
  /// Forgets the open fragment. Its number may come again.
  FANIN_API void cancel();
  /// between begin() and end()
  [[nodiscard]] bool open() const { return writing_ != Writing::none; }
  [[nodiscard]] std::uint32_t missing() const {
    return missing_;
  } // bytes of the open fragment that are missing
  /// CRC32C of the bytes of the open fragment so far; 0 with options().checksum off.
  [[nodiscard]] std::uint32_t crc32c() const { return crc_; }
  /// begin, copy, end.
  [[nodiscard]] FANIN_API WriteOutcome write(EventNumber event, std::span<const std::byte> payload,
                                             std::uint32_t flags = 0);
  /// Writes a whole fragment, if it has the next number and fits into the current page: `fill`
  /// writes into the span that it is given. False: nothing was done; use begin().
  template <class Fill>
  [[nodiscard]] bool write_next(EventNumber event, std::uint32_t size, Fill&& fill) {
    FANIN_ASSERT(writing_ == Writing::none);
    if (!expected(event, size)) [[unlikely]] {
      return false;
    }
    const std::span<std::byte> room{page_.data() + (page_size_ - page_room()), size};
    std::forward<Fill>(fill)(room);
    const std::uint32_t crc = options_.checksum ? wire::crc32c(room) : 0;
    table_.next_slot() = {position_, {size, crc}};
    table_.add_next();
    throttled_ = false;
    position_ += size;
    end_position_ = position_;
    written_end_ = table_.next();
    ++written_;
    return true;
  }

  /// Says that the source will send nothing below `event`. The number is judged like that of a
  /// fragment, and may be held and dropped in the same way. False: the window has no room yet, or
  /// numbers up to there are not wanted yet; call it again later.
  [[nodiscard]] FANIN_API bool skip_to(EventNumber event);

  /// The first number that is not wanted yet (not triggered, or after the end of the run).
  [[nodiscard]] EventNumber limit() const { return limit_; }
  /// The value of the source's counter at `event`.
  [[nodiscard]] std::uint64_t counter_of(EventNumber event) const {
    return numbering_.counter_of(event);
  }
  /// All numbers below this one have been answered.
  [[nodiscard]] EventNumber next_event() const { return table_.next(); }
  /// The source has a number, so next_event() is valid.
  [[nodiscard]] bool numbered() const { return numbered_; }
  /// The first event that is answered and not released.
  [[nodiscard]] EventNumber first_event() const { return table_.base(); }
  [[nodiscard]] const FragmentQueueOptions& options() const { return options_; }

  // --- the readout unit's side -------------------------------------------------------------------

  /// The source was given up before it said anything: it has no number again. Requires
  /// nothing_said(), no fragment that is open, and no number that is held.
  void forget_number();
  /// No fragment and no skip was accepted since start.
  [[nodiscard]] bool nothing_said() const { return written_end_ == 0 && reported_end_ == 0; }

  /// Forgets everything held and starts numbering at `first`, or at the first fragment's number.
  FANIN_API void start(EventNumber first);
  void start_unnumbered();
  /// Sets limit(). `last`: nothing beyond it will be wanted; a number held there is forgotten.
  void set_limit(EventNumber limit, bool last = false) {
    limit_ = limit < event_number_end ? limit : event_number_end;
    limit_is_last_ = last;
    judge_.set_end(options_.triggered && !last ? limit_ : event_number_end);
    find_fast_end();
  }
  /// Sets what the judging of numbers uses of the other sources.
  void set_others(const OtherSources& others) {
    judge_.set_others(others);
    if (held_ && !held_->others_first_at) held_->others_first_at = others.high;
  }
  /// Whether the source's numbers may fall. Until the run has an event of the source, its counter
  /// may be reset: the queue begins again, and what came before is dropped. `ask`: the queue waits
  /// until set_may_fall() is called again.
  enum class Fall : std::uint8_t { no, ask, yes };
  void set_may_fall(Fall may) {
    fall_ = may;
    asks_to_fall_ = false;
  }
  [[nodiscard]] bool asks_to_fall() const { return asks_to_fall_; }

  /// The number that waits to be confirmed, of a fragment or of a skip.
  [[nodiscard]] std::optional<EventNumber> held() const {
    return held_ ? std::optional{held_->event} : std::nullopt;
  }
  /// The number after the last one that is right: next_event(), or one held that waits for room.
  [[nodiscard]] EventNumber right_end() const {
    return held_ && held_->right && held_->event >= table_.next() ? held_->event + 1
                                                                  : table_.next();
  }
  /// Judges the held number again: the other sources may have reached it. True: it was decided.
  bool judge_held_again();
  /// True: the other sources are asked about the held number, since the next number is a jump; or
  /// the next number has confirmed the held one, which is not triggered yet. The source is held
  /// back meanwhile.
  [[nodiscard]] bool unclear() const {
    return held_ && (held_->right ? untriggered() : held_->following.has_value());
  }
  /// Requires unclear(). The jump: the held number or the number that follows it. The held number
  /// is right if others have come near the jump: then this source has nothing else below.
  [[nodiscard]] EventNumber jump() const {
    return judge_.jumps(held_->event, next()) ? held_->event
                                              : held_->following.value_or(held_->event);
  }
  /// Decides an unclear number for which no answer of the others has come. A jump is judged by the
  /// number that follows it. A number that is no jump is right, unless the others have continued
  /// without it. A number that was not triggered is wrong.
  void decide_unclear();
  /// Confirms the held number, for example because another source has the same one. False: the
  /// window has no room for it yet, or it is not wanted yet; judge_held_again() will try again.
  bool confirm_held();
  /// No fragment will follow: the held number is taken if it is right by what is known of the
  /// others now.
  void take_at_end();
  /// As take_at_end(), but a number that is not right is dropped: nothing more will be known.
  void end_held();
  /// At the end of the source: whether it holds a number that is wrong if the others do not reach
  /// it soon. A number of a sparse source waits for them until the end of the run.
  [[nodiscard]] bool waits_at_end() const {
    return held_ && !held_->right && (!judge_.sparse() || fallen());
  }
  [[nodiscard]] bool waits_for_first() const { return judge_.waits_for_first(); }

  /// True if the last begin() or skip_to(), or the number held, found no page or no window: the
  /// source is held back, which is not silence.
  [[nodiscard]] bool throttled() const { return throttled_; }

  /// Stops waiting for the source up to `event`: numbers that were not answered become absent, and
  /// fragments of them that come later are dropped as late. A number held below is right, since
  /// others have reached it. False: the window has no room for all of them yet.
  [[nodiscard]] bool give_up_until(EventNumber event,
                                   wire::AbsentReason why = wire::AbsentReason::silent);

  /// The entry of an event below next_event(); absent if it is before the first.
  [[nodiscard]] wire::FragmentEntry entry(EventNumber event) const {
    if (event < table_.base()) return wire::FragmentEntry::make_absent(reason_below(event));
    return table_.entry(event);
  }
  /// All events from `event` on and below the result have the same entry: `event` alone, or a gap.
  /// Events from the result on may have it too. Requires `event` below next_event().
  [[nodiscard]] EventNumber alike_until(EventNumber event) const {
    if (event < table_.base()) return event + 1;
    const FragmentTable::Section at = table_.section(event);
    return at.gap != nullptr ? at.end : event + 1;
  }
  /// False: every answered event from `event` on has a fragment.
  [[nodiscard]] bool may_be_absent_from(EventNumber event) const {
    return table_.absent_end() > event;
  }
  /// The first event from `event` on whose fragment is there or was dropped; next_event() if there
  /// is none. Requires numbered().
  [[nodiscard]] EventNumber sent_from(EventNumber event) const;
  /// Bytes written for events below `event`, with empty ends of pages. The difference of two
  /// positions is an upper bound for the payload between them. An open fragment is not counted.
  [[nodiscard]] std::uint64_t position(EventNumber event) const {
    if (event >= table_.next()) return end_position_;
    return event < table_.base() ? base_position_ : table_.position(event);
  }

  /// Bytes written in all, those of an open fragment and empty ends of pages included.
  [[nodiscard]] std::uint64_t bytes_written() const { return position_; }

  /// Bytes of events that were answered and not released.
  [[nodiscard]] std::uint64_t held_bytes() const { return end_position_ - base_position_; }

  /// Takes the next piece of events below `end`: at most `payload_max` bytes and `entries_max`
  /// events, whose entries it writes to `table`. Moves the cursor. The cursor's event is below
  /// `end`.
  [[nodiscard]] FANIN_API Piece cut(Cursor& cursor, EventNumber end, std::uint32_t payload_max,
                                    std::uint32_t entries_max, wire::FragmentEntry* table) const;
  /// Forgets events below `event`. Their pages stay as long as views of them.
  FANIN_API void release_until(EventNumber event);

  [[nodiscard]] std::uint64_t written() const { return written_; } ///< fragments, since start
  /// Fragments since numbers last jumped out of reach (NumberJudge). Wrong numbers jump, and few of
  /// them follow each other.
  [[nodiscard]] std::uint64_t in_a_row() const { return written_ - jumped_; }
  [[nodiscard]] std::uint64_t dropped(wire::DropReason reason) const {
    return dropped_[static_cast<std::size_t>(reason)];
  }

  /// For log lines: the last number that was accepted (0: none), and the last one that was dropped
  /// for being below it.
  [[nodiscard]] EventNumber last_written() const {
    return written_end_ == 0 ? 0 : written_end_ - 1;
  }
  [[nodiscard]] EventNumber last_back() const { return last_back_; }
  /// The number after the highest one that the source has come to, accepted or late; 0: none yet.
  [[nodiscard]] EventNumber reached_end() const {
    return written_end_ > late_end_ ? written_end_ : late_end_;
  }

private:
  [[nodiscard]] std::uint32_t page_room() const {
    return static_cast<std::uint32_t>(page_end_ - position_);
  }
  // False for a fragment that fills the page exactly: begin_slow() then gets the next page.
  [[nodiscard]] bool expected(EventNumber event, std::uint32_t size) const {
    return event == table_.next() && event < fast_end_ && size < page_room() &&
           size <= options_.fragment_max;
  }
  enum class Writing : std::uint8_t { none, open, given_up, to_hold };
  struct Held { // a number that is not confirmed; its fragment, if it has one, is the last written
    EventNumber event = 0;
    std::uint64_t position = 0;
    wire::FragmentEntry entry; // absent: a skip over `event`
    bool right = false; // waits for room, or until it is wanted
    std::optional<EventNumber> following; // offered, of a jump that others are asked about
    std::optional<EventNumber> others_first_at; // where the others were at the first look
  };

  FANIN_API WriteOutcome begin_slow(std::uint64_t counter, std::uint32_t size);
  WriteOutcome reject_early(EventNumber event);
  WriteOutcome reject_old(EventNumber event);
  WriteOutcome reject_late(EventNumber event);
  WriteOutcome begin_next(EventNumber event, std::uint32_t size);
  WriteOutcome begin_held(EventNumber event, std::uint32_t size);
  FANIN_API void end_detached(std::uint32_t flags);
  bool skip_now(EventNumber end);
  void pass_limit();
  WriteOutcome reject(wire::DropReason reason);
  [[nodiscard]] EventNumber number_of(std::uint64_t counter) const;
  [[nodiscard]] std::optional<EventNumber> next() const {
    return numbered_ ? std::optional{table_.next()} : std::nullopt;
  }
  [[nodiscard]] bool untriggered() const {
    return options_.triggered && held_->event >= limit_ && !limit_is_last_;
  }
  // A number is held that is below what was answered.
  [[nodiscard]] bool fallen() const { return numbered_ && held_->event < table_.next(); }
  bool judge_held(EventNumber following);
  bool confirm_at_pause();
  bool decide_held(EventNumber following);
  void decide_unclear_held();
  [[nodiscard]] bool others_have_gone_on() const;
  void note_step(EventNumber event) {
    if (written_end_ != 0 && event - written_end_ >= judge_.reach()) jumped_ = written_;
  }
  bool take();
  void forget_held();
  void drop_held();
  [[nodiscard]] bool has(EventNumber event) const; // a fragment of it, not released
  void begin_afresh();
  void number_from(EventNumber first);
  bool reach(EventNumber event);
  [[nodiscard]] wire::AbsentReason reason_of_skip(EventNumber end) const;
  [[nodiscard]] wire::AbsentReason reason_below(EventNumber event) const {
    return dropped_before_.contains(event) ? wire::AbsentReason::dropped : wire::AbsentReason::none;
  }
  [[nodiscard]] bool too_large(std::uint32_t size) const;
  bool make_room(std::uint32_t size);
  void take_back(std::uint64_t position);
  void find_fast_end();
  void fill_absent(EventNumber end, wire::AbsentReason why);
  void make_slot();
  FANIN_API void next_page();
  void drop_pages();
  [[nodiscard]] memory::PageRef& held_page(std::uint64_t sequence) {
    return held_pages_[sequence % held_pages_.size()];
  }
  [[nodiscard]] memory::View view(std::uint64_t position, std::uint32_t size) const;

  FragmentQueueOptions options_;
  memory::PagePool& pool_;
  const std::uint32_t page_size_;
  // Positions: page sequence x page size + offset.
  FragmentTable table_;
  std::vector<memory::PageRef> held_pages_; // with events not yet released, by sequence

  memory::Loan page_; // being filled
  std::uint64_t position_ = 0; // of the next byte
  std::uint64_t page_end_ = 0; // of the page being filled
  std::uint64_t held_first_ = 0; // sequence of the oldest page held
  std::uint64_t base_position_ = 0; // of the first event that is not released
  EventNumber limit_ = event_number_end;
  EventNumber fast_end_ = 0; // numbers below may be written at once, if they are the next ones
  EventNumber written_end_ = 0; // the number after the last one written; 0: none written yet
  // The number after the last one that the source said and that was accepted, or late; 0: none yet.
  // Kept where numbers are looked at (narrow counters).
  EventNumber reported_end_ = 0;
  EventNumber late_end_ = 0; // the number after the highest one that came late; 0: none
  std::uint64_t beyond_last_ = 0; // right numbers beyond the last event, in a row
  std::uint64_t beyond_since_ = 0; // written_ then
  std::uint64_t end_position_ = 0; // position_ after the last fragment that is complete
  std::uint32_t missing_ = 0; // bytes missing in the open fragment
  std::uint32_t crc_ = 0;
  Writing writing_ = Writing::none;
  bool numbered_ = false;
  bool throttled_ = false;
  bool limit_is_last_ = false;
  Fall fall_ = Fall::no;
  bool asks_to_fall_ = false;
  Numbering numbering_;
  NumberJudge judge_;
  std::optional<Held> held_;
  Held detached_; // the open fragment, given up or to be held
  EventRange early_; // the last numbers in a row that came before the source's `first`
  EventRange dropped_before_; // right before the first number: those of fragments that were dropped
  std::uint64_t dropped_there_ = 0; // fragments, when dropped_at_ was the next number
  EventNumber dropped_at_ = 0;
  EventNumber last_back_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t jumped_ = 0; // written_ when numbers last jumped
  std::array<std::uint64_t, wire::drop_reasons> dropped_{};
};

} // namespace fanin::source
