// Human-readable description of what a configuration starts.
#pragma once

#include <span>
#include <string>

#include "fanin/base/export.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/executive/memory_plan.hpp"

namespace fanin::executive {

// Nodes with their addresses, sources and pools (`plans`, one for each node), and the sum of
// memory.
[[nodiscard]] FANIN_INTERNAL_API std::string describe(const config::Configuration& configuration,
                                                      std::span<const NodePlan> plans);

// Names the sources whose rate is unknown, so that their memory cannot be checked. Empty: none.
[[nodiscard]] FANIN_INTERNAL_API std::string
unknown_rates(const config::Configuration& configuration);

} // namespace fanin::executive
