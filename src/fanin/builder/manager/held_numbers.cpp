#include "fanin/builder/manager/held_numbers.hpp"

#include <algorithm>

namespace fanin::builder {

// Changes a readout unit, and what is counted of all.
template <class Change>
void HeldNumbers::change(NodeId node, Change change) {
  Readout& readout = readouts_[node];
  waiting_ -= readout.waits() ? 1U : 0U;
  going_on_ -= readout.goes_on() ? 1U : 0U;
  if (readout.counts()) {
    const auto holders = holders_.find(readout.event);
    if (--holders->second == 0) holders_.erase(holders);
  }
  change(readout);
  waiting_ += readout.waits() ? 1U : 0U;
  going_on_ += readout.goes_on() ? 1U : 0U;
  if (readout.counts()) ++holders_[readout.event];
}

void HeldNumbers::join(NodeId node) {
  change(node, [](Readout& readout) {
    readout = {};
    readout.here = true;
  });
}

void HeldNumbers::leave(NodeId node) {
  change(node, [](Readout& readout) { readout = {}; });
}

void HeldNumbers::announced_end(NodeId node, bool ended) {
  change(node, [&](Readout& readout) { readout.final = ended; });
}

bool HeldNumbers::hold(NodeId node, const wire::Held& held, EventNumber horizon) {
  const bool holds = held.event < event_number_end;
  change(node, [&](Readout& readout) {
    readout.count = held.count;
    readout.all_held = held.ended != 0;
    if (!holds) {
      if (readout.state != State::none) readout.state = State::past;
      return;
    }
    readout.state = State::waiting;
    readout.event = held.event;
    readout.sent_horizon = horizon;
  });
  return holds;
}

// All others have come to their end, maybe with a number that waits for others as well.
bool HeldNumbers::alone(const Readout& readout) const {
  return going_on_ == (readout.goes_on() ? 1U : 0U);
}

bool HeldNumbers::held_by_another(const Readout& readout) const {
  if (!readout.counts()) return false;
  const auto holders = holders_.find(readout.event);
  return holders != holders_.end() && holders->second > 1;
}

bool HeldNumbers::take_new_answer(NodeId node, EventNumber horizon, EventNumber end) {
  const Readout& readout = readouts_[node];
  if (!readout.waits()) return false;
  const bool last = alone(readout) || held_by_another(readout);
  const bool reached = horizon > readout.event && readout.sent_horizon <= readout.event;
  const bool jump = readout.event - std::min(readout.event, end) >= window_;
  const bool passed = jump && horizon > std::max(end, readout.sent_horizon);
  if (!last && !reached && !passed) return false;
  change(node, [&](Readout& changed) {
    changed.state = last ? State::answered : State::waiting;
    changed.sent_horizon = horizon;
  });
  return true;
}

wire::Horizon HeldNumbers::answer(NodeId node, EventNumber horizon) const {
  const Readout& readout = readouts_[node];
  const auto flag = [](bool set) { return static_cast<std::uint8_t>(set ? 1 : 0); };
  return {.event = horizon,
          .held = readout.count,
          .alone = flag(alone(readout)),
          .equal = flag(held_by_another(readout))};
}

} // namespace fanin::builder
