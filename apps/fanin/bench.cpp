// fanin bench: measures fanin beside bare loops and other libraries, in the same run.
#include "bench.hpp"

#include <CLI/CLI.hpp>

#include "commands.hpp"

namespace fanin::command {

void add_bench(CLI::App& app, int& status) {
  CLI::App* bench =
      app.add_subcommand("bench", "Measure, beside bare loops and other libraries in the same run");
  bench->require_subcommand(1);
  add_message_benches(*bench, status);
  add_evb(*bench, status);
}

} // namespace fanin::command
