/// \file
/// Several configurations that run together as two stages of event building: groups forward what
/// they merge to slices (docs/configuration.md, [slice]).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/result.hpp"
#include "fanin/config/configuration.hpp"

namespace fanin::config {

struct Stages {
  std::vector<std::size_t> groups; ///< which of the configurations are the first stage
  std::vector<std::size_t> slices; ///< the second
  std::optional<RunNumber> run; ///< that some of them give
};

/// Errors: usage, if the stages do not fit each other; one line with file, key and what to change.
[[nodiscard]] FANIN_INTERNAL_API Result<Stages>
fit_stages(std::span<const Configuration> configurations);

/// Overrides of each configuration for a run of all of them without the sources of these names. Of
/// a source of a group, the slices have to know. If no group has a name, it is one of the slices'.
/// Errors: usage; nobody has a name.
[[nodiscard]] FANIN_INTERNAL_API Result<std::vector<std::vector<std::string>>>
overrides_without(std::span<const Configuration> configurations,
                  std::span<const std::string> names);

} // namespace fanin::config
