#include "fanin/net/in_memory/memory_transport.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/try.hpp"
#include "fanin/net/connection_options.hpp"

namespace fanin::net::in_memory {
namespace {

// Messages taken from one connection before the next one has its turn.
constexpr int messages_per_visit = 16;

// When what was sent over a broken path is due.
constexpr Time held_back = never - Duration{1};

} // namespace

// --- life ---

MemoryTransport::MemoryTransport(Network& network, std::string host, std::uint32_t node)
    : network_(network),
      host_(std::move(host)),
      node_(node),
      life_(static_cast<std::uint32_t>(network.by_life_.size())) {
  network_.transports_[host_] = this;
  network_.by_life_.push_back(this);
}

MemoryTransport::~MemoryTransport() {
  network_.by_life_[life_] = nullptr;
  if (const auto found = network_.transports_.find(host_);
      found != network_.transports_.end() && found->second == this) {
    network_.transports_.erase(found);
  }
  const auto let_go = [&](const Connection& connection) {
    End& end = connection.end();
    // What was sent still arrives, while the pages it lies in end with this process.
    for (Item* item = end.outstanding; item != nullptr; item = item->outstanding_next) {
      if (item->kind != ItemKind::message || item->extent_count == 0 || network_.ending_) continue;
      item->own_bytes();
    }
    while (end.outstanding != nullptr) {
      if (network_.ending_ || end.outstanding->kind != ItemKind::message) {
        end.outstanding->release_extents();
        end.outstanding->dropped = true;
      }
      end.remove_outstanding(*end.outstanding);
    }
  };
  connections_.for_each([&](ConnectionId, Connection& connection) {
    let_go(connection);
    send_end(connection, CloseReason::peer_died);
  });
  for (const Connection& connection : lingering_) {
    let_go(connection);
    connection.end().transport = nullptr;
  }
  connections_.for_each([&](ConnectionId, Connection& connection) {
    connection.end().transport = nullptr;
    release(connection);
  });
  arrivals_.for_each([&](Item* item) { undeliverable(*item); });
}

Result<> MemoryTransport::check_address(const Url& url) const {
  return check_plain_address(url, network_.options_.scheme);
}

// --- listening and connecting ---

std::uint16_t MemoryTransport::free_port(const std::string& host) const {
  std::uint16_t port = 0;
  while (port < std::numeric_limits<std::uint16_t>::max()) {
    ++port;
    if (find_listener({.scheme = "", .host = host, .port = port}).second == nullptr) return port;
  }
  return 0;
}

std::pair<ListenerId, const MemoryTransport::Listener*>
MemoryTransport::find_listener(const Url& url) const {
  std::pair<ListenerId, const Listener*> found{ListenerId::none, nullptr};
  listeners_.for_each([&](ListenerId id, const Listener& listener) {
    if (found.second != nullptr || listener.url.host != url.host) return;
    if (url.port != 0 && listener.url.port != url.port) return;
    found = {id, &listener};
  });
  return found;
}

Result<ListenerId> MemoryTransport::listen(const Url& url, const ConnectionOptions& options) {
  const auto checked = FANIN_TRY(checked_options(*this, url, options));
  Url real = url;
  if (real.host.empty()) real.host = host_;
  if (!host_.empty() && real.host != host_) {
    return fail(ErrorKind::refused, fmt::format("{}: this node is {}", url.text(), host_));
  }
  if (real.port == 0) real.port = free_port(real.host);
  if (real.port == 0 || find_listener(real).second != nullptr) {
    return fail(ErrorKind::refused,
                fmt::format("{} is in use; choose another name or port", real.text()));
  }
  return listeners_.emplace(Listener{std::move(real), checked}).first;
}

Url MemoryTransport::listening_url(ListenerId listener) const {
  const Listener* const found = listeners_.find(listener);
  return found == nullptr ? Url{} : found->url;
}

void MemoryTransport::close_listener(ListenerId listener) {
  if (listeners_.find(listener) == nullptr) return;
  listeners_.erase(listener);
  for (const ConnectionId id :
       unknown_to_owner(connections_, &Connection::state, listener, undispatched()))
    close(id, true);
}

Result<ConnectionId> MemoryTransport::connect(const Url& url, const ConnectionOptions& options) {
  const auto checked = FANIN_TRY(checked_options(*this, url, options));
  const auto pipe = std::make_shared<Pipe>();
  pipe->target = url;
  if (pipe->target.host.empty()) pipe->target.host = host_;
  const ConnectionId id = connections_.emplace(Connection{pipe, 0}).first;
  End& end = pipe->ends[0];
  end.transport = this;
  end.id = id;
  end.options = checked;
  end.posted_most = network_.posted_most();
  end.filler = &fillers_.of(*options.receive_pool);
  if (resolver_ == nullptr) {
    request(id, {});
    return id;
  }
  auto& question =
      questions_.try_emplace(id, [this, id](const Resolver::Found& found) { request(id, found); })
          .first->second;
  if (const auto found = resolver_->ask(pipe->target.host, question)) request(id, *found);
  return id;
}

void MemoryTransport::request(ConnectionId id, const Resolver::Found& found) {
  questions_.erase(id);
  const std::shared_ptr<Pipe> pipe = connections_.find(id)->pipe;
  auto peer = network_.transports_.find(pipe->target.host);
  if (peer == network_.transports_.end()) peer = network_.transports_.find(""); // any host
  if (!found || peer == network_.transports_.end()) {
    const bool unknown = !found && found.error().kind == ErrorKind::not_found;
    Item& refusal = network_.make_item(ItemKind::end, pipe, 0);
    refusal.reason = unknown ? CloseReason::unknown_host : CloseReason::connect_failed;
    dispatch_to(*this, refusal, network_.arrival(*this, *this));
  } else {
    pipe->ends[0].state.enter(Stage::handshake);
    send_in_order(pipe->ends[0], *peer->second,
                  network_.make_item(ItemKind::connect_request, pipe, 1));
  }
}

void MemoryTransport::accept(Item& item) {
  const std::shared_ptr<Pipe> pipe = item.pipe;
  const auto [listener_id, listener] = find_listener(pipe->target);
  if (pipe->ends[0].state.over()) {
    network_.free_item(item); // gave up meanwhile
    return;
  }
  if (listener == nullptr) {
    item.kind = ItemKind::end;
    item.reason = CloseReason::connect_failed;
    return_to_sender(item);
    return;
  }
  network_.free_item(item);
  End& end = pipe->ends[1];
  end.id = connections_.emplace(Connection{pipe, 1}).first;
  end.transport = this;
  end.state.set_listener(listener_id);
  end.state.enter(Stage::handshake);
  end.state.enter(Stage::open);
  end.options = listener->options;
  end.filler = &fillers_.of(*end.options.receive_pool);
  end.identified = !end.options.peers_must_identify;
  end.posted_most = network_.posted_most();
  if (end.identified) end.post_receives();
  list(end, pipe, 1);
  send_in_order(end, *pipe->ends[0].transport, network_.make_item(ItemKind::connected, pipe, 0));
}

// --- sending ---

SendOutcome MemoryTransport::send(ConnectionId connection, std::span<const memory::View> extents) {
  const Connection* const found = connections_.find(connection);
  if (found == nullptr || !found->state().is_open()) return SendOutcome::closed;
  End& end = found->end();
  const End& peer = found->peer();
  std::uint64_t size = 0;
  for (const auto& extent : extents) size += extent.size;
  // The peer may be gone without our knowing yet; its limit stays known.
  if (extents.size() > max_extents || size > peer.options.max_message) {
    return SendOutcome::too_large;
  }
  const std::uint64_t charge = std::max<std::uint64_t>(size, sizeof(Item));
  if (end.queued_bytes > 0 && end.queued_bytes + charge > end.options.send_queue_bytes) {
    end.wants_writable = true;
    return SendOutcome::backpressure;
  }
  if (peer.transport == nullptr)
    return SendOutcome::accepted; // lost with the peer; `closed` is coming

  Item& item = network_.make_item(ItemKind::message, found->pipe, 1 - found->side);
  item.size = static_cast<std::uint32_t>(size);
  item.extent_count = static_cast<std::uint8_t>(extents.size());
  std::copy(extents.begin(), extents.end(), item.extents);
  if (network_.options_.strict) item.checksum = item.checksum_of_extents();
  end.queued_bytes += charge;
  moved_.messages += 1;
  moved_.bytes += size;
  end.add_outstanding(item);
  send_in_order(end, *peer.transport, item);
  return SendOutcome::accepted;
}

void MemoryTransport::send_in_order(End& from, MemoryTransport& to, Item& item) {
  if (network_.broken(node_, to.node_, item.pipe->target.port)) {
    dispatch_to(to, item, held_back);
    return;
  }
  item.to_life = to.life_;
  from.add_under_way(item);
  network_.carrier_->depart({.item = &item,
                             .from = node_,
                             .to = to.node_,
                             .bytes = item.size,
                             .at = network_.departure(extra_latency_ + to.extra_latency_)});
}

void MemoryTransport::take_carried(End& from, Item& item) {
  item.begins = std::max(from.last_due, item.begins);
  from.last_due = std::max(item.begins, item.ends);
  if (rate_ > 0) from.last_due += Duration{item.size * 1'000'000'000ULL / rate_};
  dispatch_to(*this, item, from.last_due);
}

void MemoryTransport::dispatch_to(MemoryTransport& to, Item& item, Time due) {
  if (network_.immediate() && item.kind != ItemKind::connect_request) {
    to.arrive(item);
    return;
  }
  to.arrivals_.add(due, &item);
  if (network_.on_departure) network_.on_departure(to, due);
}

void MemoryTransport::send_end(Connection& connection, CloseReason reason) {
  const End& peer = connection.peer();
  if (peer.transport == nullptr || peer.state.over()) {
    // Not accepted yet: the request finds this end dead and is dropped.
    return;
  }
  Item& item = network_.make_item(ItemKind::end, connection.pipe, 1 - connection.side);
  item.reason = reason;
  send_in_order(connection.end(), *peer.transport, item);
}

void MemoryTransport::close(ConnectionId connection, bool abort) {
  const std::size_t withdrawn = withdraw(connection);
  Connection* const found = connections_.find(connection);
  if (found == nullptr) return;
  questions_.erase(connection);
  if (withdrawn > 0) count_given_up(found->peer());
  if (abort) found->end().drop_outstanding();
  send_end(*found, abort ? CloseReason::peer_died : CloseReason::peer_closed);
  release(*found);
  linger(*found);
  connections_.erase(connection);
}

// A closed end still waits for the completions of what it sent; then nothing leads back to it.
void MemoryTransport::linger(const Connection& connection) {
  lingering_.push_back(connection);
  std::erase_if(lingering_, [](const Connection& closed) {
    if (closed.end().outstanding != nullptr) return false;
    closed.end().transport = nullptr;
    return true;
  });
}

void MemoryTransport::disconnect(MemoryTransport& other) {
  connections_.for_each([&](ConnectionId, Connection& connection) {
    End& end = connection.end();
    End& peer = connection.peer();
    if (peer.transport != &other || end.state.over() || peer.state.over()) return;
    end.drop_outstanding();
    peer.drop_outstanding();
    send_end(connection, CloseReason::peer_died);
    Connection back{connection.pipe, static_cast<std::uint8_t>(1 - connection.side)};
    other.send_end(back, CloseReason::peer_died);
  });
}

// What was held back on its way here comes now, in the order in which it was sent.
void MemoryTransport::release_held() {
  Time first = never;
  arrivals_.reschedule([&](Item* item, Time& due) {
    if (due != held_back) return;
    End& sender = item->pipe->ends[1 - item->side];
    if (sender.transport == nullptr) {
      due = network_.now();
    } else if (!network_.broken(sender.transport->node_, node_, item->pipe->target.port)) {
      due = std::max(sender.last_due, network_.arrival(*sender.transport, *this));
      sender.last_due = due;
    }
    first = std::min(first, due);
  });
  if (first < held_back && network_.on_departure) network_.on_departure(*this, first);
}

// --- items that come back ---

void MemoryTransport::release(const Connection& connection) {
  End& end = connection.end();
  end.state.enter(Stage::retired);
  end.posted.clear();
  while (end.first != nullptr) discard(end.take_arrived());
}

void MemoryTransport::count_given_up(End& sender) {
  if (sender.transport != nullptr && !std::exchange(sender.given_up, true))
    ++sender.transport->given_up_;
}

// An item that cannot be delivered: its sender gets its pages back all the same.
void MemoryTransport::discard(Item& item) {
  if (item.kind == ItemKind::message && !item.dropped) {
    count_given_up(item.pipe->ends[1 - item.side]);
    return_to_sender(item);
  } else {
    network_.free_item(item);
  }
}

// The node that it was for has died.
void MemoryTransport::undeliverable(Item& item) {
  if (item.kind == ItemKind::connect_request) {
    item.kind = ItemKind::end;
    item.reason = CloseReason::connect_failed;
    return_to_sender(item);
  } else if (item.kind == ItemKind::completion) {
    network_.free_item(item);
  } else {
    discard(item);
  }
}

void MemoryTransport::return_to_sender(Item& item) {
  const int sender_side = 1 - item.side;
  MemoryTransport* const sender = item.pipe->ends[sender_side].transport;
  if (sender == nullptr || network_.ending_) {
    item.pipe->ends[sender_side].remove_outstanding(item);
    network_.free_item(item);
    return;
  }
  if (item.kind == ItemKind::message) item.kind = ItemKind::completion;
  item.side = static_cast<std::uint8_t>(sender_side);
  dispatch_to(*sender, item, network_.arrival(*this, *sender));
}

void MemoryTransport::complete(Item& item) {
  End& end = item.pipe->ends[item.side];
  released_ = true;
  if (!item.dropped) {
    if (network_.options_.strict) item.check_untouched();
    end.remove_outstanding(item);
    const auto queued = std::max<std::uint64_t>(item.size, sizeof(Item));
    FANIN_ASSERT(queued <= end.queued_bytes);
    end.queued_bytes -= queued;
    if (!end.state.over() && end.wants_writable &&
        end.queued_bytes <= end.options.send_queue_bytes / 2) {
      end.wants_writable = false;
      end.writable_pending = true;
      list(end, item.pipe, item.side);
    }
  }
  network_.free_item(item);
}

void MemoryTransport::arrive(Item& item) {
  if (item.kind == ItemKind::completion) {
    complete(item);
    return;
  }
  if (item.kind == ItemKind::connect_request) {
    accept(item);
    return;
  }
  End& end = item.pipe->ends[item.side];
  if (end.state.over() || item.dropped) {
    discard(item);
    return;
  }
  end.add_arrived(item);
  list(end, item.pipe, item.side);
}

void MemoryTransport::list(End& end, const std::shared_ptr<Pipe>& pipe, int side) {
  if (end.listed) return;
  end.listed = true;
  ready_.push_back(Connection{pipe, static_cast<std::uint8_t>(side)});
}

bool MemoryTransport::has_ready() const {
  return std::any_of(ready_.begin(), ready_.end(), [](const Connection& connection) {
    return !connection.state().over() && connection.end().deliverable();
  });
}

std::size_t MemoryTransport::poll(std::span<Event> events) {
  released_ = false;
  for (const Time now = network_.now(); arrivals_.is_due(now);) arrive(*arrivals_.take());
  std::size_t count = 0;
  // Each listed end once. Those that still have something go to the back of the list; those that
  // found no page stay in front: or the same one would take each page that comes back.
  for (std::size_t visits = ready_.size(); visits > 0 && count < events.size(); --visits) {
    const Connection connection = std::move(ready_.front());
    ready_.pop_front();
    End& end = connection.end();
    end.listed = false;
    const std::size_t before = count;
    int budget = messages_per_visit;
    while (!end.state.over() && budget-- > 0 && count < events.size() && end.deliverable()) {
      Event& event = events[count];
      event = Event{.connection = end.id, .handler = end.options.handler};
      if (!deliver_one(connection, event)) continue;
      network_.trace(node_, event);
      ++count;
    }
    if (!end.state.over() && end.has_something()) {
      end.listed = true;
      (count == before && !end.deliverable() ? starved_ : ready_).push_back(connection);
    }
  }
  if (!starved_.empty()) {
    ready_.insert(ready_.begin(), starved_.begin(), starved_.end());
    starved_.clear();
  }
  return count;
}

bool MemoryTransport::deliver_one(const Connection& connection, Event& event) {
  End& end = connection.end();
  if (end.to_announce()) {
    event.kind = end.state.announce();
    return true;
  }
  if (end.writable_pending) {
    end.writable_pending = false;
    event.kind = EventKind::writable;
    return true;
  }
  if (end.first->kind == ItemKind::message && !end.first->dropped &&
      !end.receive(*end.first, event))
    return false;
  return deliver_item(connection, end.take_arrived(), event);
}

bool MemoryTransport::deliver_item(const Connection& connection, Item& item, Event& event) {
  End& end = connection.end();
  switch (item.kind) {
  case ItemKind::message:
    if (item.dropped) {
      network_.free_item(item);
      return false;
    }
    event.kind = EventKind::message;
    moved_.messages += 1;
    moved_.bytes += item.size;
    return_to_sender(item);
    return true;
  case ItemKind::connected:
    end.state.enter(Stage::open);
    event.kind = end.state.announce();
    end.post_receives();
    network_.free_item(item);
    return true;
  case ItemKind::end:
  case ItemKind::connect_request:
  case ItemKind::completion: break;
  }
  deliver_end(connection, item, event);
  return true;
}

void MemoryTransport::deliver_end(const Connection& connection, Item& item, Event& event) {
  End& end = connection.end();
  event.kind = EventKind::closed;
  event.reason = item.reason;
  if (item.reason == CloseReason::connect_failed && resolver_ != nullptr)
    resolver_->forget(item.pipe->target.host);
  network_.free_item(item);
  if (end.has_untaken()) count_given_up(end);
  end.drop_outstanding(); // nobody is there to take it
  const ConnectionId id = end.id;
  release(connection);
  linger(connection);
  connections_.erase(id);
}

void MemoryTransport::mark_identified(ConnectionId connection) {
  const Connection* const found = connections_.find(connection);
  if (found == nullptr || std::exchange(found->end().identified, true)) return;
  found->end().post_receives();
}

bool MemoryTransport::arm() {
  if (released_ || has_ready() || (network_.immediate() && arrivals_.size() > 0)) {
    released_ = false;
    return false;
  }
  return true;
}

std::string MemoryTransport::peer_name(ConnectionId connection) const {
  const Connection* const found = connections_.find(connection);
  if (found == nullptr) return "";
  if (found->side == 0) return found->pipe->target.text();
  const MemoryTransport* const peer = found->peer().transport;
  return fmt::format("{}://{}", network_.options_.scheme, peer == nullptr ? "" : peer->host_);
}

std::uint64_t MemoryTransport::unfinished(ConnectionId connection) const {
  const Connection* const found = connections_.find(connection);
  if (found == nullptr || rate_ == 0) return 0;
  std::uint64_t bytes = 0;
  arrivals_.for_each([&](const Item* item) {
    const bool of_it = item->pipe == found->pipe && item->side == found->side;
    if (item->kind != ItemKind::message || !of_it || item->begins >= network_.now()) return;
    const auto passed = static_cast<std::uint64_t>((network_.now() - item->begins).count());
    bytes += std::min<std::uint64_t>(item->size, passed * rate_ / 1'000'000'000U);
  });
  return bytes;
}

} // namespace fanin::net::in_memory
