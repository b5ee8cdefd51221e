// fanin bench: measures fanin beside bare loops and other libraries, in the same run.
#include "bench.hpp"

#include <CLI/CLI.hpp>

#include "commands.hpp"

namespace fanin::command {

void add_stolen_option(CLI::App& command, double& percent) {
  command
      .add_option("--stolen-max", percent,
                  "Percent of a round's time that other machines may take; a round above it is "
                  "dropped, counted and run again (5)")
      ->check(CLI::Range(0.0, 100.0));
}

void add_bench(CLI::App& app, int& status) {
  CLI::App* bench =
      app.add_subcommand("bench", "Measure, beside bare loops and other libraries in the same run");
  bench->require_subcommand(1);
  add_message_benches(*bench, status);
  add_evb(*bench, status);
}

} // namespace fanin::command
