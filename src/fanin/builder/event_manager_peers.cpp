// Nodes that come, go, or say nothing.
#include "fanin/builder/event_manager.hpp"

#include <algorithm>

#include "fanin/builder/printable.hpp"
#include "fanin/builder/rails.hpp"
#include "fanin/source/fragment_queue.hpp"

namespace fanin::builder {

namespace {
constexpr std::size_t name_shown = 200;
} // namespace

EventManager::Peer* EventManager::find_peer(net::Link link) {
  for (auto& readout : readouts_) {
    if (readout.peer && readout.peer->link == link) return readout.peer.get();
  }
  for (auto& builder : builders_) {
    if (builder.peer && builder.peer->link == link) return builder.peer.get();
  }
  for (auto& stranger : strangers_) {
    if (stranger->link == link) return stranger.get();
  }
  return nullptr;
}

void EventManager::on_event(net::Transport& transport, net::Event& event) {
  const net::Link link{&transport, event.connection};
  switch (event.kind) {
  case net::EventKind::accepted: {
    auto peer = std::make_unique<Peer>();
    peer->link = link;
    peer->channel = ControlChannel{*environment_.control_pool};
    peer->heard = peer->listening = environment_.loop->now();
    strangers_.push_back(std::move(peer));
    break;
  }
  case net::EventKind::message:
    if (Peer* peer = find_peer(link)) receive(*peer, event.message);
    break;
  case net::EventKind::writable:
    if (Peer* peer = find_peer(link)) peer->channel.flush();
    break;
  case net::EventKind::closed: peer_lost(link, net::name(event.reason), true); break;
  case net::EventKind::connected: break;
  }
}

void EventManager::receive(Peer& peer, const memory::View& page) {
  peer.heard = environment_.loop->now();
  if (peer.known && peer.role == wire::Role::builder_unit) no_room_ = false;
  const net::Link link = peer.link;
  peer.channel.begin_page();
  const bool good =
      for_each_message(page.bytes(), [&](wire::MessageType type, std::span<const std::byte> body) {
        // A hello moves the peer, and a message may end it: look it up each time.
        Peer* current = find_peer(link);
        if (current == nullptr) return true;
        switch (current->channel.take(type, body)) {
        case ControlChannel::Taken::done: return true;
        case ControlChannel::Taken::bad: return false;
        case ControlChannel::Taken::message: break;
        }
        if (current->known) return on_message(*current, type, body);
        wire::MessageReader reader{body};
        wire::Hello hello;
        if (type != wire::MessageType::hello || !reader.read(hello)) return false;
        const auto text = reader.text(hello.text_size);
        if (!reader.ok()) return false;
        const auto found = std::ranges::find(strangers_, current, &std::unique_ptr<Peer>::get);
        auto owned = std::move(*found);
        strangers_.erase(found);
        on_hello(std::move(owned), hello, text);
        return true;
      });
  if (good) return;
  environment_.log(
      LogLevel::error,
      fmt::format("{}: a message that makes no sense; connection closed", link.peer()));
  net::Link closing = link;
  peer_lost(link, "it sent a message that makes no sense");
  closing.close(true);
}

void EventManager::refuse(Peer& peer, std::string reason, bool for_now, LogLevel level) {
  environment_.log(level, fmt::format("{} refused: {}", peer.link.peer(), reason));
  reason.resize(std::min(reason.size(), peer.channel.room_max()));
  const wire::Refuse message{static_cast<std::uint32_t>(reason.size()), for_now ? 1U : 0U};
  peer.channel.greet(peer.link, message, std::string_view{reason});
  peer.link.close();
}

void EventManager::on_hello(std::unique_ptr<Peer> peer, const wire::Hello& hello,
                            std::string_view text) {
  const auto split = text.find('\n');
  const std::string_view name = text.substr(0, split);
  const std::string shown = printable(name, name_shown);
  std::string rails{split == std::string_view::npos ? "" : text.substr(split + 1)};
  const bool is_readout = hello.role == wire::Role::readout_unit;
  const auto& names = is_readout ? system_.readout_units : system_.builder_units;
  if (hello.version != wire::protocol_version) {
    return refuse(*peer,
                  fmt::format("node '{}' speaks version {} of the protocol, the event manager {}: "
                              "run the same release of fanin on all nodes",
                              shown, hello.version, wire::protocol_version));
  }
  if ((!is_readout && hello.role != wire::Role::builder_unit) || hello.node >= names.size() ||
      names[hello.node] != name) {
    return refuse(*peer,
                  fmt::format("the event manager knows no node '{}': all nodes need the same "
                              "configuration",
                              shown));
  }
  if (hello.system_digest != digest_) {
    return refuse(*peer, fmt::format("node '{}' has another configuration than the event manager: "
                                     "give all nodes the same file",
                                     shown));
  }
  if (!is_readout && !parse_rails(rails)) {
    return refuse(*peer, fmt::format("builder unit '{}' has no data address", shown));
  }
  if (is_readout && try_resume(*peer, hello)) return;
  leave_to_process(hello, *peer);
  const bool taken =
      is_readout ? readouts_[hello.node].peer != nullptr : builders_[hello.node].peer != nullptr;
  if (taken) {
    return refuse(*peer,
                  fmt::format("there is a node '{}' already: two nodes with one name, or an "
                              "earlier one that is not dead yet",
                              shown),
                  true);
  }
  // A builder unit may be the only one left that can build what the run still holds.
  if (is_readout && environment_.loop->now() < readouts_[hello.node].barred_until) {
    return refuse(*peer,
                  fmt::format("readout unit '{}' was given up because it reaches no builder "
                              "unit that the others reach",
                              shown),
                  true, LogLevel::debug);
  }
  const State last_welcome = is_readout ? State::running : State::draining;
  const bool failed = !is_readout && builders_[hello.node].failed && !summary_.error.empty();
  if (state_ > last_welcome || failed) {
    return refuse(*peer, "the run is ending", false, LogLevel::info);
  }
  peer->known = true;
  peer->link.trust();
  peer->role = hello.role;
  peer->node = hello.node;
  peer->session = hello.session;
  peer->channel.begin(peer->link);
  if (is_readout) {
    readout_up(std::move(peer), hello);
  } else {
    builder_up(std::move(peer), hello.capacity, std::move(rails));
  }
}

void EventManager::readout_up(std::unique_ptr<Peer> peer, const wire::Hello& hello) {
  const NodeId node = peer->node;
  Readout& readout = readouts_[node];
  readout.memory = hello.capacity;
  readout.metadata = hello.metadata;
  const auto [first, last] = system_.sources_of(node);
  readout.peer = std::move(peer);
  readout.incarnation = ++readout.starts;
  readout.final = readout.paused = readout.finished = false;
  readout.points.clear();
  readout.silent = readout.held_waits = readout.passed_over = readout.overtaken_said = false;
  readout.overtaken_since.reset();
  readout.held_ended = readout.held_back = false;
  readout.waits_for.clear();
  readout.in_a_row = 0;
  readout.held = 0;
  readout.floor_bytes = readout.bytes = 0;
  readout.ledgers.emplace_back(last - first);
  readout.dropped.emplace_back(last - first, std::vector<std::uint64_t>(source::drop_reasons));
  readout.counters = {};

  const bool triggered = system_.trigger_rate_hz > 0;
  wire::Welcome welcome;
  welcome.run = system_.run;
  welcome.incarnation = readout.incarnation;
  welcome.joining = triggered || frontier_known_ ? 1 : 0;
  welcome.first_event = triggered ? triggered_ : std::max(agreed_horizon(), frontier_);
  if (welcome.joining == 0) welcome.first_event = 0;
  if (state_ == State::running) welcome.limit = triggered ? triggered_ : limit_;
  readout.limit_said = triggered_;
  readout.announced_any = welcome.joining != 0;
  readout.first = readout.end = welcome.first_event;
  readout.welcome = welcome;
  readout.peer->channel.greet(readout.peer->link, welcome);
  for (std::size_t i = 0; i < builders_.size(); ++i) {
    const Builder& builder = builders_[i];
    if (!builder.peer) continue;
    readout.peer->channel.append(wire::BuilderUp{static_cast<NodeId>(i), 0, builder.incarnation,
                                                 static_cast<std::uint32_t>(builder.rails.size()),
                                                 0},
                                 std::string_view{builder.rails});
  }
  environment_.log(LogLevel::info,
                   fmt::format("readout unit '{}' is here{}", system_.readout_units[node],
                               readout.starts > 1 ? " again" : ""));
  readout.failing_since = never;
  for (auto& builder : builders_) builder.ways[node] = {0, environment_.loop->now()};
  members_changed_ = ways_changed_ = true;
  no_room_ = false;
  start_if_ready();
}

void EventManager::builder_up(std::unique_ptr<Peer> peer, std::uint64_t capacity,
                              std::string rails) {
  const NodeId node = peer->node;
  Builder& builder = builders_[node];
  builder.peer = std::move(peer);
  builder.incarnation = ++builder.starts;
  builder.capacity = capacity;
  builder.reserved = builder.metadata = builder.under_way = 0;
  builder.reservations.clear();
  builder.returned = 0;
  builder.ways.assign(readouts_.size(), {0, environment_.loop->now()});
  builder.reached = builder.lagging = false;
  ways_changed_ = true;
  builder.rails = std::move(rails);
  builder.finished = builder.failed = false;
  builder.files.clear();
  builder.peer->channel.greet(
      builder.peer->link, wire::Welcome{.run = system_.run, .incarnation = builder.incarnation});
  environment_.log(LogLevel::info,
                   fmt::format("builder unit '{}' is here{}", system_.builder_units[node],
                               builder.starts > 1 ? " again" : ""));
  for (auto& readout : readouts_) {
    if (!readout.peer) continue;
    readout.peer->channel.append(wire::BuilderUp{node, 0, builder.incarnation,
                                                 static_cast<std::uint32_t>(builder.rails.size()),
                                                 0},
                                 std::string_view{builder.rails});
  }
  no_room_ = false;
  members_changed_ = true;
  start_if_ready();
}

// The same process over another connection, maybe before the loss of the old one was noticed: what
// it holds still counts.
bool EventManager::try_resume(Peer& fresh, const wire::Hello& hello) {
  Readout& readout = readouts_[hello.node];
  if (!readout.peer || hello.session != readout.peer->session) return false;
  Peer& peer = *readout.peer;
  // The connection may have ended before the welcome came: it is said again.
  const bool unwelcomed =
      hello.resumes == 0 && peer.channel.received() == 0 && peer.channel.acknowledged() == 0;
  if (!unwelcomed && hello.resumes != readout.incarnation) return false;
  if (!peer.channel.resume(fresh.link, unwelcomed ? 0 : hello.received)) return false;
  peer.link.close(true);
  peer.link = fresh.link;
  peer.link.trust();
  peer.lost_at = never;
  peer.heard = peer.listening = environment_.loop->now();
  if (unwelcomed) {
    peer.channel.greet(peer.link, readout.welcome);
  } else {
    peer.channel.greet(peer.link, wire::Resumed{peer.channel.received()});
  }
  environment_.log(LogLevel::info, fmt::format("readout unit '{}' has come back in time",
                                               system_.readout_units[hello.node]));
  return true;
}

// Whoever begins anew has nothing left of before, and another process than one that has lost its
// connection is there instead of it.
void EventManager::leave_to_process(const wire::Hello& hello, const Peer& fresh) {
  const bool is_readout = hello.role == wire::Role::readout_unit;
  const Peer* old =
      is_readout ? readouts_[hello.node].peer.get() : builders_[hello.node].peer.get();
  if (old == nullptr || (old->session != hello.session && old->link)) return;
  environment_.log(LogLevel::debug, fmt::format("{} begins anew", fresh.link.peer()));
  net::Link link = old->link;
  if (is_readout) {
    readout_down(hello.node, "it begins anew");
  } else {
    builder_down(hello.node, "it begins anew");
  }
  link.close(true);
}

// Readout units whose connection did not come back.
void EventManager::end_graces() {
  pass_over_pauses();
  const Time now = environment_.loop->now();
  Time next = never;
  for (std::size_t i = 0; i < readouts_.size(); ++i) {
    if (!readouts_[i].peer || readouts_[i].peer->lost_at == never) continue;
    const bool died = readouts_[i].peer->died;
    const Time due = readouts_[i].peer->lost_at + system_.grace;
    if (due <= now || died) {
      readout_down(static_cast<NodeId>(i), died ? "it died" : "its connection is lost");
    } else {
      next = std::min(next, due);
    }
  }
  if (next != never) grace_tick_.start(*environment_.loop, next);
}

void EventManager::process_died(std::uint64_t session) {
  for (auto& readout : readouts_) {
    if (readout.peer && readout.peer->session == session) readout.peer->died = true;
  }
  end_graces();
}

void EventManager::peer_lost(net::Link link, std::string_view why, bool for_now) {
  std::erase_if(strangers_, [&](const auto& stranger) { return stranger->link == link; });
  for (std::size_t i = 0; i < readouts_.size(); ++i) {
    Readout& readout = readouts_[i];
    if (!readout.peer || readout.peer->link != link) continue;
    if (!for_now || readout.finished || state_ == State::ended || system_.grace <= Duration{0}) {
      readout_down(static_cast<NodeId>(i), why);
      continue;
    }
    environment_.log(LogLevel::warning,
                     fmt::format("readout unit '{}': its connection is lost ({}), waiting for it",
                                 system_.readout_units[i], why));
    readout.peer->link = {};
    readout.peer->channel.detach();
    readout.peer->lost_at = environment_.loop->now();
    end_graces();
  }
  for (std::size_t i = 0; i < builders_.size(); ++i) {
    if (builders_[i].peer && builders_[i].peer->link == link)
      builder_down(static_cast<NodeId>(i), why);
  }
}

void EventManager::readout_down(NodeId node, std::string_view why) {
  Readout& readout = readouts_[node];
  readout.peer.reset();
  if (readout.finished || state_ == State::ended) return;
  leave_behind(node);
  const std::string_view then =
      state_ == State::waiting ? "the run waits for it"
                               : "the run goes on, its sources are missing until it comes back";
  environment_.log(LogLevel::error, fmt::format("readout unit '{}' is gone ({}): {}",
                                                system_.readout_units[node], why, then));
  members_changed_ = ways_changed_ = true;
  no_room_ = false;
}

void EventManager::builder_down(NodeId node, std::string_view why) {
  Builder& builder = builders_[node];
  builder.peer.reset();
  ways_changed_ = true;
  no_room_ = false;
  if (builder.finished || state_ == State::ended) return;
  std::uint64_t events = 0;
  for (auto& [first, batch] : batches_) {
    if (batch.builder != node || batch.builder_incarnation != builder.incarnation) continue;
    take_back(batch);
    events += batch.range.count();
  }
  const std::string then =
      events == 0 ? "it had nothing to build" : fmt::format("others build its {} events", events);
  environment_.log(LogLevel::error, fmt::format("builder unit '{}' is gone ({}): {}",
                                                system_.builder_units[node], why, then));
  tell_readouts(wire::BuilderDown{node, 0, builder.incarnation});
}

// What it committed is safe; it leaves now.
void EventManager::on_failed(NodeId node, const wire::Failed& failed, const std::string& why) {
  net::Link link = builders_[node].peer->link;
  builders_[node].failed = true;
  builder_down(node, why);
  link.close();
  if (failed.ends_run == 0) return;
  if (summary_.error.empty()) {
    summary_.error = fmt::format("builder unit '{}': {}", system_.builder_units[node], why);
  }
  if (!stop_wanted_) stop();
}

// From here on assignments name this set of readout units. Said once per turn, and only once the
// run is on: a thousand nodes that come up one by one are one change.
void EventManager::publish_members() {
  if (!members_changed_) return;
  members_changed_ = false;
  std::vector<Incarnation> incarnations;
  for (const auto& readout : readouts_) {
    incarnations.push_back(readout.peer ? readout.incarnation : 0);
  }
  const wire::Members message{++epoch_, static_cast<std::uint32_t>(incarnations.size()), 0};
  for (auto& builder : builders_) {
    if (builder.peer) builder.peer->channel.append(message, incarnations);
  }
  members_[epoch_].readouts = std::move(incarnations);
}

// A node that says nothing for long is given up: it may be frozen, or its host dead without a word.
// What it still sends is recognised as stale by its incarnation.
void EventManager::check_alive() {
  pass_over_pauses();
  no_room_ = false; // whatever it was
  const Time now = environment_.loop->now();
  std::vector<net::Link> silent;
  const auto look_at = [&](const std::unique_ptr<Peer>& peer) {
    if (!peer) return;
    const bool reads = peer->channel.acknowledged() != peer->acknowledged || !peer->channel.full();
    peer->acknowledged = peer->channel.acknowledged();
    if (reads || !peer->known) peer->listening = now;
    if (!peer->link) return;
    if (now - std::min(peer->heard, peer->listening) > system_.dead_after) {
      silent.push_back(peer->link);
    }
    peer->channel.acknowledge();
  };
  for (const auto& stranger : strangers_) look_at(stranger);
  for (const auto& readout : readouts_) look_at(readout.peer);
  for (const auto& builder : builders_) look_at(builder.peer);
  for (net::Link link : silent) {
    const Peer* peer = find_peer(link);
    const bool builder = peer->known && peer->role == wire::Role::builder_unit;
    const NodeId node = peer->node;
    peer_lost(link, "no sign of life");
    link.close(true);
    if (builder && options_.on_silent) options_.on_silent(node);
  }
  pass_over_quiet();
  watch_ways();
  alive_tick_.start(*environment_.loop, now + alive_period);
}

// Nobody is judged by the time in which the event manager itself did not run, or hardly: what
// others have said meanwhile lies in its sockets. All times from which it counts are moved.
void EventManager::pass_over_pauses() {
  const Time now = environment_.loop->now();
  const Duration fair = clock_.look(now, false);
  const Duration paused = (now - looked_) - (fair - fair_);
  looked_ = now;
  fair_ = fair;
  if (paused <= Duration{0}) return;
  const auto move = [&](Time& time) {
    if (time != never) time = std::min(now, time + paused);
  };
  const auto move_peer = [&](const std::unique_ptr<Peer>& peer) {
    if (!peer) return;
    for (Time* const time : {&peer->heard, &peer->listening, &peer->lost_at}) move(*time);
  };
  for (const auto& stranger : strangers_) move_peer(stranger);
  for (auto& readout : readouts_) {
    move_peer(readout.peer);
    move(readout.failing_since);
  }
  for (auto& builder : builders_) {
    move_peer(builder.peer);
    for (auto& way : builder.ways) move(way.broken_since);
  }
  move(unreached_since_);
}

// --- ways of the data ----------------------------------------------------------------------------

bool EventManager::on_reached(NodeId node, const wire::Reached& reached) {
  if (reached.readout_unit >= readouts_.size()) return false;
  Builder& builder = builders_[node];
  Readout& readout = readouts_[reached.readout_unit];
  if (reached.incarnation != readout.incarnation) return true; // of before
  builder.ways[reached.readout_unit] = {reached.yes != 0 ? reached.incarnation : 0,
                                        environment_.loop->now()};
  ways_changed_ = true;
  if (reached.yes == 0 && readout.peer) { // it may not have noticed itself
    readout.peer->channel.append(
        wire::Reconnect{node, 0, builder.incarnation, reached.connection, 0});
  }
  return true;
}

// Batches go only to builder units that all readout units reach.
void EventManager::find_reached() {
  if (!std::exchange(ways_changed_, false)) return;
  no_room_ = false;
  bool any = false;
  for (auto& builder : builders_) {
    builder.reached = builder.peer != nullptr;
    for (std::size_t node = 0; node < readouts_.size() && builder.reached; ++node) {
      const Readout& readout = readouts_[node];
      builder.reached = !readout.peer || builder.ways[node].incarnation == readout.incarnation;
    }
    any = any || builder.reached;
  }
  if (any || builders_up() == 0) {
    unreached_since_ = never;
  } else if (unreached_since_ == never) {
    unreached_since_ = environment_.loop->now();
  }
}

// A readout unit that does not get through is told to try its next way, and given up if it finds
// none for as long as a silent one.
void EventManager::watch_ways() {
  const Time now = environment_.loop->now();
  const Duration patience_least = std::max<Duration>(2 * system_.event_deadline, 2 * alive_period);
  for (std::size_t b = 0; b < builders_.size(); ++b) {
    if (!builders_[b].peer || builders_[b].reached) continue;
    for (std::size_t r = 0; r < readouts_.size(); ++r) {
      auto& way = builders_[b].ways[r];
      const bool broken = readouts_[r].peer && way.incarnation != readouts_[r].incarnation;
      const Duration patience = std::max(way.patience, patience_least);
      if (!broken || now - way.broken_since < patience) continue;
      if (!readouts_[r].peer->channel.roomy()) continue;
      way.broken_since = now;
      way.patience = 2 * patience;
      readouts_[r].peer->channel.append(
          wire::Reconnect{static_cast<NodeId>(b), 0, builders_[b].incarnation, 0, 0});
    }
  }
  const bool building = state_ > State::waiting && state_ < State::finishing;
  if (building && unreached_since_ != never && now - unreached_since_ > system_.dead_after) {
    give_up_unreachable();
  }
}

// No builder unit is reached by all: the fewest readout units are given up whose loss leaves one.
void EventManager::give_up_unreachable() {
  std::vector<NodeId> fewest;
  bool any = false;
  for (const auto& builder : builders_) {
    if (!builder.peer) continue;
    std::vector<NodeId> without;
    for (std::size_t r = 0; r < readouts_.size(); ++r) {
      if (!readouts_[r].peer || builder.ways[r].incarnation == readouts_[r].incarnation) continue;
      without.push_back(static_cast<NodeId>(r));
    }
    if (any && without.size() >= fewest.size()) continue;
    any = true;
    fewest = std::move(without);
  }
  unreached_since_ = never;
  ways_changed_ = true;
  for (const NodeId node : fewest)
    give_up_path(node, "no builder unit is reached by all others and by it");
}

void EventManager::give_up_path(NodeId node, std::string_view why) {
  Readout& readout = readouts_[node];
  readout.barred_until = environment_.loop->now() + 4 * system_.dead_after;
  net::Link link = readout.peer->link;
  readout_down(node, why);
  link.close(true);
}

bool EventManager::on_message(Peer& peer, wire::MessageType type, std::span<const std::byte> body) {
  wire::MessageReader reader{body};
  const bool from_readout = peer.role == wire::Role::readout_unit;
  switch (type) {
  case wire::MessageType::announce: {
    wire::Announce announce;
    if (!from_readout || !reader.read(announce)) return false;
    const auto absent = reader.records<wire::AbsentRun>(announce.absent_runs);
    return reader.ok() && on_announce(readouts_[peer.node], announce, absent);
  }
  case wire::MessageType::paused: {
    wire::Paused paused;
    if (!from_readout || !reader.read(paused)) return false;
    readouts_[peer.node].paused = true;
    readouts_[peer.node].paused_at = paused;
    return true;
  }
  case wire::MessageType::held: {
    wire::Held held;
    if (!from_readout || !reader.read(held)) return false;
    Readout& readout = readouts_[peer.node];
    on_held(readout, held);
    return true;
  }
  case wire::MessageType::begin:
    if (!from_readout) return false;
    on_begin(readouts_[peer.node]);
    return true;
  case wire::MessageType::received: {
    wire::Received received;
    if (from_readout || !reader.read(received)) return false;
    on_received(builders_[peer.node], received);
    return true;
  }
  case wire::MessageType::built:
    return !from_readout && on_built(builders_[peer.node], peer.node, reader);
  case wire::MessageType::reached: {
    wire::Reached reached;
    return !from_readout && reader.read(reached) && on_reached(peer.node, reached);
  }
  case wire::MessageType::hand_back: {
    wire::HandBack back;
    return !from_readout && reader.read(back) &&
           on_hand_back(builders_[peer.node], peer.node, back);
  }
  case wire::MessageType::uncut: {
    wire::Uncut uncut;
    if (!from_readout || !reader.read(uncut)) return false;
    on_uncut(readouts_[peer.node], uncut);
    return true;
  }
  case wire::MessageType::failed: {
    wire::Failed failed;
    if (from_readout || !reader.read(failed)) return false;
    const std::string why = printable(reader.text(failed.text_size));
    if (!reader.ok()) return false;
    on_failed(peer.node, failed, why);
    return true;
  }
  case wire::MessageType::status:
  case wire::MessageType::finished: {
    wire::NodeCounters counters;
    if (!reader.read(counters) || !on_counters(peer, counters, reader)) return false;
    if (type == wire::MessageType::finished) {
      if (state_ != State::finishing) return false; // nobody has asked
      (from_readout ? readouts_[peer.node].finished : builders_[peer.node].finished) = true;
    }
    return true;
  }
  default: return false;
  }
}

} // namespace fanin::builder
