#include "fanin/executive/filter_node.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/try.hpp"
#include "fanin/executive/plugin_call.hpp"

namespace fanin::executive {
namespace {

constexpr Duration again_after = std::chrono::milliseconds{200};

} // namespace

builder::FilterSettings filter_settings(const config::Configuration& configuration,
                                        std::size_t index, LogFunction log) {
  builder::FilterSettings settings;
  settings.settings = configuration.settings_of(configuration.nodes[index], std::move(log));
  settings.streams = configuration.system.streams;
  for (const config::Source& source : configuration.sources)
    settings.sources.push_back(source.settings.id);
  std::ranges::sort(settings.sources);
  return settings;
}

Result<> FilterNode::make() {
  const auto settings = filter_settings(*context_.configuration, context_.index, context_.log);
  const PluginCall call(settings.settings, "filter");
  filter_ = FANIN_TRY(context_.plugins->filters.make(settings));
  return {};
}

Result<> FilterNode::start() {
  const config::Node& node = configured();
  const auto& processes = context_.configuration->processes;
  const bool alone = std::ranges::any_of(processes, [this](const config::Process& process) {
    return process.nodes.size() == 1 && process.nodes.front() == context_.index;
  });
  if (alone) {
    auto limit = FANIN_TRY(TimeLimit::make(node.filter_time_limit));
    limit_.emplace(std::move(limit));
  }
  make_unit();
  tell_user("asks builder units for events");
  context_.report(json::Object{{"report", "filters"}}); // whatever ends it is replaced from now on
  return {};
}

void FilterNode::make_unit() {
  const config::Node& node = configured();
  builder::FilterUnit::Options options;
  options.name = node.name;
  for (const std::size_t builder : context_.configuration->builders_of(context_.index)) {
    options.builders.push_back(
        context_.configuration->filter_address(builder, context_.event_manager.front()));
  }
  options.filter = filter_.get();
  options.receive_pool = context_.pools->receive.get();
  options.ahead = node.filter_ahead;
  options.silence = node.filter_time_limit + context_.system->dead_after;
  options.on_work = [this](bool works) {
    if (limit_) limit_->watch(works);
  };
  options.on_failed = [this](const Error& error) { failed(error); };
  unit_.emplace(*context_.system, std::move(options), environment());
  unit_->start();
}

// A process of its own ends, and its launcher starts it again. Where other nodes are in the
// process, the filter alone begins anew.
void FilterNode::failed(const Error& error) {
  if (!limit_) return restart_.start(*context_.loop, context_.loop->now() + again_after);
  outcome_ = std::unexpected(error);
  ended_ = true;
}

void FilterNode::begin_again() {
  leave();
  filter_.reset();
  if (auto made = make(); !made) {
    context_.log(LogLevel::error, made.error().text);
    outcome_ = std::unexpected(made.error());
    ended_ = true;
    return;
  }
  context_.log(LogLevel::warning, "the filter starts again");
  make_unit();
}

void FilterNode::stop() {
  restart_.cancel();
  leave();
  ended_ = true;
}

void FilterNode::stop_now(const std::string& why) {
  if (!ended_) outcome_ = fail(ErrorKind::disconnected, why);
  stop();
}

builder::FilterUnit::Counters FilterNode::counters() const {
  builder::FilterUnit::Counters sum = counters_;
  if (!unit_) return sum;
  sum.events += unit_->counters().events;
  sum.accepted += unit_->counters().accepted;
  sum.bytes += unit_->counters().bytes;
  return sum;
}

void FilterNode::leave() {
  if (!unit_) return;
  counters_ = counters();
  unit_.reset();
  if (limit_) limit_->watch(false);
}

void FilterNode::describe(json::Value& report) {
  const auto seen = counters();
  report["events_decided"] = seen.events;
  report["events_accepted"] = seen.accepted;
  report["bytes_seen"] = seen.bytes;
  const bool refused = !outcome_ && outcome_.error().kind == ErrorKind::refused;
  if (refused) report["refused"] = true;
}

std::string FilterNode::end_message() const {
  return fmt::format("left: {} decided, {} accepted", counted(counters_.events, "event"),
                     counters_.accepted);
}

} // namespace fanin::executive
