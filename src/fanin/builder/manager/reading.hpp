// Decides up to where readout units read: with a trigger what was triggered, without one a limit
// that they are told at the start and at the end of the run. Leads the phases of the run from its
// start to draining.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fanin/builder/control/node_outbox.hpp"
#include "fanin/builder/manager/dispatcher.hpp"
#include "fanin/builder/manager/drain_pace.hpp"
#include "fanin/builder/manager/known_events.hpp"
#include "fanin/builder/manager/membership.hpp"
#include "fanin/builder/manager/run_phase.hpp"
#include "fanin/builder/manager/trigger.hpp"

namespace fanin::builder {

// Thread: the event manager's loop.
class Reading {
public:
  // What it works with; all must outlive it.
  struct Parts {
    const System& system;
    const NodeList& readouts;
    RunPhase& phase;
    Trigger& trigger;
    KnownEvents& events;
    const Dispatcher& dispatcher;
    NodeOutbox& outbox;
    net::Loop& loop;
    const LogFunction& log;
  };
  explicit Reading(const Parts& parts);

  // The run begins: phase running.
  void start(Time now);
  // A new incarnation; gives up to where it may read for now.
  [[nodiscard]] EventNumber join(NodeId readout);
  // It has stopped reading. False: it is invalid.
  [[nodiscard]] bool on_paused(NodeId readout, const wire::Paused& paused);
  // Once a turn, before batches are assigned: readout units hear up to where they may read.
  void update();
  // Once a turn, after that: phase draining, if the last event is known.
  void end_if_known();
  // A readout unit's status has come. While the run drains, no source is waited for that would take
  // longer than `drain` to come to the last event. `held_up_us`: a counter of it.
  void watch_drain(NodeId readout, std::uint32_t held_up_us);
  // Ends the run in good order: phase pausing or draining. Only while it is running.
  void stop();
  void cancel() { tick_.cancel(); }

private:
  void advance();
  void send_triggered();
  void find_first_event();
  void limit_from(EventNumber first);
  void extend_limit();
  [[nodiscard]] bool wants_more() const;
  void pause_or_drain();
  [[nodiscard]] DrainPace unknown_pace() const;
  [[nodiscard]] bool all_paused() const;
  void drain_where_paused();
  // Sources are read up to `read`.
  void drain_until(EventNumber end, EventNumber read);

  Parts parts_;
  net::Timer tick_; // of the trigger
  EventNumber limit_ = ~EventNumber{0}; // without a trigger
  std::vector<std::optional<wire::Paused>> paused_; // by readout unit: its answer
  std::vector<EventNumber> sent_triggered_; // likewise
  EventNumber sent_to_all_ = 0; // of what was triggered
  std::uint64_t events_before_ = 0; // when the limit was raised last
  std::uint32_t raised_in_vain_ = 0; // in a row
  EventNumber read_end_ = 0; // while the run drains: sources are read up to there
  std::vector<DrainPace> paces_; // by readout unit
};

} // namespace fanin::builder
