#include "recorded_run.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/base/try.hpp"
#include "fanin/executive/process.hpp"
#include "fanin/executive/report.hpp"
#include "fanin/executive/run_output.hpp"
#include "fanin/executive/run_view.hpp"
#include "fanin/storage/run_numbers.hpp"
#include "terminal.hpp"

namespace fanin::command {
namespace {

constexpr std::size_t lines_max = 1000; // of the log

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// Of several configurations those that have one agree.
Result<std::string> registry_of(std::span<const config::Configuration> configurations) {
  std::string path;
  for (const config::Configuration& one : configurations) {
    const std::string& its = one.run.registry;
    if (its.empty() || its == path) continue;
    if (!path.empty())
      return fail(ErrorKind::usage,
                  fmt::format("{}:1: run.registry: is {}, and that of another configuration {}: "
                              "one run has one registry",
                              one.file, its, path));
    path = its;
  }
  return path;
}

std::string reason_of(const json::Value& result) {
  if (!executive::succeeded(result)) {
    const std::string why = result.at("error").text();
    return why.empty() ? "the run failed" : why;
  }
  const std::string by = result.at("ended_by").text();
  return by.empty() ? "stopped" : by;
}

} // namespace

std::string user_name() {
  const passwd* const user = getpwuid(geteuid());
  return user == nullptr ? fmt::format("{}", geteuid()) : user->pw_name;
}

Result<std::unique_ptr<RecordedRun>>
RecordedRun::begin(std::span<const config::Configuration> configurations,
                   std::vector<operation::UsedConfiguration> used) {
  const std::string path = FANIN_TRY(registry_of(configurations));
  std::error_code ignored; // opening the file says it
  std::filesystem::create_directories(std::filesystem::absolute(path).parent_path(), ignored);
  auto registry = FANIN_TRY(operation::Registry::open(path, operation::Database::Access::write));
  operation::NewRun run{.id = executive::new_run_id(),
                        .kind = configurations.front().run.kind,
                        .comment = configurations.front().run.comment,
                        .who = user_name(),
                        .host = host_name(),
                        .configurations = std::move(used),
                        .unix_ns = executive::unix_ns()};
  std::vector<std::string> folders;
  std::optional<RunNumber> wanted;
  for (const config::Configuration& one : configurations) {
    if (!one.forwards() && !one.run.output.empty()) folders.push_back(one.run.output);
    if (one.run.number) wanted = one.run.number;
  }
  const storage::RunNumbers numbers(std::move(folders));
  const auto take = [&](RunNumber least) -> Result<RunNumber> {
    if (wanted && *wanted < least)
      return fail(ErrorKind::usage,
                  fmt::format("run.number: {} was given before: {} has runs up to {}; leave "
                              "run.number out, or give a higher one",
                              *wanted, path, least - 1));
    const RunNumber free = FANIN_TRY(numbers.next(wanted));
    return numbers.reserve(std::max(free, least));
  };
  const std::uint64_t id = run.id;
  const RunNumber number = FANIN_TRY(registry.reserve(run, take));
  return std::unique_ptr<RecordedRun>(new RecordedRun(std::move(registry), number, id));
}

void RecordedRun::log(LogLevel level, std::string_view text) {
  lines_.push_back({executive::unix_ns(), std::string(executive::name(level)), std::string(text)});
  if (lines_.size() > lines_max) lines_.pop_front();
}

void RecordedRun::on_progress(const json::Value& report) {
  if (begun_ || report.at("state").text() == "waiting") return;
  begun_ = true;
  const auto kept = registry_.begun(number_, executive::unix_ns());
  if (!kept) log(LogLevel::warning, kept.error().text);
}

void RecordedRun::end(const json::Value& result) { end(reason_of(result), result); }

void RecordedRun::end_without_result(const std::string& why) {
  if (!ended_) end(why, {});
}

void RecordedRun::end(const std::string& reason, const json::Value& result) {
  ended_ = true;
  const std::vector<operation::LogLine> lines(lines_.begin(), lines_.end());
  const auto kept = registry_.ended(number_, executive::unix_ns(), reason, result, lines);
  if (!kept)
    complain({kept.error().kind,
              fmt::format("the end of run {} is not recorded: {}", number_, kept.error().text)});
}

} // namespace fanin::command
