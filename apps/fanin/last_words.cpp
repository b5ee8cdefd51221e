#include "last_words.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
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

// In a signal handler, which may not allocate. In one go: others write there, too.
void say_last_words() {
  const std::string_view call = executive::plugin_call();
  if (call.empty() || has_said != 0) return;
  has_said = 1;
  std::array<char, executive::plugin_call_max + end_of_line.size()> line;
  char* const end = std::ranges::copy(end_of_line, std::ranges::copy(call, line.data()).out).out;
  static_cast<void>(
      !write(STDERR_FILENO, line.data(), static_cast<std::size_t>(end - line.data())));
}

// Then it goes on as without this handler: the fault comes again.
void on_fault(int signal, siginfo_t* info, void* /*context*/) {
  say_last_words();
  for (std::size_t i = 0; i < faults.size(); ++i)
    if (faults[i] == signal) sigaction(signal, &earlier_actions[i], nullptr);
  if (info->si_code <= 0) raise(signal); // it was sent
}

void on_call_to_end(int signal) {
  say_last_words();
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

// A plug-in that calls exit() decides nothing about the exit status.
void on_exit_within() {
  if (executive::plugin_call().empty()) return;
  say_last_words();
  _exit(status_failed);
}

} // namespace

void name_plugins_that_end_this_process() {
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
  std::atexit(on_exit_within);
}

} // namespace fanin::command
