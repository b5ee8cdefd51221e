// One source of a readout unit with its queue: when it is read, and what the last read brought.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "fanin/builder/readout/read_pause.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/source/event_numbers.hpp"
#include "fanin/source/source.hpp"
#include "fanin/wire/control.hpp"

namespace fanin::builder {

struct ReadoutInput {
  std::unique_ptr<source::Source> source;
  memory::PagePool* pool = nullptr; // of this source alone
  source::FragmentQueueOptions queue;
};

// Knows no other source.
class SourceReader {
public:
  // `longest_pause`: of ReadPause. The pool must outlive it.
  SourceReader(ReadoutInput input, Duration longest_pause);

  // The run may begin, as far as the source knows.
  [[nodiscard]] bool ready(Time now) { return waits_for_others_ = source_->ready(now); }
  // So may all sources of the readout unit, which are read from now on.
  void all_are_ready() { waits_for_others_ = false; }
  [[nodiscard]] std::string listening_url() const { return source_->listening_url(); }
  void joined(const RunIdentity& run) { source_->joined(run); }
  // The readout unit joins the run, as welcome.first_event and .joining say. Errors: the source
  // cannot start; it has failed then.
  [[nodiscard]] Result<> start(const wire::Welcome& welcome, Time now);

  [[nodiscard]] source::FragmentQueue& queue() { return queue_; }
  [[nodiscard]] const source::FragmentQueue& queue() const { return queue_; }
  [[nodiscard]] const memory::PagePool& pool() const { return pool_; }

  // A source on demand is read until `limit` bytes are not cut yet, and then again when half of
  // them are cut. Decides in which of the two states it is, for far_ahead().
  void measure_lead(std::uint64_t limit);
  // Whether read() is to be called. `retry`: room or numbers were given back.
  [[nodiscard]] bool due(Time now, bool retry) const;
  void read(Time now);
  // The event manager knows all events below: its batches have them.
  void announced(EventNumber end) { source_->announced(queue_.numbers().counter_of(end)); }
  // When it is due, unless its descriptor or its queue makes it due before. Requires that it is not
  // done().
  [[nodiscard]] Time next_read(Time now) const;
  // What becomes readable when it has more; -1: nothing, or what is there would not be taken now.
  [[nodiscard]] int descriptor(Time now) const {
    const bool rests = waits_for_others_ || done() || held_back() || !wanted();
    return rests || now < pause_.until() ? -1 : source_->descriptor();
  }
  [[nodiscard]] bool has_descriptor() const { return source_->descriptor() >= 0; }

  // It gives nothing any more.
  [[nodiscard]] bool done() const { return last_.state == source::ReadState::finished || failed(); }
  [[nodiscard]] bool failed() const { return last_.state == source::ReadState::failed; }
  [[nodiscard]] const Error& error() const { return last_.error; } // failed
  [[nodiscard]] bool has_more() const { return last_.state == source::ReadState::more; }
  // It was read further than builder units take.
  [[nodiscard]] bool far_ahead() const { return far_ahead_; }
  // It has said that nothing comes for now.
  [[nodiscard]] bool paused() const { return last_.state == source::ReadState::paused; }
  // It has more than it may give: fanin holds it back.
  [[nodiscard]] bool held_back() const { return far_ahead_ || queue_.throttled(); }
  // It could have given more, so that it is not silent: held back, or the last read left something,
  // and not all that it took was dropped.
  [[nodiscard]] bool busy() const { return held_back() || gives_more_; }
  // True once after a jump is decided that was unclear when the source was read last.
  [[nodiscard]] bool take_decided();
  // Adds its pages to `node`, and sets what was dropped in this incarnation.
  void count(wire::NodeCounters& node, wire::SourceCounters& own) const;

private:
  // Something may have come; else it is read by the clock.
  [[nodiscard]] bool woken() const {
    return has_descriptor() || woken_->load(std::memory_order_relaxed);
  }
  // Its next number is.
  [[nodiscard]] bool wanted() const {
    return !queue_.numbered() || queue_.next_event() < queue_.limit();
  }
  [[nodiscard]] bool waits() const { return last_.state == source::ReadState::waiting || paused(); }

  std::shared_ptr<std::atomic<bool>> woken_; // by the source, since it was last read
  std::unique_ptr<source::Source> source_;
  memory::PagePool& pool_;
  source::FragmentQueue queue_;
  source::ReadResult last_;
  ReadPause pause_;
  std::array<std::uint64_t, wire::drop_reasons> dropped_before_{}; // by earlier incarnations
  std::uint32_t pages_left_ = 0; // in the pool, after it was last read
  std::uint64_t bytes_max_ = 0; // bytes_written(), which falls when a fragment is dropped
  bool waits_for_others_ = false; // it is ready, and another one is not
  bool gives_more_ = false;
  bool far_ahead_ = false;
  bool unclear_ = false; // its queue, when it was read last: it waits until others are asked
};

} // namespace fanin::builder
