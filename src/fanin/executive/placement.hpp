// Threads on the processors that the configuration names, and how they share them.
#pragma once

#include <cstddef>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"

namespace fanin::executive {

// Whether this process may use them. Errors: usage.
[[nodiscard]] Result<> check_cpus(const std::vector<int>& cpus);

// Keeps the calling thread, and those that it starts afterwards, on these processors. Errors: usage
// (there is no such processor, or this process may not use it).
[[nodiscard]] Result<> pin_thread(const std::vector<int>& cpus);

// Processors that this process may use.
[[nodiscard]] FANIN_INTERNAL_API std::size_t usable_cores();

// If there are more processes than cores: schedules the calling process, and those that it starts
// afterwards, by SCHED_BATCH. Then a process that a message wakes does not take the core from
// another one that runs. Without that, processes interrupt each other for each message.
FANIN_INTERNAL_API void share_cores(std::size_t processes);

} // namespace fanin::executive
