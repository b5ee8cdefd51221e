#include "fanin/base/owning_process.hpp"

#include <unistd.h>

namespace fanin {

OwningProcess::OwningProcess() : id_(getpid()) {}

bool OwningProcess::is_current() const { return id_ == getpid(); }

} // namespace fanin
