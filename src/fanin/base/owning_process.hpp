/// \file
/// Which process an object belongs to. fork() copies the object, but not what it shares with other
/// processes: sockets, shared memory, devices. Those stay with the original.
#pragma once

#include <sys/types.h>
#include <unistd.h>

namespace fanin {

class OwningProcess {
public:
  /// False in a process that fork() has made after this. Costs a system call.
  [[nodiscard]] bool is_current() const { return id_ == ::getpid(); }

private:
  pid_t id_ = ::getpid();
};

} // namespace fanin
