#include "fanin/source/restart_judge.hpp"

namespace fanin::source {

void RestartJudge::goes_back(EventNumber number, Says says, EventRange accepted) {
  if (row_.fragments == 0 || number <= row_.last) {
    row_ = {.first = number};
    fell_from_ = accepted.end - 1;
    fell_to_ = number;
  } else {
    row_.step = number - row_.last;
  }
  row_.last = number;
  row_.last_says = says;
  next_ = number + 1;
  ++row_.fragments;
  row_.repeats = row_.repeats || says == Says::repeat;
  row_.alike += says == Says::alike ? 1 : 0;
  row_.others += says == Says::other ? 1 : 0;
  if (is_restart(accepted)) doubt(accepted.end);
}

// A sender that repeats the last fragments from a buffer does not begin where the source has begun.
// Only data that are not alike tell the two apart for certain.
bool RestartJudge::is_restart(EventRange accepted) const {
  if (sender_ == Sender::other) return true;
  const std::uint64_t enough = sender_ == Sender::unknown ? 1 : enough_back;
  if (row_.others >= enough) return true;
  const EventNumber half = accepted.first + (accepted.end - accepted.first) / 2;
  const bool from_begin = row_.first < half || row_.first <= accepted.first;
  return sender_ != Sender::again && from_begin && !row_.repeats &&
         row_.alike + row_.others >= enough;
}

// After fewer numbers that were below, it counts again if it goes on from the last of them, and
// that is no repeat.
void RestartJudge::goes_on(EventNumber number, EventNumber accepted_end) {
  const EventNumber step = number - row_.last;
  const bool goes_on = row_.last_says != Says::repeat && (step == 1 || step == row_.step);
  if (row_.others != 0 && goes_on) doubt(accepted_end);
  if (position_ && number >= *position_) behind_ = 0;
  position_.reset();
  row_ = {};
  sender_ = Sender::same;
  next_ = number + 1;
}

void RestartJudge::says_position(EventNumber number) {
  if (in_doubt() && may_be_other() && !is_back() && number >= next_ + behind_) position_ = number;
}

void RestartJudge::doubt(EventNumber accepted_end) {
  if (!in_doubt()) behind_ = accepted_end - row_.first;
}

} // namespace fanin::source
