#include "fanin/executive/stage_launcher.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/clock.hpp"
#include "fanin/base/try.hpp"
#include "fanin/executive/signals.hpp"

namespace fanin::executive {
namespace {

constexpr Duration stages_patience = std::chrono::seconds{10}; // after the second signal
constexpr Duration begin_patience = std::chrono::seconds{5}; // after the first one

} // namespace

Result<> run_stages(StageOptions options) {
  const MonotonicClock clock;
  net::Loop loop(clock);
  ForkedChildren children(loop);
  const TakeRequests take = options.requests;
  StageLauncher launcher(loop, children, std::move(options));
  StopRequests stop_requests(SignalsFrom::anyone);
  const auto on_signal = [&](const StopSignal& signal) {
    if (stop_requests.take(signal, loop.now())) launcher.on_signal();
  };
  auto signals = FANIN_TRY(Signals::make(loop, {.on_signal = on_signal, .on_death = {}}));
  std::unique_ptr<net::Service> requests;
  if (take) requests = take(loop, [&launcher](Request request) { launcher.on_request(request); });
  FANIN_TRY(launcher.start());
  loop.run();
  return {};
}

StageLauncher::StageLauncher(net::Loop& loop, Children& children, StageOptions options)
    : loop_(loop),
      children_(children),
      options_(std::move(options)),
      states_(options_.configurations.size()),
      senders_patience_([this] {
        if (phase_ == Phase::running) stop_if_a_slice_never_begins();
        if (phase_ != Phase::running) stop_slices_not_begun();
      }),
      patience_([this] {
        for (std::size_t i = 0; i < states_.size(); ++i) {
          if (!states_[i].alive()) continue;
          options_.log(LogLevel::warning,
                       fmt::format("{} does not end: killing it", options_.configurations[i].name));
          states_[i].child->kill();
        }
      }) {}

Result<> StageLauncher::start() {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (options_.configurations[i].group) continue;
    const auto started = start(i);
    if (started) continue;
    if (!any_alive(false)) return started;
    on_not_started(i, started.error());
    break;
  }
  return {};
}

Result<> StageLauncher::start(std::size_t index) {
  FANIN_ASSERT(states_[index].child == nullptr);
  const StagedConfiguration& what = options_.configurations[index];
  states_[index].child = FANIN_TRY(children_.start(
      index, what.command, what.input,
      {.on_report = [this, index](const json::Value& report) { on_report(index, report); },
       .on_exit = [this, index](const ChildExit& exit) { on_exit(index, exit); }}));
  options_.log(LogLevel::debug,
               fmt::format("{} is process {}", what.name, states_[index].child->pid()));
  if (released_) states_[index].child->request(Request::start);
  return {};
}

void StageLauncher::start_groups() {
  phase_ = Phase::running;
  options_.log(LogLevel::info, "all slices are ready: the groups start");
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (!options_.configurations[i].group) continue;
    if (const auto started = start(i); !started) return on_not_started(i, started.error());
  }
}

// What the others have read is still built, and their results count.
void StageLauncher::on_not_started(std::size_t index, const Error& error) {
  const std::string why = "cannot be started: " + error.text;
  options_.on_failure(index, why);
  options_.log(LogLevel::error, fmt::format("{} {}", options_.configurations[index].name, why));
  stop_others();
}

void StageLauncher::stop_others() {
  if (phase_ != Phase::waiting && phase_ != Phase::running) return;
  options_.log(LogLevel::error, "the other configurations stop, the groups first");
  stop();
}

void StageLauncher::on_report(std::size_t index, const json::Value& report) {
  options_.on_report(index, report);
  if (report.at("report").text() != "progress") return;
  states_[index].begun = states_[index].begun || report.at("state").text() != "waiting";
  if (!report.at("ready").boolean()) return;
  states_[index].ready = true;
  if (phase_ != Phase::waiting) return;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (!options_.configurations[i].group && !states_[i].ready) return;
  }
  start_groups();
}

void StageLauncher::on_exit(std::size_t index, const ChildExit& exit) {
  const StagedConfiguration& what = options_.configurations[index];
  const bool failed = exit.status != 0;
  const bool early = !what.group && !states_[index].stopped;
  if (failed || early) {
    const std::string why = failed ? exit.text() : "it has ended before the groups";
    options_.on_failure(index, why);
    options_.log(LogLevel::error,
                 fmt::format("{} {}: {}", what.name, exit.signal != 0 ? "died" : "failed", why));
    stop_others();
  }
  if (what.group && phase_ == Phase::running)
    senders_patience_.start(loop_, loop_.now() + begin_patience);
  if (phase_ != Phase::waiting && !any_alive(true)) stop_slices();
  if (!any_alive(true) && !any_alive(false)) loop_.stop();
}

void StageLauncher::stop() {
  if (phase_ != Phase::waiting && phase_ != Phase::running) return;
  phase_ = Phase::groups_stop;
  stop_all(true);
  senders_patience_.start(loop_, loop_.now() + begin_patience);
  if (!any_alive(true)) stop_slices();
}

// A group that has ended before its own run began has never connected. Where a slice waits for it,
// the other groups would wait for the slice.
bool StageLauncher::never_begins(std::size_t index) const {
  const State& state = states_[index];
  return !options_.configurations[index].group && !state.begun && !state.stopped && state.alive();
}

void StageLauncher::stop_if_a_slice_never_begins() {
  std::string ended;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (!options_.configurations[i].group || states_[i].alive()) continue;
    ended += (ended.empty() ? "" : ", ") + options_.configurations[i].name;
  }
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (!never_begins(i)) continue;
    const std::string why = ended + " has ended before this slice could begin";
    options_.on_failure(i, why);
    options_.log(LogLevel::error, fmt::format("{}: {}", options_.configurations[i].name, why));
    return stop_others();
  }
}

void StageLauncher::stop_slices_not_begun() {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (!never_begins(i)) continue;
    options_.log(LogLevel::warning,
                 fmt::format("{} has not begun, since senders are missing: it stops before the "
                             "groups, and what they have for it is lost",
                             options_.configurations[i].name));
    ask_to_stop(states_[i]);
  }
}

void StageLauncher::stop_slices() {
  if (phase_ == Phase::slices_stop) return;
  phase_ = Phase::slices_stop;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (!options_.configurations[i].group) ask_to_stop(states_[i]);
  }
}

void StageLauncher::ask_to_stop(State& state) {
  if (!std::exchange(state.stopped, true) && state.alive()) state.child->stop();
}

void StageLauncher::on_signal() {
  if (++signals_seen_ == 1) {
    options_.log(LogLevel::info, "stopping: first the groups, then the slices; what was read is "
                                 "still built; a second signal stops at once");
    return stop();
  }
  stop_slices();
  stop_all(true);
  stop_all(false);
  if (signals_seen_ == 2) patience_.start(loop_, loop_.now() + stages_patience);
}

void StageLauncher::on_request(Request request) {
  if (request == Request::start) {
    released_ = true;
    for (const State& state : states_) {
      if (state.alive()) state.child->request(request);
    }
    return;
  }
  const int wanted = request == Request::stop ? 1 : 2;
  while (signals_seen_ < wanted) on_signal();
}

bool StageLauncher::any_alive(bool groups) const {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (options_.configurations[i].group == groups && states_[i].alive()) return true;
  }
  return false;
}

void StageLauncher::stop_all(bool groups) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (options_.configurations[i].group == groups && states_[i].alive()) states_[i].child->stop();
  }
}

} // namespace fanin::executive
