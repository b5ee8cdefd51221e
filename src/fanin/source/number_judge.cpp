#include "fanin/source/number_judge.hpp"

#include <algorithm>

namespace fanin::source {

EventNumber agreed_end(std::span<EventNumber> ends, std::uint64_t window) {
  if (ends.empty()) return 0;
  std::ranges::sort(ends);
  std::size_t i = ends.size() - 1;
  while (i > 0 && ends[i] - ends[i - 1] > window) --i;
  return ends[i];
}

bool NumberJudge::follows(EventNumber number, std::optional<EventNumber> next) const {
  if (waits_for_first_) return number == first_;
  if (!next || number < *next) return false;
  return number == *next || (steady_ && number - *last_ == step_);
}

NumberJudge::Verdict NumberJudge::by_next(EventNumber held, EventNumber following,
                                          std::optional<EventNumber> next) const {
  if (reached(held) && (!next || held >= *next)) return Verdict::right;
  if (following <= held) return Verdict::wrong;
  const bool close = following - held < window_;
  if (next && held < *next) {
    return close && following < *next ? Verdict::afresh : Verdict::wrong;
  }
  if (close || !others_.any) return Verdict::right;
  const bool near_last = next && held - *next < window_;
  return near_last || near_others(held) ? Verdict::right : Verdict::wrong;
}

void NumberJudge::accepted(EventNumber number) {
  if (last_ && number > *last_) {
    steady_ = number - *last_ == step_;
    step_ = number - *last_;
  }
  last_ = number;
  if (first_ && number == *first_) waits_for_first_ = false;
}

void NumberJudge::restart() {
  last_.reset();
  step_ = 0;
  steady_ = false;
  waits_for_first_ = first_.has_value();
  others_ = {};
}

} // namespace fanin::source
