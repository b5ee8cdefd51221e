#include "fanin/operation/run_control.hpp"

#include <algorithm>
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

} // namespace

RunControl::RunControl(net::Loop& loop, Registry& registry, const RunFiles& files,
                       RunControlOptions options)
    : loop_(loop),
      registry_(registry),
      files_(files),
      options_(std::move(options)),
      log_(options_.on_line),
      writes_(loop, registry, [this] { changed(); }),
      hooks_(loop,
             {.programs = options_.hooks,
              .limit = options_.hook_limit,
              .log = [this](LogLevel level, std::string text) { log(level, std::move(text)); }}),
      since_ns_(options_.unix_ns()),
      version_(static_cast<std::uint64_t>(to_ms(since_ns_))),
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
    return refusal(Kind::not_now, fmt::format("{}: {}", name(request.command),
                                              why_not(state_, request.command, run())));
  const bool begins = request.command == Command::configure || request.command == Command::start;
  if (row->via == state_ && row->to == RunState::halted) next_ = Next::halt;
  if (row->via == state_ && !begins) return std::nullopt; // that is under way
  const std::string command = std::exchange(command_, name(request.command));
  const std::string who = std::exchange(who_, request.who);
  auto refused = obey(request);
  if (refused) {
    command_ = command;
    who_ = who;
  } else {
    vetoed_.clear();
  }
  return refused;
}

std::optional<CommandRefusal> RunControl::obey(const CommandRequest& request) {
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
  const RunChanges changes =
      request.changes.value_or(and_start && set->name == set_ ? changes_ : RunChanges{});
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
  if (state_ == RunState::running) return std::nullopt; // it does already
  kind_ = request.kind;
  comment_ = request.comment;
  starter_ = request.who;
  if (state_ == RunState::halted) return configure(request, true);
  const bool as_before = request.configuration.empty() && !request.changes;
  if (state_ == RunState::configuring && as_before) {
    if (next_ == Next::configure) next_ = Next::start; // the old processes end first
    start_when_configured_ = true;
    return std::nullopt;
  }
  if (state_ == RunState::configuring) return configure(request, true);
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
  if (!alive()) return options_.on_ended();
  command_ = "^C";
  who_ = user_name();
  if (again)
    return end_run(executive::Request::abort, RunState::halting, Next::halt,
                   "aborted by a second ^C");
  if (state_ == RunState::running || state_ == RunState::starting) return stop(Next::halt);
  if (state_ == RunState::draining) next_ = Next::halt;
  if (state_ == RunState::draining || state_ == RunState::halting) return;
  end_run(executive::Request::stop, RunState::halting, Next::halt,
          "never started: run control was ended");
}

// --- the life of a run ---------------------------------------------------------------------------

Result<> RunControl::begin_run(ReadSet read, const ConfigurationSet& set, const RunChanges& changes,
                               const std::string& who) {
  json::Value control = json::Object{{"set", set.name}, {"changes", changes.to_json()}};
  const auto reserved =
      FANIN_TRY(reserve_run(registry_, read.configurations, read.used, who, std::move(control)));
  run_ = ActiveRun::reserved(reserved, std::move(read), set, changes, who);
  run_->heard = loop_.now();
  history_.begin_run();
  next_ = Next::decide;
  auto process = RunProcess::start(loop_, files_, run_->number,
                                   run_->arguments(options_.program, set, options_.hosts),
                                   run_->status->read().used, handlers());
  if (!process) {
    (void)import_end(process.error().text);
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
  const std::string who = who_.empty() && run_ ? run_->who : who_;
  const auto begun = begin_run(std::move(*read), *set, changes_, who);
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
  command_ = name(Command::start);
  if (!starter_.empty()) run_->who = starter_;
  who_ = run_->who;
  if (!kind_.empty()) run_->kind = kind_;
  writes_.add([number, kind = run_->kind, who = who_](Registry& registry) {
    return registry.started(number, kind, who);
  });
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
  hooks_.run(HookMoment::before_stop, about(), [this, number = run()](const std::string&) {
    if (alive() && run() == number && state_ == RunState::draining)
      run_->process->request(executive::Request::stop);
  });
}

json::Value RunControl::about() const {
  json::Value about = run_ ? run_->about() : json::Value{};
  about["state"] = name(state_);
  about["asked_by"] = who_;
  if (run_ && last_ && last_->number == run_->number) about["reason"] = last_->reason;
  return about;
}

void RunControl::tell_hook(HookMoment moment, const std::function<void()>& done) {
  hooks_.run(moment, about(), [done](const std::string&) {
    if (done) done();
  });
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
  if (run_->end_reason.empty()) run_->end_reason = reason;
  run_->process->request(request);
  if (state_ != via) enter(via);
}

RunProcess::Handlers RunControl::handlers() {
  return {.on_report = [this](const json::Value& report) { on_report(report); },
          .on_end = [this](const std::string& how) { on_end(how); }};
}

void RunControl::on_report(const json::Value& report) {
  run_->heard = loop_.now();
  const std::string kind = report.at("report").text();
  if (kind.empty()) run_->log_again_ns = run_->log_until_ns; // it is connected: what it has, again
  if (kind == "log") {
    const std::int64_t unix_ns = report.at("unix_ns").integer().value_or(0);
    if (unix_ns <= run_->log_again_ns) return;
    run_->log_until_ns = unix_ns;
    return log_.add(report, run_->number, run_->status->read().used.size() > 1);
  }
  if (kind == "run_end") run_->end = end_of(report);
  RunStatus& status = *run_->status;
  status.on_report(report, loop_.now());
  if (state_ == RunState::configuring && next_ == Next::decide && status.ready()) {
    enter(RunState::configured);
    if (start_when_configured_) release();
  } else if (state_ == RunState::configured && !status.ready() && !run_->released) {
    enter(RunState::configuring);
  }
  // An earlier run control has started it, and could not record that.
  const bool waits = state_ == RunState::configuring || state_ == RunState::configured;
  if (waits && next_ == Next::decide && status.known() && !status.held()) {
    run_->released = true;
    enter(RunState::starting);
  }
  if (state_ == RunState::starting && unsure_ && status.known()) {
    unsure_ = false;
    run_->released = !status.held();
    if (status.ready()) return release();
    if (status.held()) {
      start_when_configured_ = true;
      enter(RunState::configuring);
    }
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
  ended_ = std::move(run_->process); // it is calling
  const RunEnd end = import_end(how.empty() ? "its launcher has ended, and has left no result"
                                            : fmt::format("its launcher died: {}", how));
  const bool ok = executive::succeeded(end.result);
  if (run_->released) last_ = LastRun{run_->number, end.reason, ok};
  const Next next = std::exchange(next_, Next::decide);
  if (ending_) enter(RunState::halted);
  const auto after_hook = [this, ends = ending_] { // a later ^C has another run to end
    if (ends) options_.on_ended();
  };
  const bool planned = next != Next::decide || (ok && state_ == RunState::draining);
  if (run_->released) {
    tell_hook(planned ? HookMoment::after_stop : HookMoment::unplanned_end, after_hook);
  } else {
    after_hook();
  }
  if (ending_) return;
  const bool asked = next == Next::halt || !run_->released;
  if (options_.repeat && run_->released && kind_.empty()) kind_ = run_->kind;
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

// Into the registry.
RunEnd RunControl::import_end(const std::string& otherwise) {
  RunEnd end = run_->take_end(files_, otherwise, options_.unix_ns(), log_);
  log(executive::succeeded(end.result) ? LogLevel::info : LogLevel::warning,
      fmt::format("run {} has ended: {}", run_->number, end.reason));
  writes_.add([this, number = run_->number, end](Registry& registry) -> Result<> {
    FANIN_TRY(registry.ended(number, end));
    files_.remove(number);
    return {};
  });
  return end;
}

// --- an earlier run control ----------------------------------------------------------------------

Result<> RunControl::take_over() {
  const auto left = FANIN_TRY(registry_.unfinished());
  for (const RunEntry& entry : left) {
    const auto states = FANIN_TRY(registry_.states(entry.number));
    const auto state = states.empty() ? std::nullopt : run_state_named(states.back().to);
    FANIN_TRY(adopt(entry, state.value_or(RunState::configuring)));
    if (alive()) continue;
    const RunEnd end = import_end("its launcher has ended while run control was not there, and has "
                                  "left no result");
    last_ = LastRun{entry.number, end.reason, executive::succeeded(end.result)};
    run_.reset();
  }
  if (!alive()) enter(RunState::halted);
  return {};
}

// run_ is the run, with its process if that lives. Errors: it lives, and cannot be led.
Result<> RunControl::adopt(const RunEntry& entry, RunState state) {
  run_ = ActiveRun::recorded(entry, state);
  run_->heard = loop_.now();
  auto found = RunProcess::find(loop_, files_, entry.number, handlers());
  if (!found && found.error().kind == ErrorKind::not_found) return {};
  if (!found) return std::unexpected(found.error());
  auto used = FANIN_TRY(registry_.configurations(entry.number));
  auto read = FANIN_TRY(read_again(std::move(used)));
  run_->status = std::make_unique<RunStatus>(std::move(read));
  run_->process = std::move(*found);
  if (find_set(run_->set) != nullptr) {
    set_ = run_->set;
    changes_ = run_->changes;
  }
  log(LogLevel::info, fmt::format("run {} goes on: run control leads it again", entry.number));
  state_ = state;
  since_ns_ = options_.unix_ns();
  history_.join_run();
  // It may have died before it could ask for that; twice does no harm.
  if (state == RunState::draining) run_->process->request(executive::Request::stop);
  if (state == RunState::halting) {
    next_ = Next::halt;
    run_->process->request(executive::Request::abort);
  }
  unsure_ = state == RunState::starting;
  return {};
}

// --- what is shown -------------------------------------------------------------------------------

void RunControl::enter(RunState state, const std::string& why) {
  const RunState before = std::exchange(state_, state);
  if (before == state) return;
  unsure_ = unsure_ && state == RunState::starting;
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
  if (!is_transient(state)) {
    command_.clear();
    who_.clear();
  }
  changed();
}

void RunControl::commented(RunNumber number, const std::string& text) {
  if (!run_ || run_->number != number) return;
  run_->comment = text;
  changed();
}

void RunControl::changed() {
  if (options_.on_change) options_.on_change();
}

void RunControl::log(LogLevel level, std::string text) {
  log_.add(level, std::move(text), run(), options_.unix_ns());
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
  if (!run_) return alarms;
  const auto more = run_->alarms(state_, loop_.now(), files_);
  alarms.insert(alarms.end(), more.begin(), more.end());
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
  status["changes"] = changes_.to_json();
  status["error"] = error_;
  status["vetoed"] = vetoed_;
  json::Value& commands = status["commands"] = json::Object{};
  for (const Command command : all_commands())
    commands[name(command)] = why_not(state_, command, run());
  const auto alarms = this->alarms();
  status["alarms"] = json::List(alarms.begin(), alarms.end());
  status["waiting_for"] = "";
  status["degraded"] = false;
  if (run_) run_->add_to(status, state_, history_.latest());
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
