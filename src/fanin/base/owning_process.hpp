/// \file
/// Which process an object belongs to. fork() copies the object, but not what it shares with other
/// processes: sockets, shared memory, devices. Those stay with the original.
#pragma once

#include <sys/types.h>

#include "fanin/base/export.hpp"

namespace fanin {

class FANIN_API OwningProcess {
public:
  OwningProcess(); ///< this one
  /// False in a process that fork() has made after this. Costs a system call.
  [[nodiscard]] bool is_current() const;

private:
  pid_t id_;
};

} // namespace fanin
