// Which numbers are events, and up to where readout units agree that there are any.
#include "fanin/builder/event_manager.hpp"

#include <algorithm>
#include <utility>

#include "fanin/source/number_judge.hpp"

namespace fanin::builder {

namespace {
constexpr std::size_t gaps_listed = 1000;
constexpr std::uint32_t run_most = 1U << 30; // events

using Runs = std::deque<EventRange>;

// The first run that ends after `event`.
Runs::const_iterator run_at(const Runs& runs, EventNumber event) {
  return std::ranges::partition_point(runs,
                                      [&](const EventRange& run) { return run.end <= event; });
}

// Calls look(range, absent) for every source of all that was announced, and for what was dropped,
// until it says true.
template <class Readouts, class Look>
bool any_source(const Readouts& readouts, const Look& look) {
  for (const auto& readout : readouts) {
    for (const auto& past : readout.past) {
      for (const auto& absent : past.absent) {
        if (look(past.range, absent)) return true;
      }
    }
    if (!readout.announced_any) continue;
    for (const auto& absent : readout.absent) {
      if (look(EventRange{readout.first, readout.end}, absent)) return true;
    }
  }
  return false;
}
} // namespace

// The first event from `event` on that a source has, or `end`.
EventNumber EventManager::present_from(EventNumber event, EventNumber end) const {
  EventNumber found = end;
  (void)any_source(readouts_, [&](EventRange range, const Runs& absent) {
    EventNumber first = std::max(event, range.first);
    const auto run = run_at(absent, first);
    if (run != absent.end() && run->first <= first) first = run->end;
    if (first < range.end) found = std::min(found, first);
    return found == event;
  });
  return found;
}

// The first from `event` on that no source has, or `end`.
EventNumber EventManager::gap_from(EventNumber event, EventNumber end) const {
  for (EventNumber before = end; before != event && event < end;) {
    before = event;
    (void)any_source(readouts_, [&](EventRange range, const Runs& absent) {
      if (!range.contains(event)) return false;
      const auto run = run_at(absent, event);
      const EventNumber until = run == absent.end() ? range.end : run->first;
      event = std::max(event, std::min(until, range.end));
      return event >= end;
    });
  }
  return std::min(event, end);
}

EventNumber EventManager::count_present(EventRange range) const {
  EventNumber count = 0;
  for (EventNumber event = range.first; (event = present_from(event, range.end)) < range.end;) {
    const EventNumber gap = gap_from(event, range.end);
    count += gap - event;
    event = gap;
  }
  return count;
}

// Numbers that no source has need no batch, however many they are. False: the frontier is an event.
bool EventManager::skip_gap(EventNumber end) {
  if (system_.trigger_rate_hz > 0) return false;
  const EventNumber event = present_from(frontier_, end);
  if (event == frontier_) return false;
  const EventRange gap{frontier_, event};
  add_gap(gap);
  if (skipped_ && skipped_->end == gap.first) {
    skipped_->end = gap.end;
  } else {
    skipped_ = {gap.first, gap.end};
  }
  tell_readouts(wire::Clear{gap.first, gap.end});
  move_frontier(event);
  return true;
}

// A batch ends with an event, so that a gap that goes on lies in one piece.
std::vector<wire::Gap> EventManager::gaps_in(EventRange& range) const {
  std::vector<wire::Gap> gaps;
  if (system_.trigger_rate_hz > 0) return gaps;
  for (EventNumber event = range.first; event < range.end;) {
    const EventNumber first = gap_from(event, range.end);
    if (first == range.end) break;
    event = present_from(first, range.end);
    if (event == range.end) {
      range.end = first;
    } else {
      gaps.push_back({first, event});
    }
  }
  return gaps;
}

// The fragments in the range, of no more events than a batch has, that were announced in `known`
// with these runs of absent ones.
void EventManager::add_lost(std::vector<wire::MissingRun>& lost, EventRange range, SourceId source,
                            EventRange known, const std::deque<EventRange>& absent) {
  const EventNumber end = std::min(range.end, known.end);
  for (EventNumber event = std::max(range.first, known.first); event < end;) {
    const auto run = run_at(absent, event);
    const bool none = run == absent.end();
    const EventNumber until = none ? end : std::min(end, run->first);
    if (until > event) {
      lost.push_back({.source = source,
                      .count = static_cast<std::uint32_t>(until - event),
                      .first = event,
                      .reason = static_cast<std::uint32_t>(storage::MissingReason::lost)});
    }
    event = none ? end : std::max(run->end, until);
  }
}

std::vector<wire::MissingRun> EventManager::lost_in(EventRange range) const {
  std::vector<wire::MissingRun> lost;
  std::size_t source = 0;
  for (const auto& readout : readouts_) {
    for (const auto& past : readout.past) {
      for (std::size_t i = 0; i < readout.sources; ++i) {
        add_lost(lost, range, system_.sources[source + i].id, past.range, past.absent[i]);
      }
    }
    source += readout.sources;
  }
  return lost;
}

// A readout unit has died: what it had announced is lost, unless it was sent before. Builder units
// hear what it had of their batches, before they hear that it takes part no more.
void EventManager::leave_behind(NodeId node) {
  Readout& readout = readouts_[node];
  if (!readout.announced_any) return;
  const EventRange known{readout.first, readout.end};
  const std::size_t first_source = system_.sources_of(node).first;
  std::vector<std::vector<wire::MissingRun>> lost(builders_.size());
  for (auto& [first, batch] : batches_) {
    const std::size_t before = batch.lost.size();
    for (std::size_t i = 0; i < readout.sources; ++i) {
      add_lost(batch.lost, batch.range, system_.sources[first_source + i].id, known,
               readout.absent[i]);
    }
    if (batch.builder_incarnation == 0) continue; // said when it is assigned again
    auto& said = lost[batch.builder];
    said.insert(said.end(), batch.lost.begin() + static_cast<std::ptrdiff_t>(before),
                batch.lost.end());
  }
  for (std::size_t i = 0; i < builders_.size(); ++i) {
    if (builders_[i].peer) say_lost(builders_[i].peer->channel, lost[i]);
  }
  if (readout.end > frontier_) {
    readout.past.push_back({{std::max(readout.first, frontier_), readout.end}, readout.absent});
  }
  readout.announced_any = false;
  for (auto& absent : readout.absent) absent.clear();
}

void EventManager::say_lost(ControlChannel& channel, std::vector<wire::MissingRun>& lost) {
  // Source by source, so that runs of batches that follow each other are one.
  std::ranges::sort(lost, {}, [](const auto& run) { return std::pair{run.source, run.first}; });
  std::vector<wire::MissingRun> runs;
  for (const wire::MissingRun& run : lost) {
    const bool goes_on = !runs.empty() && runs.back().source == run.source &&
                         runs.back().first + runs.back().count == run.first;
    if (goes_on && runs.back().count < run_most) {
      runs.back().count += run.count;
    } else {
      runs.push_back(run);
    }
  }
  const std::size_t most = channel.room_max() / sizeof(wire::MissingRun);
  for (std::span<const wire::MissingRun> rest = runs; !rest.empty();) {
    const auto some = rest.first(std::min(rest.size(), most));
    rest = rest.subspan(some.size());
    channel.append(wire::Lost{some.size()}, some);
  }
}

// Gaps and lost fragments are rare; where they are many they take several messages.
void EventManager::send_to_builder(Builder& builder, const Batch& batch, wire::Assign assign) {
  const std::size_t records =
      builder.peer->channel.room_max() / (sizeof(wire::Gap) + sizeof(wire::MissingRun));
  std::span<const wire::Gap> gaps = batch.gaps;
  std::span<const wire::MissingRun> lost = batch.lost;
  do {
    const auto some_gaps = gaps.first(std::min(gaps.size(), records));
    const auto some_lost = lost.first(std::min(lost.size(), records));
    gaps = gaps.subspan(some_gaps.size());
    lost = lost.subspan(some_lost.size());
    assign.gaps = static_cast<std::uint32_t>(some_gaps.size());
    assign.lost = static_cast<std::uint32_t>(some_lost.size());
    assign.more = gaps.empty() && lost.empty() ? 0 : 1;
    builder.peer->channel.append(assign, some_gaps, some_lost);
  } while (assign.more != 0);
}

void EventManager::add_gap(EventRange gap) {
  summary_.gaps += gap.count();
  auto& list = summary_.gap_list;
  auto at = std::ranges::lower_bound(list, gap.first, {}, &EventRange::end);
  if (at == list.end() || at->first > gap.end) {
    if (list.size() < gaps_listed) list.insert(at, gap);
    return;
  }
  at->first = std::min(at->first, gap.first);
  at->end = std::max(at->end, gap.end);
  const auto next = std::next(at);
  if (next == list.end() || next->first > at->end) return;
  at->end = std::max(at->end, next->end);
  list.erase(next);
}

// An announcement more than a window ahead of all others counts when another one comes there: its
// source may be wrong. Who is at its end, or silent, is not waited for.
EventNumber EventManager::agreed_horizon() const {
  if (state_ >= State::draining || system_.trigger_rate_hz > 0) return horizon_;
  std::vector<EventNumber> ends;
  EventNumber ended = frontier_;
  for (const auto& readout : readouts_) {
    if (!readout.peer || !readout.announced_any) continue;
    if (readout.final || readout.silent || readout.passed_over) {
      ended = std::max(ended, readout.end);
    } else {
      ends.push_back(readout.end);
    }
  }
  const EventNumber agreed = source::agreed_end(ends, system_.event_window);
  const bool near = ended <= agreed || ended - agreed <= system_.event_window;
  return near || ends.empty() ? std::max(agreed, ended) : agreed;
}

// As ReadoutUnit::overtaker(), for readout units.
const EventManager::Readout* EventManager::overtaker(const Readout& readout) const {
  if (!readout.peer || !readout.announced_any || readout.final || readout.silent) return nullptr;
  for (const auto& other : readouts_) {
    if (!other.peer || !other.announced_any || other.end <= readout.end) continue;
    if (other.end - readout.end > system_.event_window &&
        other.in_a_row >= source::enough_in_a_row &&
        other.announced_at + system_.event_deadline >= readout.announced_at) {
      return &other;
    }
  }
  return nullptr;
}

// One readout unit more than a window ahead is not believed until others follow, but for one that
// has been quiet for the deadline while the other was ahead: it never follows.
void EventManager::pass_over_quiet() {
  for (auto& readout : readouts_) {
    const Readout* const by = system_.trigger_rate_hz > 0 ? nullptr : overtaker(readout);
    if (by == nullptr) {
      readout.overtaken_since.reset();
      readout.passed_over = readout.overtaken_said = false;
      continue;
    }
    if (!readout.overtaken_since) readout.overtaken_since = fair_;
    const Duration quiet = fair_ - std::max(*readout.overtaken_since, readout.announced_at);
    readout.passed_over = quiet >= system_.event_deadline;
    const bool long_enough = quiet >= std::min(system_.event_deadline / 2, 2 * alive_period);
    if (!long_enough || std::exchange(readout.overtaken_said, true)) continue;
    environment_.log(LogLevel::warning, "the run waits for " + overtaken(readout, *by));
  }
}

std::string EventManager::overtaken(const Readout& readout, const Readout& by) const {
  const auto name = [&](const Readout& r) {
    return system_.readout_units[static_cast<std::size_t>(&r - readouts_.data())];
  };
  return fmt::format("readout unit '{}', which is at event {}: readout unit '{}' is at event {}, "
                     "more than event.window ({}) ahead",
                     name(readout), readout.end, name(by), by.end, system_.event_window);
}

// All others have come to their end, maybe with a number that waits for others as well.
bool EventManager::alone(const Readout& readout) const {
  return std::ranges::all_of(readouts_, [&](const auto& other) {
    return &other == &readout || !other.peer || other.final || other.held_ended;
  });
}

// All others have more, and wait for it.
bool EventManager::holds_all_back(const Readout& readout) const {
  bool any = false;
  for (const auto& other : readouts_) {
    if (&other == &readout || !other.peer || other.final) continue;
    if (!other.held_back || other.end <= readout.end) return false;
    any = true;
  }
  return any && !readout.held_back;
}

bool EventManager::held_by_another(const Readout& readout) const {
  return readout.held != 0 && std::ranges::any_of(readouts_, [&](const auto& other) {
           return &other != &readout && other.peer && other.held != 0 &&
                  other.held_event == readout.held_event;
         });
}

void EventManager::say_horizon(Readout& readout, EventNumber horizon) {
  const auto flag = [](bool set) { return static_cast<std::uint8_t>(set ? 1 : 0); };
  readout.peer->channel.append(wire::Horizon{.event = horizon,
                                             .held = readout.held,
                                             .alone = flag(alone(readout)),
                                             .equal = flag(held_by_another(readout)),
                                             .slow = flag(holds_all_back(readout))});
}

// What it held stays known: others may come to hold it, too.
void EventManager::on_held(Readout& readout, const wire::Held& held) {
  readout.held = held.count;
  readout.held_ended = held.ended != 0;
  readout.held_waits = held.event < event_number_end;
  if (!readout.held_waits) return;
  readout.held_event = held.event;
  readout.held_told = agreed_horizon();
  say_horizon(readout, readout.held_told);
}

// Who holds a number hears at once when others have reached it, have gone on where it has none,
// hold it too, or have come to their end.
void EventManager::answer_held() {
  std::optional<EventNumber> horizon;
  for (auto& readout : readouts_) {
    if (!readout.peer || !readout.held_waits) continue;
    if (!horizon) horizon = agreed_horizon();
    const bool last = alone(readout) || held_by_another(readout);
    const bool reached = *horizon > readout.held_event && readout.held_told <= readout.held_event;
    const bool jump =
        readout.held_event - std::min(readout.held_event, readout.end) >= system_.event_window;
    const bool passed = jump && *horizon > std::max(readout.end, readout.held_told);
    if (!last && !reached && !passed) continue;
    readout.held_waits = !last;
    readout.held_told = *horizon;
    say_horizon(readout, *horizon);
  }
}

// Before anything is assigned: readout units that begin more than a window from all others wait for
// them, and people are told.
bool EventManager::apart() {
  std::vector<const Readout*> sorted;
  for (const auto& readout : readouts_) {
    if (readout.peer && !readout.final) sorted.push_back(&readout);
  }
  std::ranges::sort(sorted, {}, [](const Readout* r) { return r->first; });
  EventNumber end = sorted.empty() ? 0 : sorted.front()->end;
  for (const Readout* readout : sorted) {
    if (readout->first > end && readout->first - end > system_.event_window) {
      const auto name = [&](const Readout* r) {
        return system_.readout_units[static_cast<std::size_t>(r - readouts_.data())];
      };
      const bool said = !apart_.empty();
      apart_ = fmt::format("readout units '{}', which begins at event {}, and '{}', at event {}, "
                           "to come within event.window ({}) of each other",
                           name(sorted.front()), sorted.front()->first, name(readout),
                           readout->first, system_.event_window);
      if (!said) environment_.log(LogLevel::warning, "the run waits for " + apart_);
      return true;
    }
    end = std::max(end, readout->end);
  }
  apart_.clear();
  return false;
}

} // namespace fanin::builder
