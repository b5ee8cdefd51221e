// fanin check CONFIG: validates a configuration and prints what it would start.
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/executive/describe.hpp"
#include "fanin/executive/this_host.hpp"
#include "last_words.hpp"
#include "terminal.hpp"

namespace fanin::command {
namespace {

int check(const std::string& path, const std::vector<std::string>& overrides) {
  name_plugins_that_end_this_process();
  const auto configuration = config::load(path, overrides);
  if (!configuration) return complain(configuration.error());
  std::vector<std::size_t> nodes;
  for (std::size_t i = 0; i < configuration->nodes.size(); ++i) {
    if (executive::is_here(configuration->nodes[i].host)) nodes.push_back(i);
  }
  const auto plans = executive::check_here(*configuration, nodes);
  if (!plans) return complain(plans.error());
  print(executive::describe(*configuration, *plans));
  return status_done;
}

} // namespace

void add_check(CLI::App& app, int& status) {
  struct Options {
    std::string configuration;
    std::vector<std::string> overrides;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("check", "Validate a configuration and print what it would start");
  command->add_option("CONFIG", options->configuration, "Configuration (TOML)")->required();
  command->add_option("--set", options->overrides, "KEY=VALUE: override one key")
      ->take_all()
      ->allow_extra_args(false);
  command->callback(
      [options, &status] { status = check(options->configuration, options->overrides); });
}

} // namespace fanin::command
