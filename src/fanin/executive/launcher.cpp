#include "fanin/executive/launcher.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/executive/host_children.hpp"
#include "fanin/executive/host_list.hpp"
#include "fanin/executive/process.hpp"
#include "fanin/executive/signals.hpp"

namespace fanin::executive {
namespace {

// `rails`: a line each.
std::string control_setting(std::string_view rails) {
  if (!rails.contains('\n')) return fmt::format("network.control={}", rails);
  std::string list{rails};
  for (std::size_t at = 0; (at = list.find('\n', at)) != std::string::npos; at += 3) {
    list.replace(at, 1, "\",\"");
  }
  return fmt::format("network.control=[\"{}\"]", list);
}

constexpr Duration patience_usual = std::chrono::seconds{10};
constexpr Duration patience_after_second = std::chrono::seconds{3}; // the second signal
constexpr Duration silence_tick = std::chrono::seconds{1}; // the event manager reports more often
constexpr int silence_named_s = 5;
constexpr Duration silence_longest = std::chrono::minutes{1};
constexpr Duration restart_first = std::chrono::milliseconds{200};
constexpr Duration restart_longest = std::chrono::seconds{5};
constexpr Duration restart_forgotten = std::chrono::minutes{1}; // it lived: the next is a first one
constexpr Duration restart_forgotten_of_filters = std::chrono::milliseconds{500};

} // namespace

Launcher::Launcher(net::Loop& loop, Children& children, const config::Configuration& configuration,
                   RunView& view, LauncherOptions options)
    : loop_(loop),
      children_(children),
      configuration_(configuration),
      view_(view),
      options_(std::move(options)),
      patience_([this] {
        for (auto& state : states_) {
          if (state->child == nullptr || !state->child->alive()) continue;
          options_.log(LogLevel::warning,
                       fmt::format("{} does not end: killing it", process(*state).name));
          state->child->kill();
        }
      }),
      silence_tick_([this] { watch_silence(); }),
      held_(configuration.run.controlled) {
  for (const std::size_t index : options_.processes) {
    auto state = std::make_unique<ProcessState>();
    state->process = index;
    states_.push_back(std::move(state));
  }
}

Launcher::~Launcher() = default;

const config::Process& Launcher::process(const ProcessState& state) const {
  return configuration_.processes[state.process];
}

Launcher::ProcessState* Launcher::event_manager() {
  for (auto& state : states_) {
    if (process(*state).nodes.front() == 0) return state.get();
  }
  return nullptr;
}

std::string Launcher::command_line(const ProcessState& state) const {
  std::string line;
  for (const std::string& argument : options_.by_hand) line += shell_word(argument) + " ";
  line += "--node " + process(state).name;
  if (!control_.empty()) line += " --set " + shell_word(control_);
  return line;
}

Result<> run_processes(const config::Configuration& configuration, RunView& view,
                       LauncherOptions options) {
  const MonotonicClock clock;
  net::Loop loop(clock);
  std::unique_ptr<Children> children;
  if (options.hosts == nullptr) {
    children = std::make_unique<ForkedChildren>(loop);
  } else {
    children = std::make_unique<HostChildren>(loop, *options.hosts, options.log);
  }
  StopRequests stop_requests(options.signals_from);
  const LogFunction log = options.log;
  const TakeRequests take = options.requests;
  Launcher launcher(loop, *children, configuration, view, std::move(options));
  const auto on_signal = [&](const StopSignal& signal) {
    if (stop_requests.take(signal, loop.now())) {
      launcher.on_signal();
    } else if (!signal.by_launcher) {
      log(LogLevel::info, ignored_text(signal));
    }
  };
  auto signals = FANIN_TRY(Signals::make(loop, {.on_signal = on_signal, .on_death = {}}));
  std::unique_ptr<net::Service> requests;
  if (take) requests = take(loop, [&launcher](Request request) { launcher.on_request(request); });
  FANIN_TRY(launcher.start());
  loop.run();
  return launcher.outcome();
}

// Where the event manager is here, the others are told where it really listens.
Result<> Launcher::start() {
  if (ProcessState* first = event_manager()) return start(*first);
  start_others();
  return {};
}

Result<> Launcher::start(ProcessState& state) {
  FANIN_ASSERT(state.child == nullptr || !state.child->alive());
  std::vector<std::string> arguments = options_.command;
  arguments.emplace_back("--node");
  arguments.push_back(process(state).name);
  if (!control_.empty()) {
    arguments.emplace_back("--set");
    arguments.push_back(control_);
  }
  state.ended_nodes = 0;
  state.started_at = loop_.now();
  state.killed = state.ready = false;
  state.session = new_session();
  arguments.emplace_back("--session");
  arguments.push_back(fmt::format("{}", state.session));
  state.child = FANIN_TRY(
      children_.start(process(state).place, std::move(arguments), options_.input,
                      {.on_report = [this, &state](const json::Value& r) { on_report(state, r); },
                       .on_exit = [this, &state](const ChildExit& e) { on_exit(state, e); }}));
  options_.log(LogLevel::debug,
               fmt::format("{} is process {}", process(state).name, state.child->pid()));
  return {};
}

void Launcher::start_others() {
  others_started_ = true;
  for (auto& state : states_) {
    if (state->child != nullptr) continue;
    if (auto started = start(*state); !started) {
      options_.log(LogLevel::error, started.error().text);
      outcome_ = started;
      end_all();
      return;
    }
  }
}

void Launcher::on_report(ProcessState& state, const json::Value& report) {
  if (&state == event_manager()) on_heard();
  view_.on_report(report);
  const std::string kind = report.at("report").text();
  if (kind == "listening") {
    silence_tick_.start(loop_, loop_.now() + silence_tick);
    control_ = control_setting(report.at("url").text());
    if (!others_started_ && !over_ && signals_seen_ == 0) start_others();
  } else if (kind == "end") {
    ++state.ended_nodes;
    if (report.at("refused").boolean()) state.ready = false; // it would be refused again
  } else if (kind == "progress") {
    begun_ |= report.at("state").text() != "waiting";
  } else if (kind == "filters") {
    state.ready = true;
  } else if (kind == "silent") {
    on_silent(report.at("silent").text());
  } else if (kind == "result") {
    end_all();
  }
  options_.on_report(report);
  if (!report.at("started").boolean(true)) on_unable(state, report.at("node").text());
}

// Whether the run had begun by then is chance: what is wrong from the start ends it in any case.
void Launcher::on_unable(ProcessState& state, const std::string& node) {
  const bool decides = event_manager() != nullptr && node != configuration_.event_manager().name;
  if (state.restarted || configuration_.run.restart || over_ || !decides) return;
  state.unable = &state != event_manager();
  options_.log(LogLevel::error,
               fmt::format("{} cannot take part: the run needs it from the start, and ends", node));
  end_run();
}

void Launcher::end_run() {
  ProcessState* const decides = event_manager();
  if (end_asked_ || over_ || signals_seen_ > 0 || decides == nullptr) return;
  end_asked_ = true;
  if (decides->child != nullptr) decides->child->stop();
}

bool Launcher::only(const ProcessState& state, config::Role role) const {
  return std::ranges::all_of(process(state).nodes, [&](std::size_t index) {
    return configuration_.nodes[index].role == role;
  });
}

bool Launcher::reads_only_merged(const ProcessState& state) const {
  return only(state, config::Role::readout) &&
         std::ranges::all_of(process(state).nodes, [&](std::size_t index) {
           const auto [begin, end] =
               configuration_.sources_of(index - configuration_.readout_node(0));
           return std::all_of(configuration_.sources.begin() + static_cast<std::ptrdiff_t>(begin),
                              configuration_.sources.begin() + static_cast<std::ptrdiff_t>(end),
                              [](const config::Source& source) {
                                return !source.merged.empty() && source.settings.type == "receive";
                              });
         });
}

// A builder or filter unit that was given up: frozen, it would hold pages of others for ever, and a
// readout unit of a slice the connections of all groups. So it is started again, whatever
// run.restart says: it did not fail by itself.
void Launcher::on_silent(const std::string& node) {
  for (auto& state : states_) {
    const auto& nodes = process(*state).nodes;
    const bool it = std::ranges::any_of(
        nodes, [&](std::size_t index) { return configuration_.nodes[index].name == node; });
    if (!it || state->child == nullptr || !state->child->alive()) continue;
    if (!builds_only(*state) && !filters_only(*state) && !reads_only_merged(*state)) continue;
    options_.log(LogLevel::warning,
                 fmt::format("{} was given up: killing it", process(*state).name));
    state->killed = true;
    state->child->kill();
  }
}

void Launcher::on_heard() {
  if (std::exchange(silent_s_, 0) < silence_named_s) return;
  options_.log(LogLevel::info,
               fmt::format("{} reports again", configuration_.event_manager().name));
}

// Every second. An event manager that is frozen would hold the run for ever: nobody else decides,
// and its connections stay. It watches the other nodes.
void Launcher::watch_silence() {
  ProcessState* const watched = event_manager();
  if (over_ || watched == nullptr || watched->child == nullptr || !watched->child->alive()) return;
  silence_tick_.start(loop_, loop_.now() + silence_tick);
  if (++silent_s_ < silence_named_s) return;
  const std::string& name = configuration_.event_manager().name;
  const json::Value report =
      json::Object{{"report", "frozen"}, {"node", name}, {"seconds", silent_s_}};
  view_.on_report(report);
  options_.on_report(report);
  const Duration longest = std::max(silence_longest, configuration_.network.give_up_after);
  const Duration silent = silent_s_ * silence_tick;
  if (silent_s_ == silence_named_s) {
    options_.log(LogLevel::warning,
                 fmt::format("{} has reported nothing for {}: it is frozen, or its host is "
                             "overloaded; the run waits for it, and the launcher kills it after {}",
                             name, format_duration(silent), format_duration(longest)));
  } else if (silent >= longest) {
    options_.log(LogLevel::error, fmt::format("{} has reported nothing for {}: killing it", name,
                                              format_duration(silent)));
    watched->child->kill();
  }
}

void Launcher::on_exit(ProcessState& state, const ChildExit& exit) {
  view_.on_exit(process(state).name, exit);
  const bool failed = &state != event_manager() && exit.status != 0 && !over_;
  if (failed || state.ended_nodes < process(state).nodes.size()) on_death(state, exit);
  if (&state == event_manager()) end_all();
  finish_if_all_ended();
}

// A process that ended without a last word, or with a bad one.
void Launcher::on_death(ProcessState& state, const ChildExit& exit) {
  const std::string& name = process(state).name;
  const bool died = state.ended_nodes < process(state).nodes.size();
  std::string how = fmt::format("{} {}: {}", name, died ? "died" : "failed", exit.text());
  const bool filters = filters_only(state);
  if (filters && exit.signal == SIGALRM) how += ", an event took longer than its time_limit";
  if (&state == event_manager()) {
    options_.log(LogLevel::error, fmt::format("{}; everything stops, what was built is safe", how));
    return;
  }
  if (state.unable) return options_.log(LogLevel::debug, how); // that was said
  ProcessState* const decides = event_manager();
  const bool drains = signals_seen_ == 1 && decides != nullptr; // it still builds what was read
  if (over_ || (signals_seen_ > 0 && !(drains && (builds_only(state) || filters)))) {
    options_.log(LogLevel::error, how);
    return;
  }
  if (died && decides != nullptr && decides->child->alive())
    children_.tell_of_death(*decides->child, state.session);
  // What a filter does is no reason to stop; one that could not be made never will be.
  const bool replaced = filters && state.ready;
  const bool restarts = configuration_.run.restart || state.killed || replaced;
  if (!begun_ && (held_ || !restarts) && decides != nullptr) {
    options_.log(LogLevel::error, fmt::format("{}; the run cannot begin without it", how));
    end_run();
    return;
  }
  if (!restarts) {
    options_.log(LogLevel::error,
                 fmt::format("{}; start it again with: {}", how, command_line(state)));
    return;
  }
  options_.log(LogLevel::error, fmt::format("{}; starting it again", how));
  const Duration lived = loop_.now() - state.started_at;
  if (lived >= (filters ? restart_forgotten_of_filters : restart_forgotten))
    state.restart_after = {};
  restart_later(state);
}

void Launcher::restart_later(ProcessState& state) {
  state.restart_after = std::min(std::max(state.restart_after * 2, restart_first), restart_longest);
  if (state.restart == nullptr) {
    state.restart = std::make_unique<net::Timer>([this, &state] {
      const bool stopped = signals_seen_ > 0 && event_manager() == nullptr;
      if (over_ || stopped) return finish_if_all_ended();
      state.restarted = true;
      if (auto started = start(state); !started) {
        options_.log(LogLevel::error, started.error().text);
        restart_later(state);
      }
    });
  }
  state.restart->start(loop_, loop_.now() + state.restart_after);
}

void Launcher::on_signal() {
  if (++signals_seen_ == 1 && !over_) {
    options_.log(LogLevel::info,
                 options_.signals_from == SignalsFrom::anyone
                     ? "stopping: what was read is still built; a second signal stops at once"
                     : "stopping: what was read is still built");
  }
  if (over_ && signals_seen_ == 1) return; // all have been asked
  if (signals_seen_ == 2) patience_.start(loop_, loop_.now() + patience_after_second);
  ProcessState* decides = event_manager();
  if (decides != nullptr && decides->child != nullptr && decides->child->alive() && !over_) {
    // Its second one makes it stop at once.
    if (signals_seen_ > 1 || !end_asked_) decides->child->stop();
    return;
  }
  for (auto& state : states_) {
    if (state->child != nullptr) state->child->stop();
  }
}

void Launcher::on_request(Request request) {
  if (request == Request::start) {
    ProcessState* const decides = event_manager();
    if (decides == nullptr || decides->child == nullptr || signals_seen_ > 0) return;
    held_ = false;
    return decides->child->request(request);
  }
  const int wanted = request == Request::stop ? 1 : 2;
  while (signals_seen_ < wanted) on_signal();
}

void Launcher::end_all() {
  if (over_) return;
  over_ = true;
  for (auto& state : states_) {
    if (state->restart) state->restart->cancel();
    if (state.get() == event_manager() || state->child == nullptr) continue;
    state->child->stop();
    if (signals_seen_ > 1) state->child->stop(); // at once
  }
  if (!patience_.active()) patience_.start(loop_, loop_.now() + patience_usual);
  finish_if_all_ended();
}

bool Launcher::all_ended() const {
  return std::ranges::none_of(states_, [](const auto& state) {
    return (state->child != nullptr && state->child->alive()) ||
           (state->restart && state->restart->active());
  });
}

void Launcher::finish_if_all_ended() {
  if (all_ended()) loop_.stop();
}

} // namespace fanin::executive
