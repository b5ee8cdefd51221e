#include "fanin/executive/launcher.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/executive/process.hpp"

namespace fanin::executive {
namespace {

// As a shell reads it back.
std::string quoted(const std::string& argument) {
  constexpr std::string_view plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                     "0123456789_-+=.,:/@%";
  if (!argument.empty() && argument.find_first_not_of(plain) == std::string::npos) return argument;
  std::string text = "'";
  for (const char c : argument) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

constexpr Duration patience_usual = std::chrono::seconds{10};
constexpr Duration patience_hurried = std::chrono::seconds{3};
constexpr Duration restart_first = std::chrono::milliseconds{200};
constexpr Duration restart_longest = std::chrono::seconds{5};
constexpr Duration restart_forgotten = std::chrono::minutes{1}; // it lived: the next is a first one

} // namespace

Launcher::Launcher(const config::Configuration& configuration, RunView& view,
                   LauncherOptions options)
    : configuration_(configuration),
      view_(view),
      options_(std::move(options)),
      loop_(clock_),
      patience_([this] {
        for (auto& part : parts_) {
          if (part->child == nullptr || !part->child->alive()) continue;
          options_.log(LogLevel::warning,
                       fmt::format("{} does not end: killed", process(*part).name));
          part->child->signal(SIGKILL);
        }
      }) {
  for (const std::size_t index : options_.processes) {
    auto part = std::make_unique<Part>();
    part->process = index;
    parts_.push_back(std::move(part));
  }
}

Launcher::~Launcher() = default;

const config::Process& Launcher::process(const Part& part) const {
  return configuration_.processes[part.process];
}

Launcher::Part* Launcher::event_manager() {
  for (auto& part : parts_) {
    if (process(*part).nodes.front() == 0) return part.get();
  }
  return nullptr;
}

std::string Launcher::command_line(const Part& part) const {
  std::string line;
  for (const std::string& argument : options_.command) line += quoted(argument) + " ";
  line += "--node " + process(part).name;
  if (!event_manager_url_.empty())
    line += " --set " + quoted("network.control=" + event_manager_url_);
  return line;
}

Result<> Launcher::run() {
  auto signals =
      Signals::make(loop_, {.on_signal = [this](pid_t) { on_signal(); }, .on_death = {}});
  if (!signals) return std::unexpected(signals.error());
  signals_ = std::move(*signals);
  // Where the event manager is here, the others are told where it really listens.
  if (Part* first = event_manager()) {
    if (auto started = start(*first); !started) return started;
  } else {
    start_others();
  }
  loop_.run();
  return outcome_;
}

Result<> Launcher::start(Part& part) {
  std::vector<std::string> arguments = options_.command;
  arguments.emplace_back("--node");
  arguments.push_back(process(part).name);
  if (!event_manager_url_.empty()) {
    arguments.emplace_back("--set");
    arguments.push_back("network.control=" + event_manager_url_);
  }
  part.ended_nodes = 0;
  part.started_at = loop_.now();
  part.killed = false;
  part.session = new_session();
  arguments.emplace_back("--session");
  arguments.push_back(fmt::format("{}", part.session));
  auto child =
      Child::start(loop_, std::move(arguments), options_.input,
                   {.on_report = [this, &part](const json::Value& r) { on_report(part, r); },
                    .on_exit = [this, &part](const ChildExit& e) { on_exit(part, e); }});
  if (!child) return std::unexpected(child.error());
  part.child = std::move(*child);
  options_.log(LogLevel::debug,
               fmt::format("{} is process {}", process(part).name, part.child->pid()));
  return {};
}

void Launcher::start_others() {
  others_started_ = true;
  for (auto& part : parts_) {
    if (part->child != nullptr) continue;
    if (auto started = start(*part); !started) {
      options_.log(LogLevel::error, started.error().text);
      outcome_ = started;
      end_all();
      return;
    }
  }
}

void Launcher::on_report(Part& part, const json::Value& report) {
  view_.on_report(report);
  const std::string kind = report.at("report").text();
  if (kind == "listening") {
    event_manager_url_ = report.at("url").text();
    if (!others_started_ && !over_ && signals_seen_ == 0) start_others();
  } else if (kind == "end") {
    ++part.ended_nodes;
  } else if (kind == "progress") {
    begun_ |= report.at("state").text() != "waiting";
  } else if (kind == "silent") {
    on_silent(report.at("silent").text());
  } else if (kind == "result") {
    end_all();
  }
  options_.on_report(report);
  if (!report.at("started").boolean(true)) on_unable(part, report.at("node").text());
}

// Whether the run had begun by then is chance: what is wrong from the start ends it in any case.
void Launcher::on_unable(Part& part, const std::string& node) {
  const bool decides = event_manager() != nullptr && node != configuration_.event_manager().name;
  if (part.restarted || configuration_.run.restart || over_ || !decides) return;
  part.unable = &part != event_manager();
  options_.log(LogLevel::error,
               fmt::format("{} cannot take part: the run cannot begin without it", node));
  end_run();
}

void Launcher::end_run() {
  Part* const decides = event_manager();
  if (end_asked_ || over_ || signals_seen_ > 0 || decides == nullptr) return;
  end_asked_ = true;
  if (decides->child != nullptr) decides->child->signal(SIGTERM);
}

// Such a process is needed until everything is built.
bool Launcher::builds_only(const Part& part) const {
  return std::ranges::all_of(process(part).nodes, [&](std::size_t index) {
    return configuration_.nodes[index].role == config::Role::builder;
  });
}

// A builder unit that was given up: frozen, it would hold pages of the readout units for ever. So
// it is started again, whatever run.restart says: it did not fail by itself.
void Launcher::on_silent(const std::string& node) {
  for (auto& part : parts_) {
    const auto& nodes = process(*part).nodes;
    const bool it = std::ranges::any_of(
        nodes, [&](std::size_t index) { return configuration_.nodes[index].name == node; });
    if (!it || !builds_only(*part) || part->child == nullptr || !part->child->alive()) continue;
    options_.log(LogLevel::warning,
                 fmt::format("{} was given up: it is killed", process(*part).name));
    part->killed = true;
    part->child->signal(SIGKILL);
  }
}

void Launcher::on_exit(Part& part, const ChildExit& exit) {
  view_.on_exit(process(part).name, exit);
  const bool failed = &part != event_manager() && exit.status != 0 && !over_;
  if (failed || part.ended_nodes < process(part).nodes.size()) on_death(part, exit);
  if (&part == event_manager()) end_all();
  finish_if_all_ended();
}

// A process that ended without a last word, or with a bad one.
void Launcher::on_death(Part& part, const ChildExit& exit) {
  const std::string& name = process(part).name;
  const bool died = part.ended_nodes < process(part).nodes.size();
  const std::string how = fmt::format("{} {}: {}", name, died ? "died" : "failed", exit.text());
  if (&part == event_manager()) {
    options_.log(LogLevel::error, fmt::format("{}; everything stops, what was built is safe", how));
    return;
  }
  if (part.unable) return options_.log(LogLevel::debug, how); // that was said
  Part* const decides = event_manager();
  const bool drains = signals_seen_ == 1 && decides != nullptr; // it still builds what was read
  if (over_ || (signals_seen_ > 0 && !(drains && builds_only(part)))) {
    options_.log(LogLevel::error, how);
    return;
  }
  if (died && decides != nullptr && decides->child->alive())
    tell_of_death(decides->child->pid(), part.session);
  const bool restarts = configuration_.run.restart || part.killed;
  if (!begun_ && !restarts && decides != nullptr) {
    options_.log(LogLevel::error, fmt::format("{}; the run cannot begin without it", how));
    end_run();
    return;
  }
  if (!restarts) {
    options_.log(LogLevel::error,
                 fmt::format("{}; start it again with: {}", how, command_line(part)));
    return;
  }
  options_.log(LogLevel::error, fmt::format("{}; it is started again", how));
  if (loop_.now() - part.started_at >= restart_forgotten) part.restart_after = {};
  restart_later(part);
}

void Launcher::restart_later(Part& part) {
  part.restart_after = std::min(std::max(part.restart_after * 2, restart_first), restart_longest);
  if (part.restart == nullptr) {
    part.restart = std::make_unique<net::Timer>([this, &part] {
      const bool stopped = signals_seen_ > 0 && event_manager() == nullptr;
      if (over_ || stopped) return finish_if_all_ended();
      part.restarted = true;
      if (auto started = start(part); !started) {
        options_.log(LogLevel::error, started.error().text);
        restart_later(part);
      }
    });
  }
  part.restart->start(loop_, loop_.now() + part.restart_after);
}

void Launcher::on_signal() {
  if (++signals_seen_ == 1 && !over_) {
    options_.log(LogLevel::info,
                 "stopping: what was read is still built; a second signal stops at once");
  }
  // Of two alike that come close together one would be lost.
  const int signal = signals_seen_ > 1 ? SIGINT : SIGTERM;
  Part* decides = event_manager();
  if (decides != nullptr && decides->child != nullptr && decides->child->alive() && !over_) {
    // Its second one makes it stop at once.
    if (signals_seen_ > 1 || !end_asked_) decides->child->signal(signal);
    if (signals_seen_ > 1) patience_.start(loop_, loop_.now() + patience_hurried);
    return;
  }
  for (auto& part : parts_) {
    if (part->child != nullptr) part->child->signal(signal);
  }
  if (signals_seen_ > 1) patience_.start(loop_, loop_.now() + patience_hurried);
}

void Launcher::end_all() {
  if (over_) return;
  over_ = true;
  for (auto& part : parts_) {
    if (part->restart) part->restart->cancel();
    if (part.get() == event_manager() || part->child == nullptr) continue;
    part->child->signal(SIGTERM);
    if (signals_seen_ > 1) part->child->signal(SIGINT); // its second one: it stops at once
  }
  if (!patience_.active()) patience_.start(loop_, loop_.now() + patience_usual);
  finish_if_all_ended();
}

void Launcher::finish_if_all_ended() {
  const bool any = std::ranges::any_of(parts_, [](const auto& part) {
    return (part->child != nullptr && part->child->alive()) ||
           (part->restart && part->restart->active());
  });
  if (!any) loop_.stop();
}

} // namespace fanin::executive
