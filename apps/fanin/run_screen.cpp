// Where a run is shown: on the terminal, or by the process that runs several configurations.
#include "fanin/executive/report.hpp"
#include "fanin/executive/report_pipe.hpp"
#include "run.hpp"

namespace fanin::command {
namespace {

class OnTerminal final : public RunScreen {
public:
  OnTerminal(const RunOptions& options, OutputFile& json)
      : quiet_(options.quiet), json_(json), terminal_(options.shown()) {}

  void log(LogLevel level, std::string_view text) override { terminal_.log(level, text); }
  void on_report(const json::Value& report, const executive::RunView& view) override {
    const std::string kind = report.at("report").text();
    if (!quiet_ && (kind == "progress" || kind == "frozen"))
      terminal_.progress(view.progress_line());
  }
  Result<> finish(const json::Value& result, std::string_view text) override {
    terminal_.end_progress();
    if (!text.empty()) terminal_.show(text);
    return json_.write_json(result);
  }

private:
  bool quiet_;
  OutputFile& json_;
  Terminal terminal_;
};

class OfParent final : public RunScreen {
public:
  explicit OfParent(int report_descriptor) : pipe_(report_descriptor) {}

  void log(LogLevel level, std::string_view text) override {
    pipe_.write(json::Object{{"report", "log"}, {"level", executive::name(level)}, {"text", text}});
  }
  void on_report(const json::Value& report, const executive::RunView& /*view*/) override {
    const std::string kind = report.at("report").text();
    if (kind != "log" && kind != "result") pipe_.write(report);
  }
  Result<> finish(const json::Value& result, std::string_view /*text*/) override {
    json::Value report = result;
    report["report"] = "result";
    pipe_.write(report);
    return {};
  }

private:
  executive::ReportPipe pipe_;
};

class OfControl final : public RunScreen {
public:
  void log(LogLevel /*level*/, std::string_view /*text*/) override {}
  void on_report(const json::Value& /*report*/, const executive::RunView& /*view*/) override {}
  Result<> finish(const json::Value& /*result*/, std::string_view /*text*/) override { return {}; }
};

} // namespace

std::unique_ptr<RunScreen> screen_of_control() { return std::make_unique<OfControl>(); }

std::unique_ptr<RunScreen> screen_on_terminal(const RunOptions& options, OutputFile& json) {
  return std::make_unique<OnTerminal>(options, json);
}

std::unique_ptr<RunScreen> screen_of_parent(int report_descriptor) {
  return std::make_unique<OfParent>(report_descriptor);
}

} // namespace fanin::command
