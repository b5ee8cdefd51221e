// Runs several configurations as two stages: each in a process that launches its nodes (`fanin run`
// of it). The slices start first; the groups, which forward to them, when all slices are ready.
// When the groups have ended, the slices are stopped; one that has not begun earlier, where the
// groups may wait for it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/log.hpp"
#include "fanin/base/state.hpp"
#include "fanin/executive/child.hpp"
#include "fanin/executive/requests.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::executive {

// One configuration.
struct StagedConfiguration {
  std::string name; // human-readable
  bool group = false; // of the first stage
  std::vector<std::string> command; // and its options
  std::string input; // of the process
};

struct StageOptions {
  std::vector<StagedConfiguration> configurations;
  std::function<void(std::size_t index, const json::Value& report)> on_report;
  // It could not be started, did not end in good order, or ended too early.
  std::function<void(std::size_t index, const std::string& why)> on_failure;
  TakeRequests requests; // may be empty
  LogFunction log;
};

// Runs them until all have ended; signals to this process are passed on. Blocks. Errors: no process
// can be started.
[[nodiscard]] FANIN_INTERNAL_API Result<> run_stages(StageOptions options);

// What run_stages() decides. A process reports {"report": "progress", "ready": true} when nothing
// but senders is missing, and "state": "waiting" until its run begins. Thread: its loop. All
// arguments outlive it.
class StageLauncher {
public:
  StageLauncher(net::Loop& loop, Children& children, StageOptions options);

  // Starts the slices. The loop is stopped when all have ended. Errors: the first one cannot be
  // started.
  [[nodiscard]] Result<> start();
  void on_signal(); // asks the groups to stop, and then the slices; the second one: all at once
  void on_request(Request request);

private:
  enum class Phase : std::uint8_t {
    waiting, // for the slices to be ready
    running,
    groups_stop, // they were asked to
    slices_stop // likewise; no group runs
  };
  friend constexpr bool may_follow(Phase from, Phase to) {
    return to > from && (to != Phase::running || from == Phase::waiting);
  }
  struct State {
    std::unique_ptr<Child> child; // null: not started
    bool ready = false;
    bool begun = false;
    bool stopped = false; // it was asked to stop
    [[nodiscard]] bool alive() const { return child != nullptr && child->alive(); }
  };

  [[nodiscard]] Result<> start(std::size_t index);
  void start_groups();
  void on_not_started(std::size_t index, const Error& error);
  void stop_others();
  void on_report(std::size_t index, const json::Value& report);
  void on_exit(std::size_t index, const ChildExit& exit);
  void stop();
  void stop_slices();
  [[nodiscard]] bool never_begins(std::size_t index) const; // a slice whose senders are missing
  void stop_if_a_slice_never_begins();
  void stop_slices_not_begun();
  [[nodiscard]] bool any_alive(bool groups) const;
  void stop_all(bool groups);
  void ask_to_stop(State& state);

  net::Loop& loop_;
  Children& children_;
  StageOptions options_;
  std::vector<State> states_;
  net::Timer senders_patience_; // with slices that have not begun when groups end
  net::Timer patience_; // until the rest is killed
  CheckedState<Phase> phase_ = Phase::waiting;
  bool released_ = false; // by run control
  int signals_seen_ = 0;
};

} // namespace fanin::executive
