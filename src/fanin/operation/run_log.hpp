// The lines that run control shows: of runs, and its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "fanin/base/identity.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/log.hpp"

namespace fanin::operation {

struct ShownLine {
  std::int64_t unix_ns = 0;
  std::string level;
  std::string node; // as RunStatus names it; empty: of a launcher, or of run control
  std::string text;
  RunNumber run = 0; // 0: none

  [[nodiscard]] std::string whole() const { return node.empty() ? text : node + ": " + text; }
};

// Keeps the last ones. Thread: one.
class RunLog {
public:
  static constexpr std::size_t lines_max = 2000;

  explicit RunLog(std::function<void(const ShownLine&)> on_line) : on_line_(std::move(on_line)) {}

  // Its own. `unix_ns`: now.
  void add(LogLevel level, std::string text, RunNumber run, std::int64_t unix_ns);
  // A launcher's report. `several`: configurations, whose names its lines begin with.
  void add(const json::Value& report, RunNumber run, bool several);
  [[nodiscard]] const std::deque<ShownLine>& lines() const { return lines_; }

private:
  void show(ShownLine line);

  std::function<void(const ShownLine&)> on_line_;
  std::deque<ShownLine> lines_;
};

} // namespace fanin::operation
