#include "fanin/base/testing/failing_calls.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "fanin/base/assert.hpp"

namespace fanin {
namespace {

struct Failing {
  FailingCalls::Kind kind;
  int error;
  int count = 0;
};
thread_local std::optional<Failing> failing;

bool fails(FailingCalls::Kind kind) {
  if (!failing || failing->kind != kind) return false;
  ++failing->count;
  errno = failing->error;
  return true;
}

} // namespace

FailingCalls::FailingCalls(Kind kind, int error) {
  FANIN_ASSERT(!failing);
  failing = {kind, error};
}
FailingCalls::~FailingCalls() { failing.reset(); }
int FailingCalls::count() const { return failing->count; }

} // namespace fanin

// Instead of those of the C library.
extern "C" {

int epoll_ctl(int epoll, int operation, int descriptor, epoll_event* event) noexcept {
  if (operation == EPOLL_CTL_ADD && fanin::fails(fanin::FailingCalls::Kind::watch)) return -1;
  return static_cast<int>(::syscall(SYS_epoll_ctl, epoll, operation, descriptor, event));
}

int bind(int socket, const sockaddr* address, socklen_t size) noexcept {
  if (fanin::fails(fanin::FailingCalls::Kind::bind)) return -1;
  return static_cast<int>(::syscall(SYS_bind, socket, address, size));
}

ssize_t recvmsg(int socket, msghdr* message, int flags) {
  if (fanin::fails(fanin::FailingCalls::Kind::receive)) return -1;
  if ((flags & MSG_PEEK) == 0 && fanin::fails(fanin::FailingCalls::Kind::take)) return -1;
  return ::syscall(SYS_recvmsg, socket, message, flags);
}

} // extern "C"
