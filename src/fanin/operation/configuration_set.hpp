// What `fanin serve` was given: configurations, of which those of two stages run together.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/operation/registry.hpp"

namespace fanin::operation {

// What a user changes for a run.
struct RunChanges {
  std::string duration;
  std::string events;
  std::vector<std::string> set; // KEY=VALUE
  std::vector<std::string> without; // sources

  // The options of `fanin run` for them.
  [[nodiscard]] std::vector<std::string> options() const;
  [[nodiscard]] json::Value to_json() const;
  [[nodiscard]] static RunChanges from(const json::Value& value);
};

// Files that run together: one, or those of two stages.
struct ConfigurationSet {
  std::string name; // the file's without folder and ending; of two stages those of all, "a+b"
  std::vector<std::string> files; // absolute
};

// What a set says at one time.
struct ReadSet {
  std::vector<UsedConfiguration> used;
  std::vector<config::Configuration> configurations;
  std::vector<std::string> names; // as reports have them; one configuration: empty
};

// The sets of these files. Errors: a file cannot be read; usage: two of the same name.
[[nodiscard]] Result<std::vector<ConfigurationSet>> make_sets(std::span<const std::string> files);

// Reads the files of a set anew. Errors: usage, one line with file, line, key and reason.
[[nodiscard]] Result<ReadSet> read_set(const ConfigurationSet& set, const RunChanges& changes);
// The same from what the registry has kept. Errors: likewise.
[[nodiscard]] Result<ReadSet> read_again(std::vector<UsedConfiguration> used);

} // namespace fanin::operation
