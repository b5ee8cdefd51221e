#include "fanin/builder/manager/reading.hpp"

#include <algorithm>
#include <utility>

#include "fanin/base/units.hpp"
#include "fanin/builder/horizon.hpp"

namespace fanin::builder {

namespace {
// Each costs a message to the readout units and back.
constexpr std::uint32_t raised_in_vain_max = 1U << 16;
} // namespace

Reading::Reading(const Parts& parts)
    : parts_(parts),
      tick_([this] { advance(); }),
      paused_(parts.readouts.size()),
      sent_triggered_(parts.readouts.size()),
      paces_(parts.readouts.size(), unknown_pace()) {}

// With a trigger it sets the end of the run, and no wrong number does.
DrainPace Reading::unknown_pace() const {
  return {parts_.system.drain,
          parts_.trigger.enabled() ? event_number_end : parts_.system.event_window};
}

void Reading::start(Time now) {
  parts_.phase.run();
  if (!parts_.trigger.enabled()) {
    parts_.outbox.send_to_readouts(wire::Limit{limit_, 0, limit_});
    return;
  }
  parts_.events.announcements().begin();
  parts_.trigger.start(now);
  advance();
}

EventNumber Reading::join(NodeId readout) {
  paused_[readout].reset();
  paces_[readout] = unknown_pace();
  sent_triggered_[readout] = parts_.trigger.end();
  if (!parts_.phase.is(Phase::running)) return 0;
  return parts_.trigger.enabled() ? parts_.trigger.end() : limit_;
}

void Reading::update() {
  if (parts_.trigger.has_room_again(parts_.dispatcher.decided())) advance();
  if (parts_.phase.is(Phase::running)) send_triggered();
  find_first_event();
  extend_limit();
}

void Reading::stop() {
  advance(); // what is due by now
  if (parts_.phase.is(Phase::running)) pause_or_drain();
}

// --- trigger -------------------------------------------------------------------------------------

void Reading::advance() {
  if (!parts_.phase.is(Phase::running) || !parts_.trigger.enabled()) return;
  const Time now = parts_.loop.now();
  const Trigger::Outcome outcome = parts_.trigger.advance(now, parts_.dispatcher.decided());
  parts_.events.announcements().know_until(parts_.trigger.end());
  switch (outcome) {
  case Trigger::Outcome::last: pause_or_drain(); break;
  case Trigger::Outcome::full: break; // update() goes on with it
  case Trigger::Outcome::goes_on:
    tick_.start(parts_.loop, parts_.trigger.next_tick(now, parts_.dispatcher.bytes_per_event()));
    break;
  }
}

// What was triggered. One that does not read for a while is told later, and only the last.
void Reading::send_triggered() {
  const EventNumber end = parts_.trigger.end();
  if (sent_to_all_ == end) return;
  bool all = true;
  for (std::size_t i = 0; i < sent_triggered_.size(); ++i) {
    if (sent_triggered_[i] == end) continue;
    const NodeKey key = readout_key(static_cast<NodeId>(i));
    if (!parts_.outbox.takes_part(key)) continue;
    if (!parts_.outbox.roomy(key)) {
      all = false;
      continue;
    }
    parts_.outbox.send(key, wire::Limit{end, 0, end});
    sent_triggered_[i] = end;
  }
  if (all) sent_to_all_ = end;
}

// --- limit ---------------------------------------------------------------------------------------

// With `run.events` and no trigger the last event is known as soon as the first is, if no number is
// left out.
void Reading::find_first_event() {
  if (!parts_.events.find_first_event() || parts_.system.events_max == 0) return;
  if (!parts_.phase.is(Phase::running))
    return; // its end is known, or will be: nothing more is read
  limit_from(parts_.events.announcements().first_event());
  parts_.outbox.send_to_readouts(wire::Limit{limit_, 0, limit_});
}

void Reading::limit_from(EventNumber first) {
  const EventNumber furthest = event_number_end - 1; // the end itself means that there is no limit
  limit_ = first + std::min(parts_.system.events_max, furthest - std::min(first, furthest));
}

// Numbers that no source has are no events. How many there are ahead is not known: so the limit is
// where the last event is if they follow each other as closely as the closest ones so far.
void Reading::extend_limit() {
  const Announcements& announced = parts_.events.announcements();
  if (!wants_more() || !announced.begun() || raised_in_vain_ >= raised_in_vain_max) return;
  const std::uint64_t left = parts_.system.events_max - parts_.dispatcher.events_cut();
  const std::uint64_t step = parts_.dispatcher.least_step();
  const EventNumber cut = announced.assigned_end();
  const EventNumber furthest = event_number_end - 1;
  const EventNumber limit = left > (furthest - cut) / step ? furthest : cut + left * step;
  if (limit <= limit_) return;
  const std::uint64_t events = parts_.dispatcher.events_cut();
  raised_in_vain_ = std::exchange(events_before_, events) == events ? raised_in_vain_ + 1 : 0;
  limit_ = limit;
  parts_.outbox.send_to_readouts(wire::Limit{limit_, 0, limit_});
}

// Of run.events some are not cut yet.
bool Reading::wants_more() const {
  return parts_.system.events_max > parts_.dispatcher.events_cut() &&
         parts_.phase.is(Phase::running) && !parts_.trigger.enabled();
}

void Reading::end_if_known() {
  if (parts_.phase.is(Phase::pausing) && all_paused()) drain_where_paused();
  if (!parts_.phase.is(Phase::running)) return;
  const Announcements& announced = parts_.events.announcements();
  if (announced.announced_end() >= limit_ || announced.all_at(limit_)) {
    const EventRange ahead{announced.assigned_end(), limit_};
    const bool more =
        parts_.dispatcher.events_cut() + announced.count_present(ahead) < parts_.system.events_max;
    const bool jump = more && raised_in_vain_ >= raised_in_vain_max;
    if (jump) {
      parts_.log(
          LogLevel::warning,
          fmt::format("no source has a number from {} to {}: the run ends with fewer than the "
                      "{} events of run.events",
                      announced.assigned_end(), limit_, parts_.system.events_max));
    }
    if (!more || jump || limit_ == event_number_end - 1) drain_until(limit_, limit_); // run.events
  } else if (announced.all_ended()) {
    parts_.phase.drain(); // the sources have come to their end
  }
}

// With a trigger the last event is known. Otherwise the readout units stop and say how far their
// sources got; the run ends there, so that no event at its end lacks a fragment.
void Reading::pause_or_drain() {
  tick_.cancel();
  if (parts_.trigger.enabled()) return drain_until(parts_.trigger.end(), parts_.trigger.end());
  parts_.phase.pause();
  for (auto& paused : paused_) paused.reset();
  parts_.outbox.send_to_readouts(wire::Pause{parts_.events.horizon()});
}

bool Reading::on_paused(NodeId readout, const wire::Paused& paused) {
  if (paused.horizon > paused.next_event || paused.next_event > event_number_end) return false;
  paused_[readout] = paused;
  return true;
}

bool Reading::all_paused() const {
  for (std::size_t i = 0; i < paused_.size(); ++i) {
    if (parts_.readouts.present(static_cast<NodeId>(i)) && !paused_[i]) return false;
  }
  return true;
}

// The run ends at the furthest event, so that none at its end lacks a fragment. But a number so far
// ahead that no other source can be on its way to it is wrong: nobody is read up to there. Nor is
// anybody read further where all that is known may be left over from an earlier run: who begins now
// may be anywhere below.
void Reading::drain_where_paused() {
  const Announcements& announced = parts_.events.announcements();
  if (parts_.system.events_max != 0 && limit_ >= event_number_end) {
    // A readout unit that has announced nothing is not waited for.
    const auto first =
        announced.begun() ? std::optional{announced.first_event()} : announced.first_announced();
    if (first) limit_from(*first);
  }
  EventNumber furthest = 0;
  bool few = true; // and none of it was assigned
  std::uint64_t span = parts_.system.event_window;
  std::vector<EventNumber> ends;
  for (std::size_t i = 0; i < paused_.size(); ++i) {
    if (!parts_.readouts.present(static_cast<NodeId>(i))) continue;
    const wire::Paused& paused = *paused_[i];
    furthest = std::max(furthest, paused.next_event);
    few = few && paused.few != 0;
    if (announced.readouts()[i].state == Announcements::State::ended) {
      ends.push_back(announced.readouts()[i].end);
      continue;
    }
    span = std::max(span, paused.span);
    ends.push_back(paused.horizon);
    if (paused.next_event != ends.back()) ends.push_back(paused.next_event);
  }
  if (announced.announced_end() > furthest)
    ends.push_back(announced.announced_end()); // who had it is dead
  const EventNumber end = std::max(announced.announced_end(), std::min(furthest, limit_));
  const EventNumber read = few ? 0 : horizon_of(ends, span);
  drain_until(end, std::min(read, end));
}

void Reading::drain_until(EventNumber event, EventNumber read) {
  parts_.phase.drain();
  parts_.events.announcements().know_until(event);
  limit_ = event;
  read_end_ = read;
  parts_.outbox.send_to_readouts(wire::Limit{event, 1, read});
}

// Within the window numbers count that one source alone has: a wrong one, or a wrong offset, may be
// hours ahead of slow sources. One that gives nothing at all is given up by its readout unit.
void Reading::watch_drain(NodeId readout, std::uint32_t held_up_us) {
  if (!parts_.phase.is(Phase::draining)) return;
  const Announcements::Readout& announced = parts_.events.announcements().readout(readout);
  if (announced.state != Announcements::State::announcing) return;
  const EventNumber end = announced.end;
  const auto needed = paces_[readout].too_long(end, held_up_us, read_end_);
  if (!needed) return;
  parts_.log(LogLevel::warning,
             fmt::format("readout unit '{}' is at event {} and would take {} to reach event {}: "
                         "nothing more is read, the events between are built without it",
                         parts_.system.readout_units[readout], end, format_duration(*needed),
                         read_end_));
  read_end_ = end;
  parts_.outbox.send_to_readouts(wire::Limit{limit_, 1, read_end_});
}

} // namespace fanin::builder
