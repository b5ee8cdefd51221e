// Runs a whole event builder on this host, or on the hosts of a list: one process for each of the
// configuration's processes, watched until all have ended. This process only watches; the others do
// the work.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/log.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/executive/child.hpp"
#include "fanin/executive/host_list.hpp"
#include "fanin/executive/requests.hpp"
#include "fanin/executive/run_view.hpp"
#include "fanin/executive/signals.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::executive {

struct LauncherOptions {
  // Command and options that run one process: "--node NAME" and more follow.
  std::vector<std::string> command;
  // The same for a user, who starts one again.
  std::vector<std::string> by_hand;
  std::string input; // of each process, also of one that is started again
  std::vector<std::size_t> processes; // of the configuration: those that this launcher starts
  SignalsFrom signals_from = SignalsFrom::anyone;
  const HostList* hosts = nullptr; // where they run; null: on this host. Outlives the call
  TakeRequests requests; // may be empty
  std::function<void(const json::Value&)> on_report; // of all nodes; they are in `view` already
  LogFunction log;
};

// Runs the processes until all have ended; signals to this process are passed on.
// Blocks. Errors: a process that cannot be started. `configuration` and `view` outlive the call.
[[nodiscard]] FANIN_INTERNAL_API Result<> run_processes(const config::Configuration& configuration,
                                                        RunView& view, LauncherOptions options);

// What run_processes() decides: which process starts, is started again, or is stopped, and when.
// Thread: its loop. All arguments outlive it.
class Launcher {
public:
  Launcher(net::Loop& loop, Children& children, const config::Configuration& configuration,
           RunView& view, LauncherOptions options);
  ~Launcher();

  // Starts the event manager, or without one here all processes. The loop is stopped when all have
  // ended. Errors: a process that cannot be started.
  [[nodiscard]] Result<> start();
  void on_signal(); // asks the run to stop; the second one asks to stop at once
  void on_request(Request request);
  [[nodiscard]] bool all_ended() const;
  // Once all have ended. Errors: a process that could not be started.
  [[nodiscard]] const Result<>& outcome() const { return outcome_; }

private:
  struct ProcessState {
    std::size_t process = 0;
    std::unique_ptr<Child> child;
    std::size_t ended_nodes = 0; // that have given their last report
    std::uint64_t session = 0; // of its process
    std::unique_ptr<net::Timer> restart;
    Duration restart_after{};
    Time started_at{};
    bool killed = false; // by this launcher, because it was frozen
    bool restarted = false;
    bool ready = false; // a filter unit of it works: whatever ends it, it is started again
    bool unable = false; // one of its nodes could not take part when it was started first
  };

  [[nodiscard]] Result<> start(ProcessState& state);
  void start_others();
  void on_report(ProcessState& state, const json::Value& report);
  void on_unable(ProcessState& state, const std::string& node);
  void on_silent(const std::string& node);
  void on_heard();
  void watch_silence();
  void on_exit(ProcessState& state, const ChildExit& exit);
  void on_death(ProcessState& state, const ChildExit& exit);
  void restart_later(ProcessState& state);
  [[nodiscard]] bool only(const ProcessState& state, config::Role role) const;
  [[nodiscard]] bool builds_only(const ProcessState& state) const {
    return only(state, config::Role::builder);
  }
  [[nodiscard]] bool filters_only(const ProcessState& state) const {
    return only(state, config::Role::filter);
  }
  // It reads only super-fragments. The groups send again what it has not announced. (A sender that
  // asks for no acknowledgements does not: then what it had sent and nobody has read is lost.)
  [[nodiscard]] bool reads_only_merged(const ProcessState& state) const;
  // The run is over: the rest has some time to end. Nodes that the event manager has told to finish
  // do so first; those that have lost it, or never had it, leave.
  void end_all();
  void end_run(); // the event manager is asked, once
  void finish_if_all_ended();
  [[nodiscard]] const config::Process& process(const ProcessState& state) const;
  [[nodiscard]] ProcessState* event_manager();
  [[nodiscard]] std::string command_line(const ProcessState& state) const;

  net::Loop& loop_;
  Children& children_;
  const config::Configuration& configuration_;
  RunView& view_;
  LauncherOptions options_;
  std::vector<std::unique_ptr<ProcessState>> states_;
  net::Timer patience_; // until the rest is killed
  net::Timer silence_tick_; // of the event manager
  int silent_s_ = 0; // in ticks: a time in which this process stood counts once
  std::string control_; // of the event manager: the setting that says where it really listens;
                        // empty: not known
  int signals_seen_ = 0;
  bool others_started_ = false;
  bool held_; // run control has not started the run
  bool begun_ = false; // all nodes were there
  bool end_asked_ = false; // by this launcher, not by a signal
  bool over_ = false;
  Result<> outcome_;
};

} // namespace fanin::executive
