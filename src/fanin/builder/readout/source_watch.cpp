#include "fanin/builder/readout/source_watch.hpp"

#include "fanin/base/units.hpp"
#include "fanin/source/event_numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace fanin::builder {
namespace {

constexpr int marks_per_wait = 8;

bool is_behind(const source::FragmentQueue& queue, EventNumber horizon) {
  return horizon > 0 && (!queue.numbered() || queue.next_event() < horizon);
}

} // namespace

// A source that was given up and goes on below is waited for, if it lies less than a window back:
// else one whose numbers trail those of others by more than the deadline would never come back. Who
// was given up as slow is not waited for again.
void SourceWatch::note_progress(const source::FragmentQueue& queue, bool busy, bool ends,
                                Duration now) {
  if (busy) moved_at_ = now;
  const EventNumber before = std::exchange(reached_, queue.numbers().reached_end());
  if (std::exchange(written_, queue.numbers().written()) != queue.numbers().written()) {
    const std::uint64_t late = queue.numbers().dropped(wire::DropReason::late) - late_before_;
    if (state_.standing != Standing::present && late > 0) {
      log_(LogLevel::info,
           fmt::format("source {} is back at event {}; {} of its fragments were late", name_,
                       queue.numbers().last_accepted(), late));
    }
    state_.standing = Standing::present;
    state_.trailing_reported = false;
  } else if (reached_ <= before || !may_return()) {
    return;
  } else {
    const bool near = !ends && queue.next_event() - reached_ < system_.event_window;
    if (!std::exchange(state_.trailing_reported, true)) {
      log_(LogLevel::warning,
           fmt::format("source {} sends event {}, which is {} until event {}", name_, reached_ - 1,
                       near ? "late: waiting for it" : "too late: the source stays given up",
                       queue.next_event()));
    }
    if (!near) return;
    state_.standing = Standing::trailing;
  }
  state_.accepted_at = moved_at_ = now;
}

void SourceWatch::give_up(Standing standing, const source::FragmentQueue& queue) {
  if (state_.standing == Standing::present)
    late_before_ = queue.numbers().dropped(wire::DropReason::late);
  state_.standing = standing;
  state_.slow_since.reset();
}

// The time in which it is held back by us does not count, nor that in which this node does not run,
// nor is it silent while it gives more than is read at once, or when a fragment of it was taken
// within the deadline.
bool SourceWatch::watch_silence(source::FragmentQueue& queue, EventNumber horizon, bool busy,
                                Duration now) {
  if (!is_behind(queue, horizon) || busy) {
    state_.marks.clear();
    state_.slow_since.reset();
    return false;
  }
  const EventNumber until = known_for(system_.event_deadline, queue, horizon, now);
  if (until == 0) return true;
  if (state_.standing == Standing::present) {
    log_(LogLevel::warning,
         fmt::format("source {} is silent: given up until event {} (event.deadline is {})", name_,
                     until, format_duration(system_.event_deadline)));
  }
  give_up_silent(queue, until, wire::AbsentReason::silent);
  return false;
}

// Requires that it is behind. Up to where events have been known for so long, in which nothing of
// it was taken; 0: up to nowhere. Each event waits for as long as the first one, to within an
// eighth. What is known can fall, where a counter was reset.
EventNumber SourceWatch::known_for(Duration patience, const source::FragmentQueue& queue,
                                   EventNumber horizon, Duration now) {
  std::vector<Mark>& marks = state_.marks;
  for (Mark& mark : marks) mark.horizon = std::min(mark.horizon, horizon);
  if (queue.numbered()) {
    marks.erase(marks.begin(),
                std::ranges::upper_bound(marks, queue.next_event(), {}, &Mark::horizon));
  }
  const bool further = marks.empty() || (horizon > marks.back().horizon &&
                                         now - marks.back().at >= patience / marks_per_wait);
  if (further) marks.push_back({now, horizon});
  if (state_.accepted_at && now - *state_.accepted_at < patience) return 0;
  const auto later = std::ranges::upper_bound(marks, now - patience, {}, &Mark::at);
  return later == marks.begin() ? 0 : std::prev(later)->horizon;
}

void SourceWatch::pass_paused(source::FragmentQueue& queue, EventNumber horizon, Duration now) {
  state_.slow_since.reset(); // it has nothing to be slow with
  if (!is_behind(queue, horizon)) return state_.marks.clear();
  const EventNumber until = known_for(system_.latency, queue, horizon, now);
  if (until == 0) return;
  if (state_.standing == Standing::present) {
    log_(LogLevel::info, fmt::format("source {} pauses: events from {} on are built without it "
                                     "until it sends again",
                                     name_, queue.numbered() ? queue.next_event() : 0));
  }
  give_up_silent(queue, until, wire::AbsentReason::none);
}

void SourceWatch::give_up_silent(source::FragmentQueue& queue, EventNumber until,
                                 wire::AbsentReason why) {
  const bool was_slow =
      state_.standing == Standing::slow || state_.standing == Standing::slow_and_silent;
  give_up(was_slow ? Standing::slow_and_silent : Standing::silent, queue);
  (void)queue.give_up_until(until, why);
}

void SourceWatch::watch_slow(source::FragmentQueue& queue, EventNumber horizon,
                             std::string_view holds_back, Duration now) {
  if (holds_back.empty()) return state_.slow_since.reset();
  if (!state_.slow_since) state_.slow_since = now;
  const Duration slow = now - *state_.slow_since;
  if (slow >= system_.event_deadline && !std::exchange(state_.slow_reported, true)) {
    log_(LogLevel::warning, fmt::format("source {} is slow: at event {} it holds {} back", name_,
                                        queue.next_event(), holds_back));
  }
  if (system_.event_give_up_slow == Duration{0} || slow < system_.event_give_up_slow) return;
  log_(LogLevel::warning,
       fmt::format("source {} is slow: given up until event {} (event.give_up_slow is {})", name_,
                   horizon, format_duration(system_.event_give_up_slow)));
  give_up(silent() ? Standing::slow_and_silent : Standing::slow, queue);
  (void)queue.give_up_until(horizon);
}

// Nobody confirms it, and nobody goes on without it. What is not triggered by then is wrong.
void SourceWatch::watch_unclear(source::FragmentQueue& queue, bool ended, Duration now) {
  const bool at_end = ended && queue.numbers().waits_at_end();
  if (!at_end && !queue.numbers().unclear()) {
    state_.unclear_since.reset();
  } else if (!state_.unclear_since) {
    state_.unclear_since = now;
  } else if (now - *state_.unclear_since >= system_.event_deadline / 2) {
    if (at_end) {
      queue.numbers().end_held();
    } else {
      queue.numbers().decide_unclear();
    }
    state_.unclear_since.reset();
  }
}

} // namespace fanin::builder
