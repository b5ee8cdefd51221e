#include "fanin/operation/run_log.hpp"

#include <utility>

#include "fanin/executive/report.hpp"

namespace fanin::operation {
namespace {

// Takes the name off "ru0      a text"; empty: there is none.
std::string take_name(std::string& text) {
  const auto end = text.find(' ');
  if (end == std::string::npos || end == 0 || text.find("  ", end) != end) return "";
  std::string name = text.substr(0, end);
  text.erase(0, text.find_first_not_of(' ', end));
  return name;
}

} // namespace

void RunLog::add(LogLevel level, std::string text, RunNumber run, std::int64_t unix_ns) {
  show({.unix_ns = unix_ns,
        .level = std::string(executive::name(level)),
        .node = {},
        .text = std::move(text),
        .run = run});
}

void RunLog::add(const json::Value& report, RunNumber run, bool several) {
  ShownLine line{.unix_ns = report.at("unix_ns").integer().value_or(0),
                 .level = report.at("level").text(),
                 .node = {},
                 .text = report.at("text").text(),
                 .run = run};
  line.node = take_name(line.text);
  if (several && !line.node.empty()) {
    const std::string name = take_name(line.text);
    if (!name.empty()) line.node += "/" + name;
  }
  show(std::move(line));
}

void RunLog::show(ShownLine line) {
  lines_.push_back(std::move(line));
  if (lines_.size() > lines_max) lines_.pop_front();
  if (on_line_) on_line_(lines_.back());
}

} // namespace fanin::operation
