// Threads on the processors that the configuration names.
#pragma once

#include <vector>

#include "fanin/base/result.hpp"

namespace fanin::executive {

// Keeps the calling thread, and those that it starts afterwards, on these processors. Errors: usage
// (there is no such processor, or this process may not use it).
[[nodiscard]] Result<> pin_thread(const std::vector<int>& cpus);

} // namespace fanin::executive
