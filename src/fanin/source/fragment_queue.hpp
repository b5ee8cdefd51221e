/// \file
/// The queue between one source and the readout unit. The source writes fragments into pages that
/// the queue lends to it, in the order of event numbers. The queue computes checksums and limits
/// the source. The readout unit cuts consecutive events out of it, without a copy.
///
/// What becomes of a fragment whose number is not the next one is decided by EventNumbers
/// (docs/modules/source.md). It may be held in its page until something confirms its number. A
/// queue holds at most one such fragment.
///
/// The queue is bounded by its own pool of pages and by its window. The window is a number of
/// fragments; if numbers are far apart, a sixteenth of it. When pool or window is used up, begin()
/// returns `full` and the source waits: backpressure up to the detector. The queue allocates
/// nothing after construction. Thread: the loop of the readout unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/source/fragment_pages.hpp"
#include "fanin/source/fragment_table.hpp"
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
                                    ///< or one of the next
  bool asks_others = false; ///< the owner compares a jump of `near` or more with other sources
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

/// What EventNumbers has decided for the fragments that come next.
struct FastPath {
  EventNumber end = 0; ///< the next number is taken without asking, if it is below
  std::uint32_t flags = 0; ///< of each fragment (wire::FragmentFlag)
  bool throttled = false; ///< as FragmentQueue::throttled()
};

class EventNumbers;

class FragmentQueue {
public:
  /// `pool` belongs to this queue alone: a source that runs ahead cannot take the pages of another.
  FANIN_API FragmentQueue(const FragmentQueueOptions& options, memory::PagePool& pool);
  FANIN_API ~FragmentQueue();
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
    fast_.throttled = false;
    writing_ = Writing::open;
    missing_ = size;
    crc_ = 0;
    table_.next_slot().position = pages_.position();
    return WriteOutcome::ok;
  }
  /// Contiguous room for the open fragment: all of it, if it fits into a page. A fragment may stay
  /// open from one read() to the next.
  [[nodiscard]] std::span<std::byte> room() {
    return pages_.next(missing_ < pages_.room() ? missing_ : pages_.room());
  }
  void advance(std::uint32_t bytes) {
    FANIN_ASSERT(bytes <= missing_ && bytes <= pages_.room());
    if (options_.checksum) crc_ = wire::crc32c(pages_.next(bytes), crc_);
    missing_ -= bytes;
    pages_.advance(bytes);
    if (missing_ != 0 && pages_.room() == 0) pages_.next_page();
  }
  /// Closes the open fragment with `flags` of wire::FragmentFlag. If its event was given up
  /// meanwhile, it is dropped as late; if it has come once more, as a repeat.
  void end(std::uint32_t flags = 0) {
    FANIN_ASSERT(missing_ == 0 && writing_ != Writing::none);
    if (writing_ != Writing::open) [[unlikely]] {
      return end_detached(flags);
    }
    FragmentTable::Slot& slot = table_.next_slot();
    const auto size = static_cast<std::uint32_t>(pages_.position() - slot.position);
    slot.entry = {size | flags | fast_.flags, crc_};
    table_.add_next();
    pages_.complete();
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
    const std::span<std::byte> room = pages_.next(size);
    std::forward<Fill>(fill)(room);
    const std::uint32_t crc = options_.checksum ? wire::crc32c(room) : 0;
    table_.next_slot() = {pages_.position(), {size, crc}};
    table_.add_next();
    fast_.throttled = false;
    pages_.advance(size);
    pages_.complete();
    return true;
  }

  /// Says that the source will send nothing below `event`. The number is judged like that of a
  /// fragment, and may be held and dropped in the same way. False: the window has no room yet, or
  /// numbers up to there are not wanted yet; call it again later.
  [[nodiscard]] FANIN_API bool skip_to(EventNumber event);

  /// The first number that is not wanted yet (not triggered, or after the end of the run).
  [[nodiscard]] FANIN_API EventNumber limit() const;
  /// All numbers below this one have been answered.
  [[nodiscard]] EventNumber next_event() const { return table_.next(); }
  /// The source has a number, so next_event() is valid.
  [[nodiscard]] bool numbered() const { return table_.begun(); }
  /// The first event that is answered and not released.
  [[nodiscard]] EventNumber first_event() const { return table_.base(); }
  [[nodiscard]] const FragmentQueueOptions& options() const { return options_; }

  // --- the readout unit's side -------------------------------------------------------------------

  /// What is decided about numbers. It is fanin's own, and not a part of the interface of plug-ins.
  [[nodiscard]] EventNumbers& numbers() { return *numbers_; }
  [[nodiscard]] const EventNumbers& numbers() const { return *numbers_; }

  /// Forgets everything held and starts numbering at `first`, or at the first fragment's number.
  FANIN_API void start(EventNumber first);
  void start_unnumbered();

  /// True if the last begin() or skip_to(), or the number held, found no page or no window: the
  /// source is held back, which is not silence.
  [[nodiscard]] bool throttled() const { return fast_.throttled; }

  /// Stops waiting for the source up to `event`: numbers that were not answered become absent, and
  /// fragments of them that come later are dropped as late. A number held below is right, since
  /// others have reached it. False: the window has no room for all of them yet.
  [[nodiscard]] bool give_up_until(EventNumber event,
                                   wire::AbsentReason why = wire::AbsentReason::silent);

  /// The entry of an event below next_event(); absent if it is before the first.
  [[nodiscard]] wire::FragmentEntry entry(EventNumber event) const {
    return event < table_.base() ? entry_below(event) : table_.entry(event);
  }
  /// All events from `event` on and below the result have the same entry: `event` alone, or a gap.
  /// Events from the result on may have it too. Requires `event` below next_event().
  [[nodiscard]] EventNumber alike_until(EventNumber event) const {
    return event < table_.base() ? event + 1 : table_.alike_until(event);
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
    if (event >= table_.next()) return pages_.end();
    return event < table_.base() ? pages_.base() : table_.position(event);
  }

  /// Bytes written in all, those of an open fragment and empty ends of pages included.
  [[nodiscard]] std::uint64_t bytes_written() const { return pages_.position(); }

  /// Bytes of events that were answered and not released.
  [[nodiscard]] std::uint64_t held_bytes() const { return pages_.end() - pages_.base(); }

  /// Takes the next piece of events below `end`: at most `payload_max` bytes and `entries_max`
  /// events, whose entries it writes to `table`. Moves the cursor. The cursor's event is below
  /// `end`.
  [[nodiscard]] FANIN_API Piece cut(Cursor& cursor, EventNumber end, std::uint32_t payload_max,
                                    std::uint32_t entries_max, wire::FragmentEntry* table) const;
  /// Forgets events below `event`. Their pages stay as long as views of them.
  FANIN_API void release_until(EventNumber event);

private:
  enum class Writing : std::uint8_t { none, open, given_up, to_hold, to_compare };
  struct Detached { // the open fragment, where it has no slot of the table
    EventNumber event = 0;
    std::uint64_t position = 0;
  };

  // False for a fragment that fills the page exactly: begin_slow() then gets the next page.
  [[nodiscard]] bool expected(EventNumber event, std::uint32_t size) const {
    return event == table_.next() && event < fast_.end && size < pages_.room() &&
           size <= options_.fragment_max;
  }
  void forget_all();
  FANIN_API WriteOutcome begin_slow(std::uint64_t counter, std::uint32_t size);
  FANIN_API void end_detached(std::uint32_t flags);
  [[nodiscard]] FANIN_API wire::FragmentEntry entry_below(EventNumber event) const;

  FragmentQueueOptions options_;
  FragmentTable table_;
  FragmentPages pages_;
  FastPath fast_;
  std::unique_ptr<EventNumbers> numbers_;
  Writing writing_ = Writing::none;
  std::uint32_t missing_ = 0; // bytes missing in the open fragment
  std::uint32_t crc_ = 0;
  Detached detached_; // given up, to be held, or to be compared
};

} // namespace fanin::source
