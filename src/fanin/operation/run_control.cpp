#include "fanin/operation/run_control.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/base/try.hpp"
#include "fanin/executive/report.hpp"
#include "fanin/executive/run_view.hpp"
#include "fanin/operation/reserve_run.hpp"

namespace fanin::operation {
namespace {

constexpr Duration second = std::chrono::seconds{1};
constexpr Duration silence_named = std::chrono::seconds{10}; // a launcher reports twice a second
constexpr std::size_t error_shown = 4000; // bytes of what a launcher left on standard error

std::int64_t to_ms(std::int64_t unix_ns) { return unix_ns / 1'000'000; }

CommandRefusal refusal(CommandRefusal::Kind kind, std::string text) {
  return {.kind = kind, .text = std::move(text)};
}

// What is wrong with a configuration is the user's, the rest is not.
CommandRefusal refusal(const Error& error) {
  const bool wrong = error.kind == ErrorKind::usage || error.kind == ErrorKind::not_found;
  return refusal(wrong ? CommandRefusal::Kind::wrong : CommandRefusal::Kind::unable, error.text);
}

bool same_files(const std::vector<UsedConfiguration>& a, const std::vector<UsedConfiguration>& b) {
  return std::ranges::equal(a, b, [](const UsedConfiguration& one, const UsedConfiguration& other) {
    return one.name == other.name && one.text == other.text && one.overrides == other.overrides;
  });
}

// The end of what a launcher and its nodes have written there: a crash says something.
std::string last_words(const std::string& file) {
  std::ifstream input(file, std::ios::ate);
  if (!input) return "";
  const auto size = static_cast<std::size_t>(input.tellg());
  input.seekg(static_cast<std::streamoff>(size - std::min(size, error_shown)));
  return {std::istreambuf_iterator<char>(input), {}};
}

} // namespace

RunControl::RunControl(net::Loop& loop, Registry& registry, const RunFiles& files,
                       RunControlOptions options)
    : loop_(loop),
      registry_(registry),
      files_(files),
      options_(std::move(options)),
      writes_(loop, registry, [this] { changed(); }),
      hooks_(loop,
             {.programs = options_.hooks,
              .limit = options_.hook_limit,
              .log = [this](LogLevel level, std::string text) { log(level, std::move(text)); }}),
      since_ns_(options_.unix_ns()),
      set_(options_.sets.front().name),
      second_([this] { on_second(); }) {
  second_at_ = loop_.now();
  second_.start(loop_, second_at_ + second);
}

RunControl::~RunControl() = default;

const ConfigurationSet* RunControl::find_set(std::string_view name) const {
  const auto found = std::ranges::find(options_.sets, name, &ConfigurationSet::name);
  return found == options_.sets.end() ? nullptr : &*found;
}

// --- commands ------------------------------------------------------------------------------------

std::string RunControl::why_not(Command command) const {
  const Transition* const row = find_transition(state_, command);
  if (row != nullptr && row->via != state_) return "";
  if (row != nullptr && command == Command::start && state_ == RunState::configuring) return "";
  switch (state_) {
  case RunState::halted:
    return command == Command::halt ? "nothing is configured" : "no run is there";
  case RunState::configuring:
  case RunState::configured: return "no run has been started";
  case RunState::starting: return fmt::format("run {} starts: stop or abort it first", run());
  case RunState::running:
    return fmt::format("run {} is running{}", run(),
                       command == Command::start ? "" : ": stop or abort it first");
  case RunState::draining: return fmt::format("run {} is stopping", run());
  case RunState::halting: return "processes are ending";
  case RunState::error:
    return command == Command::halt || command == Command::stop ? "no run is there: recover"
                                                                : "recover first";
  }
  return "";
}

std::optional<CommandRefusal> RunControl::ask(const CommandRequest& request) {
  using Kind = CommandRefusal::Kind;
  const bool always = request.command == Command::stop || request.command == Command::abort ||
                      request.command == Command::halt;
  if (request.version && *request.version != version_ && !always)
    return refusal(
        Kind::not_now,
        fmt::format("the state has changed since you saw it: it is {} now", name(state_)));
  const Transition* const row = find_transition(state_, request.command);
  if (row == nullptr)
    return refusal(Kind::not_now,
                   fmt::format("{}: {}", name(request.command), why_not(request.command)));
  if (row->via == state_ && request.command != Command::configure &&
      request.command != Command::start && state_ != RunState::halting)
    return std::nullopt;
  command_ = name(request.command);
  who_ = request.who;
  switch (request.command) {
  case Command::configure: return configure(request, false);
  case Command::start: return start(request);
  case Command::stop: stop(options_.repeat ? Next::start : Next::configure); break;
  case Command::abort:
    end_run(executive::Request::abort, RunState::halting, Next::halt,
            fmt::format("aborted by {}", request.who));
    break;
  case Command::halt:
    end_run(executive::Request::stop, RunState::halting, Next::halt,
            fmt::format("never started: halted by {}", request.who));
    break;
  case Command::recover:
    end_run(executive::Request::abort, RunState::halting, Next::halt, "");
    break;
  }
  return std::nullopt;
}

std::optional<CommandRefusal> RunControl::configure(const CommandRequest& request, bool and_start) {
  const ConfigurationSet* const set =
      find_set(request.configuration.empty() ? set_ : request.configuration);
  if (set == nullptr) {
    std::vector<std::string> names;
    for (const ConfigurationSet& one : options_.sets) names.push_back(one.name);
    return refusal(CommandRefusal::Kind::wrong,
                   fmt::format("there is no configuration {}; there are: {}", request.configuration,
                               fmt::join(names, ", ")));
  }
  const RunChanges changes = request.changes.value_or(changes_);
  auto read = read_set(*set, changes);
  if (!read) {
    if (state_ == RunState::halted) fail_configuration(read.error().text);
    return refusal(read.error());
  }
  set_ = set->name;
  changes_ = changes;
  start_when_configured_ = and_start;
  if (alive()) { // the processes of the old configuration end first
    end_run(executive::Request::stop, RunState::configuring,
            and_start ? Next::start : Next::configure, "never started: it was configured anew");
    return std::nullopt;
  }
  const auto begun = begin_run(std::move(*read), *set, changes, request.who);
  if (begun) return std::nullopt;
  fail_configuration(begun.error().text);
  return refusal(begun.error());
}

std::optional<CommandRefusal> RunControl::start(const CommandRequest& request) {
  kind_ = request.kind;
  comment_ = request.comment;
  if (state_ == RunState::running) return std::nullopt; // it does already
  if (state_ == RunState::halted) return configure(request, true);
  if (state_ == RunState::configuring) {
    start_when_configured_ = true;
    return std::nullopt;
  }
  const ConfigurationSet* const set =
      find_set(request.configuration.empty() ? set_ : request.configuration);
  if (set == nullptr) return configure(request, true); // which says so
  const auto read = read_set(*set, request.changes.value_or(changes_));
  if (!read) return refusal(read.error());
  if (!same_files(read->used, run_->status->read().used)) {
    log(LogLevel::info, "the configuration has changed since it was configured: configuring anew");
    return configure(request, true);
  }
  release();
  return std::nullopt;
}

void RunControl::end_with_run() {
  const bool again = std::exchange(ending_, true);
  command_ = "^C";
  who_ = user_name();
  if (!alive()) return options_.on_ended();
  if (again)
    return end_run(executive::Request::abort, RunState::halting, Next::halt,
                   "aborted by a second ^C");
  if (state_ == RunState::running || state_ == RunState::starting) return stop(Next::halt);
  end_run(executive::Request::stop, RunState::halting, Next::halt,
          "never started: run control was ended");
}

// --- the life of a run ---------------------------------------------------------------------------

std::vector<std::string> RunControl::arguments(const Run& run, const ConfigurationSet& set) const {
  std::vector<std::string> words{options_.program, "run"};
  words.insert(words.end(), set.files.begin(), set.files.end());
  const auto changes = run.changes.options();
  words.insert(words.end(), changes.begin(), changes.end());
  const auto add = [&](std::string option, std::string value) {
    words.push_back(std::move(option));
    words.push_back(std::move(value));
  };
  add("--set", fmt::format("run.number={}", run.number));
  add("--run-id", fmt::format("{}", run.id));
  words.emplace_back("--controlled");
  words.insert(words.end(), options_.hosts.begin(), options_.hosts.end());
  return words;
}

Result<> RunControl::begin_run(ReadSet read, const ConfigurationSet& set, const RunChanges& changes,
                               const std::string& who) {
  json::Value control = json::Object{{"set", set.name}, {"changes", changes.to_json()}};
  const auto reserved =
      FANIN_TRY(reserve_run(registry_, read.configurations, read.used, who, std::move(control)));
  Run run;
  run.number = reserved.number;
  run.id = reserved.id;
  run.kind = read.configurations.front().run.kind;
  run.comment = read.configurations.front().run.comment;
  run.who = who;
  run.set = set.name;
  run.changes = changes;
  run.heard = loop_.now();
  run.status = std::make_unique<RunStatus>(std::move(read));
  run_ = std::move(run);
  history_.begin_run();
  next_ = Next::decide;
  auto process = RunProcess::start(loop_, files_, run_->number, arguments(*run_, set),
                                   run_->status->read().used, handlers());
  if (!process) {
    RunEnd end;
    import_end(run_->number, process.error().text, end);
    return std::unexpected(process.error());
  }
  run_->process = std::move(*process);
  error_.clear();
  enter(RunState::configuring);
  return {};
}

// After a run, with what was asked for last.
void RunControl::begin_next(bool and_start) {
  const ConfigurationSet* const set = find_set(set_);
  auto read = read_set(*set, changes_);
  if (!read) return fail_configuration(read.error().text);
  start_when_configured_ = and_start;
  const auto begun = begin_run(std::move(*read), *set, changes_, who_);
  if (!begun) fail_configuration(begun.error().text);
}

void RunControl::fail_configuration(const std::string& why) {
  start_when_configured_ = false;
  error_ = why;
  log(LogLevel::error, why);
  enter(RunState::error, why);
}

void RunControl::release() {
  start_when_configured_ = false;
  vetoed_.clear();
  const RunNumber number = run_->number;
  if (!kind_.empty() && kind_ != run_->kind) {
    run_->kind = kind_;
    writes_.add(
        [number, kind = kind_](Registry& registry) { return registry.set_kind(number, kind); });
  }
  if (comment_ && *comment_ != run_->comment) {
    run_->comment = *comment_;
    const Change by{who_, options_.unix_ns()};
    writes_.add([number, text = *comment_, by](Registry& registry) {
      return registry.set_comment(number, text, by);
    });
  }
  kind_.clear();
  comment_.reset();
  enter(RunState::starting);
  hooks_.run(HookMoment::before_start, about(), [this, number](const std::string& why) {
    if (!alive() || run_->number != number || state_ != RunState::starting) return; // aborted
    if (why.empty()) return release_now();
    vetoed_ = fmt::format("the hook before-start refuses: {}", why);
    enter(RunState::configured, vetoed_);
  });
}

void RunControl::release_now() {
  run_->released = true;
  run_->process->request(executive::Request::start);
}

void RunControl::stop(Next next) {
  next_ = next;
  enter(RunState::draining);
  hooks_.run(HookMoment::before_stop, about(), [this](const std::string&) { stop_now(); });
}

void RunControl::stop_now() {
  if (alive() && state_ == RunState::draining) run_->process->request(executive::Request::stop);
}

json::Value RunControl::about() const {
  json::Value about = json::Object{{"state", name(state_)}, {"who", who_}};
  if (!run_) return about;
  about["run"] = run_->number;
  about["run_id"] = fmt::format("{:016x}", run_->id);
  about["configuration"] = run_->set;
  about["kind"] = run_->kind;
  about["comment"] = run_->comment;
  if (last_ && last_->number == run_->number) about["reason"] = last_->reason;
  run_->status->add_to(about, alive());
  return about;
}

void RunControl::tell_hook(HookMoment moment) {
  hooks_.run(moment, about(), [](const std::string&) {});
}

// `reason`: why it ends, if its launcher does not know that.
void RunControl::end_run(executive::Request request, RunState via, Next next,
                         const std::string& reason) {
  next_ = next;
  if (via == RunState::halting) start_when_configured_ = false;
  if (!alive()) {
    error_.clear();
    return enter(RunState::halted);
  }
  if (!reason.empty()) run_->end_reason = reason;
  run_->process->request(request);
  if (state_ != via) enter(via);
}

RunProcess::Handlers RunControl::handlers() {
  return {.on_report = [this](const json::Value& report) { on_report(report); },
          .on_end = [this](const std::string& how) { on_end(how); }};
}

void RunControl::on_report(const json::Value& report) {
  run_->heard = loop_.now();
  if (report.at("report").text() == "log") {
    ShownLine line{.unix_ns = report.at("unix_ns").integer().value_or(0),
                   .level = report.at("level").text(),
                   .node = {},
                   .text = report.at("text").text(),
                   .run = run_->number};
    const auto end = line.text.find("  ");
    const auto space = line.text.find(' ');
    if (end != std::string::npos && end == space) { // "ru0      a text"
      line.node = line.text.substr(0, end);
      line.text.erase(0, line.text.find_first_not_of(' ', end));
    }
    return show(std::move(line));
  }
  RunStatus& status = *run_->status;
  status.on_report(report, loop_.now());
  if (state_ == RunState::configuring && next_ == Next::decide && status.ready()) {
    enter(RunState::configured);
    if (start_when_configured_) release();
  } else if (state_ == RunState::configured && !status.ready() && !run_->released) {
    enter(RunState::configuring);
  }
  if (state_ == RunState::starting && unsure_ && status.known()) {
    unsure_ = false;
    if (status.ready()) return release();
    run_->released = true;
  }
  if (state_ == RunState::starting && status.begun()) {
    run_->begun_ns = options_.unix_ns();
    writes_.add([number = run_->number, now = run_->begun_ns](Registry& registry) {
      return registry.begun(number, now);
    });
    enter(RunState::running);
    tell_hook(HookMoment::after_start);
  }
  if (state_ == RunState::running && status.stopping()) {
    command_.clear();
    who_.clear();
    enter(RunState::draining);
  }
}

void RunControl::on_end(const std::string& how) {
  const RunNumber number = run_->number;
  run_->process.reset();
  RunEnd end;
  import_end(number,
             how.empty() ? "its launcher has ended without a word"
                         : fmt::format("its launcher died: {}", how),
             end);
  const bool ok = executive::succeeded(end.result);
  if (run_->released) last_ = LastRun{number, end.reason, ok};
  const Next next = std::exchange(next_, Next::decide);
  if (run_->released) {
    const bool planned = next != Next::decide || (ok && state_ == RunState::draining);
    tell_hook(planned ? HookMoment::after_stop : HookMoment::unplanned_end);
  }
  const bool asked = next == Next::halt || !run_->released;
  if (ending_) {
    enter(RunState::halted);
    return options_.on_ended();
  }
  switch (next) {
  case Next::halt: error_.clear(); return enter(RunState::halted);
  case Next::configure:
  case Next::start:
    if (!asked && !ok) return fail_configuration(end.reason);
    return begin_next(next == Next::start);
  case Next::decide: return decide_next(end);
  }
}

// Nobody has asked for the end.
void RunControl::decide_next(const RunEnd& end) {
  if (!run_->released || !executive::succeeded(end.result)) return fail_configuration(end.reason);
  begin_next(options_.repeat);
}

// Into the registry, from the file that the launcher has left; `otherwise`: the reason, if it has
// left none.
void RunControl::import_end(RunNumber run, const std::string& otherwise, RunEnd& end) {
  auto read = files_.read_end(run);
  if (read) {
    end = std::move(*read);
  } else {
    end.ended_ns = options_.unix_ns();
    end.reason = otherwise;
    if (run_ && run_->number == run) {
      for (const ShownLine& line : lines_) {
        if (line.run == run)
          end.log.push_back({line.unix_ns, line.level,
                             line.node.empty() ? line.text : line.node + ": " + line.text});
      }
    }
  }
  if (const std::string words = last_words(files_.error_file(run)); !words.empty())
    end.log.push_back({end.ended_ns, "error", "on standard error: " + words});
  if (run_ && run_->number == run && !run_->end_reason.empty()) end.reason = run_->end_reason;
  if (run_ && run_->number == run && !run_->released && run_->end_reason.empty())
    end.reason = "never started: " + end.reason;
  log(executive::succeeded(end.result) ? LogLevel::info : LogLevel::warning,
      fmt::format("run {} has ended: {}", run, end.reason));
  writes_.add([this, run, end](Registry& registry) -> Result<> {
    FANIN_TRY(registry.ended(run, end));
    files_.remove(run);
    return {};
  });
}

// --- an earlier run control ----------------------------------------------------------------------

Result<> RunControl::take_over() {
  const auto left = FANIN_TRY(registry_.unfinished());
  for (const RunEntry& entry : left) {
    const auto states = FANIN_TRY(registry_.states(entry.number));
    const auto state = states.empty() ? std::nullopt : run_state_named(states.back().to);
    adopt(entry, state.value_or(RunState::configuring));
    if (alive()) continue;
    RunEnd end;
    import_end(entry.number,
               "its launcher has ended while run control was not there, and has said "
               "nothing",
               end);
    last_ = LastRun{entry.number, end.reason, executive::succeeded(end.result)};
    run_.reset();
  }
  if (!alive()) enter(RunState::halted);
  return {};
}

// run_ is the run, with its process if that lives.
void RunControl::adopt(const RunEntry& entry, RunState state) {
  Run run;
  run.number = entry.number;
  run.id = entry.id;
  run.kind = entry.kind;
  run.comment = entry.comment;
  run.who = entry.who;
  run.begun_ns = entry.begun_ns;
  run.set = entry.control.at("set").text();
  run.changes = RunChanges::from(entry.control.at("changes"));
  run.heard = loop_.now();
  run.released = state == RunState::running || state == RunState::draining || entry.begun_ns != 0;
  auto used = registry_.configurations(entry.number);
  auto read = used ? read_again(std::move(*used)) : Result<ReadSet>(std::unexpected(used.error()));
  if (!read) return log(LogLevel::error, read.error().text);
  run.status = std::make_unique<RunStatus>(std::move(*read));
  run_ = std::move(run);
  auto found = RunProcess::find(loop_, files_, entry.number, handlers());
  if (!found) return;
  run_->process = std::move(*found);
  if (find_set(run_->set) != nullptr) {
    set_ = run_->set;
    changes_ = run_->changes;
  }
  log(LogLevel::info, fmt::format("run {} goes on: run control leads it again", entry.number));
  state_ = state;
  since_ns_ = options_.unix_ns();
  if (state == RunState::halting) next_ = Next::halt;
  unsure_ = state == RunState::starting;
}

// --- what is shown -------------------------------------------------------------------------------

void RunControl::enter(RunState state, const std::string& why) {
  const RunState before = std::exchange(state_, state);
  if (before == state) return;
  ++version_;
  since_ns_ = options_.unix_ns();
  if (run_) {
    const StateChange change{.unix_ns = since_ns_,
                             .from = std::string(name(before)),
                             .to = std::string(name(state)),
                             .command = command_,
                             .who = who_,
                             .why = why};
    writes_.add([number = run_->number, change](Registry& registry) {
      return registry.add_state(number, change);
    });
  }
  if (!is_passing(state)) command_.clear();
  changed();
}

void RunControl::changed() {
  if (options_.on_change) options_.on_change();
}

void RunControl::log(LogLevel level, std::string text) {
  show({.unix_ns = options_.unix_ns(),
        .level = std::string(executive::name(level)),
        .node = {},
        .text = std::move(text),
        .run = run()});
}

void RunControl::show(ShownLine line) {
  lines_.push_back(std::move(line));
  if (lines_.size() > lines_max) lines_.pop_front();
  if (options_.on_line) options_.on_line(lines_.back());
}

void RunControl::on_second() {
  const Time now = loop_.now();
  const double passed = std::chrono::duration<double>(now - second_at_).count();
  second_at_ = now;
  second_.start(loop_, now + second);
  if (alive() && run_->begun_ns != 0) {
    history_.add(run_->status->counts(), passed);
  } else {
    history_.add_unknown();
  }
  if (alive()) changed();
}

std::vector<std::string> RunControl::alarms() const {
  std::vector<std::string> alarms;
  if (!writes_.problem().empty())
    alarms.push_back(
        fmt::format("{}; what is to be recorded is kept and written later", writes_.problem()));
  if (!alive()) return alarms;
  if (state_ == RunState::running || state_ == RunState::draining) {
    for (const std::string& node : run_->status->missing_nodes())
      alarms.push_back(fmt::format("{} is gone: the log says why, and how to start it again; "
                                   "run.restart does it by itself",
                                   node));
  }
  if (loop_.now() - run_->heard > silence_named)
    alarms.push_back(fmt::format("the launcher of run {} says nothing: it is frozen, or this host "
                                 "is overloaded; if it stays so, end it: pkill -KILL -f "
                                 "'control-end {}'",
                                 run_->number, files_.end_file(run_->number)));
  return alarms;
}

json::Value RunControl::status() const {
  json::Value status;
  status["version"] = version_;
  status["state"] = name(state_);
  status["since_ms"] = to_ms(since_ns_);
  status["now_ms"] = to_ms(options_.unix_ns());
  status["configuration"] = set_;
  status["configurations"] = json::List{};
  for (const ConfigurationSet& set : options_.sets) status["configurations"].append(set.name);
  status["error"] = error_;
  status["vetoed"] = vetoed_;
  json::Value& commands = status["commands"] = json::Object{};
  for (const Command command : all_commands()) commands[name(command)] = why_not(command);
  const auto alarms = this->alarms();
  status["alarms"] = json::List(alarms.begin(), alarms.end());
  status["waiting_for"] = "";
  status["degraded"] = false;
  if (run_) {
    status["run"] = run_->number;
    status["run_id"] = fmt::format("{:016x}", run_->id);
    status["kind"] = run_->kind;
    status["comment"] = run_->comment;
    status["who"] = run_->who;
    status["begun_ms"] = to_ms(run_->begun_ns);
    run_->status->add_to(status, alive());
    // While events are built, something is always waited for.
    const bool flows = state_ == RunState::running && history_.latest().events_hz > 0;
    if (alive() && !flows) status["waiting_for"] = run_->status->waiting_for();
    status["degraded"] =
        alive() && state_ == RunState::running && !run_->status->missing_nodes().empty();
    const RunRates& rates = history_.latest();
    status["event_rate_hz"] = rates.events_hz;
    status["incomplete_rate_hz"] = rates.incomplete_hz;
    status["throughput_bytes_per_s"] = rates.bytes_per_s;
  }
  if (last_)
    status["last_run"] =
        json::Object{{"run", last_->number}, {"reason", last_->reason}, {"ok", last_->ok}};
  return status;
}

json::Value RunControl::history() const { return history_.to_json(to_ms(options_.unix_ns())); }

std::vector<EventPlace> RunControl::event_places() const {
  return alive() ? run_->status->event_places() : std::vector<EventPlace>{};
}

std::string RunControl::source_name(SourceId source) const {
  return run_ ? run_->status->source_name(source) : fmt::format("{:#x}", source);
}

json::Value RunControl::node(std::string_view name) const {
  return run_ ? run_->status->node(name) : json::Value{};
}

} // namespace fanin::operation
