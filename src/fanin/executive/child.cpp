#include "fanin/executive/child.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/try.hpp"
#include "fanin/executive/child_input.hpp"
#include "fanin/executive/line_output.hpp"
#include "fanin/executive/signals.hpp"

namespace fanin::executive {

double cpu_seconds(const rusage& usage) {
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

namespace {

// In the child: only calls that are safe after fork.
[[noreturn]] void exec_child(const std::vector<char*>& arguments, int input,
                             const std::array<int, 2>& kept, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1); // it died in between
  setpgid(0, 0);
  // Blocked here, so that nothing is lost. What a plug-in starts finds them as usual.
  for (const int number : {SIGINT, SIGTERM}) std::signal(number, SIG_DFL);
  dup2(input, STDIN_FILENO);
  for (const int descriptor : kept) fcntl(descriptor, F_SETFD, 0);
  execv("/proc/self/exe", arguments.data());
  _exit(127);
}

class ForkedChild final : public Child {
public:
  ForkedChild(pid_t pid, Handlers handlers);
  ~ForkedChild() override;
  [[nodiscard]] Result<> watch(net::Loop& loop, Descriptor reports, Descriptor requests);
  [[nodiscard]] pid_t pid() const override { return pid_; }
  // Not collected yet, so the number is still its own.
  void stop() override {
    if (alive()) ask_to_stop(pid_);
  }
  void kill() override {
    if (alive()) ::kill(pid_, SIGKILL);
  }
  void request(Request request) override {
    if (alive()) requests_->send(to_json(request));
  }

private:
  void finish();

  pid_t pid_;
  Handlers handlers_;
  std::unique_ptr<LineInput> reports_;
  std::unique_ptr<LineOutput> requests_;
  std::unique_ptr<ProcessEnd> death_;
};

ForkedChild::ForkedChild(pid_t pid, Handlers handlers)
    : pid_(pid), handlers_(std::move(handlers)) {}

Result<> ForkedChild::watch(net::Loop& loop, Descriptor reports, Descriptor requests) {
  requests_ = std::make_unique<LineOutput>(loop, std::move(requests));
  reports_ = std::make_unique<LineInput>(loop, std::move(reports), [this](std::string_view line) {
    if (const auto report = json::Value::parse(line)) handlers_.on_report(*report);
  });
  death_ = FANIN_TRY(ProcessEnd::make(loop, pid_, [this] { finish(); }));
  return {};
}

ForkedChild::~ForkedChild() {
  reports_.reset();
  death_.reset();
  if (!alive()) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ForkedChild::finish() {
  reports_->read_rest();
  ChildExit exit;
  int status = 0;
  rusage usage{};
  wait4(pid_, &status, 0, &usage);
  pid_ = 0;
  exit.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  exit.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  exit.peak_rss_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  exit.cpu_s = cpu_seconds(usage);
  handlers_.on_exit(exit);
}

} // namespace

std::string ChildExit::text() const {
  if (!why.empty()) return why;
  if (signal == 0) return fmt::format("exit status {}", status);
  return fmt::format("killed by signal {} ({})", signal, strsignal(signal));
}

Result<std::unique_ptr<Child>> ForkedChildren::start(std::size_t /*process*/,
                                                     std::vector<std::string> arguments,
                                                     const std::string& input,
                                                     Child::Handlers handlers) {
  const auto to_input = FANIN_TRY(input_with(input));
  auto reports = FANIN_TRY(make_pipe());
  auto requests = FANIN_TRY(make_pipe());
  for (const Descriptor* const mine : {&reports.read, &requests.write})
    fcntl(mine->get(), F_SETFL, O_NONBLOCK);
  const std::array kept{reports.write.get(), requests.read.get()};
  arguments.insert(arguments.end(), {"--report-fd", fmt::format("{}", kept[0]), "--request-fd",
                                     fmt::format("{}", kept[1])});
  const auto pointers = pointers_to(arguments);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) exec_child(pointers, to_input.get(), kept, parent);
  if (pid < 0) return fail_errno(ErrorKind::exhausted, "fork", errno);
  reports.write.reset(); // so that its end is seen
  auto child = std::make_unique<ForkedChild>(pid, std::move(handlers));
  FANIN_TRY(child->watch(loop_, std::move(reports.read), std::move(requests.write)));
  return child;
}

void ForkedChildren::tell_of_death(Child& child, std::uint64_t session) {
  executive::tell_of_death(child.pid(), session);
}

} // namespace fanin::executive
