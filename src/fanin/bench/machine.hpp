// What a figure was measured on.
#pragma once

#include <string>

#include "fanin/base/json.hpp"

namespace fanin::bench {

// Processor, cores, kernel, memory, fanin's version, commit and flags, load before the start.
[[nodiscard]] json::Value describe_machine();

} // namespace fanin::bench
