// fanin verify FILE...: reads run files back and checks everything in them.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
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

void add(storage::VerifyResult& sum, storage::VerifyResult one) {
  for (const auto count : {&storage::VerifyResult::events, &storage::VerifyResult::complete,
                           &storage::VerifyResult::incomplete, &storage::VerifyResult::rejected,
                           &storage::VerifyResult::superseded, &storage::VerifyResult::duplicates,
                           &storage::VerifyResult::crc_errors, &storage::VerifyResult::flagged,
                           &storage::VerifyResult::gaps, &storage::VerifyResult::fragments,
                           &storage::VerifyResult::bytes})
    sum.*count += one.*count;
  sum.files += one.files;
  for (const auto lines : {&storage::VerifyResult::problems, &storage::VerifyResult::notes,
                           &storage::VerifyResult::missing})
    std::ranges::move(one.*lines, std::back_inserter(sum.*lines));
}

storage::VerifyResult nothing_but(const Error& error) {
  storage::VerifyResult result;
  result.problems.push_back(error.text);
  (void)complain(error);
  return result;
}

Result<storage::VerifyResult> verify_run(const std::vector<std::string>& paths, bool prints) {
  const auto found = storage::find_run_files(paths, executive::is_here);
  if (!found) return nothing_but(found.error());
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
  auto result = FANIN_TRY(storage::verify(found->files, options));
  terminal.end_progress();
  if (prints) print_result(result);
  return result;
}

// Each run by itself: events of two slices, or of two runs, have nothing to do with each other.
Result<int> verify(const std::vector<std::string>& arguments, const std::string& json) {
  auto result_file = FANIN_TRY(OutputFile::open("--json", json));
  const bool prints = json != "-";
  storage::VerifyResult sum;
  if (const auto runs = storage::split_into_runs(arguments); !runs) {
    sum = nothing_but(runs.error());
  } else {
    for (const auto& paths : *runs) {
      if (prints && runs->size() > 1) print(fmt::format("{}\n", printable(paths.front())));
      add(sum, FANIN_TRY(verify_run(paths, prints)));
      if (prints && &paths != &runs->back()) print("\n");
    }
  }
  FANIN_TRY(result_file.write_json(to_json(sum)));
  return sum.good() ? status_done : status_failed;
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
                   "Run files, those of one run together; manifests, or folders of runs")
      ->required();
  command->add_option("--json", options->json,
                      "Write the result to this file; - is standard output");
  command->callback(
      [options, &status] { status = status_of(verify(options->files, options->json)); });
}

} // namespace fanin::command
