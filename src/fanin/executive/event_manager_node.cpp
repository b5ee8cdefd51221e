#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/units.hpp"
#include "fanin/builder/event_manager.hpp"
#include "fanin/executive/manifest_recorder.hpp"
#include "fanin/executive/node.hpp"
#include "fanin/executive/process.hpp"
#include "fanin/executive/report.hpp"

namespace fanin::executive::detail {
namespace {

constexpr Duration progress_period = std::chrono::milliseconds{500};

class EventManagerNode final : public Node {
public:
  explicit EventManagerNode(NodeContext context)
      : Node(std::move(context)),
        progress_tick_([this] { report_progress(); }),
        duration_tick_([this] { manager_->stop(); }),
        manifest_tick_([this] { finish_manifest(); }) {}

  Result<> make() { return make_control_pool(); }

  Result<> start() override {
    builder::EventManagerOptions options;
    options.url = configured().urls.front();
    options.recorder = &recorder_;
    options.on_end = [this](const builder::RunSummary& summary) { on_end(summary); };
    options.on_silent = [this](NodeId builder) {
      json::Value report;
      report["report"] = "silent";
      report["silent"] = context_.system->builder_units[builder];
      context_.report(std::move(report));
    };
    manager_.emplace(*context_.system, std::move(options), environment());
    if (auto started = manager_->start(); !started) return started;
    if (auto made = make_manifest(); !made) return made;
    json::Value report;
    report["report"] = "listening";
    report["url"] = manager_->url().text();
    context_.report(std::move(report));
    progress_tick_.start(*context_.loop, context_.loop->now() + progress_period);
    return {};
  }

  void stop() override {
    if (manager_ && !manager_->ended()) manager_->stop();
  }
  void stop_now(const std::string& why) override {
    if (manager_ && !manager_->ended()) manager_->stop_now(why);
    if (ended_ || !manager_) return;
    manifest_by_ = context_.loop->now();
    finish_manifest();
  }
  bool ended() const override { return ended_; }
  std::optional<net::Url> listening() const override { return manager_->url(); }
  void destroy_application() override { manager_.reset(); }
  void process_died(std::uint64_t session) override {
    if (manager_) manager_->process_died(session);
  }

  void turn() override {
    if (began_at_ != never || !manager_ || !manager_->running()) return;
    began_at_ = context_.loop->now();
    const Duration duration = context_.configuration->run.duration;
    if (duration > Duration{0}) duration_tick_.start(*context_.loop, began_at_ + duration);
    report_progress(); // that it has begun
    if (context_.observer != nullptr) context_.observer->on_begin();
  }

private:
  // The manifest is made only when the event manager can listen.
  struct Recorder final : builder::RunRecorder {
    std::unique_ptr<ManifestRecorder> manifest; // null: nothing is written
    void file(NodeId builder, Incarnation incarnation, const std::string& name) override {
      if (manifest) manifest->file(builder, incarnation, name);
    }
    void winner(EventRange batch, Attempt attempt, NodeId builder,
                Incarnation incarnation) override {
      if (manifest) manifest->winner(batch, attempt, builder, incarnation);
    }
    void summary(const builder::RunSummary& summary) override {
      if (manifest) manifest->summary(summary);
    }
  };

  // Another run may have taken the number since it was chosen.
  Result<> make_manifest() {
    const config::Configuration& configuration = *context_.configuration;
    const std::string& folder = configuration.run.output;
    if (folder.empty()) return {};
    std::vector<std::string> hosts;
    for (std::size_t i = 0; i < configuration.builders(); ++i) {
      hosts.push_back(configuration.nodes[configuration.builder_node(i)].host);
    }
    while (true) {
      auto manifest = ManifestRecorder::make(folder, *context_.system, hosts,
                                             context_.loop->clock(), context_.log);
      if (manifest) {
        recorder_.manifest = std::move(*manifest);
        return {};
      }
      const auto next = next_run_number(folder);
      const bool taken = context_.take_number && next && *next > context_.system->run;
      if (!taken) return std::unexpected(manifest.error());
      context_.take_number(*next);
    }
  }

  void on_end(const builder::RunSummary& summary) {
    progress_tick_.cancel();
    duration_tick_.cancel();
    if (context_.observer != nullptr) context_.observer->on_end(summary);
    json::Value report = to_json(summary, *context_.system);
    if (recorder_.manifest) report["manifest"] = recorder_.manifest->path();
    report["report"] = "result";
    if (!summary.error.empty()) {
      outcome_ = fail(ErrorKind::internal, summary.error);
    } else if (!summary.balanced) {
      outcome_ = fail(ErrorKind::internal, "the sums of the ledger disagree");
    }
    result_ = std::move(report);
    manifest_by_ = context_.loop->now();
    if (!summary.forced) manifest_by_ += context_.system->drain;
    finish_manifest();
  }

  // A full disk may have refused its last lines; builder units wait for as long.
  void finish_manifest() {
    const Time now = context_.loop->now();
    if (recorder_.manifest && !recorder_.manifest->retry() && now < manifest_by_) {
      manifest_tick_.start(*context_.loop, std::min(now + progress_period, manifest_by_));
      return;
    }
    manifest_tick_.cancel();
    look_for_manifest();
    ended_ = true;
    context_.report(std::move(result_));
  }

  void report_progress() {
    const builder::RunSummary& summary = manager_->summary();
    json::Value report = progress_of(summary);
    report["report"] = "progress";
    report["state"] = manager_->stopping() ? "stopping"
                      : began_at_ == never ? "waiting"
                                           : "running";
    const Duration elapsed = began_at_ == never ? Duration{0} : context_.loop->now() - began_at_;
    report["time_s"] = static_cast<double>(elapsed.count()) * 1e-9;
    report["waiting_for"] = manager_->waiting_for();
    context_.report(std::move(report));
    if (recorder_.manifest) recorder_.manifest->retry();
    if (++progress_ticks_ % 2 == 0) look_for_manifest();
    watch_drain(summary);
    if (ended_) return;
    progress_tick_.start(*context_.loop, context_.loop->now() + progress_period);
  }

  void look_for_manifest() {
    if (!recorder_.manifest || !recorder_.manifest->look()) return;
    context_.report(gone_report(recorder_.manifest->path(), "the run's manifest"));
  }

  // At its end a run that does not get on would wait for ever.
  void watch_drain(const builder::RunSummary& summary) {
    const Time now = context_.loop->now();
    if (!manager_->stopping() || summary.events_built != built_before_) {
      built_before_ = summary.events_built;
      stuck_since_ = now;
    } else if (now - stuck_since_ >= context_.system->drain) {
      manager_->stop_now(fmt::format("no event was built for {} (run.drain) while stopping: {}",
                                     format_duration(now - stuck_since_), manager_->waiting_for()));
    }
  }

  Recorder recorder_;
  std::optional<builder::EventManager> manager_;
  net::Timer progress_tick_;
  net::Timer duration_tick_;
  net::Timer manifest_tick_; // after the end
  Time manifest_by_{};
  std::uint64_t progress_ticks_ = 0;
  json::Value result_; // until the manifest is written
  Time began_at_ = never; // all nodes were there
  bool ended_ = false;
  std::uint64_t built_before_ = 0;
  Time stuck_since_{};
};

} // namespace

Result<std::unique_ptr<Node>> make_event_manager(NodeContext context) {
  auto node = std::make_unique<EventManagerNode>(std::move(context));
  if (auto made = node->make(); !made) return std::unexpected(made.error());
  return node;
}

} // namespace fanin::executive::detail
