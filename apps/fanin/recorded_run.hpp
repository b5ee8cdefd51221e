// A run in the registry that run.registry names, from before it starts to its end.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/json.hpp"
#include "fanin/base/log.hpp"
#include "fanin/base/result.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/operation/registry.hpp"

namespace fanin::command {

class RecordedRun {
public:
  // Takes a number above all in the registry and in the folders of the run's files: the one that
  // they give, where one does. `used`: what the configurations were read from. Errors: those of
  // the registry and of storage::RunNumbers; usage: the number was given before.
  [[nodiscard]] static Result<std::unique_ptr<RecordedRun>>
  begin(std::span<const config::Configuration> configurations,
        std::vector<operation::UsedConfiguration> used);

  [[nodiscard]] RunNumber number() const { return number_; }
  [[nodiscard]] std::uint64_t id() const { return id_; }

  void log(LogLevel level, std::string_view text); // the last ones are kept
  // Of the event manager, or of one of several.
  void on_progress(const json::Value& report);
  // The keys of `fanin run --json`. What the registry does not take is said on standard error: the
  // run itself has ended.
  void end(const json::Value& result);
  // It has no result, for this reason; nothing if it has one.
  void end_without_result(const std::string& why);

private:
  RecordedRun(operation::Registry registry, RunNumber number, std::uint64_t id)
      : registry_(std::move(registry)), number_(number), id_(id) {}
  void end(const std::string& reason, const json::Value& result);

  operation::Registry registry_;
  RunNumber number_;
  std::uint64_t id_;
  bool begun_ = false;
  bool ended_ = false;
  std::deque<operation::LogLine> lines_;
};

// Of whoever runs this.
[[nodiscard]] std::string user_name();

} // namespace fanin::command
