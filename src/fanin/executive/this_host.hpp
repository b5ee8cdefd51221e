// Which part of a configuration this host runs, and whether it can.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/executive/memory_plan.hpp"

namespace fanin::executive {

// True for this host's name, short or full, a loopback name, one of its addresses, and for no name.
[[nodiscard]] FANIN_INTERNAL_API bool is_here(const std::string& host);

// Indices of the configuration's processes that are to run: the one called `name` or that holds the
// node of that name; with an empty name the one that Slurm gave this task (SLURM_PROCID, where
// there is one task for each process), else those of this host. Errors: usage, naming what there
// is.
[[nodiscard]] FANIN_INTERNAL_API Result<std::vector<std::size_t>>
processes_here(const config::Configuration& configuration, const std::string& name);

// Likewise for a launcher that starts them on other hosts: the named one, or all. Errors: usage.
[[nodiscard]] FANIN_INTERNAL_API Result<std::vector<std::size_t>>
processes_elsewhere(const config::Configuration& configuration, const std::string& name);

// What can be wrong with a valid configuration before anything is started: plug-ins, addresses that
// no transport takes, settings of these nodes' sources and the files that those need, memory.
// Errors name file, line, key and reason. Returns the memory of each node of the configuration.
[[nodiscard]] FANIN_INTERNAL_API Result<std::vector<NodePlan>>
check_here(const config::Configuration& configuration, const std::vector<std::size_t>& nodes);

} // namespace fanin::executive
