// A plain run (`fanin run`) in the registry that run.registry names.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fanin/operation/reserve_run.hpp"
#include "fanin/operation/run_keeper.hpp"

namespace fanin::operation {

class RecordedRun final : public RunKeeper {
public:
  // Takes a number: errors as those of reserve_run() and the registry.
  [[nodiscard]] static Result<std::unique_ptr<RecordedRun>>
  begin(std::span<const config::Configuration> configurations, std::vector<UsedConfiguration> used);

  [[nodiscard]] const ReservedRun& run() const { return run_; }

  void log(LogLevel level, std::string_view text) override;
  void on_report(const json::Value& report, std::string_view configuration) override;
  [[nodiscard]] Result<> end(const json::Value& result) override;
  [[nodiscard]] Result<> end_without_result(const std::string& why) override;

private:
  RecordedRun(Registry registry, ReservedRun run) : registry_(std::move(registry)), run_(run) {}
  [[nodiscard]] Result<> keep(const RunEnd& end);

  Registry registry_;
  ReservedRun run_;
  RunNotes notes_;
  bool ended_ = false;
};

} // namespace fanin::operation
