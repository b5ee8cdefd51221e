#include "fanin/source/number_judge.hpp"

#include <algorithm>

namespace fanin::source {

bool NumberJudge::follows(EventNumber number, std::optional<EventNumber> next) const {
  if (waits_for_first_ && (number == first_ || !takes_early_))
    return number == first_ && (!next || number >= *next);
  if (!next || number < *next) return false;
  return number == *next || (steady() && number - *last_ == step_);
}

NumberJudge::Verdict NumberJudge::by_next(EventNumber held, EventNumber following,
                                          std::optional<EventNumber> next) const {
  const bool fell = next && held < *next;
  if (fell && waits_for_first_ && held == first_) return Verdict::counter_reset;
  if (reached(held) && !fell) return Verdict::right;
  if (following <= held) {
    const bool says_nothing = following == held || (next && following < *next);
    return says_nothing && follows_loosely(held, next) ? Verdict::right : Verdict::wrong;
  }
  const bool close = following - held < reach();
  if (fell) {
    const bool alone = step_ == 0; // one number was accepted: two others are more
    const bool goes_on = dense() ? following - held == step_ : close || alone;
    return goes_on && following < *next ? Verdict::counter_reset : Verdict::wrong;
  }
  if (close) return Verdict::right;
  // A dense source whose number jumps, and jumps again: one of them may be wrong, or both. To take
  // a wrong one would cost all numbers up to there, to drop a right one costs a fragment.
  if (dense()) return reached_by_others(held) ? Verdict::right : Verdict::wrong;
  // It would wait until it is triggered, and hold up what follows, which does not confirm it.
  if (held >= end_) return Verdict::wrong;
  const bool near_last = next && held - *next < reach();
  const bool makes_jumps = jumps_dropped_ >= jumps_dropped_max;
  const bool right = near_last || makes_jumps || others_.few || right_at_end(held);
  return right ? Verdict::right : Verdict::wrong;
}

void NumberJudge::accepted(EventNumber number) {
  if (last_ && number - std::min(number, *last_) < window_) jumps_dropped_ = 0;
  if (last_ && number > *last_) {
    step_before_ = step_;
    step_ = number - *last_;
    // One jump among small steps is nothing usual.
    usual_.add(step_before_ == 0 ? step_ : std::min(step_, step_before_));
  }
  last_ = number;
  taken(number);
}

void NumberJudge::fell_back() {
  last_.reset();
  step_ = step_before_ = jumps_dropped_ = 0;
}

void NumberJudge::restart() {
  fell_back();
  usual_ = {};
  waits_for_first_ = first_.has_value();
  takes_early_ = false;
  others_ = {};
}

} // namespace fanin::source
