// The life of a run, and its end. Nodes: event_manager_peers.cpp; what is assigned to whom:
// event_manager_assign.cpp; what became of it: event_manager_account.cpp.
#include "fanin/builder/event_manager.hpp"

#include <algorithm>

#include "fanin/source/number_judge.hpp"

namespace fanin::builder {

namespace {
constexpr Duration trigger_step = std::chrono::microseconds{50};
constexpr Duration rounding = std::chrono::microseconds{1}; // later than the event is due, for sure
} // namespace

EventManager::EventManager(const System& system, EventManagerOptions options,
                           NodeEnvironment environment)
    : system_(system),
      digest_(system.digest()),
      sources_(system),
      options_(std::move(options)),
      environment_(std::move(environment)),
      readouts_(system.readout_units.size()),
      builders_(system.builder_units.size()),
      trigger_tick_([this] { trigger(); }),
      alive_tick_([this] { check_alive(); }),
      grace_tick_([this] { end_graces(); }),
      laggard_tick_([this] { watch_laggards(); }) {
  for (std::size_t i = 0; i < readouts_.size(); ++i) {
    const auto [first, last] = system_.sources_of(static_cast<NodeId>(i));
    readouts_[i].sources = last - first;
    readouts_[i].absent.resize(last - first + 1);
  }
  for (auto& builder : builders_) builder.ways.resize(readouts_.size());
  missing_.resize(system_.sources.size());
  environment_.loop->add(*this);
}

EventManager::~EventManager() {
  environment_.loop->remove(*this);
  for (auto& stranger : strangers_) stranger->link.close(true);
  for (auto& readout : readouts_) {
    if (readout.peer) readout.peer->link.close(true);
  }
  for (auto& builder : builders_) {
    if (builder.peer) builder.peer->link.close(true);
  }
  if (transport_ != nullptr) transport_->close_listener(listener_);
}

Result<> EventManager::start() {
  const auto transport = environment_.transports->find(options_.url);
  if (!transport) return std::unexpected(transport.error());
  transport_ = *transport;
  const auto listener = transport_->listen(
      options_.url, {.receive_pool = environment_.control_pool,
                     .handler = this,
                     .send_queue_bytes = control_queue_bytes(*environment_.control_pool),
                     .low_latency = true,
                     .strangers = true});
  if (!listener) return std::unexpected(listener.error());
  listener_ = *listener;
  looked_ = environment_.loop->now();
  fair_ = clock_.look(looked_, false);
  alive_tick_.start(*environment_.loop, looked_ + alive_period);
  return {};
}

net::Url EventManager::url() const { return transport_->listening_url(listener_); }

void EventManager::start_if_ready() {
  if (state_ != State::waiting) return;
  const bool all_readouts =
      std::ranges::all_of(readouts_, [](const auto& r) { return r.peer != nullptr; });
  if (!all_readouts || builders_up() == 0) return;
  state_ = State::running;
  started_at_ = last_commit_ = environment_.loop->now();
  environment_.log(LogLevel::info, fmt::format("run {} begins", system_.run));
  laggard_tick_.start(*environment_.loop, started_at_ + system_.event_deadline / 4);
  if (system_.trigger_rate_hz > 0) {
    frontier_known_ = true;
    trigger_start_ = started_at_;
    trigger();
  } else {
    tell_readouts(wire::Limit{limit_, 0, limit_});
  }
  if (stop_wanted_) pause_or_drain();
}

// The emulated trigger: event n is due at start + n / rate, whatever happened before, so that
// latencies count from the intended time.
void EventManager::trigger() {
  if (state_ != State::running || system_.trigger_rate_hz <= 0) return;
  const Time now = environment_.loop->now();
  const double elapsed_s = static_cast<double>((now - trigger_start_).count()) * 1e-9;
  auto due = static_cast<EventNumber>(elapsed_s * system_.trigger_rate_hz) + 1;
  const EventNumber window_end = decided() + system_.trigger_window;
  due = std::min(due, window_end);
  if (system_.events_max != 0) due = std::min(due, system_.events_max);
  if (due > triggered_) {
    triggered_ = due;
    horizon_ = std::max(horizon_, triggered_);
    if (triggered_ == system_.events_max) {
      pause_or_drain();
      return;
    }
  }
  trigger_waits_ = triggered_ >= window_end;
  if (trigger_waits_) return; // poll() goes on with it
  trigger_tick_.start(*environment_.loop, std::max(next_trigger_tick(), now + trigger_step));
}

// Triggers are gathered until they fill a batch, and no longer than the latency allows.
Time EventManager::next_trigger_tick() const {
  const Time next = trigger_time(triggered_);
  if (system_.gather_time() == Duration{0}) return next;
  EventNumber last = triggered_ | (system_.batch_events - 1);
  if (bytes_per_event_ > 0) {
    last = std::min(last, triggered_ + system_.batch_bytes / bytes_per_event_);
  }
  const double gather_s = static_cast<double>(system_.gather_time().count()) * 1e-9;
  const auto gathered = static_cast<EventNumber>(gather_s * system_.trigger_rate_hz);
  return trigger_time(std::min(last, triggered_ + gathered)) + rounding;
}

// What was triggered. One that does not read for a while is told later, and only the last.
void EventManager::tell_triggered() {
  for (auto& readout : readouts_) {
    if (!readout.peer || readout.limit_said == triggered_) continue;
    ControlChannel& channel = readout.peer->channel;
    if (!channel.roomy()) continue;
    channel.append(wire::Limit{triggered_, 0, triggered_});
    readout.limit_said = triggered_;
  }
}

Time EventManager::trigger_time(EventNumber event) const {
  return trigger_start_ + Duration{static_cast<Duration::rep>(static_cast<double>(event) * 1e9 /
                                                              system_.trigger_rate_hz)};
}

void EventManager::stop() {
  stop_wanted_ = true;
  if (state_ == State::waiting) {
    finish();
  } else if (state_ == State::running) {
    trigger(); // what is due by now
    if (state_ == State::running) pause_or_drain();
  }
}

void EventManager::stop_now(std::string why) {
  if (state_ == State::ended) return;
  summary_.forced = true;
  if (summary_.error.empty()) summary_.error = std::move(why);
  end();
}

// With a trigger the last event is known. Otherwise the readout units stop and say how far their
// sources got; the run ends there, so that no event at its end lacks a fragment.
void EventManager::pause_or_drain() {
  trigger_tick_.cancel();
  if (system_.trigger_rate_hz > 0) {
    drain_until(triggered_, triggered_);
    return;
  }
  state_ = State::pausing;
  for (auto& readout : readouts_) readout.paused = false;
  tell_readouts(wire::Pause{agreed_horizon()});
}

// The run ends at the furthest event, so that none at its end lacks a fragment. But a number so far
// ahead that no other source can be on its way to it is wrong: nobody is read up to there.
void EventManager::drain_where_paused() {
  EventNumber furthest = 0;
  std::uint64_t span = system_.event_window;
  std::vector<EventNumber> ends;
  for (const auto& readout : readouts_) {
    if (!readout.peer) continue;
    furthest = std::max(furthest, readout.paused_at.next_event);
    if (readout.final) continue;
    span = std::max(span, readout.paused_at.span);
    ends.push_back(readout.paused_at.agreed);
    if (readout.paused_at.next_event != ends.back()) ends.push_back(readout.paused_at.next_event);
  }
  const EventNumber end = std::max(horizon_, std::min(furthest, limit_));
  const EventNumber read = ends.empty() ? end : source::agreed_end(ends, span);
  drain_until(end, std::min(read, end));
}

void EventManager::drain_until(EventNumber event, EventNumber read) {
  state_ = State::draining;
  horizon_ = std::max(horizon_, event);
  limit_ = event;
  tell_readouts(wire::Limit{event, 1, read});
}

void EventManager::finish() {
  state_ = State::finishing;
  tell_readouts(wire::Finish{});
  for (auto& builder : builders_) {
    if (builder.peer) builder.peer->channel.append(wire::Finish{});
  }
}

void EventManager::finish_if_drained() {
  const auto up = [](const auto& node) { return node.peer != nullptr; };
  if (state_ == State::pausing) {
    if (!std::ranges::all_of(readouts_, [](const auto& r) { return !r.peer || r.paused; })) return;
    drain_where_paused();
  }
  if (state_ == State::running && horizon_ >= limit_) drain_until(limit_, limit_); // run.events
  const bool all_final =
      std::ranges::all_of(readouts_, [](const auto& r) { return !r.peer || r.final; });
  if (state_ == State::running && all_final && std::ranges::any_of(readouts_, up)) {
    state_ = State::draining; // the sources have come to their end
  }
  if (state_ == State::draining && all_final && frontier_ >= assignable_end() && batches_.empty()) {
    finish();
  }
  if (state_ == State::finishing) {
    const auto done = [](const auto& node) { return !node.peer || node.finished; };
    if (std::ranges::all_of(readouts_, done) && std::ranges::all_of(builders_, done)) end();
  }
}

std::size_t EventManager::builders_up() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(builders_, [](const auto& b) { return b.peer != nullptr; }));
}

// The run is to end because storage failed, and nobody is left who could build the rest.
bool EventManager::hopeless() const {
  return !summary_.error.empty() && state_ < State::finishing &&
         std::ranges::all_of(builders_, [](const auto& b) { return b.failed; });
}

std::string EventManager::waiting_for() const {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (state_ == State::waiting) {
    for (std::size_t i = 0; i < readouts_.size(); ++i) {
      if (!readouts_[i].peer)
        add(fmt::format("readout unit '{}' to start", system_.readout_units[i]));
    }
  }
  if (!apart_.empty()) add(apart_);
  for (std::size_t i = 0; i < readouts_.size(); ++i) {
    if (!readouts_[i].peer || readouts_[i].waits_for.empty()) continue;
    add(fmt::format("readout unit '{}': {}", system_.readout_units[i], readouts_[i].waits_for));
  }
  for (std::size_t i = 0; i < readouts_.size(); ++i) {
    const Readout& readout = readouts_[i];
    if (state_ == State::waiting || !readout.peer || readout.final || readout.end > frontier_)
      continue;
    const Readout* const by = overtaker(readout);
    add(by != nullptr && readout.overtaken_since
            ? overtaken(readout, *by)
            : fmt::format("readout unit '{}' to have event {}", system_.readout_units[i],
                          readout.end));
  }
  for (std::size_t i = 0; i < builders_.size(); ++i) {
    const Builder& builder = builders_[i];
    if (!builder.peer) {
      add(fmt::format("builder unit '{}' to start", system_.builder_units[i]));
    } else if (state_ != State::waiting && !builder.reached) {
      for (std::size_t node = 0; node < readouts_.size(); ++node) {
        if (!readouts_[node].peer || builder.ways[node].incarnation == readouts_[node].incarnation)
          continue;
        add(fmt::format("readout unit '{}' to reach builder unit '{}'", system_.readout_units[node],
                        system_.builder_units[i]));
      }
    } else if (builder.reserved > 0) {
      const auto batch = batches_.find(builder.reservations.front().first);
      add(fmt::format("builder unit '{}' to build event {} ({} of {} bytes in use)",
                      system_.builder_units[i], builder.reservations.front().first,
                      builder.reserved, builder.capacity));
      if (batch != batches_.end() && batch->second.received) text += ", storage to write it";
    }
  }
  return text.empty() ? "nothing" : text;
}

bool EventManager::poll() {
  if (state_ == State::ended) return false;
  if (state_ != State::waiting) {
    publish_members();
    find_reached();
    if (trigger_waits_ && triggered_ < decided() + system_.trigger_window) trigger();
    if (state_ == State::running) tell_triggered();
    find_frontier();
    answer_held();
    assign_batches();
    finish_if_drained();
  }
  if (hopeless()) stop_now(summary_.error);
  flush_peers();
  return false;
}

void EventManager::flush_peers() {
  std::vector<net::Link> stuck;
  const auto flush = [&](const std::unique_ptr<Peer>& peer) {
    if (!peer) return;
    peer->channel.flush();
    if (peer->link && peer->channel.failed()) stuck.push_back(peer->link);
  };
  for (const auto& readout : readouts_) flush(readout.peer);
  for (const auto& builder : builders_) flush(builder.peer);
  for (net::Link link : stuck) {
    peer_lost(link, "it does not read");
    link.close(true);
  }
}

} // namespace fanin::builder
