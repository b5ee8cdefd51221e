#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/units.hpp"
#include "fanin/builder/readout_unit.hpp"
#include "fanin/executive/node.hpp"
#include "fanin/executive/watched_source.hpp"

namespace fanin::executive::detail {
namespace {

class ReadoutNode final : public Node {
public:
  explicit ReadoutNode(NodeContext context) : Node(std::move(context)) {
    readout_ = context_.index - context_.configuration->readout_node(0);
  }

  Result<> make() {
    if (auto made = make_control_pool(); !made) return made;
    auto metadata = make_pool(context_.plan->metadata, Use::send);
    if (!metadata) return std::unexpected(metadata.error());
    metadata_pool_ = std::move(*metadata);
    for (const PoolPlan& plan : context_.plan->sources) {
      auto pool = make_pool(plan, Use::send);
      if (!pool) return std::unexpected(pool.error());
      source_pools_.push_back(std::move(*pool));
    }
    return {};
  }

  Result<> start() override {
    builder::ReadoutOptions options;
    options.node = static_cast<NodeId>(readout_);
    options.event_manager = context_.event_manager;
    options.metadata_pool = metadata_pool_.get();
    options.give_up_after = context_.configuration->network.give_up_after;
    options.on_end = [this](const Result<>& result) {
      ended_ = true;
      outcome_ = in_order(result, run_ != 0 || unit_->run() != 0);
    };
    const auto [first, last] = context_.configuration->sources_of(readout_);
    for (std::size_t i = first; i < last; ++i) {
      auto input = make_input(context_.configuration->sources[i], *source_pools_[i - first]);
      if (!input) return std::unexpected(input.error());
      sources_.emplace_back(context_.configuration->sources[i].settings.name, input->source.get());
      options.inputs.push_back(std::move(*input));
    }
    unit_.emplace(*context_.system, std::move(options), environment());
    unit_->start();
    tell(fmt::format("waits for the event manager at {}", context_.event_manager.text()));
    return {};
  }

  void stop() override {
    stopping_ = true;
    if (!context_.by_hand || ended_ || unit_->fragments_read() != 0) return;
    unit_.reset();
    ended_ = left_ = true;
  }
  void stop_now(const std::string& why) override { leave(why); }
  bool ended() const override { return ended_; }
  void destroy_application() override { unit_.reset(); }
  void turn() override {
    if (ended_) return;
    if (const RunNumber run = unit_->run(); run != 0 && run != run_) {
      run_ = run;
      tell(fmt::format("joined run {}", run));
    }
    if (!stopping_ || unit_->connected()) return;
    ended_ = true;
    leave_at_end(run_ != 0);
  }
  std::string end_message() const override {
    if (left_) return "left before it read anything";
    return fmt::format("run {} has ended: {} fragments read, {} sent", run_,
                       unit_->fragments_read(), format_size(bytes_sent_));
  }
  void describe(json::Value& report) override {
    if (unit_) bytes_sent_ = unit_->counters().bytes;
    report["fragments_read"] = unit_ ? unit_->fragments_read() : 0;
    report["bytes_sent"] = bytes_sent_;
    if (!unit_) return;
    for (const auto& [name, source] : sources_) {
      for (const auto& counter : source->counters()) {
        if (counter.value != 0) report["source_counters"][name][counter.name] = counter.value;
      }
    }
    for (const auto& [source, why] : unit_->failed_sources()) {
      report["failed_sources"]
            [context_.system->sources[context_.system->find_source(source)].name] = why;
    }
  }

private:
  Result<builder::ReadoutInput> make_input(const config::Source& source, memory::PagePool& pool) {
    source::SourceSettings settings = source.settings;
    settings.log = [log = context_.log, name = settings.name](LogLevel level,
                                                              std::string_view text) {
      log(level, fmt::format("source {}: {}", name, text));
    };
    auto made = context_.plugins->sources.make(settings);
    if (!made) return std::unexpected(made.error());
    if (auto ready = (*made)->prepare(); !ready) return std::unexpected(ready.error());
    auto watched = std::make_unique<WatchedSource>(std::move(*made), settings.name, context_.log);
    builder::ReadoutInput input{.source = std::move(watched), .pool = &pool, .queue = source.queue};
    input.queue.window = context_.plan->window;
    return input;
  }

  void leave(const std::string& why) {
    if (ended_) return;
    ended_ = true;
    outcome_ = fail(ErrorKind::disconnected, why);
  }

  std::size_t readout_ = 0;
  std::unique_ptr<memory::PagePool> metadata_pool_;
  std::vector<std::unique_ptr<memory::PagePool>> source_pools_;
  std::optional<builder::ReadoutUnit> unit_;
  std::vector<std::pair<std::string, const source::Source*>> sources_; // of the unit, with names
  std::uint64_t bytes_sent_ = 0; // known at the end
  RunNumber run_ = 0; // joined last; 0: none yet
  bool stopping_ = false;
  bool left_ = false; // nothing of the run was lost with it
  bool ended_ = false;
};

} // namespace

Result<std::unique_ptr<Node>> make_readout(NodeContext context) {
  auto node = std::make_unique<ReadoutNode>(std::move(context));
  if (auto made = node->make(); !made) return std::unexpected(made.error());
  return node;
}

} // namespace fanin::executive::detail
