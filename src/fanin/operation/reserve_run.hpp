// Gives a run its number and its random id, from a registry.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fanin/base/identity.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/operation/registry.hpp"

namespace fanin::operation {

struct ReservedRun {
  RunNumber number = 0;
  std::uint64_t id = 0;
};

// The registry that configurations which run together name (run.registry); empty: none. Errors:
// usage, if they disagree.
[[nodiscard]] Result<std::string>
registry_of(std::span<const config::Configuration> configurations);

// Takes a number above all in the registry and in the folders of the run's files: the one that the
// configurations give, where one does. `used`: what they were read from. `control`: as in NewRun.
// Errors: those of the registry and of storage::RunNumbers; usage: the number was given before.
[[nodiscard]] Result<ReservedRun> reserve_run(Registry& registry,
                                              std::span<const config::Configuration> configurations,
                                              std::vector<UsedConfiguration> used,
                                              const std::string& who, json::Value control = {});

// Of whoever runs this; the number of one without a name.
[[nodiscard]] std::uint32_t user_number();
[[nodiscard]] std::string user_name();
[[nodiscard]] std::string user_name(std::uint32_t user);

} // namespace fanin::operation
