#include "fanin/simulation/configuration_file.hpp"

#include <fmt/format.h>

#include "fanin/base/try.hpp"

namespace fanin::simulation {
namespace {

// fabric.nodes is the number of readout units, and that of builder units.
Result<std::vector<std::string>> with_nodes(const settings::Value& root, std::uint32_t nodes,
                                            std::vector<std::string> overrides) {
  if (nodes == 0) return overrides;
  for (const char* table : {"readout", "builder"}) {
    const settings::Value* const found = root.find(table);
    if (found == nullptr)
      return fail(ErrorKind::usage,
                  fmt::format("there is no [[{}]]: a run needs one; the network alone is simulated "
                              "with --traffic",
                              table));
    if (found->items.size() != 1)
      return fail(ErrorKind::usage,
                  fmt::format("fabric.nodes needs one [[{}]], whose count it is: leave it out "
                              "where there are several",
                              table));
    overrides.push_back(fmt::format("{}.0.count={}", table, nodes));
  }
  return overrides;
}

} // namespace

Result<settings::Value> parse(const ConfigurationFile& file) {
  settings::Value root = FANIN_TRY(settings::parse_toml(file.text, file.name));
  std::uint32_t ordinal = 0;
  for (const std::string& override : file.overrides)
    FANIN_TRY(settings::override_value(root, override, ++ordinal));
  return root;
}

Result<config::Configuration> parse_run(const ConfigurationFile& file, const settings::Value& root,
                                        std::uint32_t nodes) {
  const auto overrides = FANIN_TRY(with_nodes(root, nodes, file.overrides));
  return config::parse(file.text, file.name, overrides);
}

} // namespace fanin::simulation
