// fanin inspect FILE [--event N]: shows a run file, or one event of it or of a whole run.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/base/try.hpp"
#include "fanin/executive/this_host.hpp"
#include "fanin/storage/inspect.hpp"
#include "fanin/storage/manifest.hpp"
#include "reading.hpp"
#include "terminal.hpp"

namespace fanin::command {
namespace {

struct Options {
  std::string file;
  std::optional<EventNumber> event;
  std::size_t dump_bytes = 64;
  std::string json;
};

struct Shown {
  std::string text;
  json::Value files{json::List{}};
};

Result<Shown> show(const Options& options) {
  Shown all;
  if (options.event) {
    all.text = FANIN_TRY(storage::inspect_event(options.file, *options.event, options.dump_bytes));
    return all;
  }
  for (const auto& run : FANIN_TRY(storage::split_into_runs({options.file}))) {
    const auto files = FANIN_TRY(storage::find_run_files(run, executive::is_here));
    const auto paths = files.all();
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const auto shown = storage::inspect_file(paths[i]);
      const bool may_be_gone = i >= files.files.size();
      if (!shown && may_be_gone && shown.error().kind == ErrorKind::not_found) continue;
      if (!shown) return std::unexpected(shown.error());
      all.text += (all.text.empty() ? "" : "\n") + *shown;
      if (!options.json.empty()) all.files.append(FANIN_TRY(storage::describe_file(paths[i])));
    }
  }
  return all;
}

Result<int> inspect(const Options& options) {
  auto result_file = FANIN_TRY(OutputFile::open("--json", options.json));
  const auto shown = show(options);
  if (!shown) {
    (void)complain(shown.error());
    return status_failed; // a file that is not there is not a wrong command
  }
  if (options.json != "-") print(shown->text);
  FANIN_TRY(result_file.write_json(json::Object{{"files", shown->files}}));
  return status_done;
}

} // namespace

void add_inspect(CLI::App& app, int& status) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("inspect", "Show a run file, or one event of it");
  command->add_option("FILE", options->file, "Run file, a run's manifest, or a folder of runs")
      ->required();
  CLI::Option* const event =
      command->add_option("--event", options->event, "The event with this number")
          ->check(natural_number(0));
  command->add_option("--bytes", options->dump_bytes, "Bytes to show of each fragment (64)");
  command
      ->add_option("--json", options->json,
                   "Write what the files say to this file; - is standard output")
      ->excludes(event);
  command->callback([options, &status] { status = status_of(inspect(*options)); });
}

} // namespace fanin::command
