// Threads on the processors that the configuration names, and how they share them.
#pragma once

#include <vector>

#include "fanin/base/result.hpp"

namespace fanin::executive {

// Keeps the calling thread, and those that it starts afterwards, on these processors. Errors: usage
// (there is no such processor, or this process may not use it).
[[nodiscard]] Result<> pin_thread(const std::vector<int>& cpus);

// The calling thread, and those that it starts afterwards, no longer take the processor from a
// thread that runs when they wake (SCHED_BATCH). Where processes of an event builder share cores,
// one would otherwise interrupt another for each message. No effect where a core is free.
void do_not_interrupt();

} // namespace fanin::executive
