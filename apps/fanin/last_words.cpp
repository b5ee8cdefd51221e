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

// Faults, and what a user sends who does not want to wait.
constexpr std::array signals{SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGINT, SIGTERM, SIGQUIT};
std::array<struct sigaction, signals.size()> earlier;

constexpr std::string_view verdict = " has not returned: this process ends\n";

// In a signal handler, which may not allocate. In one go: others write there, too.
void say_last_words() {
  const std::string_view call = executive::plugin_call();
  if (call.empty()) return;
  std::array<char, executive::plugin_call_max + verdict.size()> line;
  char* const end = std::ranges::copy(verdict, std::ranges::copy(call, line.data()).out).out;
  static_cast<void>(
      !write(STDERR_FILENO, line.data(), static_cast<std::size_t>(end - line.data())));
}

// Then it goes on as without this handler: a fault comes again, what was sent is sent again.
void on_end(int signal, siginfo_t* info, void* /*context*/) {
  say_last_words();
  for (std::size_t i = 0; i < signals.size(); ++i)
    if (signals[i] == signal) sigaction(signal, &earlier[i], nullptr);
  const bool by_its_code = signal != SIGINT && signal != SIGTERM && signal != SIGQUIT;
  if (!by_its_code || info->si_code <= 0) raise(signal);
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
  for (std::size_t i = 0; i < signals.size(); ++i) {
    struct sigaction action{};
    action.sa_sigaction = on_end;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigaction(signals[i], nullptr, &earlier[i]);
    if (earlier[i].sa_handler != SIG_IGN) sigaction(signals[i], &action, nullptr);
  }
  std::atexit(on_exit_within);
}

} // namespace fanin::command
