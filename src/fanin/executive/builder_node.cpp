#include "fanin/executive/builder_node.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/builder/filtering/filter_sink.hpp"
#include "fanin/executive/monitoring_sink.hpp"
#include "fanin/executive/report.hpp"

namespace fanin::executive {

BuilderNode::BuilderNode(NodeContext context)
    : Node(std::move(context)),
      builder_(context_.index - context_.configuration->builder_node(0)),
      full_tick_([this] { abandon_if_stuck(); }) {}

Result<> BuilderNode::start() {
  builder::BuilderOptions options;
  options.node = static_cast<NodeId>(builder_);
  options.event_manager = context_.event_manager;
  options.data = configured().urls;
  options.receive_pool = context_.pools->receive.get();
  options.reserved_pages = context_.plan->posted + context_.plan->set_aside;
  options.give_up_after = context_.configuration->network.give_up_after;
  options.failure_ends_run = context_.configuration->storage.on_full == storage::OnFull::stop;
  options.make_sink = [this](const wire::Welcome& welcome) { return make_sink(welcome); };
  options.on_end = [this](const Result<>& result) {
    unit_ended_ = true;
    outcome_ = in_order(result, run_ != 0, unit_->too_late());
    watch_sinks();
  };
  FANIN_TRY(start_filter_server());
  FANIN_TRY(start_publisher());
  unit_.emplace(*context_.system, std::move(options), environment());
  auto started = unit_->start();
  if (started) {
    tell_user(fmt::format("waits for the event manager at {}", event_manager_text()));
  }
  return started;
}

Result<> BuilderNode::start_filter_server() {
  if (!context_.configuration->has_filters()) return {};
  const net::Url url =
      context_.configuration->filter_address(builder_, context_.event_manager.front());
  filters_.emplace(*context_.system, environment(),
                   builder::FilterServer::Options{
                       .set_aside_after = filter_latency(*context_.configuration),
                       .set_aside_max = batches_at_filters(*context_.configuration, configured()),
                       .shared_pool = context_.plugins->transports.shares_memory(url)
                                          ? context_.pools->receive.get()
                                          : nullptr,
                       .on_silent = [this](const std::string& name) {
                         context_.report(json::Object{{"report", "silent"}, {"silent", name}});
                       }});
  return filters_->listen(url);
}

Result<> BuilderNode::start_publisher() {
  if (!configured().monitoring_url) return {};
  auto made = EventPublisher::listen(*configured().monitoring_url,
                                     {.loop = *context_.loop,
                                      .transports = *context_.transports,
                                      .send_pool = *context_.pools->published,
                                      .receive_pool = *context_.pools->readers,
                                      .seed = context_.session,
                                      .log = context_.log});
  if (!made) {
    return fail(made.error().kind,
                fmt::format("{}.monitoring_url: {}", configured().key, made.error().text));
  }
  publisher_ = std::move(*made);
  context_.log(LogLevel::info, fmt::format("publishes events at {}", publisher_->url().text()));
  return {};
}

void BuilderNode::stop() {
  stopping_ = true;
  if (!context_.by_hand || unit_ended_ || unit_->counters().bytes != 0) return;
  unit_.reset();
  unit_ended_ = left_early_ = true;
}

void BuilderNode::stop_now(const std::string& why) {
  const bool had_ended = unit_ended_;
  unit_.reset(); // its files end in good order, without what was not written yet
  if (!had_ended) leave(why);
}

void BuilderNode::turn() {
  if (!stopping_ || unit_ended_ || unit_->connected()) return;
  if (sink_log_.open > 0) { // of before the loss: still being written
    if (!full_tick_.active()) watch_sinks();
    return;
  }
  unit_.reset();
  leave_at_end(run_ != 0);
  unit_ended_ = true;
}

std::string BuilderNode::end_message() const {
  if (left_early_) return "left before it built anything";
  return fmt::format("run {} has ended: {}, {} stored", run_, counted(sink_log_.events, "event"),
                     format_size(sink_log_.bytes));
}

void BuilderNode::describe(json::Value& report) {
  if (first_sink_failed_) {
    report["started"] = false;
    report["joined"] = true;
  }
  report["events_stored"] = sink_log_.events;
  report["fragments_stored"] = sink_log_.fragments;
  report["bytes_stored"] = sink_log_.bytes;
  if (publisher_) {
    report["events_published"] = publisher_->published();
    report["events_skipped"] = publisher_->skipped();
  }
  report["files"] = json::List(sink_log_.files.begin(), sink_log_.files.end());
}

void BuilderNode::add_usage(json::Value& report) const {
  if (publisher_) report["monitoring_url"] = publisher_->url().text();
}

void BuilderNode::leave(const std::string& why) {
  unit_ended_ = true;
  outcome_ = fail(ErrorKind::disconnected, why);
}

// A disk that stays full would keep the process after the end of the run for ever. How long it was
// full before counts as well: the event manager has waited for that.
void BuilderNode::watch_sinks() {
  const Time now = context_.loop->now();
  commits_before_ = sink_log_.commits;
  const Time since = sink_log_.waiting > 0 ? sink_log_.stuck_since : now;
  full_tick_.start(*context_.loop, std::max(now, since + context_.system->drain));
}

void BuilderNode::abandon_if_stuck() {
  if (sink_log_.open == 0) return;
  if (sink_log_.commits != commits_before_) return watch_sinks();
  const config::Configuration& configuration = *context_.configuration;
  const std::string waits_for = unit_ ? unit_->storage_waits_for() : "";
  const std::string full = configuration.sink.type.empty()
                               ? fmt::format(": the disk of {} is full", configuration.run.output)
                               : fmt::format(": the sink \"{}\" is full", configuration.sink.type);
  const std::string why = sink_log_.full      ? full
                          : waits_for.empty() ? ""
                                              : ": waited for " + waits_for;
  unit_.reset();
  unit_ended_ = true;
  outcome_ = fail(ErrorKind::exhausted, fmt::format("nothing could be written for {} (run.drain){}",
                                                    format_duration(context_.system->drain), why));
  context_.log(LogLevel::error, outcome_.error().text);
}

Result<std::unique_ptr<storage::EventSink>> BuilderNode::make_sink(const wire::Welcome& welcome) {
  run_ = welcome.run;
  tell_user(fmt::format("joined run {}", run_));
  auto inner =
      context_.output->make_sink({.builder = static_cast<NodeId>(builder_),
                                  .run = run_,
                                  .run_id = welcome.run_id,
                                  .incarnation = welcome.incarnation,
                                  .session = context_.session,
                                  .loop = context_.loop,
                                  .streams = context_.streams,
                                  .log = context_.log,
                                  .on_gone = [this](const std::string& path, std::uint64_t events) {
                                    on_gone(path, events);
                                  }});
  first_sink_failed_ = !inner && !had_sink_;
  if (!inner) return inner;
  had_sink_ = true;
  if (publisher_) {
    *inner = std::make_unique<MonitoringSink>(
        std::move(*inner), *publisher_, *context_.loop,
        Sampling{.run = run_,
                 .every = context_.configuration->monitoring.every,
                 .rate_hz = context_.configuration->monitoring.rate_hz},
        event_sources(*context_.system, run_));
  }
  if (filters_) *inner = std::make_unique<builder::FilterSink>(std::move(*inner), run_, *filters_);
  return std::make_unique<CountingSink>(std::move(*inner), context_.system->sources.size(),
                                        *context_.loop, sink_log_, context_.observer);
}

void BuilderNode::on_gone(const std::string& path, std::uint64_t events) {
  gone_lines_.write(context_.log, context_.loop->now(), LogLevel::error,
                    fmt::format("{}, with {}, was removed, renamed, replaced or cut while "
                                "the run went on: what follows goes into a new file; the run will "
                                "end with exit status 1",
                                path, counted(events, "event")));
  context_.report(gone_report(path, "a run file with " + counted(events, "event")));
}

} // namespace fanin::executive
