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
  void progress(const json::Value& /*report*/, const executive::RunView& view) override {
    if (!quiet_) terminal_.progress(view.progress_line());
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
  void progress(const json::Value& report, const executive::RunView& view) override {
    if (report.at("report").text() != "progress") return;
    json::Value more = report;
    more["line"] = view.progress_line();
    more["ready"] = view.only_senders_missing();
    pipe_.write(more);
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

} // namespace

std::unique_ptr<RunScreen> screen_on_terminal(const RunOptions& options, OutputFile& json) {
  return std::make_unique<OnTerminal>(options, json);
}

std::unique_ptr<RunScreen> screen_of_parent(int report_descriptor) {
  return std::make_unique<OfParent>(report_descriptor);
}

} // namespace fanin::command
