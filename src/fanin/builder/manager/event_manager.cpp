#include "fanin/builder/manager/event_manager.hpp"

#include <algorithm>
#include <utility>

#include "fanin/base/counted.hpp"
#include "fanin/base/printable.hpp"
#include "fanin/base/random.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/builder/control/take_message.hpp"
#include "fanin/builder/manager/node_messages.hpp"
#include "fanin/builder/manager/waiting_text.hpp"

namespace fanin::builder {

namespace {
constexpr std::size_t reason_shown = 1000; // bytes: it names a path, or sources
constexpr Duration laggard_period_max = std::chrono::milliseconds{250};
constexpr Duration silent_period_min = std::chrono::milliseconds{10};

// How long a readout unit is behind before it is told.
Duration laggard_period(const System& system) {
  return std::min<Duration>(system.event_deadline / 4, laggard_period_max);
}

// One whose sources are all silent.
Duration silent_period(const System& system) {
  return std::min(laggard_period(system),
                  std::max<Duration>(system.latency / 2, silent_period_min));
}
} // namespace

EventManager::EventManager(const System& system, EventManagerOptions options,
                           NodeEnvironment environment)
    : system_(system),
      sources_(system),
      options_(std::move(options)),
      environment_(std::move(environment)),
      seal_key_(splitmix64(environment_.session)),
      trigger_(system),
      readouts_(system.readout_units.size()),
      builders_(system.builder_units.size()),
      rails_(system.builder_units.size()),
      storage_waits_for_(system.builder_units.size()),
      node_log_(system, environment_),
      paths_(readouts_.size(), builders_.size(),
             std::max<Duration>(2 * system.event_deadline, 2 * alive_period)),
      accounts_(system, sources_),
      server_(system, environment_, *this),
      liveness_(server_, paths_, alive_period),
      path_watch_({system, phase_, readouts_, builders_, paths_, server_}, 2 * alive_period),
      refusal_watch_(system.sources.size()),
      events_({system, sources_, trigger_, phase_, accounts_, server_, environment_.log},
              2 * alive_period),
      dispatcher_({system, sources_, trigger_, readouts_, builders_, events_.announcements(),
                   paths_, accounts_, server_, seal_key_, environment_.unix_ns_at_zero}),
      reading_({system, readouts_, phase_, trigger_, events_, dispatcher_, server_,
                *environment_.loop, environment_.log}),
      alive_tick_([this] { check_alive(); }),
      grace_tick_([this] { end_graces(); }),
      laggard_tick_([this] { watch_laggards(); }),
      silent_tick_([this] { events_.send_horizon_to_silent(); }) {
  environment_.loop->add(*this);
}

EventManager::~EventManager() { environment_.loop->remove(*this); }

Result<> EventManager::start() {
  FANIN_TRY(server_.start(options_.urls));
  const Time now = environment_.loop->now();
  liveness_.start(now);
  alive_tick_.start(*environment_.loop, now + alive_period);
  return {};
}

bool EventManager::poll() {
  if (ended()) return false;
  start_if_ready();
  if (!phase_.is(Phase::waiting)) {
    dispatcher_.publish_members();
    reading_.update();
    events_.answer_held();
    dispatcher_.assign_batches(environment_.loop->now());
    reading_.end_if_known();
    finish_if_built();
  }
  if (no_builder_left()) stop_now(accounts_.error());
  server_.flush();
  return false;
}

// --- the life of the run -------------------------------------------------------------------------

// Where events are dealt by number, no builder unit can do without another one: a run that has few
// events would end before the last of them is here, and the slices that it serves would wait for
// it.
bool EventManager::all_needed_are_here() const {
  const bool dealt = system_.assignment == AssignmentPolicy::by_number;
  return readouts_.present_count() == readouts_.size() && readouts_.all_ready() &&
         builders_.present_count() >= (dealt ? builders_.size() : 1);
}

void EventManager::start_if_ready() {
  if (!phase_.is(Phase::waiting) || !all_needed_are_here()) return;
  const Time now = environment_.loop->now();
  accounts_.begin(now);
  dispatcher_.run_began(now);
  environment_.log(LogLevel::info, fmt::format("run {} begins", system_.run));
  laggard_tick_.start(*environment_.loop, now + laggard_period(system_));
  reading_.start(now);
  if (stop_wanted_ && running()) reading_.stop();
}

void EventManager::release() {
  options_.held = false;
  server_.send_to_readouts(wire::Release{});
}

void EventManager::stop() {
  stop_wanted_ = true;
  if (phase_.is(Phase::waiting)) {
    waited_for_ = waiting_for();
    finish();
  } else if (running()) {
    reading_.stop();
  }
}

void EventManager::stop_now(std::string why) {
  if (ended()) return;
  accounts_.force();
  accounts_.fail(std::move(why));
  end();
}

void EventManager::finish_if_built() {
  const Announcements& announced = events_.announcements();
  if (phase_.is(Phase::draining) && announced.none_goes_on() && dispatcher_.batches().empty() &&
      announced.assigned_end() >= announced.assignable_end()) {
    finish();
  }
  if (phase_.is(Phase::finishing) && readouts_.none_present() && builders_.none_present()) end();
}

void EventManager::finish() {
  phase_.finish();
  server_.send_to_readouts(wire::Finish{});
  server_.send_to_builders(wire::Finish{});
}

void EventManager::end() {
  phase_.end();
  reading_.cancel();
  alive_tick_.cancel();
  laggard_tick_.cancel();
  silent_tick_.cancel();
  const Announcements& announced = events_.announcements();
  for (const auto& [first, batch] : dispatcher_.batches())
    accounts_.lose(wire::events_of(batch.range, batch.gaps));
  const EventRange rest{announced.assigned_end(), announced.announced_end()};
  if (announced.begun() && !rest.empty()) {
    accounts_.lose(trigger_.enabled() ? rest.count() : announced.count_present(rest));
  }
  const RunSummary& result = summary();
  if (options_.recorder != nullptr) options_.recorder->summary(result);
  if (accounts_.forced()) server_.close_all();
  options_.on_end(result);
}

// The run is to end because storage failed, and nobody is left who could build the rest.
bool EventManager::no_builder_left() const {
  return accounts_.failed() && phase_.now() < Phase::finishing && builders_.all(Presence::failed);
}

const RunSummary& EventManager::summary() {
  return accounts_.summarise({.first_event = events_.announcements().first_event(),
                              .announced_end = events_.announcements().announced_end(),
                              .ended = ended(),
                              .readouts = readouts_,
                              .builders = builders_});
}

// --- nodes ---------------------------------------------------------------------------------------

std::optional<ControlServer::Refusal> EventManager::refusal(NodeKey key) {
  // A builder unit may be the only one left that can build what the run still holds.
  if (key.is_readout() && paths_.barred(key.node, environment_.loop->now())) {
    return ControlServer::Refusal{
        fmt::format("readout unit '{}' was given up because it reaches no builder unit that the "
                    "others reach",
                    system_.readout_units[key.node]),
        wire::RefusalKind::for_now, LogLevel::debug};
  }
  const Phase last_welcome = key.is_readout() ? Phase::running : Phase::draining;
  const bool failed =
      !key.is_readout() && accounts_.failed() && builders_.presence(key.node) == Presence::failed;
  if (phase_.now() <= last_welcome && !failed) return {};
  return ControlServer::Refusal{"the run is ending", wire::RefusalKind::run_ending, LogLevel::info};
}

void EventManager::joined(NodeKey key, const wire::Hello& hello, std::string rails) {
  if (key.is_readout()) {
    readout_joined(key.node, hello);
  } else {
    builder_joined(key.node, hello, std::move(rails));
  }
}

void EventManager::readout_joined(NodeId node, const wire::Hello& hello) {
  wire::Welcome welcome{.run = system_.run,
                        .incarnation = readouts_.join(node),
                        .run_id_is_shared = static_cast<std::uint16_t>(options_.run_id_is_shared),
                        .held = static_cast<std::uint16_t>(options_.held),
                        .seal_key = seal_key_,
                        .run_id = options_.run_id};
  const auto joining_at = events_.joining_at();
  welcome.joining = joining_at ? 1 : 0;
  welcome.first_event = joining_at.value_or(0);
  welcome.limit = reading_.join(node);
  accounts_.readout_up(node);
  paths_.readout_up(node, welcome.incarnation, environment_.loop->now());
  events_.join(node);
  dispatcher_.readout_up(node, hello.capacity, hello.metadata);
  server_.welcome(readout_key(node), welcome);
  for (std::size_t i = 0; i < builders_.size(); ++i) {
    const auto builder = static_cast<NodeId>(i);
    if (!builders_.present(builder)) continue;
    send_builder_up(server_, node, builder, builders_.incarnation(builder), rails_[i]);
  }
  node_log_.write(readout_key(node), LogLevel::info,
                  welcome.incarnation > 1 ? "has joined again" : "has joined");
}

void EventManager::builder_joined(NodeId node, const wire::Hello& hello, std::string rails) {
  const Incarnation incarnation = builders_.join(node);
  rails_[node] = std::move(rails);
  accounts_.builder_up(node);
  storage_waits_for_[node].clear();
  dispatcher_.builder_up(node, hello.capacity);
  paths_.builder_up(node, environment_.loop->now());
  server_.welcome(builder_key(node),
                  {.run = system_.run, .incarnation = incarnation, .run_id = options_.run_id});
  node_log_.write(builder_key(node), LogLevel::info,
                  incarnation > 1 ? "has joined again" : "has joined");
  for (std::size_t i = 0; i < readouts_.size(); ++i) {
    send_builder_up(server_, static_cast<NodeId>(i), node, incarnation, rails_[node]);
  }
}

void EventManager::left(NodeKey key, std::string_view why) {
  key.is_readout() ? readout_left(key.node, why) : builder_left(key.node, why);
}

void EventManager::readout_left(NodeId node, std::string_view why) {
  readouts_.leave(node);
  if (readouts_.presence(node) == Presence::finished || ended()) return;
  dispatcher_.readout_down(node); // before what it had announced is left behind
  events_.leave(node);
  paths_.readout_down(node);
  node_log_.write(readout_key(node), LogLevel::error,
                  fmt::format("is gone ({}): {}", why, after_loss_of_readout()));
}

std::string_view EventManager::after_loss_of_readout() const {
  if (phase_.is(Phase::waiting)) return "the run cannot begin without it";
  if (running()) return "the run goes on, its sources are missing until it comes back";
  return "the run is ending, and does not wait for it";
}

// What becomes of the events that it had to build.
std::string EventManager::after_loss_of_builder(std::uint64_t events) const {
  if (phase_.is(Phase::waiting) && !all_needed_are_here()) return "the run cannot begin without it";
  if (events == 0) return "it had nothing to build";
  if (system_.assignment == AssignmentPolicy::by_number)
    return fmt::format("its {} until it comes back, by `run.restart` or by hand "
                       "(`event.assignment` = \"by-number\")",
                       counted(events, "event waits", "events wait"));
  if (builders_.none_present())
    return fmt::format("its {} for a builder unit", counted(events, "event waits", "events wait"));
  return "others build its " + counted(events, "event");
}

void EventManager::builder_left(NodeId node, std::string_view why) {
  builders_.leave(node);
  paths_.builder_down(node);
  if (builders_.presence(node) == Presence::finished || ended()) return;
  const std::uint64_t events = dispatcher_.builder_down(node);
  node_log_.write(builder_key(node), LogLevel::error,
                  fmt::format("is gone ({}): {}", why, after_loss_of_builder(events)));
  server_.send_to_readouts(wire::BuilderDown{node, 0, builders_.incarnation(node)});
}

void EventManager::heard(NodeKey key) {
  if (key.is_readout()) return;
  paths_.heard(key.node, environment_.loop->now());
  dispatcher_.try_again();
}

bool EventManager::waits_for(NodeKey key) {
  return readouts_.presence(key.node) == Presence::present && !ended();
}

void EventManager::waits(NodeKey key, std::string_view why) {
  node_log_.write(key, LogLevel::warning,
                  fmt::format("has lost its connection ({}); waiting up to {}", why,
                              format_duration(system_.grace)));
  end_graces();
}

void EventManager::resumed(NodeKey key) {
  node_log_.write(key, LogLevel::info, "has come back in time");
}

// What it committed is safe; it leaves now.
void EventManager::on_failed(NodeId node, const wire::Failed& failed, const std::string& why) {
  server_.drop_in_order(builder_key(node), why);
  builders_.fail(node);
  if (failed.ends_run == 0) return;
  accounts_.fail(fmt::format("builder unit '{}': {}", system_.builder_units[node], why));
  if (!stop_wanted_) stop();
}

void EventManager::check_alive() {
  dispatcher_.try_again();
  const Time now = environment_.loop->now();
  for (const NodeKey key : liveness_.drop_silent(now)) {
    if (options_.on_silent) options_.on_silent(key);
  }
  events_.watch_overtaken(liveness_.running_time());
  events_.watch_beginning(liveness_.running_time());
  path_watch_.watch(now);
  const auto dead_end = refusal_watch_.find();
  if (dead_end && phase_.is(Phase::running)) {
    accounts_.fail(dead_end->text(system_, events_.announcements().announced_end()));
    stop();
  }
  alive_tick_.start(*environment_.loop, now + alive_period);
}

// Readout units whose connection did not come back.
void EventManager::end_graces() {
  const Time next = liveness_.end_graces(environment_.loop->now());
  if (next != never) grace_tick_.start(*environment_.loop, next);
}

// --- messages ------------------------------------------------------------------------------------

bool EventManager::message(NodeKey key, wire::MessageType type, std::span<const std::byte> body) {
  wire::MessageReader reader{body};
  if (type != wire::MessageType::status && type != wire::MessageType::finished) {
    return key.is_readout() ? readout_message(key.node, type, body)
                            : builder_message(key.node, type, body);
  }
  wire::NodeCounters counters;
  if (!reader.read(counters)) return false;
  const auto sources = reader.records<wire::SourceCounters>(counters.sources);
  const std::string waits_for = printable(reader.text(counters.waits_for_size), reason_shown);
  if (!reader.ok()) return false;
  if (key.is_readout()) {
    accounts_.count(key.node, counters);
    events_.on_status(key.node, counters.held_back != 0, waits_for, liveness_.running_time());
    reading_.watch_drain(key.node, counters.held_up_us);
    if (!accounts_.count_dropped(key.node, sources)) return false;
    refusal_watch_.count(system_.sources_of(key.node).first, sources, liveness_.running_time());
  } else {
    accounts_.count_builder(key.node, counters);
    storage_waits_for_[key.node] = waits_for;
  }
  return type == wire::MessageType::status || on_finished(key);
}

bool EventManager::on_finished(NodeKey key) {
  if (!phase_.is(Phase::finishing)) return false; // nobody has asked
  (key.is_readout() ? readouts_ : builders_).finish(key.node);
  return true;
}

bool EventManager::readout_message(NodeId node, wire::MessageType type,
                                   std::span<const std::byte> body) {
  wire::MessageReader reader{body};
  const auto take = [&](auto& receiver, auto on) {
    return take_message(reader, receiver, on, node);
  };
  switch (type) {
  case wire::MessageType::announce: return on_announce(node, reader);
  case wire::MessageType::ready: return take(readouts_, &NodeList::on_ready);
  case wire::MessageType::paused: return take(reading_, &Reading::on_paused);
  case wire::MessageType::held: return take(events_, &KnownEvents::on_held);
  case wire::MessageType::reset_request:
    events_.on_reset_request(node, environment_.loop->now());
    return true;
  case wire::MessageType::uncut: return take(dispatcher_, &Dispatcher::on_uncut);
  default: return false;
  }
}

bool EventManager::builder_message(NodeId node, wire::MessageType type,
                                   std::span<const std::byte> body) {
  wire::MessageReader reader{body};
  switch (type) {
  case wire::MessageType::received:
    return take_message(reader, dispatcher_, &Dispatcher::on_received, node);
  case wire::MessageType::built: return on_built(node, reader);
  case wire::MessageType::reached: {
    wire::Reached reached;
    return reader.read(reached) && path_watch_.on_reached(node, reached, environment_.loop->now());
  }
  case wire::MessageType::hand_back:
    return take_message(reader, *this, &EventManager::on_hand_back, node);
  case wire::MessageType::new_file: {
    wire::NewFile file;
    if (!reader.read(file)) return false;
    const std::string name{reader.text(file.text_size)};
    if (!reader.ok()) return false;
    if (accounts_.add_file(node, name) && options_.recorder != nullptr)
      options_.recorder->file(node, builders_.incarnation(node), name);
    return true;
  }
  case wire::MessageType::failed: {
    wire::Failed failed;
    if (!reader.read(failed)) return false;
    const std::string why = printable(reader.text(failed.text_size), reason_shown);
    if (!reader.ok()) return false;
    on_failed(node, failed, why);
    return true;
  }
  default: return false;
  }
}

bool EventManager::on_built(NodeId builder, wire::MessageReader& reader) {
  std::optional<Dispatcher::Decision> decision;
  if (!dispatcher_.on_built(builder, reader, environment_.loop->now(), decision)) return false;
  if (decision && decision->attempt > 0 && options_.recorder != nullptr) {
    options_.recorder->winner(decision->batch, decision->attempt, builder,
                              builders_.incarnation(builder));
  }
  return true;
}

bool EventManager::on_hand_back(NodeId builder, const wire::HandBack& back) {
  std::optional<Dispatcher::Blame> blame;
  if (!dispatcher_.on_hand_back(builder, back, blame)) return false;
  if (blame) path_watch_.on_blamed(builder, blame->readout, environment_.loop->now());
  return true;
}

bool EventManager::storing() const {
  return std::ranges::any_of(dispatcher_.batches(),
                             [](const auto& entry) { return has_all_data(entry.second.state); });
}

void EventManager::watch_laggards() {
  events_.watch_laggards();
  laggard_tick_.start(*environment_.loop, environment_.loop->now() + laggard_period(system_));
}

bool EventManager::on_announce(NodeId node, wire::MessageReader& reader) {
  if (!events_.on_announce(node, reader, dispatcher_.decided(), liveness_.running_time()))
    return false;
  if (events_.any_silent() && !silent_tick_.active() && !ended()) {
    silent_tick_.start(*environment_.loop, environment_.loop->now() + silent_period(system_));
  }
  return true;
}

std::string EventManager::waiting_for() const {
  return WaitingText{{system_, phase_, readouts_, builders_, paths_, events_, dispatcher_,
                      storage_waits_for_, options_.held}}
      .text();
}

} // namespace fanin::builder
