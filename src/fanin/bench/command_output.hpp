// What a command of the shell writes.
#pragma once

#include <string>

#include "fanin/base/result.hpp"

namespace fanin::bench {

// Blocks until the command has ended. Errors: exhausted: it cannot be started.
[[nodiscard]] Result<std::string> output_of(const std::string& command);

} // namespace fanin::bench
