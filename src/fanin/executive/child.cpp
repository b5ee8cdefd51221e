#include "fanin/executive/child.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/descriptor.hpp"
#include "fanin/executive/signals.hpp"

namespace fanin::executive {

double cpu_seconds(const rusage& usage) {
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

namespace {

constexpr int pipe_bytes = 1 << 20;

// In the child: only calls that are safe after fork.
[[noreturn]] void become(const std::vector<char*>& arguments, int input, int report_descriptor,
                         pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1); // it died in between
  setpgid(0, 0);
  dup2(input, STDIN_FILENO);
  fcntl(report_descriptor, F_SETFD, 0);
  execv("/proc/self/exe", arguments.data());
  _exit(127);
}

// A file in memory that can be read from its beginning.
Result<Descriptor> input_with(const std::string& text) {
  Descriptor file(memfd_create("fanin-input", MFD_CLOEXEC));
  if (!file) return fail_errno(ErrorKind::exhausted, "memfd_create", errno);
  if (pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    return fail_errno(ErrorKind::exhausted, "memory for the input of a process", errno);
  return file;
}

class ForkedChild final : public Child {
public:
  ForkedChild(pid_t pid, Handlers handlers);
  ~ForkedChild() override;
  [[nodiscard]] Result<> watch(net::Loop& loop, Descriptor reports);
  [[nodiscard]] pid_t pid() const override { return pid_; }
  void signal(int number) override {
    if (alive()) kill(pid_, number); // not collected yet, so the number is still its own
  }

private:
  class Reports;
  class Death;
  void finish();

  pid_t pid_;
  Handlers handlers_;
  std::unique_ptr<Reports> reports_;
  std::unique_ptr<Death> death_;
};

// The lines that it writes.
class ForkedChild::Reports final : public net::Service {
public:
  Reports(net::Loop& loop, Descriptor descriptor, ForkedChild& child)
      : loop_(loop), descriptor_(std::move(descriptor)), child_(child) {
    loop_.add(*this);
  }
  ~Reports() override { end(); }
  [[nodiscard]] int descriptor() const override { return descriptor_.get(); }
  bool poll() override {
    if (ended_) return false;
    std::array<char, 65536> buffer; // NOLINT: read() fills it
    const ssize_t got = read(descriptor_.get(), buffer.data(), buffer.size());
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
      end();
      return false;
    }
    text_.append(buffer.data(), static_cast<std::size_t>(got));
    std::size_t at = 0;
    for (auto end = text_.find('\n'); end != std::string::npos; end = text_.find('\n', at)) {
      const auto report = json::Value::parse(std::string_view{text_}.substr(at, end - at));
      at = end + 1;
      if (report) child_.handlers_.on_report(*report);
    }
    text_.erase(0, at);
    return true;
  }

private:
  void end() { // at its end a pipe stays readable
    if (!ended_) loop_.remove(*this);
    ended_ = true;
  }

  net::Loop& loop_;
  Descriptor descriptor_;
  ForkedChild& child_;
  std::string text_;
  bool ended_ = false;
};

// A descriptor that becomes readable when it has ended.
class ForkedChild::Death final : public net::Service {
public:
  Death(net::Loop& loop, Descriptor descriptor, ForkedChild& child)
      : loop_(loop), descriptor_(std::move(descriptor)), child_(child) {
    loop_.add(*this);
  }
  ~Death() override { end(); }
  [[nodiscard]] int descriptor() const override { return descriptor_.get(); }
  bool poll() override {
    siginfo_t info{};
    const bool ended =
        waitid(P_PID, static_cast<id_t>(child_.pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == child_.pid_;
    if (ended_ || !ended) return false;
    end();
    child_.finish();
    return false;
  }

private:
  void end() { // it stays readable
    if (!ended_) loop_.remove(*this);
    ended_ = true;
  }

  net::Loop& loop_;
  Descriptor descriptor_;
  ForkedChild& child_;
  bool ended_ = false;
};

ForkedChild::ForkedChild(pid_t pid, Handlers handlers)
    : pid_(pid), handlers_(std::move(handlers)) {}

Result<> ForkedChild::watch(net::Loop& loop, Descriptor reports) {
  reports_ = std::make_unique<Reports>(loop, std::move(reports), *this);
  Descriptor death(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (!death) return fail_errno(ErrorKind::unsupported, "pidfd_open", errno);
  fcntl(death.get(), F_SETFD, FD_CLOEXEC);
  death_ = std::make_unique<Death>(loop, std::move(death), *this);
  return {};
}

ForkedChild::~ForkedChild() {
  reports_.reset();
  death_.reset();
  if (!alive()) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ForkedChild::finish() {
  while (reports_->poll()) { // what it wrote before its end
  }
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
  if (signal == 0) return fmt::format("exit status {}", status);
  return fmt::format("killed by signal {} ({})", signal, strsignal(signal));
}

Result<std::unique_ptr<Child>> ForkedChildren::start(std::vector<std::string> arguments,
                                                     const std::string& input,
                                                     Child::Handlers handlers) {
  const auto to_input = input_with(input);
  if (!to_input) return std::unexpected(to_input.error());
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno(ErrorKind::exhausted, "pipe", errno);
  Descriptor to_read(ends[0]);
  Descriptor to_write(ends[1]);
  fcntl(to_read.get(), F_SETFL, O_NONBLOCK);
  fcntl(to_write.get(), F_SETPIPE_SZ, pipe_bytes); // a wish
  arguments.emplace_back("--report-fd");
  arguments.push_back(fmt::format("{}", to_write.get()));
  std::vector<char*> pointers;
  for (auto& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(pointers, to_input->get(), to_write.get(), parent);
  if (pid < 0) return fail_errno(ErrorKind::exhausted, "fork", errno);
  to_write.reset(); // so that its end is seen
  auto child = std::make_unique<ForkedChild>(pid, std::move(handlers));
  if (auto watched = child->watch(loop_, std::move(to_read)); !watched)
    return std::unexpected(watched.error());
  return child;
}

void ForkedChildren::tell_of_death(const Child& child, std::uint64_t session) {
  executive::tell_of_death(child.pid(), session);
}

} // namespace fanin::executive
