#include "fanin/operation/hooks.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/printable.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/executive/child.hpp"
#include "fanin/executive/child_input.hpp"

namespace fanin::operation {
namespace {

constexpr std::size_t output_kept = 4000; // bytes: the last ones

constexpr std::array moments{std::pair{HookMoment::before_start, "before-start"},
                             std::pair{HookMoment::after_start, "after-start"},
                             std::pair{HookMoment::before_stop, "before-stop"},
                             std::pair{HookMoment::after_stop, "after-stop"},
                             std::pair{HookMoment::unplanned_end, "unplanned-end"}};

// In the child: only calls that are safe after fork.
[[noreturn]] void exec_hook(const char* program, int input, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(number, SIG_DFL);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  syscall(SYS_close_range, 3U, ~0U, 0);
  execl(program, program, nullptr);
  _exit(127);
}

std::string last_line(const std::string& text) {
  const auto end = text.find_last_not_of(" \n\r\t");
  if (end == std::string::npos) return "";
  const auto begin = text.find_last_of('\n', end);
  return printable(text.substr(begin == std::string::npos ? 0 : begin + 1, end - begin));
}

} // namespace

std::string_view name(HookMoment moment) {
  return std::ranges::find(moments, moment, &decltype(moments)::value_type::first)->second;
}

std::optional<HookMoment> hook_moment_named(std::string_view name) {
  for (const auto& [moment, its_name] : moments) {
    if (name == its_name) return moment;
  }
  return std::nullopt;
}

// One that runs: reads what it writes, so that it does not wait for that.
class Hooks::Running final : public net::Service {
public:
  Running(Hooks& hooks, HookMoment moment, Done done)
      : hooks_(hooks), moment_(moment), done_(std::move(done)), limit_([this] {
          late_ = true;
          ::kill(-pid_, SIGKILL);
        }) {}
  ~Running() override {
    if (added_) hooks_.loop_.remove(*this);
    exit_.reset();
    if (pid_ <= 0) return;
    ::kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  [[nodiscard]] Result<> start(const std::string& program, const json::Value& about) {
    const Descriptor input = FANIN_TRY(executive::input_with(about.dump() + "\n"));
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno(ErrorKind::exhausted, "pipe", errno);
    output_ = Descriptor(ends[0]);
    const Descriptor to_write(ends[1]);
    fcntl(output_.get(), F_SETFL, O_NONBLOCK);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) exec_hook(program.c_str(), input.get(), to_write.get(), parent);
    if (pid_ < 0) return fail_errno(ErrorKind::exhausted, "fork", errno);
    setpgid(pid_, pid_); // so that it can be killed with what it has started
    exit_ = FANIN_TRY(executive::ProcessEnd::make(hooks_.loop_, pid_, [this] { on_exit(); }));
    hooks_.loop_.add(*this);
    added_ = true;
    limit_.start(hooks_.loop_, hooks_.loop_.now() + hooks_.options_.limit);
    return {};
  }

  [[nodiscard]] int descriptor() const override { return output_.get(); }
  bool poll() override {
    std::array<char, 65536> buffer; // NOLINT: read() fills it
    const ssize_t got = read(output_.get(), buffer.data(), buffer.size());
    if (got <= 0) {
      if (got == 0 && std::exchange(added_, false)) hooks_.loop_.remove(*this);
      return false;
    }
    text_.append(buffer.data(), static_cast<std::size_t>(got));
    if (text_.size() > output_kept) text_.erase(0, text_.size() - output_kept);
    return true;
  }
  [[nodiscard]] const Done& done() const { return done_; }
  [[nodiscard]] HookMoment moment() const { return moment_; }

private:
  void on_exit() {
    constexpr int reads_most = 16;
    for (int left = reads_most; left > 0 && added_ && poll();) --left;
    limit_.cancel();
    int status = 0;
    waitpid(pid_, &status, 0);
    ::kill(-pid_, SIGKILL); // what it has left behind
    pid_ = 0;
    const executive::ChildExit exit{.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                                    .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
    std::string why;
    if (late_) {
      why = fmt::format("it took longer than {}", format_duration(hooks_.options_.limit));
    } else if (exit.status == 127 && text_.empty()) {
      why = "it cannot be started: is it there, and may it be executed?";
    } else if (exit.status != 0) {
      why = last_line(text_);
      if (why.empty()) why = exit.text();
    }
    hooks_.end(this, why);
  }

  Hooks& hooks_;
  HookMoment moment_;
  Done done_;
  Descriptor output_;
  pid_t pid_ = 0;
  bool added_ = false;
  bool late_ = false;
  std::string text_;
  std::unique_ptr<executive::ProcessEnd> exit_;
  net::Timer limit_;
};

Hooks::Hooks(net::Loop& loop, Options options) : loop_(loop), options_(std::move(options)) {}
Hooks::~Hooks() = default;

void Hooks::run(HookMoment moment, const json::Value& about, Done done) {
  ended_.clear();
  const auto program = options_.programs.find(moment);
  if (program == options_.programs.end()) return done("");
  auto running = std::make_unique<Running>(*this, moment, std::move(done));
  Running* const started = running.get();
  running_[started] = std::move(running);
  json::Value all = about;
  all["moment"] = name(moment);
  if (const auto begun = started->start(program->second, all); !begun)
    end(started, begun.error().text);
}

void Hooks::end(const Running* running, const std::string& why) {
  auto node = running_.extract(running);
  ended_.push_back(std::move(node.mapped())); // it is in a callback of it
  const Running& ended = *ended_.back();
  if (!why.empty())
    options_.log(LogLevel::warning,
                 fmt::format("the hook {} ({}) has failed: {}", name(ended.moment()),
                             options_.programs.at(ended.moment()), why));
  const Done done = ended.done();
  done(why);
}

} // namespace fanin::operation
