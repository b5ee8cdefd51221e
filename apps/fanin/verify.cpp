// fanin verify FILE...: reads run files back and checks everything in them.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/base/counted.hpp"
#include "fanin/base/printable.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/executive/this_host.hpp"
#include "fanin/storage/manifest.hpp"
#include "fanin/storage/verify.hpp"
#include "terminal.hpp"

namespace fanin::command {
namespace {

constexpr auto silent_at_first = std::chrono::seconds{2};

json::Value to_json(const storage::VerifyResult& result) {
  json::Value value;
  value["events"] = result.events;
  value["complete"] = result.complete;
  value["incomplete"] = result.incomplete;
  value["rejected"] = result.rejected;
  value["superseded"] = result.superseded;
  value["duplicates"] = result.duplicates;
  value["crc_errors"] = result.crc_errors;
  value["flagged"] = result.flagged;
  value["gaps"] = result.gaps;
  value["fragments"] = result.fragments;
  value["bytes"] = result.bytes;
  value["files"] = result.files;
  value["good"] = result.good();
  const auto list = [](const std::vector<std::string>& lines) {
    return json::List(lines.begin(), lines.end());
  };
  value["problems"] = list(result.problems);
  value["notes"] = list(result.notes);
  value["missing"] = list(result.missing);
  return value;
}

void print_lines(std::string_view what, const std::vector<std::string>& lines,
                 std::uint64_t left_out) {
  for (const auto& line : lines) print(fmt::format("{:<10} {}\n", what, printable(line)));
  if (left_out != 0) print(fmt::format("{:<10} ... and {} more\n", what, left_out));
}

void print_result(const storage::VerifyResult& result) {
  print_lines("problem", result.problems, result.problems_left_out);
  print_lines("note", result.notes, result.notes_left_out);
  print_lines("missing", result.missing, result.missing_left_out);
  print(fmt::format("events     {}: {} complete, {} incomplete; {}, {}\n", result.events,
                    result.complete, result.incomplete,
                    counted(result.superseded, "superseded copy", "superseded copies"),
                    counted(result.duplicates, "duplicate")));
  if (result.rejected != 0)
    print(fmt::format("filter     {} rejected, without fragments\n",
                      counted(result.rejected, "event")));
  print(fmt::format("fragments  {}, {}; {}, {} flagged when built\n", result.fragments,
                    format_size(result.bytes), counted(result.crc_errors, "checksum error"),
                    result.flagged));
  if (result.gaps != 0)
    print(fmt::format("gaps       {} that no source has\n", counted(result.gaps, "number")));
  print(result.good() ? "good\n" : "NOT GOOD\n");
}

Result<int> verify(const std::vector<std::string>& arguments, const std::string& json) {
  auto result_file = FANIN_TRY(OutputFile::open("--json", json));
  const auto found = storage::find_run_files(arguments, executive::is_here);
  if (!found) {
    storage::VerifyResult nothing;
    nothing.problems.push_back(found.error().text);
    (void)complain(found.error());
    FANIN_TRY(result_file.write_json(to_json(nothing)));
    return status_failed;
  }
  Terminal terminal(LogLevel::info);
  storage::VerifyOptions options;
  options.manifests = found->manifests;
  options.unnamed = found->unnamed;
  const auto start = std::chrono::steady_clock::now();
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    const auto elapsed = std::chrono::steady_clock::now() - start;
    if (elapsed < silent_at_first || total == 0) return;
    const double part = static_cast<double>(done) / static_cast<double>(total);
    const double rate = static_cast<double>(done) / std::chrono::duration<double>(elapsed).count();
    terminal.progress(fmt::format("verified {} of {} ({:.0f} %), {}", format_size(done),
                                  format_size(total), 100 * part, format_bandwidth(rate)));
  };
  const auto result = FANIN_TRY(storage::verify(found->files, options));
  terminal.end_progress();
  if (json != "-") print_result(result);
  FANIN_TRY(result_file.write_json(to_json(result)));
  return result.good() ? status_done : status_failed;
}

} // namespace

void add_verify(CLI::App& app, int& status) {
  struct Options {
    std::vector<std::string> files;
    std::string json;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("verify", "Read run files back and check everything in them");
  command
      ->add_option("FILE", options->files,
                   "Run files, those of one run together; or a run's manifest")
      ->required();
  command->add_option("--json", options->json,
                      "Write the result to this file; - is standard output");
  command->callback(
      [options, &status] { status = status_of(verify(options->files, options->json)); });
}

} // namespace fanin::command
