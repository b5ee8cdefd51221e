#include "fanin/operation/run_keeper.hpp"

#include <filesystem>
#include <system_error>

#include "fanin/executive/report.hpp"
#include "fanin/executive/run_view.hpp"

namespace fanin::operation {
namespace {

std::string reason_of(const json::Value& result) {
  if (!executive::succeeded(result)) {
    const std::string why = result.at("error").text();
    return why.empty() ? "the run failed" : why;
  }
  const std::string by = result.at("ended_by").text();
  return by.empty() ? "stopped" : by;
}

// Wherever it is read: `run.output` may be relative to the folder of the launcher.
json::Value absolute(const json::Value& path) {
  std::error_code error;
  const auto whole = std::filesystem::absolute(path.text(), error);
  return error ? path : json::Value(whole.lexically_normal().string());
}

json::Value with_absolute_paths(json::Value result) {
  if (const json::Value* manifest = result.find("manifest"))
    result["manifest"] = absolute(*manifest);
  json::List files;
  for (const json::Value& file : result.at("files").list()) files.push_back(absolute(file));
  if (!files.empty()) result["files"] = std::move(files);
  return result;
}

} // namespace

void RunNotes::log(LogLevel level, std::string_view text, std::int64_t unix_ns) {
  lines_.push_back({unix_ns, std::string(executive::name(level)), std::string(text)});
  if (lines_.size() > lines_max) lines_.pop_front();
}

bool RunNotes::begins(const json::Value& report, std::int64_t unix_ns) {
  const bool runs =
      report.at("report").text() == "progress" && report.at("state").text() != "waiting";
  if (begun_ns_ != 0 || !runs) return false;
  begun_ns_ = unix_ns;
  return true;
}

RunEnd RunNotes::end(const json::Value& result, std::int64_t unix_ns) const {
  RunEnd end = end_without_result(reason_of(result), unix_ns);
  end.result = with_absolute_paths(result);
  return end;
}

RunEnd RunNotes::end_without_result(const std::string& why, std::int64_t unix_ns) const {
  return {.begun_ns = begun_ns_,
          .ended_ns = unix_ns,
          .reason = why,
          .result = {},
          .log = {lines_.begin(), lines_.end()}};
}

} // namespace fanin::operation
