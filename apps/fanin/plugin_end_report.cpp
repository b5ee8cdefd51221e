#include "plugin_end_report.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "commands.hpp"
#include "fanin/executive/plugin_call.hpp"

namespace fanin::command {
namespace {

constexpr std::array faults{SIGSEGV, SIGBUS, SIGFPE, SIGILL};
// abort(), and what a user sends who does not want to wait.
constexpr std::array calls_to_end{SIGABRT, SIGINT, SIGTERM, SIGQUIT};
std::array<struct sigaction, faults.size()>
    earlier_actions; // of faults: a sanitizer's, for example

volatile std::sig_atomic_t has_said = 0;
constexpr std::string_view end_of_line = " has not returned: this process ends\n";
constexpr std::string_view exit_line = "fanin: a plug-in or a library has called exit() or "
                                       "_exit(): this process ends without a result\n";
// This process, while it has work to do. One that a plug-in forks has another number, and may end
// as it likes.
std::atomic<pid_t> unfinished = 0;

// In one go: others write there, too.
void write_line(std::string_view line) {
  static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
}

// In a signal handler, which may not allocate.
void report_plugin_call() {
  const std::string_view call = executive::plugin_call();
  if (call.empty() || has_said != 0) return;
  has_said = 1;
  std::array<char, executive::plugin_call_max + end_of_line.size()> line;
  char* const end = std::ranges::copy(end_of_line, std::ranges::copy(call, line.data()).out).out;
  write_line({line.data(), end});
}

// Then it goes on as without this handler: the fault comes again.
void on_fault(int signal, siginfo_t* info, void* /*context*/) {
  report_plugin_call();
  for (std::size_t i = 0; i < faults.size(); ++i)
    if (faults[i] == signal) sigaction(signal, &earlier_actions[i], nullptr);
  if (info->si_code <= 0) raise(signal); // it was sent
}

void on_call_to_end(int signal) {
  report_plugin_call();
  std::signal(signal, SIG_DFL);
  raise(signal);
}

// The handler's, where the stack itself is what has no room left.
void make_stack() {
  alignas(16) static std::array<char, 64U << 10> memory;
  stack_t stack{};
  if (sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_DISABLE) == 0)
    return; // a sanitizer
  stack.ss_flags = 0;
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  sigaltstack(&stack, nullptr);
}

// The exit status of this process after exit() or _exit() with that status.
int status_after(int status) {
  if (getpid() != unfinished) return status;
  if (executive::plugin_call().empty()) {
    write_line(exit_line);
  } else {
    report_plugin_call();
  }
  return status_failed;
}

void on_exit_within() {
  if (getpid() == unfinished) _exit(status_done);
}

[[noreturn]] void end_process(int status) {
  while (true) syscall(SYS_exit_group, status_after(status));
}

void watch_signals() {
  make_stack();
  struct sigaction action{};
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  action.sa_sigaction = on_fault;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    sigaction(faults[i], &action, &earlier_actions[i]);
  }
  action.sa_flags = SA_NODEFER;
  action.sa_handler = on_call_to_end;
  for (const int signal : calls_to_end) {
    struct sigaction earlier{};
    sigaction(signal, nullptr, &earlier);
    if (earlier.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

} // namespace

PluginEndReport::PluginEndReport() {
  watch_signals();
  std::atexit(on_exit_within);
  std::at_quick_exit(on_exit_within);
  unfinished = getpid();
}

PluginEndReport::~PluginEndReport() { unfinished = 0; }

} // namespace fanin::command

// In place of the C library's, for plug-ins and libraries, which call no handler with them.
// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
extern "C" [[gnu::visibility("default")]] void _exit(int status) {
  fanin::command::end_process(status);
}
extern "C" [[gnu::visibility("default")]] void _Exit(int status) noexcept {
  fanin::command::end_process(status);
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
