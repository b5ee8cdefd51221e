// Runs a whole event builder on this host: one process for each of the configuration's processes,
// watched over until all have ended. This process only watches; the work is done by the others.
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
#include "fanin/executive/run_view.hpp"
#include "fanin/executive/signals.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::executive {

struct LauncherOptions {
  // Command and options that run one process: "--node NAME" and more follow.
  std::vector<std::string> command;
  std::string input; // of each process, also of one that is started again
  std::vector<std::size_t> processes; // of the configuration: those of this host
  std::function<void(const json::Value&)> on_report; // of all nodes; they are in `view` already
  LogFunction log;
};

// Thread: the one that calls run().
class Launcher {
public:
  // `configuration` and `view` outlive it.
  FANIN_INTERNAL_API Launcher(const config::Configuration& configuration, RunView& view,
                              LauncherOptions options);
  FANIN_INTERNAL_API ~Launcher();

  // Until all processes have ended. Errors: a process that cannot be started.
  [[nodiscard]] FANIN_INTERNAL_API Result<> run();

private:
  struct Part { // a process of the configuration
    std::size_t process = 0;
    std::unique_ptr<Child> child;
    std::size_t ended_nodes = 0; // that have given their last report
    std::uint64_t session = 0; // of its process
    std::unique_ptr<net::Timer> restart;
    Duration restart_after{};
    Time started_at{};
    bool killed = false; // by this launcher, because it was frozen
    bool restarted = false;
    bool unable = false; // one of its nodes could not take part when it was started first
  };

  [[nodiscard]] Result<> start(Part& part);
  void start_others();
  void on_report(Part& part, const json::Value& report);
  void on_unable(Part& part, const std::string& node);
  void on_silent(const std::string& node);
  void on_exit(Part& part, const ChildExit& exit);
  void on_death(Part& part, const ChildExit& exit);
  void restart_later(Part& part);
  [[nodiscard]] bool builds_only(const Part& part) const;
  void on_signal();
  // The run is over: the rest has some time to end. Nodes that the event manager has told to finish
  // do so first; those that have lost it, or never had it, leave.
  void end_all();
  void end_run(); // the event manager is asked, once
  void finish_if_all_ended();
  [[nodiscard]] const config::Process& process(const Part& part) const;
  [[nodiscard]] Part* event_manager();
  [[nodiscard]] std::string command_line(const Part& part) const;

  const config::Configuration& configuration_;
  RunView& view_;
  LauncherOptions options_;
  MonotonicClock clock_;
  net::Loop loop_;
  std::unique_ptr<Signals> signals_;
  std::vector<std::unique_ptr<Part>> parts_;
  net::Timer patience_; // until the rest is killed
  std::string event_manager_url_; // where it really listens; empty: not known
  int signals_seen_ = 0;
  bool others_started_ = false;
  bool begun_ = false; // all nodes were there
  bool end_asked_ = false; // by this launcher, not by a signal
  bool over_ = false;
  Result<> outcome_;
};

} // namespace fanin::executive
