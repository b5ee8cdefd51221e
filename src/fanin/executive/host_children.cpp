#include "fanin/executive/host_children.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/printable.hpp"
#include "fanin/base/try.hpp"
#include "fanin/executive/child_input.hpp"
#include "fanin/executive/host_process.hpp"
#include "fanin/executive/line_output.hpp"
#include "fanin/executive/report_pipe.hpp"
#include "fanin/executive/signals.hpp"

namespace fanin::executive {
namespace {

constexpr Duration kill_patience = std::chrono::seconds{2}; // of a host that was told to kill
constexpr std::size_t line_shown = 300;

class HostChild final : public Child {
public:
  HostChild(net::Loop& loop, const Host& host, Handlers handlers, const LogFunction& log)
      : loop_(loop),
        host_(host),
        handlers_(std::move(handlers)),
        log_(log),
        too_late_([this] {
          exit_.why = fmt::format("{} does not answer", host_.text());
          end_command();
        }),
        kill_command_([this] {
          exit_.why = fmt::format("{} does not answer any more", host_.text());
          end_command();
        }) {}

  ~HostChild() override {
    requests_.reset(); // with its standard input the process there ends, and what it has started
    if (!alive()) return;
    end_command();
    waitpid(pid_, nullptr, 0);
  }

  [[nodiscard]] Result<> begin(HostProcess process, json::Value start, Duration patience) {
    pid_ = process.pid;
    requests_ = std::make_unique<LineOutput>(loop_, std::move(process.input));
    lines_ = std::make_unique<LineInput>(loop_, std::move(process.output),
                                         [this](std::string_view line) { on_line(line); });
    errors_ = std::make_unique<LineInput>(loop_, std::move(process.errors),
                                          [this](std::string_view line) { on_error(line); });
    end_ = FANIN_TRY(ProcessEnd::make(loop_, pid_, [this] { finish(); }));
    too_late_.start(loop_, loop_.now() + patience);
    requests_->send(json::Object{{"start", std::move(start)}});
    return {};
  }

  [[nodiscard]] pid_t pid() const override { return pid_; }
  void stop() override { ask("stop", true); }
  void kill() override {
    ask("kill", true);
    if (alive()) kill_command_.start(loop_, loop_.now() + kill_patience);
  }
  void request(Request request) override { ask("request", name(request)); }
  void tell_of_death(std::uint64_t session) { ask("death", session); }

private:
  void ask(const char* key, const json::Value& what) {
    if (!alive()) return;
    requests_->send(json::Object{{key, what}});
  }

  void on_line(std::string_view text) {
    const auto line = json::Value::parse(text);
    if (!line || !line->is_object()) return; // what a shell there says on its own
    if (line->find("fanin") != nullptr) {
      too_late_.cancel();
      answered_ = true;
      if (const auto wrong = wrong_greeting(*line); !wrong.empty()) refuse(wrong);
    } else if (line->find("refused") != nullptr) {
      refuse(printable(line->at("refused").text(), line_shown));
    } else if (const json::Value* exit = line->find("exit")) {
      exited_ = true;
      exit_.status = static_cast<int>(exit->at("status").integer().value_or(-1));
      exit_.signal = static_cast<int>(exit->at("signal").natural());
      exit_.peak_rss_bytes = exit->at("peak_rss_bytes").natural();
      exit_.cpu_s = exit->at("cpu_s").real();
    } else if (answered_ && line->find("report") != nullptr) {
      handlers_.on_report(*line);
    }
  }

  void refuse(const std::string& why) {
    exit_.why = fmt::format("{}: {}", host_.text(), why);
    end_command();
  }

  void on_error(std::string_view line) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
    last_error_ = printable(line, line_shown);
    if (!answered_) lines_->read_rest(); // it may have answered since they were read
    if (answered_) log_(LogLevel::warning, fmt::format("host {}: {}", host_.name(), last_error_));
  }

  void end_command() const {
    if (alive()) ::kill(pid_, SIGKILL); // not collected yet, so the number is still its own
  }

  void finish() {
    lines_->read_rest();
    errors_->read_rest();
    lines_.reset(); // of the command there may be processes that outlive it, and go on writing
    errors_.reset();
    requests_.reset(); // its standard input ends, should it outlive the command that reached it
    too_late_.cancel();
    kill_command_.cancel();
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    if (!exited_) {
      exit_.status = -1;
      if (exit_.why.empty() && answered_)
        exit_.why = fmt::format("the connection to {} has ended{}{}", host_.text(),
                                last_error_.empty() ? "" : ": ", last_error_);
      if (exit_.why.empty()) exit_.why = why_unreachable(host_, status, last_error_);
    }
    handlers_.on_exit(exit_);
  }

  net::Loop& loop_;
  const Host& host_;
  Handlers handlers_;
  const LogFunction& log_;
  pid_t pid_ = 0;
  std::unique_ptr<LineOutput> requests_;
  std::unique_ptr<LineInput> lines_;
  std::unique_ptr<LineInput> errors_;
  std::unique_ptr<ProcessEnd> end_;
  net::Timer too_late_; // until it answers
  net::Timer kill_command_;
  std::string last_error_;
  bool answered_ = false;
  bool exited_ = false; // and said how
  ChildExit exit_;
};

} // namespace

HostChildren::HostChildren(net::Loop& loop, const HostList& hosts, LogFunction log,
                           Duration patience)
    : loop_(loop), hosts_(hosts), log_(std::move(log)), patience_(patience) {}

HostChildren::~HostChildren() = default;

Result<std::unique_ptr<Child>> HostChildren::start(std::size_t place,
                                                   std::vector<std::string> arguments,
                                                   const std::string& input,
                                                   Child::Handlers handlers) {
  const Host& host = hosts_.hosts.at(place);
  auto started = FANIN_TRY(start_on(host));
  json::Value start;
  std::error_code error;
  start["folder"] = std::filesystem::current_path(error).string();
  for (auto& argument : arguments) start["arguments"].append(std::move(argument));
  start["input"] = input;
  auto child = std::make_unique<HostChild>(loop_, host, std::move(handlers), log_);
  FANIN_TRY(child->begin(std::move(started), std::move(start), patience_));
  return child;
}

void HostChildren::tell_of_death(Child& child, std::uint64_t session) {
  static_cast<HostChild&>(child).tell_of_death(session); // all of them are from start()
}

Result<> serve_process(const json::Value& start) {
  const std::string folder = start.at("folder").text();
  if (chdir(folder.c_str()) != 0)
    return fail_errno(ErrorKind::not_found,
                      fmt::format("folder {}, in which the launcher runs", folder), errno);
  std::vector<std::string> arguments;
  for (const auto& argument : start.at("arguments").list()) arguments.push_back(argument.text());
  if (arguments.empty()) return fail(ErrorKind::malformed, "no arguments");
  const MonotonicClock clock;
  net::Loop loop(clock);
  ReportPipe output(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  ForkedChildren children(loop);
  std::unique_ptr<Child> child;
  StopRequests stop_requests(SignalsFrom::launcher_or_first); // the launcher's come as lines
  const auto on_signal = [&](const StopSignal& signal) {
    if (!stop_requests.take(signal, loop.now())) return;
    child->stop();
    fmt::print(stderr, "received a signal: stopping the process\n");
  };
  const auto signals = FANIN_TRY(Signals::make(loop, {.on_signal = on_signal, .on_death = {}}));
  child = FANIN_TRY(
      children.start(0, std::move(arguments), start.at("input").text(),
                     {.on_report = [&output](const json::Value& report) { output.write(report); },
                      .on_exit =
                          [&](const ChildExit& exit) {
                            output.write(json::Object{
                                {"exit", json::Object{{"status", exit.status},
                                                      {"signal", exit.signal},
                                                      {"peak_rss_bytes", exit.peak_rss_bytes},
                                                      {"cpu_s", exit.cpu_s}}}});
                            loop.stop();
                          }}));
  const auto on_line = [&](std::string_view text) {
    const auto line = json::Value::parse(text);
    if (!line || !child->alive()) return;
    if (line->find("stop") != nullptr && stop_requests.take({.by_launcher = true}, loop.now()))
      child->stop();
    if (line->find("kill") != nullptr) child->kill();
    if (const auto request = request_of(*line)) child->request(*request);
    if (line->find("death") != nullptr) children.tell_of_death(*child, line->at("death").natural());
  };
  fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
  const LineInput input(loop, Descriptor(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)), on_line,
                        [&loop] { loop.stop(); });
  loop.run();
  return {};
}

} // namespace fanin::executive
