#include "fanin/builder/manager/known_events.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "fanin/source/number_judge.hpp"

namespace fanin::builder {

KnownEvents::KnownEvents(const Parts& parts, Duration report_after)
    : parts_(parts),
      announced_(parts.system, parts.sources),
      overtaking_(parts.system.readout_units.size(), parts.system.event_window,
                  parts.system.event_deadline, report_after),
      held_(parts.system.readout_units.size(), parts.system.event_window),
      ends_(parts.system.readout_units.size()),
      waits_for_(parts.system.readout_units.size()) {}

std::optional<EventNumber> KnownEvents::joining_at() const {
  if (parts_.trigger.enabled()) return parts_.trigger.end();
  if (!announced_.begun()) return {};
  return std::max(horizon(), announced_.assigned_end());
}

void KnownEvents::join(NodeId node) {
  const auto first = joining_at();
  announced_.join(node, first);
  overtaking_.forget(node);
  waits_for_[node].clear();
  held_.join(node);
}

void KnownEvents::leave(NodeId node) {
  announced_.leave(node);
  overtaking_.forget(node);
  held_.leave(node);
}

// --- what readout units say ----------------------------------------------------------------------

bool KnownEvents::on_announce(NodeId node, wire::MessageReader& reader, EventNumber decided,
                              Duration now) {
  wire::Announce announce;
  if (!reader.read(announce)) return false;
  const auto absent = reader.records<wire::AbsentRange>(announce.absent_ranges);
  const bool untriggered = parts_.trigger.enabled() && announce.end > parts_.trigger.end();
  if (!reader.ok() || untriggered || !announced_.add(node, announce, absent, decided, now))
    return false;
  if (announce.nothing == 0) parts_.accounts.read(node, announce.end - announce.first);
  for (const auto& run : absent) {
    const std::size_t first_source = parts_.system.sources_of(node).first;
    parts_.accounts.absent(node, parts_.sources.find(run.source) - first_source, run.count());
  }
  if (announce.end > announce.first) overtaking_.moved(node);
  if (announce.final != 0) held_.announced_end(node, true);
  return true;
}

void KnownEvents::on_held(NodeId node, const wire::Held& held) {
  const EventNumber end = horizon();
  if (held_.hold(node, held, end)) send_horizon(node, end);
}

// As long as no batch begins anywhere, what it has announced can be taken back. At its end the run
// waits for no other numbers.
void KnownEvents::on_reset_request(NodeId node, Time now) {
  const EventNumber announced = announced_.readout(node).end;
  const bool had_decided = announced_.readout(node).decides_begin();
  const bool granted = parts_.phase.is(Phase::running) && announced_.take_back(node);
  const EventNumber end = horizon();
  parts_.outbox.send(readout_key(node),
                     wire::ResetReply{.horizon = end, .granted = granted ? 1U : 0U});
  if (!granted) return;
  if (had_decided) {
    reset_lines_.write(
        parts_.log, now, LogLevel::warning,
        fmt::format("readout unit '{}' restarts its numbering: a number below {} came before the "
                    "first event",
                    name(node), announced));
  }
  parts_.accounts.take_back(node);
  held_.announced_end(node, false);
  lower_horizon(node, end);
}

// Others may have heard of events that do not exist any more.
void KnownEvents::lower_horizon(NodeId node, EventNumber horizon) {
  laggards_horizon_ = std::min(laggards_horizon_, horizon);
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    const auto other = static_cast<NodeId>(i);
    if (other == node || !announced_.readout(other).here()) continue;
    if (parts_.outbox.roomy(readout_key(other))) send_horizon(other, horizon);
  }
}

// A source has this number. What is assigned is not known any more.
bool KnownEvents::has(EventNumber number) const {
  return number >= announced_.assigned_end() &&
         announced_.present_from(number, number + 1) == number;
}

void KnownEvents::send_horizon(NodeId node, EventNumber horizon) {
  wire::Horizon answer = held_.answer(node, horizon);
  answer.slow = announced_.holds_all_back(node) ? 1 : 0;
  if (const auto number = held_.number(node); number && has(*number)) answer.equal = 1;
  parts_.outbox.send(readout_key(node), answer);
}

// --- where events exist --------------------------------------------------------------------------

EventNumber KnownEvents::horizon() const {
  if (parts_.phase.now() >= Phase::draining || parts_.trigger.enabled()) {
    return announced_.announced_end();
  }
  return announced_.horizon(overtaking_);
}

bool KnownEvents::find_first_event() {
  if (announced_.begun() || !announced_.may_begin(horizon())) return false;
  if (parts_.phase.is(Phase::running) && (wait_while_apart() || waits_for_left_over()))
    return false;
  announced_.begin_at_first();
  const EventNumber first = announced_.first_event();
  if (first > 0) parts_.outbox.send_to_readouts(wire::Clear{0, first}); // nothing of it is assigned
  return true;
}

// Before anything is assigned: readout units that begin more than a window from all others wait for
// them, and people are told.
bool KnownEvents::wait_while_apart() {
  const auto apart = announced_.apart();
  const bool logged = !apart_.empty();
  apart_.clear();
  if (!apart) return false;
  apart_ =
      fmt::format("readout units '{}', which begins at event {}, and '{}', at event {}, to "
                  "come within event.window ({}) of each other",
                  name(apart->first), announced_.readout(apart->first).first, name(apart->further),
                  announced_.readout(apart->further).first, parts_.system.event_window);
  if (!logged) parts_.log(LogLevel::warning, "the run waits for " + apart_);
  return true;
}

// Its source may go on, or its counter be reset a little later than those of the others: it has the
// deadline for it.
bool KnownEvents::waits_for_left_over() const {
  const auto above = announced_.others_begin_above();
  return above && (above != above_ || !waited_enough_);
}

void KnownEvents::watch_beginning(Duration now) {
  const auto above =
      announced_.may_begin(horizon()) ? announced_.others_begin_above() : std::nullopt;
  if (std::exchange(above_, above) != above) above_since_ = now;
  waited_enough_ = above_ && now - above_since_ >= parts_.system.event_deadline;
}

void KnownEvents::answer_held() {
  if (!held_.any_waiting()) return;
  const EventNumber end = horizon();
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    const auto node = static_cast<NodeId>(i);
    if (held_.take_new_answer(node, end, announced_.readout(node).end)) send_horizon(node, end);
  }
}

void KnownEvents::watch_overtaken(Duration now) {
  if (parts_.trigger.enabled()) return;
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    const Announcements::Readout& readout = announced_.readouts()[i];
    ends_[i] = {.next = readout.end,
                .moved_at = readout.announced_at,
                .follows = readout.state == Announcements::State::announcing && !readout.silent,
                .leads = readout.begun() && readout.in_a_row >= source::enough_in_a_row};
  }
  for (const auto& [behind, ahead] : overtaking_.update(ends_, now)) {
    parts_.log(LogLevel::warning, "the run waits for " + overtaken(static_cast<NodeId>(behind),
                                                                   static_cast<NodeId>(ahead)));
  }
}

void KnownEvents::watch_laggards() {
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    const Announcements::Readout& readout = announced_.readouts()[i];
    const bool goes_on = readout.here() && readout.state != Announcements::State::ended;
    if (!goes_on || readout.end >= laggards_horizon_) continue;
    const auto node = static_cast<NodeId>(i);
    if (parts_.outbox.roomy(readout_key(node))) send_horizon(node, laggards_horizon_);
  }
  laggards_horizon_ = horizon();
}

void KnownEvents::send_horizon_to_silent() {
  const EventNumber end = horizon();
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    const Announcements::Readout& readout = announced_.readouts()[i];
    const auto node = static_cast<NodeId>(i);
    const bool follows = readout.state == Announcements::State::announcing && readout.silent;
    const bool new_to_it = readout.end < end || (readout.empty() && readout.end > end);
    if (follows && new_to_it && parts_.outbox.roomy(readout_key(node))) send_horizon(node, end);
  }
}

std::string KnownEvents::overtaken(NodeId behind, NodeId ahead) const {
  return fmt::format("readout unit '{}', which is at event {}: readout unit '{}' is at event {}, "
                     "more than event.window ({}) ahead",
                     name(behind), announced_.readout(behind).end, name(ahead),
                     announced_.readout(ahead).end, parts_.system.event_window);
}

std::string KnownEvents::waiting_for(NodeId node) const {
  const auto ahead = overtaking_.ahead_of(node);
  if (ahead) return overtaken(node, static_cast<NodeId>(*ahead));
  const bool few =
      !announced_.begun() && std::ranges::any_of(announced_.readouts(), [](const auto& readout) {
        return readout.decides_begin() && readout.few;
      });
  return fmt::format("readout unit '{}' to have event {}{}", name(node),
                     announced_.readout(node).end,
                     few ? ", or others to have more than a few fragments, which may be left over "
                           "from an earlier run"
                         : "");
}

} // namespace fanin::builder
