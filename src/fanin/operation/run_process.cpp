#include "fanin/operation/run_process.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/try.hpp"
#include "fanin/executive/child.hpp"

namespace fanin::operation {
namespace {

constexpr Duration connect_pause = std::chrono::seconds{1};

void close_range_of(unsigned first, unsigned last) {
  if (first <= last) syscall(SYS_close_range, first, last, 0);
}

// In the child: only calls that are safe after fork.
[[noreturn]] void exec_launcher(const std::vector<char*>& arguments, int input, int listener,
                                int nowhere, int errors) {
  setsid();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(number, SIG_DFL);
  dup2(input, STDIN_FILENO);
  dup2(nowhere, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  fcntl(listener, F_SETFD, 0);
  const auto kept = static_cast<unsigned>(listener);
  close_range_of(3, kept - 1);
  close_range_of(kept + 1, ~0U);
  execv("/proc/self/exe", arguments.data());
  _exit(127);
}

} // namespace

RunProcess::RunProcess(net::Loop& loop, const RunFiles& files, RunNumber run, Handlers handlers)
    : loop_(loop),
      files_(files),
      run_(run),
      handlers_(std::move(handlers)),
      connect_later_([this] { connect_again(); }),
      end_later_([this] { handlers_.on_end(how_); }) {}

RunProcess::~RunProcess() {
  if (started_ || child_ <= 0) return;
  exit_.reset();
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
}

Result<std::unique_ptr<RunProcess>> RunProcess::start(net::Loop& loop, const RunFiles& files,
                                                      RunNumber run,
                                                      std::vector<std::string> arguments,
                                                      const std::vector<UsedConfiguration>& used,
                                                      Handlers handlers) {
  json::Value texts = json::Object{}; // by file
  for (const UsedConfiguration& one : used) texts[one.name] = one.text;
  const Descriptor input = FANIN_TRY(executive::input_with(texts.dump()));
  files.remove(run); // of another registry that was here
  const Descriptor listener = FANIN_TRY(files.listen_for(run));
  const Descriptor nowhere(open("/dev/null", O_RDWR | O_CLOEXEC));
  const std::string error_file = files.error_file(run);
  const Descriptor errors(
      open(error_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  if (!nowhere || !errors) return fail_errno(ErrorKind::refused, error_file, errno);
  arguments.insert(arguments.end(), {"--control-fd", fmt::format("{}", listener.get()),
                                     "--control-end", files.end_file(run)});
  const auto pointers = executive::pointers_to(arguments);
  std::unique_ptr<RunProcess> process(new RunProcess(loop, files, run, std::move(handlers)));
  RunProcess& self = *process;
  self.child_ = fork();
  if (self.child_ == 0)
    exec_launcher(pointers, input.get(), listener.get(), nowhere.get(), errors.get());
  if (self.child_ < 0) return fail_errno(ErrorKind::exhausted, "fork", errno);
  self.exit_ = FANIN_TRY(executive::ProcessEnd::make(loop, self.child_, [&self] {
    int status = 0;
    waitpid(std::exchange(self.child_, 0), &status, 0);
    const executive::ChildExit exit{.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                                    .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
    if (self.input_) self.input_->read_rest();
    self.end(exit.status == 0 ? "" : exit.text());
  }));
  FANIN_TRY(self.connect());
  self.started_ = true;
  return process;
}

Result<std::unique_ptr<RunProcess>> RunProcess::find(net::Loop& loop, const RunFiles& files,
                                                     RunNumber run, Handlers handlers) {
  std::unique_ptr<RunProcess> process(new RunProcess(loop, files, run, std::move(handlers)));
  FANIN_TRY(process->connect());
  process->started_ = true;
  return process;
}

Result<> RunProcess::connect() {
  Descriptor connection = FANIN_TRY(files_.connect_to(run_));
  Descriptor copy(fcntl(connection.get(), F_DUPFD_CLOEXEC, 3));
  if (!copy) return fail_errno(ErrorKind::exhausted, "dup", errno);
  output_.emplace(loop_, std::move(copy));
  input_.emplace(
      loop_, std::move(connection),
      [this](std::string_view text) {
        if (const auto report = json::Value::parse(text)) handlers_.on_report(*report);
      },
      [this] { connect_later_.start(loop_, loop_.now()); });
  return {};
}

// The connection may have ended because this process stood still, and did not read.
void RunProcess::connect_again() {
  if (ended_) return;
  const auto connected = connect();
  if (connected) return;
  if (connected.error().kind != ErrorKind::not_found)
    return connect_later_.start(loop_, loop_.now() + connect_pause);
  if (child_ == 0) end(""); // of a child its exit is waited for
}

void RunProcess::end(const std::string& how) {
  FANIN_ASSERT(!ended_);
  ended_ = true;
  how_ = how;
  end_later_.start(loop_, loop_.now());
}

void RunProcess::request(executive::Request request) {
  if (output_) output_->send(executive::to_json(request));
}

} // namespace fanin::operation
