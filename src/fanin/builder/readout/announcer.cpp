#include "fanin/builder/readout/announcer.hpp"

#include <algorithm>

namespace fanin::builder {

namespace {
constexpr std::uint64_t announce_bytes = 1U << 20; // worth a message of its own

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

std::uint8_t flag(bool set) { return set ? 1 : 0; }
} // namespace

void Announcer::reset() {
  state_ = State::unnumbered;
  announced_ = 0;
  few_ = false;
  due_ = never;
}

void Announcer::begin(EventNumber first, bool given_up, bool few, Out& out) {
  state_ = given_up ? State::given_up : State::announcing;
  announced_ = first;
  few_ = few;
  out.send({.first = first, .end = first, .few = flag(few), .silent = flag(given_up)}, {});
}

// Where the first fragment below `end` is; or at `end`, if there is none. False: there is no room.
bool Announcer::begin_again(const Turn& turn, Out& out) {
  if (turn.end <= announced_) return true;
  if (!out.roomy(0)) return false;
  EventNumber first = turn.end;
  for (const source::FragmentQueue* const queue : queues_) {
    first = std::min(first, queue->sent_from(announced_));
  }
  begin(first, first == turn.end, turn.few, out);
  return true;
}

// Where no events are announced that would say it.
void Announcer::say_that_it_has_enough(const Turn& turn, Out& out) {
  if (!few_ || turn.few || !out.roomy(0)) return;
  few_ = false;
  out.send({.first = announced_, .end = announced_, .silent = flag(turn.silent)}, {});
}

void Announcer::announce(const Turn& turn, Out& out) {
  FANIN_ASSERT(begun() && !ended());
  EventNumber end = turn.end;
  if (state_ == State::given_up && !begin_again(turn, out)) return;
  // The last event is known when all readout units have begun.
  if (system_.events_max != 0 && turn.limit >= event_number_end)
    return say_that_it_has_enough(turn, out);
  if (end <= announced_ && !turn.final) {
    due_ = never;
    return say_that_it_has_enough(turn, out);
  }
  if (!turn.final && !worth_a_message(turn, end)) return;
  due_ = never;
  while (announced_ < end) {
    if (announce_gap(turn, end, out)) continue;
    const EventNumber boundary = (announced_ | (system_.batch_events - 1)) + 1;
    if (!announce_range(turn, {announced_, std::min(end, boundary)}, out)) return;
  }
  if (!turn.final || !out.roomy(0)) return;
  out.send({.first = announced_, .end = announced_, .final = 1}, {});
  state_ = State::ended;
}

// Whether a message up to `end` is worth it now; `end` may fall, so that batches are whole. Where a
// latency is allowed, fragments are gathered, unless that would hold up the sources, or nothing can
// follow before the next trigger.
bool Announcer::worth_a_message(const Turn& turn, EventNumber& end) {
  const bool gathers = system_.gather_time() > Duration{0};
  const Duration wait = gathers && !turn.held_up ? system_.gather_time() : system_.batch_delay;
  due_ = std::min(due_, turn.now + wait);
  if ((turn.idle && !gathers) || end >= turn.limit || turn.now >= due_) return true;
  const EventNumber whole = end & ~static_cast<EventNumber>(system_.batch_events - 1);
  const bool enough = bytes_of({announced_, end}) >= announce_bytes;
  if (!enough && !(gathers && whole > announced_)) return false;
  if (whole > announced_) end = whole;
  return true;
}

// Numbers for which no source sent anything, batches of them: one message, however many.
bool Announcer::announce_gap(const Turn& turn, EventNumber end, Out& out) {
  for (const source::FragmentQueue* const queue : queues_) {
    if (!queue->may_be_absent_from(announced_)) return false;
    end = std::min(end, queue->sent_from(announced_));
  }
  if (end < announced_ + system_.batch_events || !out.roomy(0)) return false;
  out.send({.first = announced_,
            .end = end,
            .few = flag(turn.few),
            .silent = flag(turn.silent),
            .nothing = 1},
           {});
  announced_ = end;
  few_ = turn.few;
  return true;
}

// Written for these events, page ends included.
std::uint64_t Announcer::bytes_of(EventRange range) const {
  std::uint64_t bytes = 0;
  for (const source::FragmentQueue* const queue : queues_) {
    bytes += queue->position(range.end) - queue->position(range.first);
  }
  return bytes;
}

// Announces a range within one batch, in pieces if too many fragments are absent for one message,
// or if there is more than its share of a batch: the event manager cuts only where pieces end.
// False: the event manager has not read what it was told before; the rest is announced later.
bool Announcer::announce_range(const Turn& turn, EventRange range, Out& out) {
  const bool complete = std::ranges::none_of(
      queues_, [range](const auto* queue) { return queue->may_be_absent_from(range.first); });
  const std::size_t records = out.room_max() / sizeof(wire::AbsentRange);
  const EventNumber step =
      complete ? range.count() : std::max<std::size_t>(1, records / queues_.size());
  const std::uint64_t share = system_.batch_size / system_.readout_units.size();
  while (announced_ < range.end) {
    EventRange piece{announced_, std::min(range.end, announced_ + step)};
    std::uint64_t bytes = bytes_of(piece);
    while (piece.count() > 1 && bytes > share) {
      piece.end = piece.first + piece.count() / 2;
      bytes = bytes_of(piece);
    }
    absent_.clear();
    for (const source::FragmentQueue* const queue : queues_) {
      if (queue->may_be_absent_from(piece.first)) add_absent(absent_, *queue, piece);
    }
    if (!out.roomy(absent_.size() * sizeof(wire::AbsentRange))) return false;
    out.send({.first = piece.first,
              .end = piece.end,
              .bytes = bytes,
              .absent_ranges = static_cast<std::uint32_t>(absent_.size()),
              .few = flag(turn.few),
              .silent = flag(turn.silent)},
             absent_);
    announced_ = piece.end;
    few_ = turn.few;
  }
  return true;
}

} // namespace fanin::builder
