#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/log_limiter.hpp"
#include "fanin/base/units.hpp"
#include "fanin/builder/builder_unit.hpp"
#include "fanin/executive/counting_sink.hpp"
#include "fanin/executive/node.hpp"
#include "fanin/executive/report.hpp"
#include "fanin/storage/discard_sink.hpp"
#include "fanin/storage/file_sink.hpp"

namespace fanin::executive::detail {
namespace {

using MadeSink = Result<std::unique_ptr<storage::EventSink>>;

class BuilderNode final : public Node {
public:
  explicit BuilderNode(NodeContext context)
      : Node(std::move(context)), full_tick_([this] { abandon_if_stuck(); }) {
    builder_ = context_.index - context_.configuration->builder_node(0);
  }

  Result<> make() {
    if (auto made = make_control_pool(); !made) return made;
    auto pool = make_pool(context_.plan->receive, Use::receive);
    if (!pool) return std::unexpected(pool.error());
    receive_pool_ = std::move(*pool);
    return {};
  }

  Result<> start() override {
    builder::BuilderOptions options;
    options.node = static_cast<NodeId>(builder_);
    options.event_manager = context_.event_manager;
    options.data = configured().urls;
    options.receive_pool = receive_pool_.get();
    options.posted_pages = context_.plan->posted;
    options.give_up_after = context_.configuration->network.give_up_after;
    options.failure_ends_run = context_.configuration->storage.on_full == storage::OnFull::stop;
    options.make_sink = [this](RunNumber run, Incarnation incarnation) {
      return make_sink(run, incarnation);
    };
    options.on_end = [this](const Result<>& result) {
      unit_ended_ = true;
      outcome_ = in_order(result, run_ != 0);
      watch_sinks();
    };
    unit_.emplace(*context_.system, std::move(options), environment());
    auto started = unit_->start();
    if (started) {
      tell(fmt::format("waits for the event manager at {}", context_.event_manager.text()));
    }
    return started;
  }

  void stop() override {
    stopping_ = true;
    if (!context_.by_hand || unit_ended_ || unit_->counters().bytes != 0) return;
    unit_.reset();
    unit_ended_ = left_ = true;
  }
  void stop_now(const std::string& why) override {
    const bool had_ended = unit_ended_;
    unit_.reset(); // its files end in good order, without what was not written yet
    if (!had_ended) leave(why);
  }
  // Files are closed after the run has ended for the unit.
  bool ended() const override { return unit_ended_ && sink_log_.open == 0; }
  void destroy_application() override { unit_.reset(); }
  void turn() override {
    if (!stopping_ || unit_ended_ || unit_->connected()) return;
    if (sink_log_.open > 0) { // of before the loss: still being written
      if (!full_tick_.active()) watch_sinks();
      return;
    }
    unit_.reset();
    leave_at_end(run_ != 0);
    unit_ended_ = true;
  }
  std::string end_message() const override {
    if (left_) return "left before it built anything";
    return fmt::format("run {} has ended: {} events, {} stored", run_, sink_log_.events,
                       format_size(sink_log_.bytes));
  }
  void describe(json::Value& report) override {
    if (unable_) {
      report["started"] = false;
      report["joined"] = true;
    }
    report["events_stored"] = sink_log_.events;
    report["fragments_stored"] = sink_log_.fragments;
    report["bytes_stored"] = sink_log_.bytes;
    json::Value files{json::List{}};
    for (const auto& file : sink_log_.files) files.append(file);
    report["files"] = files;
  }

private:
  void leave(const std::string& why) {
    unit_ended_ = true;
    outcome_ = fail(ErrorKind::disconnected, why);
  }

  // A disk that stays full would keep the process after the end of the run for ever.
  void watch_sinks() {
    commits_before_ = sink_log_.commits;
    full_tick_.start(*context_.loop, context_.loop->now() + context_.system->drain);
  }
  void abandon_if_stuck() {
    if (sink_log_.open == 0) return;
    if (sink_log_.commits != commits_before_) return watch_sinks();
    unit_.reset();
    unit_ended_ = true;
    outcome_ = fail(ErrorKind::exhausted,
                    fmt::format("nothing could be written for {} (run.drain) after the end",
                                format_duration(context_.system->drain)));
    context_.log(LogLevel::error, outcome_.error().text);
  }

  MadeSink make_sink(RunNumber run, Incarnation incarnation) {
    tell(fmt::format("joined run {}", run));
    run_ = run;
    auto inner = context_.configuration->run.output.empty()
                     ? MadeSink(std::make_unique<storage::DiscardSink>())
                     : make_file_sink(run, incarnation);
    unable_ = !inner && !worked_;
    if (!inner) return inner;
    worked_ = true;
    return std::make_unique<CountingSink>(std::move(*inner), context_.system->sources.size(),
                                          sink_log_, context_.observer);
  }

  MadeSink make_file_sink(RunNumber run, Incarnation incarnation) {
    storage::FileSinkOptions options = context_.configuration->storage;
    options.file.directory = context_.configuration->run.output;
    options.file.run = run;
    options.file.node = configured().name;
    options.file.node_index = static_cast<NodeId>(builder_);
    options.file.incarnation = incarnation;
    for (const auto& source : context_.system->sources) {
      options.file.sources.push_back(
          {.id = source.id,
           .name = source.name,
           .readout_unit = context_.system->readout_units[source.readout_unit],
           .required = source.required});
    }
    options.file.integrity = context_.system->checksum;
    options.file.started_unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                       std::chrono::system_clock::now().time_since_epoch())
                                       .count();
    options.on_gone = [this](const std::string& path, std::uint64_t events) {
      gone_lines_.say(context_.log, context_.loop->now(), LogLevel::error,
                      fmt::format("{}, with {} events, was removed, renamed or replaced while the "
                                  "run went on: what follows goes into a new file; the run will "
                                  "end with exit status 1",
                                  path, events));
      context_.report(gone_report(path, fmt::format("a run file with {} events", events)));
    };
    if (configured().cpus.size() > 1) options.cpu = configured().cpus[1];
    std::error_code error;
    std::filesystem::create_directories(options.file.directory, error);
    if (error) {
      return fail(ErrorKind::refused, fmt::format("run.output: folder {} cannot be made: {}",
                                                  options.file.directory, error.message()));
    }
    auto sink = storage::FileSink::make(std::move(options));
    if (!sink) return std::unexpected(sink.error());
    if (auto started = (*sink)->start(); !started) return std::unexpected(started.error());
    return std::move(*sink);
  }

  std::size_t builder_ = 0;
  std::unique_ptr<memory::PagePool> receive_pool_;
  LogLimiter gone_lines_;
  SinkLog sink_log_;
  std::optional<builder::BuilderUnit> unit_; // after what its sinks refer to
  net::Timer full_tick_;
  std::uint64_t commits_before_ = 0;
  RunNumber run_ = 0; // 0: none yet
  bool stopping_ = false;
  bool worked_ = false; // it has had a file, or did not need one
  bool unable_ = false; // it had joined, but could not make its first file
  bool left_ = false; // nothing of the run was lost with it
  bool unit_ended_ = false;
};

} // namespace

Result<std::unique_ptr<Node>> make_builder(NodeContext context) {
  auto node = std::make_unique<BuilderNode>(std::move(context));
  if (auto made = node->make(); !made) return std::unexpected(made.error());
  return node;
}

} // namespace fanin::executive::detail
