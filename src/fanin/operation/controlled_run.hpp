// The launcher's side of run control: `fanin serve` connects here, asks for what it wants, and is
// told what happens. It may die and come back: the run goes on.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "fanin/base/descriptor.hpp"
#include "fanin/executive/requests.hpp"
#include "fanin/operation/run_keeper.hpp"

namespace fanin::operation {

class ControlledRun final : public RunKeeper {
public:
  // `listener`: as RunFiles::listen_for() makes it; exec() closes it. `end_file`: where the end
  // goes.
  ControlledRun(Descriptor listener, std::string end_file);
  ~ControlledRun() override;

  // For the launcher of the run. This outlives what it makes.
  [[nodiscard]] executive::TakeRequests requests();

  void log(LogLevel level, std::string_view text) override;
  void on_report(const json::Value& report, std::string_view configuration) override;
  [[nodiscard]] Result<> end(const json::Value& result) override;
  [[nodiscard]] Result<> end_without_result(const std::string& why) override;

private:
  class Port;
  void send(const json::Value& line);
  [[nodiscard]] Result<> keep(const RunEnd& end);

  Descriptor listener_;
  Descriptor connection_; // to run control: it ends when the end is kept
  std::string end_file_;
  RunNotes notes_;
  Port* port_ = nullptr; // while the launcher's loop is there
  // The latest report of each kind, node and configuration, for who connects later.
  std::map<std::string, json::Value> latest_;
  bool ended_ = false;
};

} // namespace fanin::operation
