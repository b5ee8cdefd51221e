#include "fanin/message/acceptor.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/try.hpp"
#include "fanin/memory/heap_page.hpp"

namespace fanin::message::detail {

Acceptor::Acceptor(Context& context, AcceptorOwner& owner, SocketCounters& counters,
                   const Options& options)
    : context_(context),
      owner_(owner),
      counters_(counters),
      options_(options),
      hello_deadline_([this] { close_silent(); }) {}

Acceptor::~Acceptor() { close(); }

void Acceptor::close() {
  listeners_.clear();
  hello_deadline_.cancel();
  for (const auto& [link, deadline] : unidentified_) net::Link(link).close();
  unidentified_.clear();
  for (const auto& [link, peer] : peers_) peer->link.close();
  peers_.clear();
  by_id_.clear();
  last_link_ = {};
  admitted_ = 0;
}

Result<net::Url> Acceptor::listen(const net::Url& url) {
  const auto transport = FANIN_TRY(context_.transport(url));
  auto listener = FANIN_TRY(net::Listener::make(*transport, url,
                                                {.receive_pool = &context_.receive_pool(),
                                                 .handler = this,
                                                 .send_queue_bytes = options_.send_queue_bytes,
                                                 .held_bytes = options_.send_queue_bytes,
                                                 .low_latency = options_.low_latency,
                                                 .peers_must_identify = true}));
  listeners_.push_back(std::move(listener));
  return listeners_.back().url();
}

std::shared_ptr<Peer> Acceptor::find(PeerId id) const {
  if (last_ != nullptr && last_->id == id && last_->link) return last_;
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

// The peer that spoke last speaks next, most often. Kept as a share of its own, so that it lives
// until its handler returns.
const std::shared_ptr<Peer>& Acceptor::lookup(const net::Link& link) {
  if (link != last_link_) {
    const auto found = peers_.find(link);
    last_ = found == peers_.end() ? nullptr : found->second;
    last_link_ = link;
  }
  return last_;
}

void Acceptor::forget(const net::Link& link) {
  unidentified_.erase(link);
  if (const auto found = peers_.find(link); found != peers_.end()) {
    by_id_.erase(found->second->id);
    peers_.erase(found);
  }
  last_link_ = {};
}

void Acceptor::on_event(net::Transport& transport, net::Event& event) {
  const net::Link link{&transport, event.connection};
  switch (event.kind) {
  case net::EventKind::accepted: {
    const Time deadline = context_.loop().now() + hello_timeout;
    unidentified_.emplace(link, deadline);
    if (!hello_deadline_.active()) hello_deadline_.start(context_.loop(), deadline);
    break;
  }
  case net::EventKind::connected: break; // it does not connect
  case net::EventKind::message:
    if (const auto& peer = lookup(link)) {
      owner_.on_message(peer, event);
    } else {
      introduce(link, event);
    }
    break;
  case net::EventKind::writable:
    if (const auto& peer = lookup(link)) {
      if (peer->answer_owed) welcome(*peer);
      owner_.on_writable(*peer);
    }
    break;
  case net::EventKind::closed: ended(link, reason_of(event.reason)); break;
  }
}

void Acceptor::introduce(const net::Link& link, const net::Event& event) {
  const auto hello = read_hello(event.message.bytes());
  if (!hello) return turn_away(link, hello.error());
  std::shared_ptr<Peer> peer = owner_.admit(*hello);
  if (peer == nullptr) return turn_away(link, CloseReason::wrong_kind);
  peer->link = link;
  peer->id = static_cast<PeerId>(next_id_++);
  peer->hello = *hello;
  peer->name = peer->link.peer();
  peer->link.mark_identified();
  unidentified_.erase(link);
  peers_.emplace(link, peer);
  by_id_.emplace(peer->id, peer);
  last_link_ = {};
  ++admitted_;
  ++counters_.connections;
  welcome(*peer);
  owner_.on_admitted(peer);
}

void Acceptor::welcome(Peer& peer) {
  peer.answer_owed =
      answer(peer.link, peer.hello.kind, Refusal::none) == net::SendOutcome::backpressure;
}

net::SendOutcome Acceptor::answer(const net::Link& link, SocketKind kind, Refusal refusal) {
  const Hello hello{.kind = kind,
                    .refusal = refusal,
                    .page_max = context_.receive_pool().page_size() / 2,
                    .message_max = options_.message_max,
                    .lent_max = options_.send_queue_bytes / 2};
  const memory::View view = memory::HeapPage::copy(std::as_bytes(std::span{&hello, 1}));
  return link.send({&view, 1});
}

void Acceptor::turn_away(const net::Link& link, CloseReason reason) {
  ++counters_.closed[static_cast<std::size_t>(reason)];
  context_.log_of_peers(fmt::format("{}: refused: {}", link.peer(), name(reason)));
  // Who speaks another language, or none, is not answered.
  const bool understands =
      reason == CloseReason::wrong_kind || reason == CloseReason::wrong_version;
  if (understands) {
    (void)answer(link, SocketKind::low_latency,
                 reason == CloseReason::wrong_kind ? Refusal::wrong_kind : Refusal::wrong_version);
  }
  net::Link(link).close(!understands);
  forget(link);
}

void Acceptor::close_silent() {
  const Time now = context_.loop().now();
  Time next = never;
  std::vector<net::Link> late;
  for (const auto& [link, deadline] : unidentified_) {
    if (deadline <= now) {
      late.push_back(link);
    } else {
      next = std::min(next, deadline);
    }
  }
  for (const net::Link& link : late) turn_away(link, CloseReason::no_answer);
  if (!unidentified_.empty()) hello_deadline_.start(context_.loop(), next);
}

void Acceptor::close(Peer& peer, CloseReason reason) {
  FANIN_ASSERT(peer.link);
  ++counters_.closed[static_cast<std::size_t>(reason)];
  context_.log_of_peers(fmt::format("{}: disconnected: {}", peer.name, name(reason)));
  const net::Link link = peer.link;
  peer.link.close(true);
  --admitted_;
  forget(link);
}

void Acceptor::ended(const net::Link& link, CloseReason reason) {
  const std::shared_ptr<Peer> peer = lookup(link);
  ++counters_.closed[static_cast<std::size_t>(reason)];
  forget(link);
  last_ = nullptr;
  if (peer == nullptr) return;
  peer->link = {};
  FANIN_ASSERT(admitted_ > 0);
  --admitted_;
  owner_.on_closed(peer, reason);
}

} // namespace fanin::message::detail
