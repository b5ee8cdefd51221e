#include "fanin/executive/readout_node.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/executive/plugin_call.hpp"
#include "fanin/executive/watched_source.hpp"

namespace fanin::executive {
ReadoutNode::ReadoutNode(NodeContext context)
    : Node(std::move(context)),
      readout_(context_.index - context_.configuration->readout_node(0)) {}

Result<> ReadoutNode::make() {
  const auto [first, last] = context_.configuration->sources_of(readout_);
  const std::span sources = std::span(context_.configuration->sources).subspan(first, last - first);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    auto input = FANIN_TRY(make_input(sources[i], *context_.pools->sources[i]));
    inputs_.push_back(std::move(input));
  }
  return {};
}

Result<> ReadoutNode::start() {
  builder::ReadoutOptions options;
  options.node = static_cast<NodeId>(readout_);
  options.event_manager = context_.event_manager;
  options.metadata_pool = context_.pools->metadata.get();
  options.give_up_after = context_.configuration->network.give_up_after;
  options.on_end = [this](const Result<>& result) {
    ended_ = true;
    outcome_ = in_order(result, run_ != 0 || unit_->run() != 0, unit_->too_late());
  };
  options.inputs = std::move(inputs_);
  unit_.emplace(*context_.system, std::move(options), environment());
  unit_->start();
  json::Value report;
  for (const auto& [name, source] : sources_) {
    if (const std::string url = source->listening_url(); !url.empty()) report["urls"].append(url);
  }
  if (!report.is_null()) {
    report["report"] = "senders";
    context_.report(std::move(report));
  }
  tell_user(fmt::format("waits for the event manager at {}", event_manager_text()));
  return {};
}

void ReadoutNode::stop() {
  stopping_ = true;
  if (!context_.by_hand || ended_ || unit_->fragments_read() != 0) return;
  release();
  ended_ = left_early_ = true;
}

void ReadoutNode::turn() {
  if (ended_) return;
  if (const RunNumber run = unit_->run(); run != 0 && run != run_) {
    run_ = run;
    tell_user(fmt::format("joined run {}", run));
  }
  if (!stopping_ || unit_->connected()) return;
  ended_ = true;
  leave_at_end(run_ != 0);
}

std::string ReadoutNode::end_message() const {
  if (left_early_) return "left before it read anything";
  return fmt::format("run {} has ended: {} read, {} sent", run_,
                     counted(unit_->fragments_read(), "fragment"), format_size(bytes_sent_));
}

void ReadoutNode::describe(json::Value& report) {
  if (unit_) bytes_sent_ = unit_->counters().bytes;
  report["fragments_read"] = unit_ ? unit_->fragments_read() : 0;
  report["bytes_sent"] = bytes_sent_;
  if (!unit_) return;
  for (const auto& [name, source] : sources_) {
    if (const std::string why = source->dropped_last(); !why.empty())
      report["failed_sources"][name] = why;
    if (source->said_nothing()) report["said_nothing"].append(name);
    for (const auto& counter : source->counters()) {
      if (counter.value != 0) report["source_counters"][name][counter.name] = counter.value;
    }
  }
  for (const auto& [source, why] : unit_->failed_sources()) {
    report["failed_sources"][context_.system->sources[context_.system->find_source(source)].name] =
        why;
  }
}

void ReadoutNode::add_usage(json::Value& report) const {
  if (!unit_) return;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const auto& [name, source] = sources_[i];
    const auto [fragments, bytes] = unit_->read_of(i);
    json::Value& of_source = report["sources"][name];
    of_source = json::Object{{"read", fragments}, {"bytes", bytes}};
    for (const auto& counter : source->counters())
      of_source["counters"][counter.name] = counter.value;
  }
}

void ReadoutNode::withdraw() {
  for (const auto& [name, source] : sources_) {
    if (const std::string url = source->listening_url(); !outcome_ && !url.empty()) {
      context_.log(LogLevel::warning,
                   fmt::format("source {} no longer listens at {}, and its senders are "
                               "disconnected: {} has failed",
                               name, url, configured().name));
    }
  }
  release();
}

void ReadoutNode::release() {
  sources_.clear();
  inputs_.clear();
  unit_.reset();
}

Result<builder::ReadoutInput> ReadoutNode::make_input(const config::Source& source,
                                                      memory::PagePool& pool) {
  source::SourceSettings settings = source.settings;
  settings.log = [log = context_.log, name = settings.name](LogLevel level, std::string_view text) {
    log(level, fmt::format("source {}: {}", name, text));
  };
  settings.streams = context_.streams;
  const PluginCall call(settings, "source");
  auto made = FANIN_TRY(context_.plugins->sources.make(settings));
  auto watched =
      std::make_unique<WatchedSource>(std::move(made), settings.name, *context_.loop, context_.log);
  FANIN_TRY(watched->prepare());
  sources_.emplace_back(settings.name, watched.get());
  builder::ReadoutInput input{.source = std::move(watched), .pool = &pool, .queue = source.queue};
  input.queue.window = context_.plan->window;
  return input;
}

void ReadoutNode::leave(const std::string& why) {
  if (ended_) return;
  ended_ = true;
  outcome_ = fail(ErrorKind::disconnected, why);
}

} // namespace fanin::executive
