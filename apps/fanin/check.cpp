// fanin check CONFIG...: validates configurations and prints what they would start.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/base/try.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/config/stages.hpp"
#include "fanin/executive/describe.hpp"
#include "fanin/executive/this_host.hpp"
#include "plugin_end_report.hpp"
#include "terminal.hpp"

namespace fanin::command {
namespace {

using Configurations = std::vector<config::Configuration>;

// What would be started; several configurations are two stages.
Result<std::string> description_of(const Configurations& configurations) {
  if (configurations.size() > 1) FANIN_TRY(config::fit_stages(configurations));
  std::string text;
  for (const config::Configuration& configuration : configurations) {
    std::vector<std::size_t> nodes;
    for (std::size_t i = 0; i < configuration.nodes.size(); ++i) {
      if (executive::is_here(configuration.nodes[i].host)) nodes.push_back(i);
    }
    const auto plans = FANIN_TRY(executive::check_here(configuration, nodes));
    if (!text.empty()) text += "\n";
    text += executive::describe(configuration, plans);
  }
  return text;
}

Result<int> check(const std::vector<std::string>& paths,
                  const std::vector<std::string>& overrides) {
  const PluginEndReport end_report;
  Configurations configurations;
  for (const std::string& path : paths) {
    auto configuration = FANIN_TRY(config::load(path, overrides));
    configurations.push_back(std::move(configuration));
  }
  const std::string text = FANIN_TRY(description_of(configurations));
  print(text);
  return status_done;
}

} // namespace

void add_check(CLI::App& app, int& status) {
  struct Options {
    std::vector<std::string> configurations;
    std::vector<std::string> overrides;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("check", "Validate a configuration and print what it would start");
  command
      ->add_option("CONFIG", options->configurations,
                   "Configuration (TOML); several: two stages of event building")
      ->required();
  command->add_option("--set", options->overrides, "KEY=VALUE: override one key")
      ->take_all()
      ->allow_extra_args(false);
  command->callback([options, &status] {
    status = status_of(check(options->configurations, options->overrides));
  });
}

} // namespace fanin::command
