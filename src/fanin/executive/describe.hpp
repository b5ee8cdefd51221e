// What a configuration would start, for people.
#pragma once

#include <string>

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/config/configuration.hpp"

namespace fanin::executive {

// Nodes with their addresses, sources and pools, and the sum of memory. Errors as of plan_memory.
[[nodiscard]] FANIN_INTERNAL_API Result<std::string>
describe(const config::Configuration& configuration);

// Says of which sources nobody knows the rate: whether their memory suffices is not checked. Empty:
// of none.
[[nodiscard]] FANIN_INTERNAL_API std::string
unknown_rates(const config::Configuration& configuration);

} // namespace fanin::executive
