#include "fanin/executive/signals.hpp"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

namespace fanin::executive {
namespace {

// To look costs a system call, and while there is work there are none: now and then, and after
// sleeping.
constexpr std::uint32_t polls_per_look = 64;

sigset_t ours() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGHUP);
  return set;
}

} // namespace

Result<std::unique_ptr<Signals>> Signals::make(net::Loop& loop,
                                               std::function<void(pid_t)> on_signal) {
  const sigset_t set = ours();
  Descriptor descriptor(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!descriptor) return fail_errno(ErrorKind::exhausted, "signalfd", errno);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return std::unique_ptr<Signals>(new Signals(loop, std::move(on_signal), std::move(descriptor)));
}

Signals::Signals(net::Loop& loop, std::function<void(pid_t)> on_signal, Descriptor descriptor)
    : loop_(loop), on_signal_(std::move(on_signal)), descriptor_(std::move(descriptor)) {
  loop_.add(*this);
}

Signals::~Signals() { loop_.remove(*this); }

bool Signals::poll() {
  if (!std::exchange(look_, false) && ++polls_ % polls_per_look != 0) return false;
  signalfd_siginfo info{};
  if (read(descriptor_.get(), &info, sizeof info) != ssize_t{sizeof info}) return false;
  on_signal_(static_cast<pid_t>(info.ssi_pid));
  return true;
}

bool Signals::arm() {
  look_ = true;
  return true;
}

} // namespace fanin::executive
