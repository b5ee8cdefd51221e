// What filter units have decided of one batch, and what becomes of it when one of them dies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/storage/layout.hpp"
#include "fanin/wire/filter.hpp"

namespace fanin::builder {

// Knows no connection and no time. A filter unit decides the events of a batch in order, so what is
// decided is always the beginning of it.
//
// An event at which a filter unit dies goes to another filter unit once. At the first death it is
// not known which of the undecided events it was. From then on filter units report each decision at
// once (`report_each`), so that at a further death it is the first undecided event.
class BatchDecisions {
public:
  enum class State : std::uint8_t {
    waiting, // for a filter unit
    in_progress, // a filter unit has it
    decided
  };

  explicit BatchDecisions(EventRange range) : range_(range), streams_(range.count()) {
    FANIN_ASSERT(!range.empty());
  }

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] EventRange range() const { return range_; }
  [[nodiscard]] std::uint32_t next() const { return next_; } // events before it are decided
  [[nodiscard]] bool report_each() const { return report_each_; }
  // For each event the streams that want it; error_stream: no filter unit could decide.
  [[nodiscard]] std::span<const std::uint32_t> wanted() const { return streams_; }

  void begin() {
    FANIN_ASSERT(state_ == State::waiting);
    state_ = State::in_progress;
  }

  // False: these are not the next events of the batch.
  [[nodiscard]] bool decide(std::uint32_t from, std::span<const wire::FilterDecision> decisions) {
    FANIN_ASSERT(state_ == State::in_progress);
    if (from != next_ || decisions.size() > streams_.size() - next_) return false;
    for (const auto& decision : decisions) streams_[next_++] = decision.streams;
    if (next_ == streams_.size()) state_ = State::decided;
    return true;
  }

  // The filter unit has not begun with the batch, and will not.
  void return_untouched() {
    FANIN_ASSERT(state_ == State::in_progress);
    state_ = State::waiting;
  }

  // The filter unit with it has died, or was given up. True: the event at hand was given up, too.
  bool lose() {
    FANIN_ASSERT(state_ == State::in_progress);
    state_ = State::waiting;
    if (!report_each_) {
      report_each_ = true;
      suspects_end_ = static_cast<std::uint32_t>(streams_.size());
      return false;
    }
    if (next_ >= suspects_end_) {
      suspects_end_ = next_ + 1;
      return false;
    }
    give_up();
    return true;
  }

  // No filter unit can take the batch: no further event of it is decided.
  void give_up_rest() {
    while (state_ != State::decided) give_up();
  }

private:
  void give_up() {
    streams_[next_++] = storage::error_stream;
    suspects_end_ = next_;
    if (next_ == streams_.size()) state_ = State::decided;
  }

  EventRange range_;
  State state_ = State::waiting;
  std::vector<std::uint32_t> streams_;
  std::uint32_t next_ = 0;
  std::uint32_t suspects_end_ = 0; // events from next_ to here may have ended a filter unit
  bool report_each_ = false;
};

} // namespace fanin::builder
