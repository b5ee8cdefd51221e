#include "fanin/operation/controlled_run.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/executive/child_input.hpp"
#include "fanin/executive/line_output.hpp"
#include "fanin/executive/report.hpp"
#include "fanin/executive/run_output.hpp"
#include "fanin/operation/run_files.hpp"
#include "fanin/version.hpp"

namespace fanin::operation {
namespace {

constexpr int end_tries = 600; // a second each
constexpr std::size_t pending_max = 16U << 20; // of somebody who does not read

// Those that change what is known of a run. A later one replaces an earlier one.
constexpr std::array kept_kinds{"progress", "summary", "usage", "end"};

json::Value log_line(const LogLine& line) {
  return json::Object{
      {"report", "log"}, {"unix_ns", line.unix_ns}, {"level", line.level}, {"text", line.text}};
}

} // namespace

// On the launcher's loop: listens, and has the latest connection.
class ControlledRun::Port final : public net::Service {
public:
  Port(net::Loop& loop, ControlledRun& run, std::function<void(executive::Request)> on_request)
      : loop_(loop), run_(run), on_request_(std::move(on_request)) {
    run_.port_ = this;
    loop_.add(*this);
  }
  ~Port() override {
    loop_.remove(*this);
    run_.port_ = nullptr;
  }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  [[nodiscard]] int descriptor() const override { return run_.listener_.get(); }
  bool poll() override {
    if (output_ && output_->pending() > pending_max) drop();
    Descriptor accepted(
        accept4(run_.listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!accepted) return false;
    take(std::move(accepted));
    return true;
  }
  void send(const json::Value& line) {
    if (output_) output_->send(line);
  }

private:
  // The one before is dropped: only one `fanin serve` has the registry.
  void take(Descriptor connection) {
    drop();
    Descriptor copy(fcntl(connection.get(), F_DUPFD_CLOEXEC, 3));
    if (!copy) return;
    run_.connection_ = Descriptor(fcntl(connection.get(), F_DUPFD_CLOEXEC, 3));
    output_.emplace(loop_, std::move(copy));
    input_.emplace(loop_, std::move(connection), [this](std::string_view text) {
      const auto line = json::Value::parse(text);
      if (const auto request = line ? executive::request_of(*line) : std::nullopt)
        on_request_(*request);
    });
    output_->send(json::Object{{"fanin", version}});
    for (const LogLine& line : run_.notes_.lines()) output_->send(log_line(line));
    for (const auto& [key, report] : run_.latest_) output_->send(report);
  }
  void drop() {
    input_.reset();
    output_.reset();
    run_.connection_.reset();
  }

  net::Loop& loop_;
  ControlledRun& run_;
  std::function<void(executive::Request)> on_request_;
  std::optional<executive::LineInput> input_;
  std::optional<executive::LineOutput> output_;
};

ControlledRun::ControlledRun(Descriptor listener, std::string end_file)
    : listener_(std::move(listener)), end_file_(std::move(end_file)) {
  fcntl(listener_.get(), F_SETFD, FD_CLOEXEC);
  fcntl(listener_.get(), F_SETFL, O_NONBLOCK);
}

ControlledRun::~ControlledRun() = default;

executive::TakeRequests ControlledRun::requests() {
  return [this](net::Loop& loop, std::function<void(executive::Request)> on_request) {
    return std::make_unique<Port>(loop, *this, std::move(on_request));
  };
}

void ControlledRun::send(const json::Value& line) {
  if (port_ != nullptr) port_->send(line);
}

void ControlledRun::log(LogLevel level, std::string_view text) {
  notes_.log(level, text, executive::unix_ns());
  send(log_line(notes_.lines().back()));
}

void ControlledRun::on_report(const json::Value& report, std::string_view configuration) {
  const std::string kind = report.at("report").text();
  if (kind == "log") return; // log() has it
  notes_.begins(report, executive::unix_ns());
  json::Value line = report;
  if (!configuration.empty()) line["configuration"] = configuration;
  for (const char* const kept : kept_kinds) {
    if (kind == kept)
      latest_[fmt::format("{}/{}/{}", kind, configuration, report.at("node").text())] = line;
  }
  send(line);
}

Result<> ControlledRun::end(const json::Value& result) {
  return keep(notes_.end(result, executive::unix_ns()));
}

Result<> ControlledRun::end_without_result(const std::string& why) {
  if (ended_) return {};
  return keep(notes_.end_without_result(why, executive::unix_ns()));
}

Result<> ControlledRun::keep(const RunEnd& end) {
  ended_ = true;
  auto written = write_end(end_file_, end);
  for (int tries = end_tries; !written && !connection_ && tries > 0; --tries) {
    sleep(1); // the run is over; a disk that is full may have space again
    written = write_end(end_file_, end);
  }
  if (!written && connection_) { // run control gets it in this way
    fcntl(connection_.get(), F_SETFL, 0);
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    setsockopt(connection_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    json::Value line = to_json(end);
    line["report"] = "run_end";
    const std::string text = "\n" + line.dump() + "\n"; // an earlier line may not be whole
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t sent = ::send(connection_.get(), text.data() + at, text.size() - at, 0);
      if (sent <= 0) return written;
      at += static_cast<std::size_t>(sent);
    }
    return {};
  }
  return written;
}

} // namespace fanin::operation
