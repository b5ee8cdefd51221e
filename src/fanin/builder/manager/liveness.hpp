// Decides which nodes are dead: those that say nothing for long (the process is frozen, or the host
// is dead), those whose connection does not come back, and those whose process was seen to die.
// What they still send is recognised as stale by its incarnation.
//
// Time in which the event manager itself did not run, or hardly ran, does not count: messages of
// that time are still in its sockets. So each deadline is moved by the length of such a pause.
#pragma once

#include <cstdint>
#include <vector>

#include "fanin/builder/control/control_server.hpp"
#include "fanin/builder/deadline_clock.hpp"
#include "fanin/builder/manager/data_paths.hpp"

namespace fanin::builder {

// Thread: the event manager's loop.
class Liveness {
public:
  // Both must outlive it. drop_silent() is called once in `period`.
  Liveness(ControlServer& server, DataPaths& paths, Duration period)
      : server_(server), paths_(paths), clock_(period) {}

  void start(Time now) { clock_.start(now); }

  // Drops nodes that are silent, and returns them.
  [[nodiscard]] std::vector<NodeKey> drop_silent(Time now) {
    pass_over_pauses(now);
    return server_.drop_silent(now);
  }
  // Drops readout units whose connection has not come back; returns when to call it again.
  [[nodiscard]] Time end_graces(Time now) {
    pass_over_pauses(now);
    return server_.end_graces(now);
  }
  // The launcher reports that the process of this session has died.
  void process_died(std::uint64_t session, Time now) {
    pass_over_pauses(now);
    server_.process_died(session);
  }
  // The time without pauses, when it was read last.
  [[nodiscard]] Duration running_time() const { return clock_.running_time(); }

private:
  void pass_over_pauses(Time now) {
    const Duration paused = clock_.read(now);
    if (paused == Duration{0}) return;
    server_.pass_over(paused, now);
    paths_.pass_over(paused, now);
  }

  ControlServer& server_;
  DataPaths& paths_;
  PauseClock clock_;
};

} // namespace fanin::builder
