#include "fanin/builder/control/control_server.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "fanin/base/assert.hpp"
#include "fanin/base/printable.hpp"
#include "fanin/base/try.hpp"

namespace fanin::builder {

namespace {
constexpr std::size_t name_shown = 200; // bytes
} // namespace

ControlServer::ControlServer(const System& system, NodeEnvironment environment, Nodes& nodes)
    : NodeOutbox(system.readout_units.size(), system.builder_units.size()),
      system_(system),
      digest_(system.digest()),
      environment_(std::move(environment)),
      nodes_(nodes),
      room_max_(ControlChannel{*environment_.control_pool}.room_max()),
      readouts_(system.readout_units.size()),
      peers_(readouts_ + system.builder_units.size()),
      to_flush_(peers_.size() / 64 + 1) {}

ControlServer::~ControlServer() {
  for (auto& peer : unidentified_) peer->link.close(true);
  close_all();
}

Result<> ControlServer::start(std::span<const net::Url> rails) {
  listeners_ = FANIN_TRY(
      listen_on_rails(environment_, rails,
                      {.receive_pool = environment_.control_pool,
                       .handler = this,
                       .send_queue_bytes = control_queue_bytes(*environment_.control_pool),
                       .low_latency = true,
                       .urgent = true,
                       .peers_must_identify = true}));
  return {};
}

void ControlServer::close_all() {
  for (auto& peer : peers_) {
    if (peer) peer->link.close(true);
  }
}

// --- connections ---------------------------------------------------------------------------------

void ControlServer::on_event(net::Transport& transport, net::Event& event) {
  const net::Link link{&transport, event.connection};
  if (event.kind == net::EventKind::accepted) return on_accepted(link);
  if (event.kind == net::EventKind::closed) return on_closed(link, net::name(event.reason));
  const auto found = by_link_.find(link);
  if (found == by_link_.end()) return;
  Peer& peer = *found->second;
  if (peer.identified()) mark_to_flush(index(peer.key));
  if (event.kind == net::EventKind::message) receive(peer, event.message);
  if (event.kind == net::EventKind::writable) peer.channel.flush();
}

void ControlServer::on_accepted(net::Link link) {
  auto peer = std::make_unique<Peer>();
  peer->link = link;
  peer->channel = ControlChannel{*environment_.control_pool};
  peer->heard = peer->caught_up_at = environment_.loop->now();
  by_link_[link] = peer.get();
  unidentified_.push_back(std::move(peer));
}

void ControlServer::receive(Peer& peer, const memory::View& page) {
  peer.heard = environment_.loop->now();
  if (peer.identified()) nodes_.heard(peer.key);
  const net::Link link = peer.link;
  peer.channel.begin_page();
  const bool good =
      for_each_message(page.bytes(), [&](wire::MessageType type, std::span<const std::byte> body) {
        return take(link, type, body);
      });
  if (good) return;
  log_refused(LogLevel::error,
              fmt::format("{}: sent an invalid message; connection closed", link.peer()));
  net::Link closing = link;
  lose(link, "it sent an invalid message");
  closing.close(true);
}

// A hello moves the peer, and a message may end it: it is looked up each time.
bool ControlServer::take(net::Link link, wire::MessageType type, std::span<const std::byte> body) {
  const auto found = by_link_.find(link);
  if (found == by_link_.end()) return true;
  Peer& peer = *found->second;
  switch (peer.channel.take(type, body)) {
  case ControlChannel::Taken::done: return true;
  case ControlChannel::Taken::bad: return false;
  case ControlChannel::Taken::message: break;
  }
  if (peer.identified()) return nodes_.message(peer.key, type, body);
  wire::MessageReader reader{body};
  wire::Hello hello;
  if (type != wire::MessageType::hello || !reader.read(hello)) return false;
  const auto text = reader.text(hello.text_size);
  if (!reader.ok()) return false;
  const auto owner = std::ranges::find(unidentified_, &peer, &std::unique_ptr<Peer>::get);
  auto owned = std::move(*owner);
  unidentified_.erase(owner);
  by_link_.erase(link);
  on_hello(std::move(owned), hello, text);
  return true;
}

// The connection has ended; a readout unit may come back over another one.
void ControlServer::on_closed(net::Link link, std::string_view why) {
  const auto found = by_link_.find(link);
  if (found == by_link_.end()) return;
  Peer& peer = *found->second;
  const bool waits = peer.identified() && peer.key.is_readout() && system_.grace > Duration{0} &&
                     nodes_.waits_for(peer.key);
  if (!waits) return lose(link, why);
  by_link_.erase(found);
  peer.link = {};
  peer.channel.detach();
  peer.lost_at = environment_.loop->now();
  const bool died = std::exchange(peer.state, PeerState::lost) == PeerState::dying;
  if (died) return drop(peer.key, "it died", true);
  nodes_.waits(peer.key, why);
}

// The connection has ended, or is about to be closed, and its peer is gone with it.
void ControlServer::lose(net::Link link, std::string_view why) {
  const auto found = by_link_.find(link);
  if (found == by_link_.end()) return;
  Peer& peer = *found->second;
  by_link_.erase(found);
  if (!peer.identified()) {
    std::erase_if(unidentified_, [&](const auto& one) { return one.get() == &peer; });
    return;
  }
  const NodeKey key = peer.key;
  peers_[index(key)].reset();
  nodes_.left(key, why);
}

void ControlServer::drop(NodeKey key, std::string_view why, bool abort) {
  auto& peer = peers_[index(key)];
  if (!peer) return;
  net::Link link = peer->link;
  by_link_.erase(link);
  peer.reset();
  nodes_.left(key, why);
  link.close(abort);
}

// --- hello ---------------------------------------------------------------------------------------

// None: it is a node of this configuration.
std::optional<std::string> ControlServer::wrong_with(const wire::Hello& hello,
                                                     std::string_view name,
                                                     std::string_view rails) const {
  const std::string shown = printable(name, name_shown);
  const bool is_readout = hello.role == wire::Role::readout_unit;
  const auto& names = is_readout ? system_.readout_units : system_.builder_units;
  if (hello.version != wire::protocol_version) {
    return fmt::format("node '{}' speaks version {} of the protocol, the event manager {}: run the "
                       "same release of fanin on all nodes",
                       shown, hello.version, wire::protocol_version);
  }
  if ((!is_readout && hello.role != wire::Role::builder_unit) || hello.node >= names.size() ||
      names[hello.node] != name) {
    return fmt::format("the event manager knows no node '{}': all nodes need the same "
                       "configuration",
                       shown);
  }
  if (hello.system_digest != digest_) {
    return fmt::format("node '{}' has another configuration than the event manager: give all nodes "
                       "the same file",
                       shown);
  }
  if (!is_readout && !parse_rails(rails)) {
    return fmt::format("builder unit '{}' has no data address", shown);
  }
  return {};
}

void ControlServer::on_hello(std::unique_ptr<Peer> peer, const wire::Hello& hello,
                             std::string_view text) {
  const auto split = text.find('\n');
  const std::string_view name = text.substr(0, split);
  std::string rails{split == std::string_view::npos ? "" : text.substr(split + 1)};
  if (auto wrong = wrong_with(hello, name, rails)) return refuse(*peer, {std::move(*wrong)});
  const NodeKey key{hello.role, hello.node};
  if (key.is_readout() && try_resume(*peer, hello)) return;
  drop_earlier_process(key, hello, *peer);
  if (peers_[index(key)]) {
    return refuse(*peer, {fmt::format("there is a node '{}' already: two nodes with one name, or "
                                      "an earlier one that is not dead yet",
                                      name),
                          wire::RefusalKind::for_now});
  }
  if (auto refusal = nodes_.refusal(key)) return refuse(*peer, std::move(*refusal));
  peer->state = PeerState::connected;
  peer->link.mark_identified();
  peer->key = key;
  peer->session = hello.session;
  peer->channel.begin(peer->link);
  by_link_[peer->link] = peer.get();
  peers_[index(key)] = std::move(peer);
  nodes_.joined(key, hello, std::move(rails));
}

void ControlServer::refuse(Peer& peer, Refusal refusal) {
  log_refused(refusal.level, fmt::format("{} refused: {}", peer.link.peer(), refusal.reason));
  std::string& reason = refusal.reason;
  reason.resize(std::min(reason.size(), peer.channel.room_max()));
  const wire::Refuse message{static_cast<std::uint32_t>(reason.size()), refusal.kind};
  peer.channel.greet(peer.link, message, std::string_view{reason});
  peer.link.close();
}

// Whoever can connect can cause as many of these lines as it likes.
void ControlServer::log_refused(LogLevel level, std::string_view text) {
  refusals_.write(environment_.log, environment_.loop->now(), level, text);
}

void ControlServer::welcome(NodeKey key, const wire::Welcome& welcome) {
  FANIN_ASSERT(peers_[index(key)] != nullptr);
  Peer& peer = *peers_[index(key)];
  peer.welcome = welcome;
  peer.channel.greet(peer.link, welcome);
  mark_to_flush(index(key));
}

// The same process over another connection, maybe before the loss of the old one was noticed: what
// it holds still counts.
bool ControlServer::try_resume(Peer& fresh, const wire::Hello& hello) {
  const NodeKey key{hello.role, hello.node};
  if (!peers_[index(key)] || hello.session != peers_[index(key)]->session) return false;
  Peer& peer = *peers_[index(key)];
  // The connection may have ended before the welcome came: it is said again.
  const bool unwelcomed =
      hello.resumes == 0 && peer.channel.received() == 0 && peer.channel.acknowledged() == 0;
  if (!unwelcomed && hello.resumes != peer.welcome.incarnation) return false;
  if (!peer.channel.resume(fresh.link, unwelcomed ? 0 : hello.received)) return false;
  by_link_.erase(peer.link);
  peer.link.close(true);
  peer.link = fresh.link;
  by_link_[peer.link] = &peer;
  peer.link.mark_identified();
  if (peer.state == PeerState::lost) peer.state = PeerState::connected;
  peer.lost_at = never;
  peer.heard = peer.caught_up_at = environment_.loop->now();
  if (unwelcomed) {
    peer.channel.greet(peer.link, peer.welcome);
  } else {
    peer.channel.greet(peer.link, wire::Resumed{peer.channel.received()});
  }
  mark_to_flush(index(key));
  nodes_.resumed(key);
  return true;
}

// A process that starts a new conversation has nothing left of the old one; another process has
// taken the place of one that has lost its connection.
void ControlServer::drop_earlier_process(NodeKey key, const wire::Hello& hello, const Peer& fresh) {
  const auto& old = peers_[index(key)];
  if (!old || (old->session != hello.session && old->link)) return;
  environment_.log(LogLevel::debug, fmt::format("{} has started again", fresh.link.peer()));
  drop(key, "it has started again", true);
}

// --- what nodes are told -------------------------------------------------------------------------

ControlChannel* ControlServer::channel(NodeKey key) {
  const std::size_t at = index(key);
  if (!peers_[at]) return nullptr;
  mark_to_flush(at);
  return &peers_[at]->channel;
}

std::byte* ControlServer::reserve(NodeKey key, wire::MessageType type, std::size_t size) {
  ControlChannel* const to = channel(key);
  return to == nullptr ? nullptr : to->reserve(type, size);
}

bool ControlServer::roomy(NodeKey key) {
  ControlChannel* const to = channel(key);
  return to != nullptr && to->roomy();
}

bool ControlServer::readouts_roomy() {
  for (std::size_t i = 0; i < readouts_; ++i) {
    if (!peers_[i]) continue;
    mark_to_flush(i);
    if (!peers_[i]->channel.roomy()) return false;
  }
  return true;
}

// Only channels that have something to do cost anything: each turn of the loop ends here.
void ControlServer::flush() {
  std::vector<net::Link> stuck;
  for (std::size_t word = 0; word < to_flush_.size(); ++word) {
    for (std::uint64_t rest = std::exchange(to_flush_[word], 0); rest != 0; rest &= rest - 1) {
      const std::size_t at = 64 * word + static_cast<std::size_t>(std::countr_zero(rest));
      if (!peers_[at]) continue;
      Peer& peer = *peers_[at];
      peer.channel.flush();
      if (!peer.channel.is_idle()) mark_to_flush(at);
      if (peer.link && peer.channel.failed()) stuck.push_back(peer.link);
    }
  }
  for (net::Link link : stuck) {
    lose(link, "it does not read");
    link.close(true);
  }
}

// --- who is alive --------------------------------------------------------------------------------

void ControlServer::process_died(std::uint64_t session) {
  for (std::size_t i = 0; i < readouts_; ++i) {
    if (!peers_[i] || peers_[i]->session != session) continue;
    if (peers_[i]->state == PeerState::connected) {
      peers_[i]->state = PeerState::dying;
    } else if (peers_[i]->state == PeerState::lost) {
      drop(peers_[i]->key, "it died", true);
    }
  }
}

Time ControlServer::end_graces(Time now) {
  Time next = never;
  for (std::size_t i = 0; i < readouts_; ++i) {
    if (!peers_[i] || peers_[i]->state != PeerState::lost) continue;
    const Time due = peers_[i]->lost_at + system_.grace;
    if (due <= now) {
      drop(peers_[i]->key, "its connection is lost", true);
    } else {
      next = std::min(next, due);
    }
  }
  return next;
}

// Whether it has said or acknowledged nothing for too long.
bool ControlServer::is_silent(Peer& peer, Time now) const {
  const bool reads = !peer.identified() || peer.channel.acknowledged() != peer.acknowledged ||
                     !peer.channel.full();
  peer.acknowledged = peer.channel.acknowledged();
  if (reads) peer.caught_up_at = now;
  if (!peer.link) return false;
  if (now - std::min(peer.heard, peer.caught_up_at) > system_.dead_after) return true;
  peer.channel.acknowledge();
  return false;
}

std::vector<NodeKey> ControlServer::drop_silent(Time now) {
  std::vector<net::Link> silent;
  for (const auto& peer : unidentified_) {
    if (is_silent(*peer, now)) silent.push_back(peer->link);
  }
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (!peers_[i]) continue;
    mark_to_flush(i);
    if (is_silent(*peers_[i], now)) silent.push_back(peers_[i]->link);
  }
  std::vector<NodeKey> dropped;
  for (net::Link link : silent) {
    const auto found = by_link_.find(link);
    if (found == by_link_.end()) continue;
    if (found->second->identified()) dropped.push_back(found->second->key);
    lose(link, "no sign of life");
    link.close(true);
  }
  return dropped;
}

void ControlServer::pass_over(Duration pause, Time now) {
  const auto move = [&](Peer& peer) {
    for (Time* const time : {&peer.heard, &peer.caught_up_at, &peer.lost_at}) {
      if (*time != never) *time = std::min(now, *time + pause);
    }
  };
  for (const auto& peer : unidentified_) move(*peer);
  for (const auto& peer : peers_) {
    if (peer) move(*peer);
  }
}

} // namespace fanin::builder
