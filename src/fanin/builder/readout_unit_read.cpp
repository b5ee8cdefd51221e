// Reads the sources, watches for silent ones, and announces what is there.
#include "fanin/builder/readout_unit.hpp"

#include <algorithm>

namespace fanin::builder {

namespace {
constexpr std::uint64_t announce_bytes = 1U << 20; // worth a message of its own

void add_absent(std::vector<wire::AbsentRun>& absent, const source::FragmentQueue& queue,
                EventRange range) {
  for (EventNumber event = range.first; event < range.end; ++event) {
    if (!queue.entry(event).absent()) continue;
    const EventNumber first = event;
    while (event + 1 < range.end && queue.entry(event + 1).absent()) ++event;
    absent.push_back(
        {queue.options().source, static_cast<std::uint32_t>(event + 1 - first), first});
  }
}
} // namespace

bool ReadoutUnit::poll() {
  if (incarnation_ != 0) {
    const bool more = read_inputs();
    say_uncut(environment_.loop->now());
    watch_silence();
    const bool ahead = std::ranges::any_of(inputs_, [](const auto& i) { return i->far_ahead; });
    announce(!more && !ahead);
    retry_waiting(); // pages come home when they are sent, maybe after their clear
    arm_tick(environment_.loop->now());
    answer();
    control_->flush();
    return more;
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

// From the first event held to the last one answered, of all sources that have begun.
std::optional<EventRange> ReadoutUnit::begun() const {
  std::optional<EventRange> range;
  for (const auto& input : inputs_) {
    const source::FragmentQueue& queue = input->queue;
    if (!queue.numbered()) continue;
    if (!range) range.emplace(queue.first_event(), queue.next_event());
    range->first = std::min(range->first, queue.first_event());
    range->end = std::max(range->end, queue.next_event());
  }
  return range;
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
    const bool due = retry || input->last.state == source::ReadState::more ||
                     now >= input->last.wake || input->source->descriptor() >= 0 ||
                     (input->queue.throttled() && pages_back);
    if (due) {
      if (!input->queue.numbered()) {
        if (const auto others = begun()) input->queue.set_reference(*others);
      }
      input->last = input->source->read(input->queue, now);
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
  const bool held_up =
      numbered_ && announced_ > cut_until_ && std::ranges::any_of(inputs_, [](const auto& input) {
        return input->far_ahead || input->queue.throttled();
      });
  if (!held_up) {
    uncut_since_ = never;
  } else if (uncut_since_ == never || uncut_ != cut_until_) {
    uncut_since_ = now;
    uncut_ = cut_until_;
  } else if (now - uncut_since_ >= system_.event_deadline / 16 && control_->roomy()) {
    control_->send(wire::Uncut{cut_until_});
    uncut_since_ = now;
  }
}

// A source that stays silent while others have gone on is given up after the deadline. The time in
// which it is held back by us does not count, nor that in which this node does not run, nor is it
// silent while it has more to read.
void ReadoutUnit::watch_silence() {
  for (const auto& input : inputs_) {
    if (input->queue.numbered()) horizon_ = std::max(horizon_, input->queue.next_event());
  }
  if (horizon_ > limit_) horizon_ = limit_;
  const bool anyone = std::ranges::any_of(
      inputs_, [](const auto& input) { return input->behind_since.has_value(); });
  if (!anyone) clock_.rest();
  const Duration now = clock_.look(environment_.loop->now(), false);
  for (auto& input : inputs_) {
    source::FragmentQueue& queue = input->queue;
    const bool behind = horizon_ > 0 && (!queue.numbered() || queue.next_event() < horizon_);
    if (input->done()) {
      if (behind) retry_full_ = !queue.give_up_until(horizon_) || retry_full_;
    } else if (!behind || queue.throttled() || input->far_ahead ||
               input->last.state == source::ReadState::more) {
      input->behind_since.reset();
    } else if (!input->behind_since ||
               (queue.numbered() && queue.next_event() >= input->behind_until)) {
      input->behind_since = now;
      input->behind_until = horizon_;
    } else if (now - *input->behind_since >= system_.event_deadline) {
      environment_.log(LogLevel::warning,
                       fmt::format("source {} is silent: given up until event {}", name_of(*input),
                                   input->behind_until));
      (void)queue.give_up_until(input->behind_until);
      input->behind_since.reset();
    }
  }
}

void ReadoutUnit::announce(bool idle) {
  if (final_) return; // numbers beyond that others have are absent here, as the event manager knows
  EventNumber low = ~EventNumber{0};
  bool all_done = true;
  for (const auto& input : inputs_) {
    if (!input->queue.numbered()) {
      // A run without any event at all still has to end.
      if (!last_ && !input->done()) return;
      if (limit_ == 0 || horizon_ == 0) continue;
      return;
    }
    low = std::min(low, input->queue.next_event());
    all_done = all_done && input->done();
  }
  if (low == ~EventNumber{0}) low = announced_;
  low =
      std::min(low, std::max(limit_, announced_)); // what was read beyond the end is not announced
  if (!numbered_) {
    EventNumber first = ~EventNumber{0};
    for (const auto& input : inputs_) {
      if (input->queue.numbered()) first = std::min(first, input->queue.first_event());
    }
    if (first == ~EventNumber{0}) first = low = 0;
    numbered_ = true;
    announced_ = cut_until_ = joined_ = first;
    if (system_.events_max != 0) { // the event manager's limit may be lower, and is on its way
      limit_ = std::min(limit_, first + std::min(system_.events_max, event_number_end));
      for (auto& input : inputs_) input->queue.set_limit(limit_);
      low = std::min(low, limit_);
    }
    control_->send(wire::Announce{.first = first, .end = first});
  }
  const Time now = environment_.loop->now();
  const bool final =
      !final_ && !paused_ && ((last_ && low >= limit_) || (all_done && low >= horizon_));
  if (low <= announced_ && !final) {
    announce_due_ = never;
    return;
  }
  const std::uint64_t bytes = bytes_of({announced_, low});
  if (announce_due_ == never) announce_due_ = now + system_.announce_deadline;
  if (!idle && !final && now < announce_due_) { // a message for something, and in whole batches
    if (bytes < announce_bytes) return;
    const EventNumber whole = low & ~static_cast<EventNumber>(system_.batch_events - 1);
    if (whole > announced_) low = whole;
  }
  announce_due_ = never;
  while (announced_ < low) {
    const EventNumber boundary = (announced_ | (system_.batch_events - 1)) + 1;
    if (!announce_range({announced_, std::min(low, boundary)})) return;
  }
  if (!final || !control_->roomy()) return;
  control_->send(wire::Announce{.first = announced_, .end = announced_, .final = 1});
  final_ = true;
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
  const std::size_t records = control_->room_max() / sizeof(wire::AbsentRun);
  const EventNumber step =
      complete ? range.count() : std::max<std::size_t>(1, records / inputs_.size());
  const std::uint64_t share = system_.batch_bytes / system_.readout_units.size();
  std::vector<wire::AbsentRun> absent;
  while (announced_ < range.end) {
    EventRange part{announced_, std::min(range.end, announced_ + step)};
    std::uint64_t bytes = bytes_of(part);
    while (part.count() > 1 && bytes > share) {
      part.end = part.first + part.count() / 2;
      bytes = bytes_of(part);
    }
    wire::Announce message{.first = part.first, .end = part.end, .bytes = bytes};
    absent.clear();
    for (const auto& input : inputs_) {
      const source::FragmentQueue& queue = input->queue;
      if (queue.may_be_absent_from(part.first)) add_absent(absent, queue, part);
    }
    if (!control_->roomy(absent.size() * sizeof(wire::AbsentRun))) return false;
    message.absent_runs = static_cast<std::uint32_t>(absent.size());
    control_->send(message, absent);
    announced_ = part.end;
  }
  return true;
}

void ReadoutUnit::arm_tick(Time now) {
  Time due = announce_due_;
  if (!waiting_again_.empty() || !waiting_.empty() || uncut_since_ != never) {
    due = std::min(due, now + system_.event_deadline / 16);
  }
  for (const auto& input : inputs_) {
    if (input->done()) continue;
    if (input->last.state == source::ReadState::waiting) due = std::min(due, input->last.wake);
    if (input->behind_since) due = std::min(due, now + system_.event_deadline / 4);
  }
  if (due == never) {
    tick_.cancel();
  } else if (!tick_.active() || tick_.deadline() != due) {
    tick_.start(*environment_.loop, std::max(due, now));
  }
}

} // namespace fanin::builder
