#include "fanin/operation/recorded_run.hpp"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/executive/run_output.hpp"

namespace fanin::operation {

Result<std::unique_ptr<RecordedRun>>
RecordedRun::begin(std::span<const config::Configuration> configurations,
                   std::vector<UsedConfiguration> used) {
  const std::string path = FANIN_TRY(registry_of(configurations));
  std::error_code ignored; // opening the file says it
  std::filesystem::create_directories(std::filesystem::absolute(path).parent_path(), ignored);
  auto registry = FANIN_TRY(Registry::open(path, Database::Access::write));
  const auto run = FANIN_TRY(reserve_run(registry, configurations, std::move(used), user_name()));
  return std::unique_ptr<RecordedRun>(new RecordedRun(std::move(registry), run));
}

void RecordedRun::log(LogLevel level, std::string_view text) {
  notes_.log(level, text, executive::unix_ns());
}

void RecordedRun::on_report(const json::Value& report, std::string_view /*configuration*/) {
  const std::int64_t now = executive::unix_ns();
  if (!notes_.begins(report, now)) return;
  const auto kept = registry_.begun(run_.number, now);
  if (!kept) log(LogLevel::warning, kept.error().text);
}

Result<> RecordedRun::end(const json::Value& result) {
  return keep(notes_.end(result, executive::unix_ns()));
}

Result<> RecordedRun::end_without_result(const std::string& why) {
  if (ended_) return {};
  return keep(notes_.end_without_result(why, executive::unix_ns()));
}

Result<> RecordedRun::keep(const RunEnd& end) {
  ended_ = true;
  const auto kept = registry_.ended(run_.number, end);
  if (kept) return {};
  return fail(kept.error().kind,
              fmt::format("the end of run {} is not recorded: {}", run_.number, kept.error().text));
}

} // namespace fanin::operation
