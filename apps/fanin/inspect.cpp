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
};

Result<std::string> text_of(const Options& options) {
  if (options.event) {
    return storage::inspect_event(options.file, *options.event, options.dump_bytes);
  }
  const auto files = FANIN_TRY(storage::find_run_files({options.file}, executive::is_here));
  std::string text;
  const auto all = files.all();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto shown = storage::inspect_file(all[i]);
    const bool may_be_gone = i >= files.files.size();
    if (!shown && may_be_gone && shown.error().kind == ErrorKind::not_found) continue;
    if (!shown) return shown;
    text += (text.empty() ? "" : "\n") + *shown;
  }
  return text;
}

int inspect(const Options& options) {
  const auto text = text_of(options);
  if (!text) {
    (void)complain(text.error());
    return status_failed; // a file that is not there is not a wrong command
  }
  print(*text);
  return status_done;
}

} // namespace

void add_inspect(CLI::App& app, int& status) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("inspect", "Show a run file, or one event of it");
  command->add_option("FILE", options->file, "Run file, or a run's manifest")->required();
  command->add_option("--event", options->event, "The event with this number")
      ->check(natural_number(0));
  command->add_option("--bytes", options->dump_bytes, "Bytes to show of each fragment (64)");
  command->callback([options, &status] { status = inspect(*options); });
}

} // namespace fanin::command
