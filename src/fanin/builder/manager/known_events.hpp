// Finds up to which number readout units agree that events exist, and tells them: they stop waiting
// for silent sources, and learn whether the numbers that they hold are right. The run waits while
// the first numbers of readout units are too far apart.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fanin/base/log.hpp"
#include "fanin/base/log_limiter.hpp"
#include "fanin/builder/control/node_outbox.hpp"
#include "fanin/builder/manager/accounts.hpp"
#include "fanin/builder/manager/announcements.hpp"
#include "fanin/builder/manager/held_numbers.hpp"
#include "fanin/builder/manager/run_phase.hpp"
#include "fanin/builder/overtaking.hpp"
#include "fanin/builder/system.hpp"

namespace fanin::builder {

// Thread: the event manager's loop. `now` and the clock of deadlines: deadline_clock.hpp.
class KnownEvents {
public:
  // What it works with; all must outlive it.
  struct Parts {
    const System& system;
    const SourceIndex& sources;
    const Trigger& trigger;
    const RunPhase& phase;
    Accounts& accounts;
    NodeOutbox& outbox;
    const LogFunction& log;
  };
  // `report_after`: a readout unit that is overtaken for so long is reported.
  KnownEvents(const Parts& parts, Duration report_after);

  [[nodiscard]] Announcements& announcements() { return announced_; }
  [[nodiscard]] const Announcements& announcements() const { return announced_; }

  // Where a readout unit that comes now begins; none: the run has no event yet.
  [[nodiscard]] std::optional<EventNumber> joining_at() const;
  void join(NodeId node);
  void leave(NodeId node);
  // What readout units say. False: it is invalid. `decided`: events below are built.
  [[nodiscard]] bool on_announce(NodeId node, wire::MessageReader& reader, EventNumber decided,
                                 Duration now);
  void on_held(NodeId node, const wire::Held& held);
  // `waits_for`: human-readable; what the readout unit waits for at its sources.
  void on_status(NodeId node, bool held_back, std::string waits_for, Duration now) {
    announced_.held_back(node, held_back, now);
    waits_for_[node] = std::move(waits_for);
  }
  [[nodiscard]] const std::string& waits_for(NodeId node) const { return waits_for_[node]; }
  // Its counters were reset: answers whether what it has announced is taken back.
  void on_reset_request(NodeId node, Time now);

  // Events below exist, as far as readout units agree. An announcement more than a window ahead of
  // all others counts only when another one comes there.
  [[nodiscard]] EventNumber horizon() const;
  // True: it is known from now on where batches begin.
  [[nodiscard]] bool find_first_event();
  // Once a turn: answers readout units that hold a number, as soon as others have reached the
  // number, hold it too, or have come to their end.
  void answer_held();
  // Periodically: logs which readout units are overtaken.
  void watch_overtaken(Duration now);
  // Periodically: how long fragments that may be left over from an earlier run were waited for.
  void watch_beginning(Duration now);
  // Periodically: tells readout units that others are ahead, so that they stop waiting for silent
  // sources.
  void watch_laggards();
  // All sources of a readout unit are silent: it goes no further than it is told.
  [[nodiscard]] bool any_silent() const { return announced_.any_silent(); }
  // Tells such readout units where the others are.
  void send_horizon_to_silent();

  // Human-readable: which readout units begin too far from each other; empty: none.
  [[nodiscard]] const std::string& apart() const { return apart_; }
  // What this readout unit is waited for to do.
  [[nodiscard]] std::string waiting_for(NodeId node) const;

private:
  [[nodiscard]] bool wait_while_apart();
  [[nodiscard]] bool waits_for_left_over() const;
  [[nodiscard]] bool has(EventNumber number) const;
  void send_horizon(NodeId node, EventNumber horizon);
  void lower_horizon(NodeId node, EventNumber horizon);
  [[nodiscard]] std::string overtaken(NodeId behind, NodeId ahead) const;
  [[nodiscard]] const std::string& name(NodeId node) const {
    return parts_.system.readout_units[node];
  }

  Parts parts_;
  Announcements announced_;
  Overtaking overtaking_;
  HeldNumbers held_;
  std::vector<Overtaking::End> ends_; // reused
  std::string apart_;
  std::optional<EventNumber> above_; // Announcements::others_begin_above() at the last look
  Duration above_since_{}; // it was the same
  bool waited_enough_ = false; // since then
  std::vector<std::string> waits_for_; // by readout unit
  EventNumber laggards_horizon_ = 0; // the horizon at the last watch_laggards()
  LogLimiter reset_lines_;
};

} // namespace fanin::builder
