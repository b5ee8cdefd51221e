#include "fanin/builder/manager/announcements.hpp"

#include <algorithm>
#include <utility>

#include "fanin/builder/horizon.hpp"
#include "fanin/storage/event_sink.hpp"

namespace fanin::builder {

Announcements::Announcements(const System& system, const SourceIndex& sources,
                             std::size_t ranges_max)
    : system_(system),
      sources_(sources),
      ranges_max_(ranges_max),
      readouts_(system.readout_units.size()),
      cuts_(system.batch_events, system.batch_size, system.sources.size()) {
  for (std::size_t node = 0; node < readouts_.size(); ++node) {
    const auto [first, last] = system.sources_of(static_cast<NodeId>(node));
    first_source_.push_back(first);
    readouts_[node].absent.resize(last - first + 1);
  }
  first_source_.push_back(system.sources.size());
}

// --- readout units -------------------------------------------------------------------------------

bool Announcements::behind(const Readout& readout) const {
  return readout.state == State::joined ||
         (readout.state == State::announcing && readout.end <= assigned_end());
}

// Changes a readout unit, and what is counted of all.
template <class Change>
void Announcements::change(Readout& readout, Change change) {
  const auto count = [&](std::size_t one) {
    if (readout.here()) here_ += one;
    if (readout.state == State::joined) joined_ += one;
    if (readout.state == State::ended) ended_ += one;
    if (readout.here() && readout.silent) silent_ += one;
    if (behind(readout)) behind_ += one;
  };
  count(~std::size_t{0}); // one less
  change();
  count(1);
}

void Announcements::join(NodeId node, std::optional<EventNumber> first) {
  Readout& readout = readouts_[node];
  FANIN_ASSERT(!readout.here() && readout.open.empty());
  change(readout, [&] {
    readout.state = first ? State::announcing : State::joined;
    readout.first = readout.end = first.value_or(0);
    readout.silent = readout.held_back = false;
    readout.in_a_row = 0;
    readout.gaps = {};
    readout.counted_end = 0;
  });
}

void Announcements::forget_open(Readout& readout) {
  for (const AnnouncedRange& announced : readout.open) cuts_.remove(announced);
  readout.open.clear();
}

void Announcements::leave(NodeId node) {
  Readout& readout = readouts_[node];
  if (!readout.here()) return;
  const EventNumber first = std::max(readout.first, assigned_end());
  if (readout.begun() && readout.end > first) {
    const auto at = std::ranges::upper_bound(past_, node, {}, &Past::node);
    past_.insert(at, {node, {first, readout.end}, readout.absent});
  }
  forget_open(readout);
  for (AbsentRanges& absent : readout.absent) absent.clear();
  readout.died = readout.died || readout.state != State::ended;
  change(readout, [&] { readout.state = State::away; });
}

// Ranges inside the announced one and of the readout unit's own sources, source by source, none
// overlapping.
bool Announcements::can_be_absent(NodeId node, EventRange range,
                                  std::span<const wire::AbsentRange> absent) const {
  std::size_t source = first_source_[node];
  EventNumber free = range.first;
  for (const auto& run : absent) {
    const std::size_t of = sources_.find(run.source);
    if (of < source || of >= first_source_[node + std::size_t{1}]) return false;
    if (of != source) free = range.first;
    source = of;
    if (run.first < free || run.first > range.end || run.count() > range.end - run.first) {
      return false;
    }
    free = run.range().end;
  }
  return true;
}

// It has announced no event, so it may begin further on.
bool Announcements::begins_again(const Readout& readout, EventNumber first) {
  return readout.state == State::announcing && readout.silent && readout.empty() &&
         first > readout.end;
}

bool Announcements::valid(NodeId node, const wire::Announce& announce,
                          std::span<const wire::AbsentRange> absent) const {
  const Readout& readout = readouts_[node];
  const EventRange range{announce.first, announce.end};
  const bool nothing = announce.nothing != 0;
  return announce.end >= announce.first && announce.end <= event_number_end &&
         (nothing || range.count() <= system_.batch_events) && (!nothing || absent.empty()) &&
         (readout.state == State::joined ||
          (readout.state == State::announcing && announce.first == readout.end) ||
          begins_again(readout, announce.first)) &&
         readout.open.size() < ranges_max_ && can_be_absent(node, range, absent);
}

bool Announcements::add(NodeId node, const wire::Announce& announce,
                        std::span<const wire::AbsentRange> absent, EventNumber decided,
                        Duration now) {
  if (!valid(node, announce, absent)) return false;
  const EventRange range{announce.first, announce.end};
  Readout& readout = readouts_[node];
  const auto add_absent = [&](AbsentRanges& known, EventRange run) {
    known.forget_below(decided);
    known.add(run);
    absent_most_ = std::max(absent_most_, known.size());
    return known.size() <= ranges_max_;
  };
  if (announce.nothing != 0) {
    for (AbsentRanges& known : readout.absent) {
      if (!add_absent(known, range)) return false;
    }
  }
  for (const auto& run : absent) {
    AbsentRanges& known = readout.absent[sources_.find(run.source) - first_source_[node]];
    if (!add_absent(known, run.range())) return false;
  }
  if (announce.nothing == 0) note_sent(readout, range, absent, decided);
  change(readout, [&] {
    if (!readout.begun() || readout.empty()) readout.first = announce.first;
    readout.state = announce.final != 0 ? State::ended : State::announcing;
    readout.end = announce.end;
    readout.silent = announce.silent != 0;
    readout.few = announce.few != 0 && announce.final == 0;
  });
  if (range.empty()) return true;
  know_until(announce.end);
  readout.open.push_back({{readout.counted_end, announce.end}, announce.bytes});
  cuts_.add(readout.open.back());
  readout.counted_end = announce.end;
  readout.announced_at = now;
  if (announce.nothing == 0) {
    readout.in_a_row += range.count();
    readout.gaps.add_ones(range.count());
  } else if (range.count() >= system_.event_window) {
    if (range.count() >= readout.gaps.reach(system_.event_window)) readout.in_a_row = 0;
    readout.gaps.add(range.count());
  }
  return true;
}

// What was dropped was sent for an event, whoever else has it: those numbers are no gaps.
void Announcements::note_sent(Readout& readout, EventRange range,
                              std::span<const wire::AbsentRange> absent, EventNumber decided) {
  std::vector<EventRange> dropped;
  for (const auto& run : absent) {
    if (run.dropped()) dropped.push_back(run.range());
  }
  std::ranges::sort(dropped, {}, &EventRange::first);
  AbsentRanges& nothing_sent = readout.absent.back();
  nothing_sent.forget_below(decided);
  for (const EventRange& run : dropped) {
    if (run.first > range.first) nothing_sent.add({range.first, run.first});
    range.first = std::max(range.first, run.end);
  }
  nothing_sent.add(range);
}

void Announcements::held_back(NodeId node, bool held_back, Duration now) {
  readouts_[node].held_back = held_back;
  if (held_back) readouts_[node].announced_at = now; // it would have more
}

bool Announcements::holds_all_back(NodeId node) const {
  const Readout& readout = readouts_[node];
  if (readout.held_back) return false;
  bool any = false;
  for (const Readout& other : readouts_) {
    if (&other == &readout || !other.here() || other.state == State::ended) continue;
    if (!other.held_back || other.end <= readout.end) return false;
    any = true;
  }
  return any;
}

bool Announcements::take_back(NodeId node) {
  Readout& readout = readouts_[node];
  if (begun_ || !readout.begun()) return false;
  forget_open(readout);
  for (AbsentRanges& absent : readout.absent) absent.clear();
  change(readout, [&] {
    readout.state = State::joined;
    readout.first = readout.end = readout.counted_end = 0;
    readout.silent = false;
  });
  find_announced_end();
  return true;
}

// After an announcement was taken back.
void Announcements::find_announced_end() {
  announced_end_ = 0;
  for (const Readout& readout : readouts_) {
    if (readout.begun() && !readout.empty()) know_until(readout.end);
  }
  for (const Past& past : past_) know_until(past.range.end);
}

// --- where batches begin and end -----------------------------------------------------------------

// True only if no later announcement can lie below the first event. One beyond what is known begins
// again, since numbers fell.
bool Announcements::may_begin(EventNumber horizon) const {
  if (begun_ || here_ == 0 || joined_ > 0) return false;
  const auto first = first_announced();
  return std::ranges::all_of(readouts_, [&](const Readout& readout) {
    if (readout.state != State::announcing || readout.decides_begin()) return true;
    return first && readout.first >= *first && readout.first <= horizon;
  });
}

std::optional<EventNumber> Announcements::first_announced() const {
  std::optional<EventNumber> first;
  for (const Readout& readout : readouts_) {
    if (readout.decides_begin()) first = std::min(first.value_or(readout.first), readout.first);
  }
  return first;
}

void Announcements::begin_at_first() {
  begun_ = true;
  first_event_ = first_announced().value_or(announced_end_);
  know_until(first_event_);
  move_to(first_event_);
}

std::optional<Announcements::Apart> Announcements::apart() const {
  std::vector<NodeId> sorted;
  for (std::size_t node = 0; node < readouts_.size(); ++node) {
    const Readout& readout = readouts_[node];
    const bool goes_on = readout.state == State::announcing && readout.decides_begin();
    if (goes_on) sorted.push_back(static_cast<NodeId>(node));
  }
  if (sorted.empty()) return {};
  std::ranges::sort(sorted, {},
                    [&](NodeId node) { return std::pair{readouts_[node].first, node}; });
  EventNumber end = readouts_[sorted.front()].end;
  for (const NodeId node : sorted) {
    const Readout& readout = readouts_[node];
    if (readout.first > end && readout.first - end > system_.event_window) {
      return Apart{sorted.front(), node};
    }
    end = std::max(end, readout.end);
  }
  return {};
}

std::optional<EventNumber> Announcements::others_begin_above() const {
  const auto first = first_announced();
  EventNumber end = event_number_end;
  for (const Readout& readout : readouts_) {
    if (readout.decides_begin()) end = std::min(end, readout.end);
  }
  const bool above = std::ranges::any_of(readouts_, [&](const Readout& readout) {
    return readout.state == State::announcing && readout.decides_begin() &&
           readout.first > (readout.few ? *first : end);
  });
  return above ? first : std::nullopt;
}

void Announcements::move_to(EventNumber assigned_end) {
  cuts_.move_to(assigned_end);
  behind_ = 0;
  for (Readout& readout : readouts_) {
    while (!readout.open.empty() && readout.open.front().range.end <= assigned_end) {
      readout.open.pop_front();
    }
    if (behind(readout)) ++behind_;
  }
  if (!past_.empty()) {
    std::erase_if(past_, [&](const Past& past) { return past.range.end <= assigned_end; });
  }
}

bool Announcements::has_room(EventNumber decided) {
  if (absent_most_ <= ranges_max_ / 4) return true;
  absent_most_ = 0;
  for (Readout& readout : readouts_) {
    for (AbsentRanges& absent : readout.absent) {
      absent.forget_below(decided);
      absent_most_ = std::max(absent_most_, absent.size());
    }
  }
  return absent_most_ <= ranges_max_ / 4;
}

EventNumber Announcements::assignable_end() const {
  if (!begun_ || here_ == 0 || behind_ > 0) return assigned_end();
  EventNumber end =
      std::max(announced_end_, assigned_end()); // who has ended is absent from there on
  for (const Readout& readout : readouts_) {
    if (readout.state == State::announcing) end = std::min(end, readout.end);
  }
  return end;
}

bool Announcements::all_at(EventNumber event) const {
  return !none_goes_on() && std::ranges::all_of(readouts_, [event](const Readout& readout) {
    return !readout.here() || readout.state == State::ended ||
           (readout.begun() && readout.end >= event);
  });
}

// With a fixed number of events no more than the beginning is announced before the last event is
// known. So its first event counts already: else who has none would be waited for without end.
EventNumber Announcements::horizon(const Overtaking& overtaking) const {
  const bool waits_for_limit = system_.events_max != 0 && !begun_;
  std::vector<EventNumber> ends;
  EventNumber ended = assigned_end();
  for (std::size_t node = 0; node < readouts_.size(); ++node) {
    const Readout& readout = readouts_[node];
    if (!readout.begun() || (readout.empty() && !readout.decides_begin())) continue;
    if (!begun_ && readout.few) continue;
    if (readout.state == State::ended || readout.silent || overtaking.passed_over(node)) {
      ended = std::max(ended, readout.end);
    } else {
      ends.push_back(waits_for_limit ? readout.first + 1 : readout.end);
    }
  }
  const EventNumber agreed = horizon_of(ends, system_.event_window);
  const bool near = ended <= agreed || ended - agreed <= system_.event_window;
  return near || ends.empty() ? std::max(agreed, ended) : agreed;
}

// --- which numbers are events --------------------------------------------------------------------

// Calls visit(range, absent) for every source of all that was announced, until it says true.
template <class Visit>
bool Announcements::any_source(const Visit& visit) const {
  for (const Past& past : past_) {
    for (const AbsentRanges& absent : past.absent) {
      if (visit(past.range, absent)) return true;
    }
  }
  for (const Readout& readout : readouts_) {
    if (!readout.begun()) continue;
    for (const AbsentRanges& absent : readout.absent) {
      if (visit(EventRange{readout.first, readout.end}, absent)) return true;
    }
  }
  return false;
}

EventNumber Announcements::present_from(EventNumber event, EventNumber end) const {
  EventNumber found = end;
  (void)any_source([&](EventRange range, const AbsentRanges& absent) {
    const EventNumber first = absent.present_from(std::max(event, range.first));
    if (first < range.end) found = std::min(found, first);
    return found == event;
  });
  return found;
}

EventNumber Announcements::gap_from(EventNumber event, EventNumber end) const {
  for (EventNumber before = end; before != event && event < end;) {
    before = event;
    (void)any_source([&](EventRange range, const AbsentRanges& absent) {
      if (range.contains(event)) event = absent.absent_from(event, range.end);
      return event >= end;
    });
  }
  return std::min(event, end);
}

std::uint64_t Announcements::count_present(EventRange range) const {
  std::uint64_t count = 0;
  for (EventNumber event = range.first; (event = present_from(event, range.end)) < range.end;) {
    const EventNumber gap = gap_from(event, range.end);
    count += gap - event;
    event = gap;
  }
  return count;
}

std::vector<wire::Gap> Announcements::gaps_in(EventRange& range) const {
  std::vector<wire::Gap> gaps;
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

// --- lost fragments ------------------------------------------------------------------------------

// The fragments in the range, of no more events than a batch has, that were announced in `known`.
void Announcements::add_present(NodeId node, EventRange known,
                                const std::vector<AbsentRanges>& absent, EventRange range,
                                std::vector<wire::MissingRange>& lost) const {
  const EventNumber end = std::min(range.end, known.end);
  const std::size_t sources = first_source_[node + std::size_t{1}] - first_source_[node];
  for (std::size_t i = 0; i < sources; ++i) {
    const SourceId source = system_.sources[first_source_[node] + i].id;
    for (EventNumber event = std::max(range.first, known.first); event < end;) {
      const EventNumber until = absent[i].absent_from(event, end);
      if (until > event) {
        lost.push_back({.source = source,
                        .count = static_cast<std::uint32_t>(until - event),
                        .first = event,
                        .reason = static_cast<std::uint32_t>(wire::MissingReason::lost)});
      }
      event = until == end ? end : absent[i].present_from(until);
    }
  }
}

void Announcements::add_fragments(NodeId node, EventRange range,
                                  std::vector<wire::MissingRange>& lost) const {
  const Readout& readout = readouts_[node];
  if (!readout.begun()) return;
  add_present(node, {readout.first, readout.end}, readout.absent, range, lost);
}

void Announcements::add_lost(EventRange range, std::vector<wire::MissingRange>& lost) const {
  for (const Past& past : past_) add_present(past.node, past.range, past.absent, range, lost);
}

// The first numbers in the range that neither this readout unit nor an incarnation of it that has
// died has announced.
EventRange Announcements::not_announced(NodeId node, EventRange range) const {
  const auto past = std::ranges::equal_range(past_, node, {}, &Past::node);
  for (const Past& one : past) { // ascending
    if (one.range.contains(range.first)) range.first = std::min(one.range.end, range.end);
    if (one.range.first > range.first) range.end = std::min(range.end, one.range.first);
  }
  const Readout& readout = readouts_[node];
  if (!readout.begun()) return range;
  if (range.first >= readout.first) range.first = std::clamp(readout.end, range.first, range.end);
  if (readout.first > range.first) range.end = std::min(range.end, readout.first);
  return range;
}

void Announcements::add_unread(EventRange range, std::vector<wire::MissingRange>& lost) const {
  for (std::size_t node = 0; node < readouts_.size(); ++node) {
    if (!readouts_[node].died) continue;
    const auto unread_by = static_cast<NodeId>(node);
    EventRange rest = range;
    while (!rest.empty()) {
      const EventRange unread = not_announced(unread_by, rest);
      if (unread.empty()) break;
      for (std::size_t source = first_source_[node]; source < first_source_[node + 1]; ++source) {
        lost.push_back({.source = system_.sources[source].id,
                        .count = static_cast<std::uint32_t>(unread.count()),
                        .first = unread.first,
                        .reason = static_cast<std::uint32_t>(wire::MissingReason::unread)});
      }
      rest.first = unread.end;
    }
  }
}

} // namespace fanin::builder
