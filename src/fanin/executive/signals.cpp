#include "fanin/executive/signals.hpp"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace fanin::executive {
namespace {

// A check costs a system call, and while there is work there are none: now and then, after
// sleeping, and while the next signal may be of the same burst.
constexpr std::uint32_t polls_per_check = 64;

int death_signal() { return SIGRTMIN; } // with the session as its value
int stop_signal() { return SIGRTMIN + 1; }

sigset_t ours() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  struct sigaction hangup{};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP); // else started by nohup: it stays so
  sigaddset(&set, death_signal());
  sigaddset(&set, stop_signal());
  return set;
}

} // namespace

void ask_to_stop(pid_t process) { (void)kill(process, stop_signal()); }

void tell_of_death(pid_t process, std::uint64_t session) {
  sigval value{};
  static_assert(sizeof value == sizeof session);
  std::memcpy(&value, &session, sizeof value);
  (void)sigqueue(process, death_signal(), value); // else it notices by itself, after network.grace
}

bool is_stop_pending() {
  sigset_t pending;
  sigpending(&pending);
  return std::ranges::any_of(std::array{SIGINT, SIGTERM, stop_signal()},
                             [&](int number) { return sigismember(&pending, number) == 1; });
}

bool StopRequests::counts(const StopSignal& signal, Time now) const {
  if (signal.by_launcher) return true;
  if (from_ != SignalsFrom::anyone) return false;
  return taken_ == 0 || (!signal.hangup && now >= first_at_ + burst_window);
}

bool StopRequests::take(const StopSignal& signal, Time now) {
  if (!signal.by_launcher && from_ == SignalsFrom::launcher) return false;
  if (counts(signal, now)) ++counted_;
  if (taken_ == 0) first_at_ = now;
  const int asked = std::max(counted_, 1);
  return asked > std::exchange(taken_, asked);
}

std::string ignored_text(const StopSignal& signal) {
  return fmt::format("ignoring a signal{}; launcher {} stops this process",
                     signal.sender > 0 ? fmt::format(" from process {}", signal.sender) : "",
                     getppid());
}

Result<std::unique_ptr<Signals>> Signals::make(net::Loop& loop, Handlers handlers) {
  const sigset_t set = ours();
  Descriptor descriptor(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!descriptor) return fail_errno(ErrorKind::exhausted, "signalfd", errno);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return std::unique_ptr<Signals>(new Signals(loop, std::move(handlers), std::move(descriptor)));
}

Signals::Signals(net::Loop& loop, Handlers handlers, Descriptor descriptor)
    : loop_(loop), handlers_(std::move(handlers)), descriptor_(std::move(descriptor)) {
  loop_.add(*this);
}

Signals::~Signals() { loop_.remove(*this); }

bool Signals::poll() {
  const bool looks = std::exchange(check_, false) || loop_.now() < look_until_;
  if (!looks && ++polls_ % polls_per_check != 0) return false;
  bool any = false;
  for (signalfd_siginfo info{}; read(descriptor_.get(), &info, sizeof info) == ssize_t{sizeof info};
       any = true)
    take(info);
  if (any) look_until_ = loop_.now() + StopRequests::burst_window;
  return any;
}

void Signals::take(const signalfd_siginfo& info) {
  const auto sender = static_cast<pid_t>(info.ssi_pid);
  const auto number = static_cast<int>(info.ssi_signo);
  if (number != death_signal()) {
    handlers_.on_signal({.by_launcher = number == stop_signal(),
                         .hangup = number == SIGHUP,
                         .interrupt = number == SIGINT,
                         .sender = sender});
  } else if (handlers_.on_death) {
    handlers_.on_death(sender, info.ssi_ptr);
  }
}

bool Signals::arm() {
  check_ = true;
  return true;
}

} // namespace fanin::executive
