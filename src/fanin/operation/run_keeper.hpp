// What is kept of a run from before it starts to its end.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "fanin/base/json.hpp"
#include "fanin/base/log.hpp"
#include "fanin/base/result.hpp"
#include "fanin/operation/registry.hpp"

namespace fanin::operation {

// Whom a launcher tells what happens in its run. Thread: one.
class RunKeeper {
public:
  virtual ~RunKeeper() = default;
  virtual void log(LogLevel level, std::string_view text) = 0;
  // Of a node (executive/report.hpp). `configuration`: its name, of several; else empty.
  virtual void on_report(const json::Value& report, std::string_view configuration) = 0;
  // The keys of `fanin run --json`. Errors: the end is not kept; the run itself has ended.
  [[nodiscard]] virtual Result<> end(const json::Value& result) = 0;
  // It has no result, for this reason. Nothing is done if it has one.
  [[nodiscard]] virtual Result<> end_without_result(const std::string& why) = 0;
};

// Collects a RunEnd.
class RunNotes {
public:
  static constexpr std::size_t lines_max = 1000; // of the log: the last ones

  void log(LogLevel level, std::string_view text, std::int64_t unix_ns);
  // True: the run has begun with this report.
  bool begins(const json::Value& report, std::int64_t unix_ns);
  [[nodiscard]] const std::deque<LogLine>& lines() const { return lines_; }
  [[nodiscard]] RunEnd end(const json::Value& result, std::int64_t unix_ns) const;
  [[nodiscard]] RunEnd end_without_result(const std::string& why, std::int64_t unix_ns) const;

private:
  std::deque<LogLine> lines_;
  std::int64_t begun_ns_ = 0;
};

} // namespace fanin::operation
