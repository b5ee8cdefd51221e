/// \file
/// Several configurations that run together as two stages of event building: groups forward what
/// they merge to slices (docs/configuration.md, [slice]).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
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

} // namespace fanin::config
