#include "fanin/executive/event_manager_node.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/builder/rails.hpp"
#include "fanin/executive/report.hpp"

namespace fanin::executive {
namespace {

constexpr Duration progress_period = std::chrono::milliseconds{500};
constexpr Duration summary_period = std::chrono::seconds{1};
constexpr Duration first_warning = std::chrono::seconds{5}; // that the run waits to begin; the next
                                                            // one after twice the time
// For storage that had to wait before. A disk that was full may have space again just now: it is
// tried once a second. A slice that has not begun is stopped some seconds after the groups, and is
// given up slice.give_up later.
Duration stopping_least(const config::Configuration& configuration) {
  if (!configuration.forwards()) return std::chrono::seconds{3};
  return configuration.forward.give_up + std::chrono::seconds{10};
}

} // namespace

EventManagerNode::EventManagerNode(NodeContext context)
    : Node(std::move(context)),
      progress_tick_([this] { on_progress_tick(); }),
      duration_tick_([this] { on_duration(); }),
      record_tick_([this] { finish_record(); }),
      warn_after_(first_warning) {}

Result<> EventManagerNode::start() {
  builder::EventManagerOptions options;
  options.urls = configured().urls;
  options.run_id = context_.run_id;
  options.run_id_is_shared = context_.configuration->run.id_is_shared;
  options.held = context_.configuration->run.controlled;
  options.on_end = [this](const builder::RunSummary& summary) { on_end(summary); };
  options.on_silent = [this](const builder::NodeKey& key) { on_silent(key); };
  manager_.emplace(*context_.system, std::move(options), environment());
  FANIN_TRY(manager_->start());
  if (!manager_->held()) FANIN_TRY(make_record());
  context_.report(
      json::Object{{"report", "listening"}, {"url", builder::rails_text(manager_->urls())}});
  started_at_ = context_.loop->now();
  progress_tick_.start(*context_.loop, started_at_ + progress_period);
  return {};
}

Result<> EventManagerNode::make_record() {
  record_ = FANIN_TRY(
      context_.output->make_record(context_.run_id, context_.loop->clock(), context_.log));
  manager_->set_recorder(record_.get());
  return {};
}

void EventManagerNode::start_run() {
  if (!manager_ || manager_->ended() || !manager_->held()) return;
  started_at_ = context_.loop->now();
  if (const auto made = make_record(); !made) return manager_->stop_now(made.error().text);
  manager_->release();
  report_progress();
}

void EventManagerNode::stop() {
  if (!manager_ || manager_->ended()) return;
  manager_->stop();
  tell_of_stop();
}

void EventManagerNode::stop_now(const std::string& why) {
  if (manager_ && !manager_->ended()) manager_->stop_now(why);
  if (ended_ || !manager_) return;
  record_by_ = context_.loop->now();
  finish_record();
}

void EventManagerNode::process_died(std::uint64_t session) {
  if (manager_) manager_->process_died(session);
}

void EventManagerNode::no_builder_left(const std::string& why) {
  if (manager_) manager_->stop_now(fmt::format("all builder units have failed: {}", why));
}

void EventManagerNode::turn() {
  if (began_at_ != never || !manager_ || !manager_->begun()) return;
  began_at_ = context_.loop->now();
  const Duration duration = context_.configuration->run.duration;
  if (duration > Duration{0}) duration_tick_.start(*context_.loop, began_at_ + duration);
  on_progress_tick(); // that it has begun
  if (context_.observer != nullptr) context_.observer->on_begin();
}

void EventManagerNode::on_silent(const builder::NodeKey& key) {
  const builder::System& system = *context_.system;
  const auto& names = key.is_readout() ? system.readout_units : system.builder_units;
  context_.report(json::Object{{"report", "silent"}, {"silent", names[key.node]}});
}

void EventManagerNode::on_duration() {
  duration_is_over_ = manager_->running() && !manager_->stopping();
  manager_->stop();
  tell_of_stop();
}

// Run control has asked for it, and a user waits.
void EventManagerNode::tell_of_stop() {
  if (!context_.configuration->run.controlled || manager_->ended()) return;
  report_progress();
  report_summary();
}

void EventManagerNode::on_end(const builder::RunSummary& summary) {
  progress_tick_.cancel();
  duration_tick_.cancel();
  if (context_.observer != nullptr) context_.observer->on_end(summary);
  json::Value report = to_json(summary, *context_.system);
  if (record_) report["manifest"] = record_->path();
  const std::uint64_t wanted = context_.system->events_max;
  if (duration_is_over_) {
    report["ended_by"] = "run.duration";
  } else if (wanted != 0 && summary.events_built + summary.events_lost >= wanted) {
    report["ended_by"] = "run.events";
  }
  if (duration_is_over_ && wanted != 0) report["events_wanted"] = wanted;
  report["report"] = "result";
  if (!manager_->waited_for().empty()) report["waited_for"] = manager_->waited_for();
  if (!summary.error.empty()) {
    outcome_ = fail(ErrorKind::internal, summary.error);
  } else if (!summary.balanced) {
    outcome_ = fail(ErrorKind::internal, "the sums of the ledger disagree");
  } else if (std::string bad = not_in_order(summary); !bad.empty()) {
    outcome_ = fail(ErrorKind::malformed, std::move(bad));
  }
  result_ = std::move(report);
  record_by_ = context_.loop->now();
  if (!summary.forced) record_by_ += context_.system->drain;
  finish_record();
}

// A full disk may have refused its last lines; builder units wait for as long.
void EventManagerNode::finish_record() {
  const Time now = context_.loop->now();
  if (record_ && !record_->retry() && now < record_by_) {
    report_progress(); // the launcher kills who is silent
    record_tick_.start(*context_.loop, std::min(now + progress_period, record_by_));
    return;
  }
  record_tick_.cancel();
  check_record();
  ended_ = true;
  context_.report(std::move(result_));
}

double EventManagerNode::time_s() const {
  const Duration elapsed = began_at_ == never ? Duration{0} : context_.loop->now() - began_at_;
  return std::chrono::duration<double>(elapsed).count();
}

std::string_view EventManagerNode::state() const {
  return began_at_ == never ? "waiting" : manager_->stopping() ? "stopping" : "running";
}

void EventManagerNode::report_progress() {
  const builder::RunSummary& summary = manager_->summary();
  json::Value report = progress_of(summary);
  report["report"] = "progress";
  report["state"] = state();
  report["time_s"] = time_s();
  if (manager_->held()) report["held"] = true;
  report["waiting_for"] = manager_->waiting_for();
  if (record_) report["manifest"] = record_->path();
  context_.report(std::move(report));
}

// For run control, each second and when the state of the run or a node has changed.
void EventManagerNode::report_summary() {
  if (!context_.configuration->run.controlled) return;
  const builder::RunSummary& summary = manager_->summary();
  std::vector<std::pair<Incarnation, bool>> nodes;
  for (const auto& node : summary.nodes) nodes.emplace_back(node.incarnations, node.alive);
  const Time now = context_.loop->now();
  const bool changed = said_state_ != state() || said_nodes_ != nodes;
  if (!changed && now - summary_at_ < summary_period) return;
  said_state_ = state();
  said_nodes_ = std::move(nodes);
  summary_at_ = now;
  json::Value report = summary_report(summary, *context_.system, latency_.in(summary.latency, now));
  report["time_s"] = time_s();
  context_.report(std::move(report));
}

void EventManagerNode::on_progress_tick() {
  report_progress();
  report_summary();
  if (record_) record_->retry();
  warn_of_waiting();
  if (++progress_ticks_ % 2 == 0) check_record();
  watch_drain(manager_->summary());
  if (ended_) return;
  progress_tick_.start(*context_.loop, context_.loop->now() + progress_period);
}

// A user may see no progress line.
void EventManagerNode::warn_of_waiting() {
  const Duration waited = context_.loop->now() - started_at_;
  const bool waits = began_at_ == never && !manager_->stopping() && !manager_->held();
  if (!waits || waited < warn_after_) return;
  warn_after_ *= 2;
  context_.log(LogLevel::warning, fmt::format("the run has not begun after {}: it waits for {}",
                                              format_duration(waited), manager_->waiting_for()));
}

void EventManagerNode::check_record() {
  if (!record_ || !record_->check_file()) return;
  context_.report(gone_report(record_->path(), "the run's manifest"));
}

// At its end a run that does not get on would wait for ever. How long a disk was full before counts
// as well.
void EventManagerNode::watch_drain(const builder::RunSummary& summary) {
  const Time now = context_.loop->now();
  const bool stopping = manager_->stopping();
  if (stopping && stopping_since_ == never) stopping_since_ = now;
  const bool waits = stopping || manager_->storing();
  if (!waits || std::exchange(built_before_, summary.events_built) != summary.events_built) {
    stuck_since_ = now;
    return;
  }
  const Duration drain = context_.system->drain;
  const Duration least = std::min(drain, stopping_least(*context_.configuration));
  const bool tried = stopping && now - stopping_since_ >= least;
  if (!tried || now - stuck_since_ < drain) return;
  const std::string waits_for = manager_->waiting_for();
  manager_->stop_now(fmt::format("no event was built for {} (run.drain) while stopping{}{}",
                                 format_duration(now - stuck_since_), waits_for.empty() ? "" : ": ",
                                 waits_for));
}

} // namespace fanin::executive
