// Reads the sources, watches for silent ones, and announces what is there.
#include "fanin/builder/readout_unit.hpp"

#include <algorithm>

namespace fanin::builder {

namespace {
constexpr std::uint64_t announce_bytes = 1U << 20; // worth a message of its own
// Beyond the limit there is no event.
void confirm(source::FragmentQueue& queue) {
  if (queue.held() < queue.limit()) (void)queue.confirm_held();
}
constexpr Duration waited_long = std::chrono::milliseconds{500}; // people are told of it

void add_absent(std::vector<wire::AbsentRange>& absent, const source::FragmentQueue& queue,
                EventRange range) {
  const auto dropped = wire::FragmentEntry::make_absent(wire::AbsentReason::dropped);
  bool goes_on = false;
  for (EventNumber event = range.first, end; event < range.end; event = end) {
    const wire::FragmentEntry entry = queue.entry(event);
    end = std::min(range.end, queue.alike_until(event));
    const auto count = static_cast<std::uint32_t>(end - event);
    if (goes_on && entry.absent() && absent.back().dropped() == (entry == dropped)) {
      absent.back().count_and_flag += count;
    } else if ((goes_on = entry.absent())) {
      absent.push_back(
          wire::AbsentRange::make(queue.options().source, event, count, entry == dropped));
    }
  }
}
} // namespace

bool ReadoutUnit::poll() {
  if (incarnation_ != 0) {
    const bool more = read_inputs();
    judge_held();
    ask_to_begin();
    say_uncut(environment_.loop->now());
    watch_silence();
    const bool ahead = std::ranges::any_of(inputs_, [](const auto& i) { return i->far_ahead; });
    announce(!more && !ahead);
    retry_waiting(); // pages come home when they are sent, maybe after their clear
    arm_tick(environment_.loop->now());
    answer();
    control_->flush();
    return more || any_settled();
  }
  control_->flush();
  return false;
}

// A source on demand is read in strides: up to read_ahead, then not before half of it has been cut.
bool ReadoutUnit::far_ahead(Input& input) const {
  if (!input.source->on_demand()) return false;
  const std::uint64_t limit = system_.read_ahead / inputs_.size();
  const std::uint64_t held = input.queue.held_bytes();
  input.far_ahead = input.far_ahead ? held > limit / 2 : held >= limit;
  return input.far_ahead;
}

// Where the sources of the run are, as far as this readout unit knows.
source::OtherSources ReadoutUnit::whole_run() {
  source::OtherSources all{.low = event_number_end, .high = 0, .any = false};
  ends_.clear();
  EventNumber ended = 0; // those that are at their end, or silent, are not waited for
  bool passed_over = false;
  for (const auto& input : inputs_) {
    const source::FragmentQueue& queue = input->queue;
    if (!queue.numbered()) continue;
    all.low = std::min(all.low, queue.first_event());
    passed_over = passed_over || input->passed_over;
    if (input->asked()) {
      ends_.push_back(queue.next_event());
    } else {
      ended = std::max(ended, queue.next_event());
    }
  }
  // What this readout unit has announced itself comes back: it says nothing of one that is ahead.
  const bool echo = passed_over && heard_ <= announced_;
  if (heard_ > 0 && !echo) ends_.push_back(heard_);
  all.any = !ends_.empty() || ended > 0;
  all.high = source::agreed_end(ends_, system_.event_window);
  if (ended <= all.high || ended - all.high <= system_.event_window || ends_.empty()) {
    all.high = std::max(all.high, ended);
  }
  all.low = std::min(all.low, all.high);
  return all;
}

// What a number of this source is judged by. Of a run under way it is known where it is, if not
// more; a trigger says which numbers exist.
source::OtherSources ReadoutUnit::others_of(const Input& input) {
  source::OtherSources others = whole_run();
  const std::size_t own = input.queue.numbered() && input.asked() ? 1 : 0;
  others.any = joined_run_ || heard_ > 0 || ends_.size() > own;
  if (joined_run_) others.high = std::max(others.high, joined_);
  // Several readout units agree on it, however far that is ahead of this one.
  if (heard_ > announced_) others.high = std::max(others.high, heard_);
  if (system_.trigger_rate_hz > 0) others.high = std::max(others.high, limit_);
  others.go_on = system_.trigger_rate_hz <= 0 && others_live(input);
  return others;
}

// They may still come to where a number of this source leads.
bool ReadoutUnit::others_live(const Input& input) const {
  return (system_.readout_units.size() > 1 && !alone_) ||
         std::ranges::any_of(
             inputs_, [&](const auto& other) { return other.get() != &input && other->asked(); });
}

// Before anything was announced: sources more than a window from all others wait for them, since
// one of them begins with a wrong number, or with another run's. One that has gone on there, where
// it waits for room, has come.
bool ReadoutUnit::apart() {
  std::vector<const Input*> sorted;
  for (const auto& input : inputs_) {
    if (input->queue.numbered()) sorted.push_back(input.get());
  }
  const auto first = [](const Input* input) { return input->queue.first_event(); };
  std::ranges::sort(sorted, {}, first);
  EventNumber end = sorted.empty() ? 0 : sorted.front()->queue.right_end();
  for (const Input* input : sorted) {
    if (first(input) > end && first(input) - end > system_.event_window) {
      const bool said = !apart_.empty();
      apart_ = fmt::format("sources {}, which begins at event {}, and {}, at event {}, to come "
                           "within event.window ({}) of each other",
                           name_of(*sorted.front()), first(sorted.front()), name_of(*input),
                           first(input), system_.event_window);
      if (!said) environment_.log(LogLevel::warning, "the run waits for " + apart_);
      return true;
    }
    end = std::max(end, input->queue.right_end());
  }
  apart_.clear();
  return false;
}

// Numbers that sources hold, with what is known of the others now.
void ReadoutUnit::judge_held() {
  std::optional<EventNumber> lowest;
  bool all_done = true;
  for (const auto& input : inputs_) {
    all_done = all_done && input->done();
    const auto held = input->queue.held();
    if (held) lowest = std::min(lowest.value_or(*held), *held);
  }
  if (!lowest) {
    if (held_waits_ && control_->roomy()) {
      held_waits_ = false;
      held_told_ = event_number_end;
      control_->send(wire::Held{.event = held_told_, .count = ++held_said_});
    }
    return;
  }
  for (const auto& input : inputs_) {
    if (!input->queue.held()) continue;
    input->queue.set_others(others_of(*input));
    (void)input->queue.look_at_held();
  }
  confirm_equal();
  confirm_near();
  const bool single = system_.readout_units.size() == 1;
  const bool answered = single || held_answered_ == held_said_;
  for (const auto& input : inputs_) {
    if (!input->done() || !input->queue.held() || !answered) continue;
    input->queue.end_held(all_done && (single || alone_));
  }
  const bool said = held_said_ != 0 && held_told_ == *lowest && held_ended_ == all_done;
  if (single || said || !control_->roomy()) return;
  held_told_ = *lowest;
  held_ended_ = all_done;
  held_waits_ = true;
  control_->send(wire::Held{.event = *lowest, .count = ++held_said_, .ended = all_done ? 1U : 0U});
}

// Another readout unit has held the same number: that confirms it.
void ReadoutUnit::confirm_told() {
  for (const auto& input : inputs_) {
    if (input->queue.held() == held_told_) confirm(input->queue);
  }
}

void ReadoutUnit::set_may_fall(source::FragmentQueue::Fall may) {
  for (auto& input : inputs_) input->queue.set_may_fall(may);
}

// A source's counter was reset after its numbers had been announced. While the run has no event of
// this readout unit, which waits for others, they can be taken back.
void ReadoutUnit::ask_to_begin() {
  const bool wanted =
      std::ranges::any_of(inputs_, [](const auto& input) { return input->queue.asks_to_fall(); });
  if (!wanted || begin_asked_ || !control_->roomy()) return;
  begin_asked_ = true;
  control_->send(wire::Begin{});
}

void ReadoutUnit::on_begin(const wire::Begin& begin) {
  begin_asked_ = false;
  retry_full_ = true;
  if (begin.yes == 0) return set_may_fall(source::FragmentQueue::Fall::no);
  set_may_fall(source::FragmentQueue::Fall::yes);
  heard_ = begin.horizon;
  announced_ = joined_ = 0;
  retained_->begin_at(0);
  numbered_ = final_ = false;
  announce_due_ = never;
}

// Two sources that hold the same number confirm it.
void ReadoutUnit::confirm_equal() {
  if (inputs_.size() < 2) return;
  std::vector<std::pair<EventNumber, source::FragmentQueue*>> held;
  for (const auto& input : inputs_) {
    if (const auto number = input->queue.held()) held.emplace_back(*number, &input->queue);
  }
  std::ranges::sort(held);
  for (std::size_t i = 0; i < held.size(); ++i) {
    const bool equal = (i > 0 && held[i - 1].first == held[i].first) ||
                       (i + 1 < held.size() && held[i + 1].first == held[i].first);
    if (equal) confirm(*held[i].second);
  }
}

// A jump is right where another source has come, or holds a number: all of them have the same gap.
void ReadoutUnit::confirm_near() {
  const auto near = [this](EventNumber a, EventNumber b) {
    return std::max(a, b) - std::min(a, b) < system_.event_window;
  };
  for (const auto& input : inputs_) {
    if (!input->queue.unclear() || !input->queue.numbered()) continue;
    const EventNumber number = *input->queue.held();
    const bool confirmed = std::ranges::any_of(inputs_, [&](const auto& other) {
      const source::FragmentQueue& queue = other->queue;
      return other != input && ((queue.held() && near(*queue.held(), number)) ||
                                (queue.numbered() && near(queue.next_event(), number)));
    });
    if (confirmed) confirm(input->queue);
  }
}

// Sources that were held back because of a jump go on.
bool ReadoutUnit::any_settled() {
  bool any = false;
  for (auto& input : inputs_) {
    if (!input->unclear || input->queue.unclear()) continue;
    input->unclear = false;
    any = retry_full_ = true;
  }
  return any;
}

// Nobody confirms a jump, and nobody goes on without it: it is judged by the number that follows.
// What is not triggered by then is wrong.
void ReadoutUnit::watch_unclear(Duration now) {
  for (auto& input : inputs_) {
    if (!input->queue.unclear()) {
      input->unclear_since.reset();
    } else if (!input->unclear_since) {
      input->unclear_since = now;
    } else if (now - *input->unclear_since >= system_.event_deadline / 2) {
      input->queue.decide_unclear();
      input->unclear_since.reset();
    }
  }
}

// The run ends: nothing will follow what is held.
void ReadoutUnit::end_held() {
  for (const auto& input : inputs_) {
    input->queue.set_others(others_of(*input));
    input->queue.end_held(true);
  }
}

// True if a source has more to give at once.
bool ReadoutUnit::read_inputs() {
  const Time now = environment_.loop->now();
  const bool retry = std::exchange(retry_full_, false);
  bool more = false;
  bool throttled = false;
  for (auto& input : inputs_) {
    if (input->done()) continue;
    if (far_ahead(*input)) continue; // goes on when batches have been cut
    const bool pages_back = input->pool->available() > input->pages_left; // sent, after a clear
    const bool may_have_more = now >= input->last.wake || input->source->descriptor() >= 0;
    const bool due = retry || input->last.state == source::ReadState::more ||
                     (now >= input->rest.until() && may_have_more) ||
                     (input->queue.throttled() && pages_back);
    if (due) {
      const std::uint64_t bytes = input->queue.bytes_written();
      const EventNumber come_to = input->queue.come_to();
      if (!input->queue.numbered() || input->queue.held()) {
        input->queue.set_others(others_of(*input));
      }
      input->last = input->source->read(input->queue, now);
      if (input->last.state == source::ReadState::waiting)
        input->rest.begin(input->queue.bytes_written() - bytes, now);
      input->gives_more =
          input->last.state == source::ReadState::more &&
          (input->queue.bytes_written() != bytes || input->queue.come_to() != come_to);
      input->unclear = input->queue.unclear();
      input->pages_left = input->pool->available();
      if (input->last.state == source::ReadState::failed) {
        environment_.log(LogLevel::error, fmt::format("source {} cannot go on: {}", name_of(*input),
                                                      input->last.error.text));
      }
    }
    more = more || input->last.state == source::ReadState::more;
    throttled = throttled || input->queue.throttled();
  }
  if (throttled && throttled_since_ == never) throttled_since_ = now;
  if (!throttled && throttled_since_ != never) {
    counters_.throttled_us += static_cast<std::uint64_t>((now - throttled_since_).count()) / 1000;
    throttled_since_ = never;
  }
  return more;
}

// Pull: numbers are given back in order, so that a batch which nobody asks for, since its builder
// unit is frozen, would in the end hold up the sources. Then the event manager is asked whose it
// is.
void ReadoutUnit::say_uncut(Time now) {
  if (system_.protocol != Protocol::pull) return;
  const bool held_up = numbered_ && announced_ > retained_->cut_until() &&
                       std::ranges::any_of(inputs_, [](const auto& input) {
                         return input->far_ahead || input->queue.throttled();
                       });
  if (!held_up) {
    uncut_since_ = never;
  } else if (uncut_since_ == never || uncut_ != retained_->cut_until()) {
    uncut_since_ = now;
    uncut_ = retained_->cut_until();
  } else if (now - uncut_since_ >= system_.event_deadline / 16 && control_->roomy()) {
    control_->send(wire::Uncut{retained_->cut_until()});
    uncut_since_ = now;
  }
}

// Another source that has gone on more than a window ahead of it, for good: it lives as long, or is
// held back by us, and has given several fragments there.
const ReadoutUnit::Input* ReadoutUnit::overtaker(const Input& input) const {
  const EventNumber next = input.queue.next_event();
  for (const auto& other : inputs_) {
    const source::FragmentQueue& queue = other->queue;
    if (!queue.numbered() || queue.next_event() <= next) continue;
    if (queue.next_event() - next > system_.event_window &&
        queue.in_a_row() >= source::enough_in_a_row &&
        other->moved_at + system_.event_deadline >= input.moved_at) {
      return other.get();
    }
  }
  return nullptr;
}

// One source more than a window ahead is not believed, and nobody is given up because of it, until
// others follow. But one that is dead never does: it is not asked any more when it has been quiet
// for the deadline, while the other one was ahead.
void ReadoutUnit::pass_over_quiet(Duration now) {
  for (auto& input : inputs_) {
    const Input* other = input->asked() || input->passed_over ? overtaker(*input) : nullptr;
    if (other == nullptr || !input->queue.numbered() || input->done()) {
      input->overtaken_since.reset();
      input->passed_over = input->overtaken_said = false;
      continue;
    }
    if (!input->overtaken_since) input->overtaken_since = now;
    const Duration quiet = now - std::max(*input->overtaken_since, input->moved_at);
    input->passed_over = quiet >= system_.event_deadline;
    const bool long_enough = quiet >= std::min(system_.event_deadline / 2, waited_long);
    if (!long_enough || std::exchange(input->overtaken_said, true)) continue;
    environment_.log(LogLevel::warning,
                     fmt::format("source {} is waited for at event {}: source {} is at event {}, "
                                 "more than event.window ({}) ahead",
                                 name_of(*input), input->queue.next_event(), name_of(*other),
                                 other->queue.next_event(), system_.event_window));
  }
}

// A source that was given up and goes on below is waited for, if it lies less than a window back:
// else one whose numbers trail those of others by more than the deadline would never come back. Who
// was given up as slow is not waited for again.
void ReadoutUnit::note_progress(Input& input, Duration now) {
  const source::FragmentQueue& queue = input.queue;
  const EventNumber before = std::exchange(input.come_to, queue.come_to());
  if (std::exchange(input.written, queue.written()) != queue.written()) {
    const std::uint64_t late = queue.dropped(wire::DropReason::late) - input.late_before;
    if (std::exchange(input.away, false) && late > 0) {
      environment_.log(LogLevel::info,
                       fmt::format("source {} is back at event {}; {} of its fragments were late",
                                   name_of(input), queue.last_written(), late));
    }
    input.given_up_slow = input.trails_said = false;
  } else if (!input.away || input.come_to <= before || input.given_up_slow) {
    return;
  } else {
    const bool near = queue.next_event() - input.come_to < system_.event_window;
    if (!std::exchange(input.trails_said, true)) {
      environment_.log(LogLevel::warning,
                       fmt::format("source {} sends event {}, which is {} until event {}",
                                   name_of(input), input.come_to - 1,
                                   near ? "late: it is waited for"
                                        : "too late to be waited for: it stays given up",
                                   queue.next_event()));
    }
    if (!near) return;
  }
  input.accepted_at = input.moved_at = now;
  input.silent = false;
}

void ReadoutUnit::note_given_up(Input& input) {
  if (std::exchange(input.away, true)) return;
  input.late_before = input.queue.dropped(wire::DropReason::late);
}

void ReadoutUnit::watch_silence() {
  const bool anyone = std::ranges::any_of(inputs_, [](const auto& input) {
    return input->behind_since || input->overtaken_since || input->unclear_since;
  });
  if (!anyone) clock_.rest();
  const Duration now = clock_.look(environment_.loop->now(), false);
  for (auto& input : inputs_) {
    note_progress(*input, now);
    if (input->queue.throttled() || input->far_ahead || input->gives_more) {
      input->moved_at = now;
    }
  }
  pass_over_quiet(now);
  watch_unclear(now);
  // Below the last limit all events exist: somebody has announced the last one.
  horizon_ = last_ ? read_end_ : std::min(limit_, std::max(heard_, whole_run().high));
  for (auto& input : inputs_) {
    if (watch_silence(*input, now)) watch_slow(*input, now);
  }
  if (last_) pass_unread();
}

// Where the run ends with numbers that only one source has, which may be wrong, nobody is read up
// to them, and nobody is silent there.
void ReadoutUnit::pass_unread() {
  for (auto& input : inputs_) {
    source::FragmentQueue& queue = input->queue;
    if (!queue.numbered() || queue.next_event() < read_end_) continue;
    if (!queue.give_up_until(limit_, wire::AbsentReason::none)) retry_full_ = true;
  }
}

// A source that stays silent while others have gone on is given up after the deadline. The time in
// which it is held back by us does not count, nor that in which this node does not run, nor is it
// silent while it gives more than is read at once, or when a fragment of it was taken within the
// deadline. True: it is behind the others. `now` is on the fair clock.
bool ReadoutUnit::watch_silence(Input& input, Duration now) {
  source::FragmentQueue& queue = input.queue;
  const bool behind = horizon_ > 0 && (!queue.numbered() || queue.next_event() < horizon_);
  if (input.done()) {
    if (behind && !queue.give_up_until(horizon_, wire::AbsentReason::none)) retry_full_ = true;
    return false;
  }
  if (!behind || queue.throttled() || input.far_ahead || input.gives_more) {
    input.behind_since.reset();
    input.slow_since.reset();
    return false;
  }
  if (!input.behind_since || (queue.numbered() && queue.next_event() >= input.behind_until)) {
    input.behind_since = now;
    input.behind_until = horizon_;
    return true;
  }
  const Duration since = std::max(*input.behind_since, input.accepted_at.value_or(Duration::min()));
  if (now - since < system_.event_deadline) return true;
  if (!input.away) {
    environment_.log(LogLevel::warning, fmt::format("source {} is silent: given up until event {}",
                                                    name_of(input), input.behind_until));
  }
  input.silent = true;
  note_given_up(input);
  (void)queue.give_up_until(input.behind_until);
  input.behind_since.reset();
  input.slow_since.reset();
  return false;
}

// It sends, and alone holds all others of the readout unit, or of the run, back: slow, which is for
// people to judge.
void ReadoutUnit::watch_slow(Input& input, Duration now) {
  const bool alone = std::ranges::all_of(inputs_, [&](const auto& other) {
    return other.get() == &input || other->done() || other->queue.throttled() || other->far_ahead;
  });
  if (!alone || (inputs_.size() < 2 && !others_wait_)) {
    input.slow_since.reset();
    return;
  }
  if (!input.slow_since) input.slow_since = now;
  if (now - *input.slow_since >= system_.event_deadline && !std::exchange(input.slow_said, true)) {
    environment_.log(LogLevel::warning,
                     fmt::format("source {} is slow: at event {} it holds all others {}back",
                                 name_of(input), input.queue.next_event(),
                                 inputs_.size() < 2 ? "" : "of the readout unit "));
  }
  if (system_.event_give_up_slow == Duration{0} ||
      now - *input.slow_since < system_.event_give_up_slow) {
    return;
  }
  environment_.log(LogLevel::warning, fmt::format("source {} is slow: given up until event {}",
                                                  name_of(input), horizon_));
  (void)input.queue.give_up_until(horizon_);
  note_given_up(input);
  input.given_up_slow = true;
  input.slow_since.reset();
}

bool ReadoutUnit::all_silent() const {
  return std::ranges::all_of(inputs_, [](const auto& input) { return input->silent; });
}

void ReadoutUnit::announce(bool idle) {
  if (begin_asked_) return; // maybe all of it is taken back
  if (final_) return; // numbers beyond that others have are absent here, as the event manager knows
  EventNumber low = ~EventNumber{0};
  bool all_done = true;
  for (const auto& input : inputs_) {
    if (!input->queue.numbered()) {
      // A run without any event at all still has to end.
      if ((!last_ && !input->done()) || input->queue.held()) return;
      if (limit_ == 0 || horizon_ == 0) continue;
      return;
    }
    low = std::min(low, input->queue.next_event());
    all_done = all_done && input->done();
  }
  for (const auto& input : inputs_) all_done = all_done && !input->queue.held();
  if (low == ~EventNumber{0}) low = announced_;
  low =
      std::min(low, std::max(limit_, announced_)); // what was read beyond the end is not announced
  if (!numbered_ && !last_ && !paused_ && !all_done && apart()) return;
  if (!numbered_) {
    EventNumber first = ~EventNumber{0};
    for (const auto& input : inputs_) {
      if (input->queue.numbered()) first = std::min(first, input->queue.first_event());
    }
    if (first == ~EventNumber{0}) first = low = 0;
    numbered_ = true;
    apart_.clear();
    announced_ = joined_ = first;
    retained_->begin_at(first);
    set_may_fall(source::FragmentQueue::Fall::ask);
    control_->send(wire::Announce{.first = first, .end = first});
  }
  // The last event is known when all readout units have begun.
  if (system_.events_max != 0 && limit_ >= event_number_end) return;
  const bool final =
      !final_ && !paused_ && ((last_ && low >= limit_) || (all_done && low >= horizon_));
  if (low <= announced_ && !final) {
    announce_due_ = never;
    return;
  }
  if (!final && !worth_announcing(low, idle)) return;
  announce_due_ = never;
  while (announced_ < low) {
    if (announce_gap(low)) continue;
    const EventNumber boundary = (announced_ | (system_.batch_events - 1)) + 1;
    if (!announce_range({announced_, std::min(low, boundary)})) return;
  }
  if (!final || !control_->roomy()) return;
  control_->send(wire::Announce{.first = announced_, .end = announced_, .final = 1});
  final_ = true;
}

// Whether a message up to `end` is worth it now; `end` may fall, so that batches are whole. Where a
// latency is allowed, fragments are gathered, unless that would hold up the sources, or nothing can
// follow before the next trigger.
bool ReadoutUnit::worth_announcing(EventNumber& end, bool idle) {
  const Time now = environment_.loop->now();
  const bool gathers = system_.gather_time() > Duration{0};
  const bool held_up = std::ranges::any_of(
      inputs_, [](const auto& input) { return input->far_ahead || input->queue.throttled(); });
  const Duration wait = gathers && !held_up ? system_.gather_time() : system_.announce_deadline;
  announce_due_ = std::min(announce_due_, now + wait);
  if ((idle && !gathers) || end >= limit_ || now >= announce_due_) return true;
  const EventNumber whole = end & ~static_cast<EventNumber>(system_.batch_events - 1);
  const bool enough = bytes_of({announced_, end}) >= announce_bytes;
  if (!enough && !(gathers && whole > announced_)) return false;
  if (whole > announced_) end = whole;
  return true;
}

// Numbers for which no source sent anything, batches of them: one message, however many.
bool ReadoutUnit::announce_gap(EventNumber end) {
  for (const auto& input : inputs_) {
    if (!input->queue.may_be_absent_from(announced_)) return false;
    end = std::min(end, input->queue.sent_from(announced_));
  }
  if (end < announced_ + system_.batch_events || !control_->roomy()) return false;
  control_->send(wire::Announce{.first = announced_,
                                .end = end,
                                .silent = all_silent() ? std::uint8_t{1} : std::uint8_t{0},
                                .nothing = 1});
  announced_ = end;
  return true;
}

// Written for these events, page ends included.
std::uint64_t ReadoutUnit::bytes_of(EventRange range) const {
  std::uint64_t bytes = 0;
  for (const auto& input : inputs_) {
    bytes += input->queue.position(range.end) - input->queue.position(range.first);
  }
  return bytes;
}

// Announces a range within one batch, in pieces if too many fragments are absent for one message,
// or if there is more than its share of a batch: the event manager cuts only where pieces end.
// False: the event manager has not read what it was told before; the rest is announced later.
bool ReadoutUnit::announce_range(EventRange range) {
  bool complete = true;
  for (const auto& input : inputs_) {
    complete = complete && !input->queue.may_be_absent_from(range.first);
  }
  const std::size_t records = control_->room_max() / sizeof(wire::AbsentRange);
  const EventNumber step =
      complete ? range.count() : std::max<std::size_t>(1, records / inputs_.size());
  const std::uint64_t share = system_.batch_bytes / system_.readout_units.size();
  std::vector<wire::AbsentRange> absent;
  while (announced_ < range.end) {
    EventRange part{announced_, std::min(range.end, announced_ + step)};
    std::uint64_t bytes = bytes_of(part);
    while (part.count() > 1 && bytes > share) {
      part.end = part.first + part.count() / 2;
      bytes = bytes_of(part);
    }
    wire::Announce message{.first = part.first, .end = part.end, .bytes = bytes};
    message.silent = all_silent() ? 1 : 0;
    absent.clear();
    for (const auto& input : inputs_) {
      const source::FragmentQueue& queue = input->queue;
      if (queue.may_be_absent_from(part.first)) add_absent(absent, queue, part);
    }
    if (!control_->roomy(absent.size() * sizeof(wire::AbsentRange))) return false;
    message.absent_runs = static_cast<std::uint32_t>(absent.size());
    control_->send(message, absent);
    announced_ = part.end;
  }
  return true;
}

// When it is read again, if nothing wakes us before.
Time ReadoutUnit::next_read(const Input& input, Time now) {
  const Time rested = input.rest.until();
  if (input.source->descriptor() >= 0 && rested > now) return rested;
  return std::max(input.last.wake, rested);
}

void ReadoutUnit::arm_tick(Time now) {
  Time due = announce_due_;
  if (!waiting_again_.empty() || !waiting_.empty() || uncut_since_ != never) {
    due = std::min(due, now + system_.event_deadline / 16);
  }
  for (const auto& input : inputs_) {
    if (input->done()) continue;
    if (input->last.state == source::ReadState::waiting)
      due = std::min(due, next_read(*input, now));
    if (input->behind_since || input->overtaken_since || input->unclear_since)
      due = std::min(due, now + system_.event_deadline / 4);
  }
  tick_.set(*environment_.loop, std::max(due, now));
}

} // namespace fanin::builder
