#include "fanin/builder/readout/source_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "fanin/builder/horizon.hpp"
#include "fanin/builder/wanted_list.hpp"

namespace fanin::builder {

namespace {
constexpr Duration waited_long = std::chrono::milliseconds{500}; // people are told of it

Overtaking new_overtaking(const System& system, std::size_t sources) {
  return {sources, system.event_window, system.event_deadline, waited_long};
}
} // namespace

SourceGroup::SourceGroup(const System& system, std::vector<ReadoutInput> inputs, LogFunction log)
    : system_(system),
      log_(std::move(log)),
      overtaking_(new_overtaking(system, inputs.size())),
      clock_(system.event_deadline / 4),
      overtaking_ends_(inputs.size()) {
  for (auto& input : inputs) {
    input.queue.asks_others = true;
    input.queue.triggered = system.trigger_rate_hz > 0;
    const SourceId id = input.queue.source;
    const std::string& name = system.sources[system.find_source(id)].name;
    auto& member = members_.emplace_back(members_.size(), system, name, std::move(input), log_);
    queues_.push_back(&member.reader.queue());
    counters_.push_back({.source = id});
  }
}

bool SourceGroup::ready(Time now) {
  WantedList missing; // each is asked, so that each begins to wait
  for (Member& member : members_) {
    if (member.reader.ready(now)) continue;
    const std::string url = member.reader.listening_url();
    missing.add(fmt::format("source {} to {}", member.name,
                            url.empty() ? "be ready" : "have a sender at " + url));
  }
  not_ready_ = missing.text();
  return not_ready_.empty();
}

void SourceGroup::start(const wire::Welcome& welcome, const RunView& run, Time now) {
  overtaking_ = new_overtaking(system_, members_.size());
  for (Member& member : members_) {
    member.watch.begin();
    if (const auto started = member.reader.start(welcome, now); !started) {
      log_(LogLevel::error,
           fmt::format("source {} cannot start: {}", member.name, started.error().text));
    }
  }
  if (!run.joined_at) return;
  horizon_ = *run.joined_at;
  for (Member& member : members_)
    member.reader.queue().numbers().set_others(others_of(member, run));
}

void SourceGroup::reset() {
  horizon_ = 0;
  early_since_.reset();
  above_.reset();
  waits_for_left_over_ = false;
  apart_.clear();
  throttled_since_ = never;
  held_up_since_ = never;
  for (source::FragmentQueue* const queue : queues_) queue->start_unnumbered();
}

// --- reading -------------------------------------------------------------------------------------

bool SourceGroup::read(const RunView& run, Time now) {
  const bool retry = std::exchange(retry_, false);
  bool more = false;
  bool throttled = false;
  for (Member& member : members_) {
    SourceReader& reader = member.reader;
    if (reader.done()) continue;
    reader.measure_lead(system_.read_ahead / members_.size());
    if (reader.far_ahead()) continue; // goes on when batches have been cut
    if (reader.due(now, retry)) {
      source::FragmentQueue& queue = reader.queue();
      if (!queue.numbered() || queue.numbers().held() || queue.numbers().early() ||
          queue.numbers().may_wrap_early())
        queue.numbers().set_others(others_of(member, run));
      reader.read(now);
      if (reader.failed()) {
        log_(LogLevel::error,
             fmt::format("source {} cannot go on: {}", member.name, reader.error().text));
      }
    }
    more = more || reader.has_more();
    throttled = throttled || member.queue().throttled();
  }
  count_throttled(throttled, now);
  count_held_up(now);
  return more;
}

void SourceGroup::count_throttled(bool throttled, Time now) {
  if (throttled && throttled_since_ == never) throttled_since_ = now;
  if (!throttled && throttled_since_ != never) {
    throttled_us_ += static_cast<std::uint64_t>((now - throttled_since_).count()) / 1000;
    throttled_since_ = never;
  }
}

// What it can announce is limited by a source that is held back.
bool SourceGroup::held_up() const {
  EventNumber lowest = event_number_end;
  bool held_up = false;
  for (const Member& member : members_) {
    if (!is_waited_for(member)) continue;
    const EventNumber end = member.queue().numbered() ? member.queue().next_event() : 0;
    if (end > lowest) continue;
    const bool held_back = member.reader.held_back();
    held_up = held_back || (end == lowest && held_up);
    lowest = end;
  }
  return held_up;
}

void SourceGroup::count_held_up(Time now) {
  if (held_up_since_ != never) held_up_for_ += now - held_up_since_;
  held_up_since_ = held_up() ? now : never;
}

Time SourceGroup::next_turn(Time now) const {
  Time next = never;
  bool deadlines = overtaking_.any() || early_since_ || above_;
  for (const Member& member : members_) {
    if (member.reader.done()) continue;
    next = std::min(next, member.reader.next_read(now));
    if (!member.watch.has_deadline()) continue;
    deadlines = true;
    if (pauses(member)) next = std::min(next, now + system_.latency);
  }
  return deadlines ? std::min(next, now + system_.event_deadline / 4) : next;
}

bool SourceGroup::any_held_back() const {
  return std::ranges::any_of(members_, [](const Member& m) { return m.reader.held_back(); });
}

bool SourceGroup::any_far_ahead() const {
  return std::ranges::any_of(members_, [](const Member& m) { return m.reader.far_ahead(); });
}

// --- numbers -------------------------------------------------------------------------------------

// It has said that nothing comes for now, and nothing that it gave before is to be decided.
bool SourceGroup::pauses(const Member& member) {
  return member.reader.paused() && !member.queue().numbers().held();
}

// It was given up, or came to its end, before it said anything: where it is says nothing.
bool SourceGroup::has_no_number(const Member& member) {
  return member.queue().numbers().nothing_said() && (member.watch.silent() || member.reader.done());
}

// Where it is says where the run is. Before its `first` it does not.
bool SourceGroup::has_begun(const Member& member) {
  return member.queue().numbered() && !member.queue().numbers().early() && !has_no_number(member);
}

std::optional<EventNumber> SourceGroup::lowest_own() const {
  std::optional<EventNumber> lowest;
  for (const Member& member : members_) {
    const source::FragmentQueue& queue = member.queue();
    if (!has_begun(member)) continue;
    lowest = std::min(lowest.value_or(queue.first_event()), queue.first_event());
  }
  return lowest;
}

// It was given up beyond `horizon`, and may still begin below.
bool SourceGroup::was_passed(const Member& member, EventNumber horizon) {
  const source::FragmentQueue& queue = member.queue();
  return queue.numbered() && queue.next_event() > horizon && has_no_number(member) &&
         !member.reader.done() && !queue.numbers().held() && !queue.open();
}

// Numbers fell, before anything was announced.
void SourceGroup::forget_number_beyond(EventNumber horizon) {
  for (Member& member : members_) {
    if (!was_passed(member, horizon)) continue;
    member.reader.queue().numbers().forget();
    member.watch.begin();
  }
}

// The others wait for it, if they wait at all.
bool SourceGroup::is_waited_for(const Member& member) const {
  return !member.reader.done() && !member.watch.silent() && !overtaking_.passed_over(member.index);
}

// Where the sources of the run are, as far as this readout unit knows.
source::OtherSources SourceGroup::whole_run(const RunView& run) {
  source::OtherSources all{.low = event_number_end, .high = 0, .any = false};
  ends_.clear();
  EventNumber ended = 0; // those that are at their end, or silent, are not waited for
  bool passed_over = false;
  for (const Member& member : members_) {
    const source::FragmentQueue& queue = member.queue();
    if (!has_begun(member)) continue;
    all.low = std::min(all.low, queue.first_event());
    passed_over = passed_over || overtaking_.passed_over(member.index);
    if (is_waited_for(member)) {
      ends_.push_back(queue.next_event());
    } else {
      ended = std::max(ended, queue.next_event());
    }
  }
  // What this readout unit has announced itself comes back: it says nothing of one that is ahead.
  const bool echo = passed_over && run.horizon <= run.announced.value_or(0);
  if (run.horizon > 0 && !echo) ends_.push_back(run.horizon);
  all.any = !ends_.empty() || ended > 0;
  all.high = horizon_of(ends_, system_.event_window);
  if (ended <= all.high || ended - all.high <= system_.event_window || ends_.empty()) {
    all.high = std::max(all.high, ended);
  }
  all.low = std::min(all.low, all.high);
  return all;
}

// What a number of this source is judged by. Of a run under way it is known where it is, if not
// more; a trigger says which numbers exist.
source::OtherSources SourceGroup::others_of(const Member& member, const RunView& run) {
  source::OtherSources others = whole_run(run);
  const std::size_t own = has_begun(member) && is_waited_for(member) ? 1 : 0;
  others.any = run.joined_at || run.horizon > 0 || ends_.size() > own;
  others.high = std::max(others.high, run.joined_at.value_or(0));
  // Several readout units agree on it, however far that is ahead of this one.
  if (run.horizon > run.announced.value_or(0)) others.high = std::max(others.high, run.horizon);
  if (system_.trigger_rate_hz > 0) others.high = std::max(others.high, run.limit);
  for (const Member& other : members_) {
    if (&other == &member || !has_begun(other)) continue;
    const EventNumber first = other.queue().first_event();
    others.first = std::min(others.first.value_or(first), first);
  }
  others.few =
      !run.joined_at && run.horizon == 0 && std::ranges::all_of(members_, [&](const Member& other) {
        return &other == &member || !has_begun(other) || has_few(other, run);
      });
  others.go_on = system_.trigger_rate_hz <= 0 && others_live(member, run);
  return others;
}

// They may still come to where a number of this source leads.
bool SourceGroup::others_live(const Member& member, const RunView& run) const {
  return (system_.readout_units.size() > 1 && !run.alone) ||
         std::ranges::any_of(members_, [&](const Member& other) {
           return &other != &member && is_waited_for(other);
         });
}

// Before anything was announced: sources more than a window from all others wait for them.
bool SourceGroup::apart() {
  const auto found = find_apart(queues_, system_.event_window);
  if (!found) return false;
  const bool logged = !apart_.empty();
  const Member& first = members_[found->first];
  const Member& far = members_[found->far];
  apart_ = fmt::format("sources {}, which begins at event {}, and {}, at event {}, to come "
                       "within event.window ({}) of each other",
                       first.name, first.queue().first_event(), far.name, far.queue().first_event(),
                       system_.event_window);
  if (!logged) log_(LogLevel::warning, "the run waits for " + apart_);
  return true;
}

void SourceGroup::judge_held(const RunView& run, bool answered) {
  for (Member& member : members_) {
    source::FragmentQueue& queue = member.reader.queue();
    if (!queue.numbers().held()) continue;
    queue.numbers().set_others(others_of(member, run));
    (void)queue.numbers().judge_held_again();
  }
  confirm_equal(queues_);
  confirm_near(queues_, system_.event_window);
  if (!answered) return;
  const bool nobody_goes_on = all_done() && (system_.readout_units.size() == 1 || run.alone);
  for (Member& member : members_) {
    if (!member.reader.done()) continue;
    if (nobody_goes_on) {
      member.reader.queue().numbers().end_held();
    } else {
      member.reader.queue().numbers().take_at_end();
    }
  }
}

bool SourceGroup::take_decided() {
  bool any = false;
  for (Member& member : members_) any = member.reader.take_decided() || any;
  retry_ = retry_ || any;
  return any;
}

wire::Paused SourceGroup::pause(const RunView& run) {
  wire::Paused paused{.span = system_.event_window, .few = have_few(run) ? 1U : 0U};
  for (Member& member : members_) {
    member.reader.queue().numbers().set_others(others_of(member, run));
    member.reader.queue().numbers().end_held();
  }
  if (!run.announced) decide_early(run, {});
  allow_reset(source::CounterReset::no);
  ends_.clear();
  for (const Member& member : members_) {
    const source::FragmentQueue& queue = member.queue();
    if (!queue.numbered()) continue;
    paused.next_event = std::max(paused.next_event, queue.next_event());
    // Of fragments that are far apart it may hold any span, unless it has just jumped.
    const bool in_a_row = queue.numbers().in_a_row() >= source::enough_in_a_row;
    const std::uint64_t holds = in_a_row ? queue.next_event() - queue.first_event() : 0;
    paused.span = std::max<std::uint64_t>({paused.span, queue.options().window, holds});
    if (!member.reader.done()) ends_.push_back(queue.next_event());
  }
  paused.horizon = ends_.empty() ? paused.next_event : horizon_of(ends_, paused.span);
  set_limit(paused.next_event);
  return paused;
}

// --- what may be left over from an earlier run ---------------------------------------------------

// One at its end sends nothing else.
bool SourceGroup::has_few(const Member& member, const RunView& run) const {
  const source::FragmentQueue& queue = member.queue();
  if (run.last || !queue.numbers().may_be_reset()) return false;
  const std::uint64_t enough = system_.events_max == 0
                                   ? source::enough_in_a_row
                                   : std::min(source::enough_in_a_row, system_.events_max);
  return !queue.numbered() || queue.numbers().early() ||
         (!member.reader.done() && queue.numbers().since_begin() < enough);
}

// Before the run has an event, nobody is given up because of a few fragments.
EventNumber SourceGroup::known_end(const RunView& run) {
  EventNumber end = run.horizon;
  for (const Member& member : members_) {
    if (!has_few(member, run)) end = std::max(end, member.queue().next_event());
  }
  return std::min(end, std::max(run.horizon, whole_run(run).high));
}

// All have begun, or were given up, and one begins above where another one is. A few fragments are
// not believed where the others are by now, either. Returns where the first one begins.
std::optional<EventNumber> SourceGroup::others_begin_above(const RunView& run) const {
  EventNumber first = event_number_end;
  EventNumber end = event_number_end;
  for (const Member& member : members_) {
    if (!member.queue().numbered() || member.queue().numbers().early()) return {};
    if (!has_begun(member)) continue;
    first = std::min(first, member.queue().first_event());
    end = std::min(end, member.queue().numbers().right_end());
  }
  const bool above = std::ranges::any_of(members_, [&](const Member& member) {
    return has_begun(member) && !member.reader.done() &&
           member.queue().first_event() > (has_few(member, run) ? first : end);
  });
  return above ? std::optional{first} : std::nullopt;
}

// `first` is waited for up to event.deadline when others have begun. Then it is lost if they have
// come to where the source began, and the source has gone on.
void SourceGroup::decide_early(const RunView& run, Duration now) {
  const bool over = run.last || run.paused || all_done() ||
                    (early_since_ && now - *early_since_ >= system_.event_deadline);
  bool waits = false;
  for (Member& member : members_) {
    source::FragmentQueue& queue = member.reader.queue();
    if (!queue.numbers().early()) continue;
    const bool enough =
        member.reader.done() || queue.numbers().since_begin() >= source::enough_in_a_row;
    const bool lost = enough && queue.first_event() < horizon_;
    if (!over && !(lost && member.reader.done())) {
      waits = horizon_ != 0;
    } else if (lost || queue.open()) {
      queue.numbers().take_early();
    } else {
      queue.numbers().refuse_early();
    }
  }
  if (!waits)
    early_since_.reset();
  else if (!early_since_)
    early_since_ = now;
}

// Its counter may be reset a little later than those of the others. Until the run has an event this
// costs nothing, so it is waited for.
void SourceGroup::wait_for_left_over(const RunView& run, Duration now) {
  const auto above = run.announced ? std::nullopt : others_begin_above(run);
  if (std::exchange(above_, above) != above) above_since_ = now;
  waits_for_left_over_ = above_ && now - above_since_ < system_.event_deadline;
}

// --- who keeps up --------------------------------------------------------------------------------

void SourceGroup::watch(const RunView& run, Time at) {
  const bool anyone = overtaking_.any() || early_since_ || above_ ||
                      std::ranges::any_of(members_, [](const Member& member) {
                        return member.watch.has_deadline();
                      });
  if (!anyone) clock_.pause();
  const Duration now = clock_.read(at, false);
  for (Member& member : members_) {
    member.watch.note_progress(member.queue(), member.reader.busy(), run.last, now);
  }
  pass_over_stalled(now);
  for (Member& member : members_) {
    member.watch.watch_unclear(member.reader.queue(), member.reader.done(), now);
  }
  // Below the last limit all events exist: somebody has announced the last one.
  horizon_ = run.last ? run.read_end : std::min(run.limit, known_end(run));
  if (!run.announced && !run.last) forget_number_beyond(horizon_);
  decide_early(run, now);
  wait_for_left_over(run, now);
  for (Member& member : members_) watch(member, run, now);
  if (run.last) pass_unread(run);
}

// One source more than a window ahead is not believed, and nobody is given up because of it, until
// others follow. But one that is dead never does: it is not waited for any more when it has been
// quiet for the deadline, while the other one was ahead.
void SourceGroup::pass_over_stalled(Duration now) {
  for (const Member& member : members_) {
    const source::FragmentQueue& queue = member.queue();
    const bool waited_for = !member.watch.silent() || overtaking_.passed_over(member.index);
    overtaking_ends_[member.index] = {.next = queue.numbered() ? queue.next_event() : 0,
                                      .moved_at = member.watch.moved_at(),
                                      .follows = queue.numbered() && !queue.numbers().early() &&
                                                 !member.reader.done() && waited_for,
                                      .leads =
                                          queue.numbered() && !queue.numbers().early() &&
                                          queue.numbers().in_a_row() >= source::enough_in_a_row};
  }
  for (const auto& pair : overtaking_.update(overtaking_ends_, now)) {
    const Member& behind = members_[pair.behind];
    const Member& ahead = members_[pair.ahead];
    log_(LogLevel::warning,
         fmt::format("the run waits for source {}, which is at event {}: source {} is at event {}, "
                     "more than event.window ({}) ahead",
                     behind.name, behind.queue().next_event(), ahead.name,
                     ahead.queue().next_event(), system_.event_window));
  }
}

void SourceGroup::watch(Member& member, const RunView& run, Duration now) {
  source::FragmentQueue& queue = member.reader.queue();
  if (queue.numbers().early()) return;
  if (pauses(member)) {
    member.watch.pass_paused(queue, horizon_, now);
  } else if (!member.reader.done()) {
    if (!member.watch.watch_silence(queue, horizon_, member.reader.busy(), now)) return;
    member.watch.watch_slow(queue, horizon_, held_back_by(member, run), now);
  } else {
    pass_ended(queue, run);
  }
}

// A source at its end has nothing up to where the others are, and where any other source of this
// readout unit is: nobody waits for it.
void SourceGroup::pass_ended(source::FragmentQueue& queue, const RunView& run) {
  EventNumber end = horizon_;
  for (const source::FragmentQueue* const other : queues_) {
    if (other->numbered() && !run.last) {
      end = std::max(end, std::min(other->next_event(), run.limit));
    }
  }
  if (end == 0 || (queue.numbered() && queue.next_event() >= end)) return;
  retry_ = !queue.give_up_until(end, wire::AbsentReason::none) || retry_;
}

// Whom a source that is behind holds back alone, as the log says; empty: nobody.
std::string_view SourceGroup::held_back_by(const Member& member, const RunView& run) const {
  const bool alone = std::ranges::all_of(members_, [&](const Member& other) {
    return &other == &member || other.reader.done() || other.reader.held_back();
  });
  if (!alone) return "";
  if (members_.size() > 1) return "all others of the readout unit";
  return run.others_wait ? "all others" : "";
}

// Where the run ends with numbers that only one source has, which may be wrong, nobody is read up
// to them, and nobody is silent there. One that has not begun is passed where nothing is read.
void SourceGroup::pass_unread(const RunView& run) {
  for (source::FragmentQueue* const queue : queues_) {
    const EventNumber next = queue->numbered() ? queue->next_event() : 0;
    if (next < run.read_end || run.limit == 0) continue;
    retry_ = !queue->give_up_until(run.limit, wire::AbsentReason::none) || retry_;
  }
}

bool SourceGroup::answer_for(EventRange range) {
  return std::ranges::all_of(queues_, [range](source::FragmentQueue* queue) {
    const bool all = queue->numbered() && queue->next_event() >= range.end;
    return all || queue->give_up_until(range.end, wire::AbsentReason::none);
  });
}

std::string SourceGroup::waits_for(const RunView& run) const {
  WantedList wanted;
  wanted.add(apart_);
  const bool few = !run.announced && have_few(run) && lowest_own();
  for (const Member& member : members_) {
    if (member.watch.slow()) {
      wanted.add(fmt::format("source {}, which is slow, to have event {}", member.name,
                             member.queue().next_event()));
    }
    if (few && !has_begun(member)) {
      wanted.add(fmt::format("source {} to begin, or others to have more than a few fragments, "
                             "which may be left over from an earlier run",
                             member.name));
    }
  }
  return wanted.text();
}

// --- what can be announced -----------------------------------------------------------------------

std::optional<SourceGroup::Answered> SourceGroup::to_announce(const RunView& run) {
  const EventNumber announced = run.announced.value_or(0);
  EventNumber end = ~EventNumber{0};
  bool all_done = !lowest_held(queues_);
  const EventNumber first = run.announced ? 0 : std::min(lowest_own().value_or(0), run.limit);
  bool may_begin_below = false;
  for (const Member& member : members_) {
    const source::FragmentQueue& queue = member.queue();
    if (queue.numbers().early()) return {};
    if (!queue.numbered()) {
      // A run without any event at all still has to end.
      const bool holds =
          queue.numbers().held() && (!run.last || *queue.numbers().held() < run.limit);
      const bool may_begin = (!run.last && !member.reader.done()) || holds;
      if (may_begin || (run.limit != 0 && horizon_ != 0)) return {};
      continue;
    }
    may_begin_below = may_begin_below || queue.next_event() < first;
    end = std::min(end, queue.next_event());
    all_done = all_done && member.reader.done();
  }
  if (end == ~EventNumber{0}) end = announced;
  end = std::min(end, std::max(run.limit, announced)); // what was read beyond is not announced
  if (!run.announced) {
    if (!run.last && !run.paused && !all_done && (apart() || waits_for_left_over_)) return {};
    apart_.clear();
    if (may_begin_below) return {};
  }
  const bool ended = (run.last && end >= run.limit) || (all_done && end >= horizon_);
  return Answered{.end = end, .final = !run.paused && ended};
}

// --- reports -------------------------------------------------------------------------------------

std::uint64_t SourceGroup::payload_max() const {
  std::uint64_t bytes = 0;
  for (const Member& member : members_) {
    bytes += std::uint64_t{member.reader.pool().pages()} * member.reader.pool().page_size();
  }
  return bytes;
}

std::uint32_t SourceGroup::page_least() const {
  return std::ranges::min(members_ | std::views::transform([](const Member& member) {
                            return member.reader.pool().page_size();
                          }));
}

std::span<const wire::SourceCounters> SourceGroup::count(wire::NodeCounters& counters, Time now) {
  counters.pages = counters.pages_in_use = 0;
  count_held_up(now);
  counters.throttled_us = throttled_us_;
  counters.sources = static_cast<std::uint32_t>(counters_.size());
  bool any = false;
  bool all_held_back = true;
  for (const Member& member : members_) {
    member.reader.count(counters, counters_[member.index]);
    if (member.reader.done()) continue;
    any = true;
    all_held_back = all_held_back && member.reader.held_back();
  }
  counters.held_back = any && all_held_back ? 1 : 0;
  counters.held_up_us = static_cast<std::uint32_t>(held_up_for_.count() / 1000);
  return counters_;
}

} // namespace fanin::builder
