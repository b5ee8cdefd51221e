// fanin ctl COMMAND: the command line of run control.
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "commands.hpp"
#include "control_client.hpp"
#include "fanin/base/home.hpp"
#include "fanin/base/printable.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/operation/registry.hpp"
#include "fanin/operation/states.hpp"
#include "terminal.hpp"

namespace fanin::command {
namespace {

struct CtlArguments {
  ControlClient::Place place;
  bool json = false;
  bool wait = false;
  bool watch = false;
  std::string configuration;
  std::string duration;
  std::string events;
  std::vector<std::string> set;
  std::vector<std::string> without;
  std::string kind;
  std::string comment;
  std::uint64_t run = 0;
  std::uint64_t last = 20;
};

void show_json(const json::Value& value) { print(value.dump(2) + "\n"); }

// What is wrong, said; the exit status.
int refusal_of(const ControlClient::Reply& reply) {
  const std::string why = reply.value.at("error").text();
  say(fmt::format("fanin ctl: {}\n",
                  why.empty() ? fmt::format("the answer has status {}", reply.status) : why));
  return reply.status == 422 || reply.status == 404 ? status_usage : status_failed;
}

bool good(const ControlClient::Reply& reply) { return reply.status >= 200 && reply.status < 300; }

// --- status --------------------------------------------------------------------------------------

std::string node_line(const std::string& name, const json::Value& node) {
  return fmt::format(
      "  {:<20} {:<14} {:<6} {:>7}  {:>10}\n", name, node.at("role").text(),
      node.at("alive").boolean() ? "here" : "gone",
      node.find("cpu") == nullptr ? "" : fmt::format("{:.0f} %", node.at("cpu").real() * 100),
      node.find("rss_bytes") == nullptr ? "" : format_size(node.at("rss_bytes").natural()));
}

std::string status_text(const json::Value& status) {
  const std::string state = status.at("state").text();
  std::string text =
      fmt::format("{}{}", state, status.at("degraded").boolean() ? ", degraded" : "");
  if (const json::Value* run = status.find("run")) {
    text += fmt::format(": run {} ({}, {})", run->natural(), status.at("configuration").text(),
                        status.at("kind").text());
  }
  text += "\n";
  for (const char* key : {"error", "vetoed"}) {
    if (const std::string why = status.at(key).text(); !why.empty()) text += why + "\n";
  }
  if (const std::string waits = status.at("waiting_for").text(); !waits.empty())
    text += "waiting for " + waits + "\n";
  for (const json::Value& alarm : status.at("alarms").list()) text += "! " + alarm.text() + "\n";
  if (state == "running" || state == "draining") {
    const json::Value& events = status.at("events");
    text += fmt::format("{} events, {} incomplete, {}, {}\n", events.at("built").natural(),
                        events.at("incomplete").natural(),
                        format_rate(status.at("event_rate_hz").real()),
                        format_bandwidth(status.at("throughput_bytes_per_s").real()));
  }
  for (const auto& [name, node] : status.at("nodes").object()) text += node_line(name, node);
  if (const json::Value* last = status.find("last_run"))
    text +=
        fmt::format("run {} has ended: {}\n", last->at("run").natural(), last->at("reason").text());
  return text;
}

Result<int> watch_status(ControlClient& client, const CtlArguments& arguments) {
  const bool terminal = isatty(STDOUT_FILENO) == 1 && !arguments.json;
  FANIN_TRY(client.listen([&](std::string_view kind, const json::Value& data) {
    if (kind != "status") return true;
    if (terminal) clear_screen();
    arguments.json ? print(data.dump() + "\n") : print(status_text(data) + "\n");
    std::fflush(stdout);
    return !is_output_closed() && std::ferror(stdout) == 0;
  }));
  return status_done;
}

Result<int> show_status(const CtlArguments& arguments) {
  auto client = FANIN_TRY(ControlClient::open(arguments.place));
  if (arguments.watch) return watch_status(client, arguments);
  const auto reply = FANIN_TRY(client.ask("status"));
  if (!good(reply)) return refusal_of(reply);
  arguments.json ? show_json(reply.value) : print(status_text(reply.value));
  return status_done;
}

// --- commands ------------------------------------------------------------------------------------

json::Value body_of(const CtlArguments& arguments) {
  json::Value body = json::Object{};
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) body[key] = value;
  };
  add("configuration", arguments.configuration);
  add("duration", arguments.duration);
  add("events", arguments.events);
  add("kind", arguments.kind);
  add("comment", arguments.comment);
  for (const std::string& one : arguments.set) body["set"].append(one);
  for (const std::string& one : arguments.without) body["without"].append(one);
  return body;
}

// A command leads there at last, if all goes well: what is seen on the way is no end.
bool is_end(operation::Command command, RunNumber run, const json::Value& status) {
  const auto state = operation::run_state_named(status.at("state").text());
  if (!state || operation::is_transient(*state)) return false;
  const bool on_the_way =
      command == operation::Command::start && *state == operation::RunState::configured;
  const bool over = run != 0 && status.at("last_run").at("run").natural() >= run; // a short one
  return !on_the_way || over || !status.at("vetoed").text().empty();
}

Result<int> wait_for_end(ControlClient& client, operation::Command command, RunNumber run,
                         const CtlArguments& arguments) {
  json::Value last;
  FANIN_TRY(client.listen([&](std::string_view kind, const json::Value& data) {
    if (kind != "status") return true;
    const std::string state = data.at("state").text();
    if (!arguments.json && state != last.at("state").text()) say(state + "\n");
    last = data;
    return !is_end(command, run, data);
  }));
  if (arguments.json) show_json(last);
  std::string error = last.at("error").text() + last.at("vetoed").text();
  if (command == operation::Command::start && last.at("state").text() == "halted")
    error = "the run was ended: " + last.at("last_run").at("reason").text();
  if (error.empty()) return status_done;
  if (!arguments.json) say(fmt::format("fanin ctl: {}\n", error));
  return status_failed;
}

Result<int> send_command(operation::Command command, const CtlArguments& arguments) {
  auto client = FANIN_TRY(ControlClient::open(arguments.place));
  const json::Value body = body_of(arguments);
  const auto reply = FANIN_TRY(client.ask(std::string(name(command)), &body));
  if (!good(reply)) return refusal_of(reply);
  const auto run = static_cast<RunNumber>(reply.value.at("run").natural());
  if (arguments.wait) return wait_for_end(client, command, run, arguments);
  if (arguments.json) {
    show_json(reply.value);
  } else {
    print(fmt::format("{}{}\n", reply.value.at("state").text(),
                      run == 0 ? "" : fmt::format(": run {}", run)));
  }
  return status_done;
}

// --- runs ----------------------------------------------------------------------------------------

Result<int> show_runs(const CtlArguments& arguments) {
  auto client = FANIN_TRY(ControlClient::open(arguments.place));
  const auto reply = FANIN_TRY(client.ask(fmt::format("runs?last={}", arguments.last)));
  if (!good(reply)) return refusal_of(reply);
  if (arguments.json) {
    show_json(reply.value);
    return status_done;
  }
  for (const json::Value& run : reply.value.at("runs").list()) {
    const std::string comment = run.at("comment").text();
    print(fmt::format("{:>8}  {:<8} {:<19}  {:>10}  {}{}\n", run.at("run").natural(),
                      run.at("kind").text(), run.at("begin").text(),
                      run.at("events").at("built").natural(), printable(run.at("reason").text()),
                      comment.empty() ? "" : "; " + printable(comment)));
  }
  return status_done;
}

Result<int> set_run_comment(const CtlArguments& arguments) {
  auto client = FANIN_TRY(ControlClient::open(arguments.place));
  const json::Value body = json::Object{{"text", arguments.comment}};
  const auto reply = FANIN_TRY(client.ask(fmt::format("runs/{}/comment", arguments.run), &body));
  return good(reply) ? status_done : refusal_of(reply);
}

Result<int> show_log(const CtlArguments& arguments) {
  auto client = FANIN_TRY(ControlClient::open(arguments.place));
  const std::string path = arguments.run == 0 ? fmt::format("log?last={}", arguments.last)
                                              : fmt::format("runs/{}/log", arguments.run);
  const auto reply = FANIN_TRY(client.ask(path));
  if (!good(reply)) return refusal_of(reply);
  if (arguments.json) {
    show_json(reply.value);
    return status_done;
  }
  for (const json::Value& line : reply.value.at("lines").list())
    print(fmt::format("{:<7} {:<8} {}\n", line.at("level").text(), line.at("node").text(),
                      printable(line.at("text").text())));
  return status_done;
}

} // namespace

void add_ctl(CLI::App& app, int& status_out) {
  auto arguments = std::make_shared<CtlArguments>();
  arguments->place.registry = operation::Registry::usual_path();
  CLI::App* ctl = app.add_subcommand("ctl", "Start, watch and stop runs of a `fanin serve`");
  ctl->require_subcommand(1);
  ctl->fallthrough();
  ctl->add_option("--registry", arguments->place.registry, "The registry of that `fanin serve`")
      ->capture_default_str();
  ctl->add_option("--url", arguments->place.url,
                  "Its address; else its socket beside the registry");
  ctl->add_option("--token-file", arguments->place.token_file, "With --url: a file of tokens");
  ctl->add_flag("--json", arguments->json, "The answer as JSON");
  const auto add = [&](const char* name, const char* what, auto run) {
    CLI::App* command = ctl->add_subcommand(name, what);
    command->callback([arguments, run, &status_out] { status_out = status_of(run(*arguments)); });
    return command;
  };
  const auto add_command = [&](operation::Command command, const char* what) {
    CLI::App* one =
        add(std::string(name(command)).c_str(), what,
            [command](const CtlArguments& given) { return send_command(command, given); });
    one->add_flag("--wait", arguments->wait, "Until the transition has ended");
    return one;
  };
  using operation::Command;
  CLI::App* configure = add_command(Command::configure, "Start the processes of a run");
  CLI::App* start = add_command(Command::start, "Start the run; configure it first, if need be");
  configure->add_option("CONFIGURATION", arguments->configuration, "One of those of `fanin serve`");
  start->add_option("--configuration", arguments->configuration, "One of those of `fanin serve`");
  for (CLI::App* one : {configure, start}) {
    one->add_option("--duration", arguments->duration, "Stop after this time: 10s");
    one->add_option("--events", arguments->events, "Stop after so many events");
    one->add_option("--set", arguments->set, "KEY=VALUE: override one key")
        ->take_all()
        ->allow_extra_args(false);
    one->add_option("--without", arguments->without, "Leave out a source")
        ->take_all()
        ->allow_extra_args(false);
  }
  start->add_option("--comment", arguments->comment, "Kept in the registry");
  start->add_option("--kind", arguments->kind, "physics or test")
      ->check(CLI::IsMember({"physics", "test"}));
  add_command(Command::stop, "Stop the run: what was read is built");
  add_command(Command::abort, "End the run at once: what is not built is lost");
  add_command(Command::halt, "End the processes of a run that was not started");
  add_command(Command::recover, "Leave the state error");
  CLI::App* seen = add("status", "What is going on", show_status);
  seen->add_flag("--watch", arguments->watch, "Again with each change");
  CLI::App* runs = add("runs", "The last runs", show_runs);
  runs->add_option("--last", arguments->last, "So many");
  CLI::App* note = add("comment", "Set the comment of a run", set_run_comment);
  note->add_option("RUN", arguments->run, "Its number")->required();
  note->add_option("TEXT", arguments->comment, "The comment")->required();
  CLI::App* lines = add("log", "The log: of now, or of a run", show_log);
  lines->add_option("RUN", arguments->run, "Its number");
  lines->add_option("--last", arguments->last, "So many lines");
}

} // namespace fanin::command
