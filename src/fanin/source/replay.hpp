/// \file
/// What the replays of recorded files have in common: the numbers of each pass over the file.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fanin/base/identity.hpp"
#include "fanin/source/fragment_queue.hpp"
#include "fanin/source/numbering.hpp"
#include "fanin/source/pacer.hpp"

namespace fanin::source {

struct ReplayOptions {
  std::uint64_t loops = 1; ///< passes over the file; 0: without end
  std::uint64_t span = 0; ///< numbers from one pass to the next; 0: last - first + 1 of the file
  double rate_hz = 0; ///< 0: as fast as the queue takes them
};

/// The first pass gives the recorded numbers. Each further pass continues after the last number of
/// the pass before and keeps the gaps inside. All sources of one file read all its numbers, so they
/// agree on the shift.
class ReplayNumbers {
public:
  ReplayNumbers(const ReplayOptions& options, int bits) : options_(options), numbering_(bits) {}

  /// Numbers below `first_wanted` are left out.
  void start(EventNumber first_wanted) {
    wanted_ = first_wanted;
    begin_pass(0);
    if (seen_all_) skip_passes();
  }
  /// The event number of the recorded number `key`. Call it for all of the file, in order.
  [[nodiscard]] EventNumber number(std::uint64_t key) {
    const EventNumber plain =
        pass_begins_ ? numbering_.without_wraps(key) : numbering_.near(key, previous_);
    if (plain >= event_number_end) { // no number: the queue drops it
      jump_ = true;
      return plain;
    }
    jump_ = !pass_begins_ && !near(plain, previous_) && !near(plain, jumped_to_);
    if (jump_) {
      jumped_to_ = plain;
      return plain + pass_ * span();
    }
    pass_begins_ = false;
    previous_ = plain;
    if (!seen_all_) {
      first_ = std::min(first_, plain);
      last_ = std::max(last_, plain);
    }
    return plain + pass_ * span();
  }
  [[nodiscard]] bool wanted(EventNumber event) const { return event >= wanted_; }

  /// At the end of the file. False: that was the last pass, or there is nothing in it.
  [[nodiscard]] bool next_pass() {
    seen_all_ = true;
    if (!seen_any() || (options_.loops != 0 && pass_ + 1 >= options_.loops)) return false;
    begin_pass(pass_ + 1);
    skip_passes();
    return !exhausted();
  }
  /// True: the last number is far from the one before, and none has followed it yet; the file is
  /// damaged there, or has another run. Such a number is not paced and not skipped to; it is
  /// offered to the queue, which judges it.
  [[nodiscard]] bool is_jump() const { return jump_; }
  /// True: all wanted numbers are after the last pass.
  [[nodiscard]] bool exhausted() const { return options_.loops != 0 && pass_ >= options_.loops; }
  [[nodiscard]] bool seen_any() const { return first_ <= last_; }
  [[nodiscard]] std::uint64_t pass() const { return pass_; }

private:
  [[nodiscard]] std::uint64_t span() const {
    return options_.span != 0 ? options_.span : std::max<std::uint64_t>(1, last_ - first_ + 1);
  }
  [[nodiscard]] static bool near(EventNumber a, EventNumber b) {
    return std::max(a, b) - std::min(a, b) < near_enough;
  }
  void begin_pass(std::uint64_t pass) {
    pass_ = pass;
    pass_begins_ = true;
    jump_ = false;
  }
  // Passes that lie below what is wanted need not be read.
  void skip_passes() {
    const EventNumber end = last_ + 1 + pass_ * span(); // of this pass
    if (wanted_ >= end) pass_ += (wanted_ - end) / span() + 1;
  }

  static constexpr std::uint64_t near_enough = 65536;

  ReplayOptions options_;
  Numbering numbering_;
  EventNumber wanted_ = 0;
  std::uint64_t pass_ = 0;
  EventNumber first_ = ~EventNumber{0}; // of the whole file
  EventNumber last_ = 0;
  EventNumber previous_ = 0; // in this pass
  EventNumber jumped_to_ = 0;
  bool pass_begins_ = true; // a pass
  bool jump_ = false;
  bool seen_all_ = false;
};

} // namespace fanin::source
