// What a figure was measured on.
#pragma once

#include <string>

#include "fanin/base/json.hpp"

namespace fanin::bench {

// Processor, cores, kernel, memory, fanin's version, commit and flags, load before the start.
[[nodiscard]] json::Value describe_machine();

// Cores that this process may use.
[[nodiscard]] unsigned usable_cores();

} // namespace fanin::bench
