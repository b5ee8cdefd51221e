#include "fanin/net/in_memory/network.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/net/connection_options.hpp"
#include "fanin/wire/checksum.hpp"

namespace fanin::net::in_memory {
namespace {

// Messages taken from one connection before the next one has its turn.
constexpr int messages_per_visit = 16;

// When what was sent over a broken path is due.
constexpr Time held_back = never - Duration{1};

std::uint32_t checksum_of(const Item& item) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < item.extent_count; ++i) {
    sum = wire::crc32c(item.extents[i].bytes(), sum);
  }
  return sum;
}

void copy_to(std::byte* to, const Item& item) {
  if (!item.owned.empty()) {
    std::memcpy(to, item.owned.data(), item.owned.size());
    return;
  }
  for (std::size_t i = 0; i < item.extent_count; ++i) {
    const auto bytes = item.extents[i].bytes();
    if (bytes.empty()) continue;
    std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size();
  }
}

void release_extents(Item& item) {
  for (std::size_t i = 0; i < item.extent_count; ++i) item.extents[i] = {};
  item.extent_count = 0;
  item.owned.clear();
}

// The sender wrote into memory that was still on its way: with RDMA the peer would have got a mix.
void check_untouched(const Item& item) {
  if (item.extent_count == 0) return;
  const bool memory_of_a_message_unchanged_until_its_send_completed =
      checksum_of(item) == item.checksum;
  FANIN_ASSERT(memory_of_a_message_unchanged_until_its_send_completed);
}

} // namespace

// --- Network ---

Network::Network(NetworkOptions options) : options_(std::move(options)) {}

Network::~Network() = default;

Time Network::arrival(const MemoryTransport& from, const MemoryTransport& to) {
  if (immediate()) return Time{};
  const auto spread =
      static_cast<std::uint64_t>((options_.latency_max - options_.latency_min).count());
  const Duration drawn{static_cast<Duration::rep>(options_.random->below(spread + 1))};
  return now() + options_.departure_delay + options_.latency_min + drawn + from.extra_latency_ +
         to.extra_latency_;
}

Item& Network::make_item(ItemKind kind, const std::shared_ptr<Pipe>& pipe, int side) {
  if (free_items_.empty()) free_items_.push_back(&items_.emplace_back());
  Item& item = *free_items_.back();
  free_items_.pop_back();
  item.kind = kind;
  item.pipe = pipe;
  item.side = static_cast<std::uint8_t>(side);
  return item;
}

void Network::free_item(Item& item) {
  release_extents(item);
  item = Item{};
  free_items_.push_back(&item);
}

void Network::trace(std::uint32_t node, const Event& event) {
  const auto mix =
      [this](std::uint64_t value) { // FNV-1a over words, then a shift for the high bits
        trace_hash_ = (trace_hash_ ^ value) * 0x100000001b3U;
        trace_hash_ ^= trace_hash_ >> 29;
      };
  mix(static_cast<std::uint64_t>(now().time_since_epoch().count()));
  mix(node);
  mix(static_cast<std::uint64_t>(event.kind) << 8 | static_cast<std::uint64_t>(event.reason));
  mix(static_cast<std::uint64_t>(event.connection));
  mix(std::uint64_t{event.message.size} + event.rest.size);
}

// --- MemoryTransport: life ---

MemoryTransport::MemoryTransport(Network& network, std::string host, std::uint32_t node)
    : network_(network), host_(std::move(host)), node_(node) {
  network_.transports_[host_] = this;
}

MemoryTransport::~MemoryTransport() {
  if (const auto found = network_.transports_.find(host_);
      found != network_.transports_.end() && found->second == this) {
    network_.transports_.erase(found);
  }
  const auto let_go = [&](const Connection& connection) {
    End& end = connection.end();
    // What was sent still arrives, while the pages it lies in end with this process.
    for (Item* item = end.outstanding; item != nullptr; item = item->outstanding_next) {
      if (item->kind != ItemKind::message || item->extent_count == 0 || network_.ending_) continue;
      std::vector<std::byte> bytes(item->size);
      copy_to(bytes.data(), *item);
      release_extents(*item);
      item->owned = std::move(bytes);
    }
    while (end.outstanding != nullptr) {
      if (network_.ending_ || end.outstanding->kind != ItemKind::message) {
        release_extents(*end.outstanding);
        end.outstanding->dropped = true;
      }
      unlink(end, *end.outstanding);
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
  for (const Arrival& arrival : heap_) {
    Item& item = *arrival.item;
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
}

Result<ConnectionOptions> MemoryTransport::check(const Url& url,
                                                 const ConnectionOptions& options) const {
  if (url.scheme != network_.options_.scheme) {
    return fail(ErrorKind::usage,
                fmt::format("{} is not an address of {}://", url.text(), network_.options_.scheme));
  }
  return checked_options(url, options);
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
  const auto checked = check(url, options);
  if (!checked) return std::unexpected(checked.error());
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
  return listeners_.emplace(Listener{std::move(real), *checked}).first;
}

Url MemoryTransport::listening_url(ListenerId listener) const {
  const Listener* const found = listeners_.find(listener);
  return found == nullptr ? Url{} : found->url;
}

void MemoryTransport::close_listener(ListenerId listener) {
  if (listeners_.find(listener) == nullptr) return;
  listeners_.erase(listener);
  std::vector<ConnectionId> unseen; // accepted, but nobody has been told
  connections_.for_each([&](ConnectionId id, Connection& connection) {
    if (connection.end().listener != listener) return;
    if (!connection.end().handed_out) unseen.push_back(id);
    for (const Event& event : undispatched()) {
      if (event.handler != nullptr && event.kind == EventKind::accepted && event.connection == id) {
        unseen.push_back(id);
      }
    }
  });
  for (const ConnectionId id : unseen) close(id, true);
}

Result<ConnectionId> MemoryTransport::connect(const Url& url, const ConnectionOptions& options) {
  const auto checked = check(url, options);
  if (!checked) return std::unexpected(checked.error());
  const auto pipe = std::make_shared<Pipe>();
  pipe->target = url;
  if (pipe->target.host.empty()) pipe->target.host = host_;
  const ConnectionId id = connections_.emplace(Connection{pipe, 0}).first;
  End& end = pipe->ends[0];
  end.transport = this;
  end.alive = true;
  end.id = id;
  end.options = *checked;
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
    send_in_order(pipe->ends[0], *peer->second,
                  network_.make_item(ItemKind::connect_request, pipe, 1));
  }
}

void MemoryTransport::accept(Item& item) {
  const std::shared_ptr<Pipe> pipe = item.pipe;
  const auto [listener_id, listener] = find_listener(pipe->target);
  if (!pipe->ends[0].alive) {
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
  end.alive = true;
  end.connected = true;
  end.handed_out = false;
  end.listener = listener_id;
  end.options = listener->options;
  end.filler = &fillers_.of(*end.options.receive_pool);
  end.identified = !end.options.peers_must_identify;
  if (end.identified) post_receives(end);
  list(end, pipe, 1);
  send_in_order(end, *pipe->ends[0].transport, network_.make_item(ItemKind::connected, pipe, 0));
}

// --- sending ---

SendOutcome MemoryTransport::send(ConnectionId connection, std::span<const memory::View> extents) {
  const Connection* const found = connections_.find(connection);
  if (found == nullptr || !found->end().connected) return SendOutcome::closed;
  End& end = found->end();
  const End& peer = found->peer();
  std::uint64_t size = 0;
  for (const auto& extent : extents) size += extent.size;
  // The peer may be gone without our knowing yet; its limit stays known.
  if (extents.size() > max_extents || size > peer.options.max_message) {
    return SendOutcome::too_large;
  }
  if (end.queued_bytes > 0 && end.queued_bytes + size > end.options.send_queue_bytes) {
    end.wants_writable = true;
    return SendOutcome::backpressure;
  }
  if (peer.transport == nullptr)
    return SendOutcome::accepted; // lost with the peer; `closed` is coming

  Item& item = network_.make_item(ItemKind::message, found->pipe, 1 - found->side);
  item.size = static_cast<std::uint32_t>(size);
  item.extent_count = static_cast<std::uint8_t>(extents.size());
  std::copy(extents.begin(), extents.end(), item.extents);
  if (network_.options_.strict) item.checksum = checksum_of(item);
  end.queued_bytes += size;
  item.outstanding_next = end.outstanding;
  if (end.outstanding != nullptr) end.outstanding->outstanding_previous = &item;
  end.outstanding = &item;
  send_in_order(end, *peer.transport, item);
  return SendOutcome::accepted;
}

void MemoryTransport::send_in_order(End& from, MemoryTransport& to, Item& item) {
  if (network_.broken(node_, to.node_, item.pipe->target.port)) {
    dispatch_to(to, item, held_back);
    return;
  }
  from.last_due = std::max(from.last_due, network_.arrival(*this, to));
  dispatch_to(to, item, from.last_due);
}

void MemoryTransport::dispatch_to(MemoryTransport& to, Item& item, Time due) {
  if (network_.immediate() && item.kind != ItemKind::connect_request) {
    to.arrive(item);
    return;
  }
  to.heap_.push_back({due, network_.sequence_++, &item});
  std::push_heap(to.heap_.begin(), to.heap_.end(), Later{});
  if (network_.on_departure) network_.on_departure(to, due);
}

void MemoryTransport::send_end(Connection& connection, CloseReason reason) {
  const End& peer = connection.peer();
  if (peer.transport == nullptr || !peer.alive) {
    // Not accepted yet: the request finds this end dead and is dropped.
    return;
  }
  Item& item = network_.make_item(ItemKind::end, connection.pipe, 1 - connection.side);
  item.reason = reason;
  send_in_order(connection.end(), *peer.transport, item);
}

void MemoryTransport::close(ConnectionId connection, bool abort) {
  Connection* const found = connections_.find(connection);
  if (found == nullptr) return;
  questions_.erase(connection);
  withdraw(connection);
  if (abort) drop_outstanding(found->end());
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
    if (peer.transport != &other || !end.alive || !peer.alive) return;
    drop_outstanding(end);
    drop_outstanding(peer);
    send_end(connection, CloseReason::peer_died);
    Connection back{connection.pipe, static_cast<std::uint8_t>(1 - connection.side)};
    other.send_end(back, CloseReason::peer_died);
  });
}

bool Network::broken(std::uint32_t from, std::uint32_t to, std::uint16_t port) const {
  return !broken_.empty() &&
         (broken_.contains({from, to, port}) || broken_.contains({from, to, 0}));
}

void Network::break_path(const MemoryTransport& from, MemoryTransport& to, std::uint16_t port) {
  broken_.insert({from.node(), to.node(), port});
}

void Network::repair_path(const MemoryTransport& from, MemoryTransport& to, std::uint16_t port) {
  broken_.erase({from.node(), to.node(), port});
  to.release_held();
}

// What was held back on its way here comes now, in the order in which it was sent.
void MemoryTransport::release_held() {
  std::ranges::sort(heap_, {}, &Arrival::sequence);
  Time first = never;
  for (Arrival& arrival : heap_) {
    if (arrival.due != held_back) continue;
    End& sender = arrival.item->pipe->ends[1 - arrival.item->side];
    if (sender.transport == nullptr) {
      arrival.due = network_.now();
    } else if (!network_.broken(sender.transport->node_, node_, arrival.item->pipe->target.port)) {
      arrival.due = std::max(sender.last_due, network_.arrival(*sender.transport, *this));
      sender.last_due = arrival.due;
    }
    first = std::min(first, arrival.due);
  }
  std::ranges::make_heap(heap_, Later{});
  if (first < held_back && network_.on_departure) network_.on_departure(*this, first);
}

// --- items: their ways and ends ---

void MemoryTransport::unlink(End& sender, Item& item) {
  if (item.outstanding_previous != nullptr) {
    item.outstanding_previous->outstanding_next = item.outstanding_next;
  } else if (sender.outstanding == &item) {
    sender.outstanding = item.outstanding_next;
  }
  if (item.outstanding_next != nullptr) {
    item.outstanding_next->outstanding_previous = item.outstanding_previous;
  }
  item.outstanding_next = nullptr;
  item.outstanding_previous = nullptr;
}

void MemoryTransport::drop_outstanding(End& sender) {
  while (sender.outstanding != nullptr) {
    Item& item = *sender.outstanding;
    unlink(sender, item);
    release_extents(item);
    item.dropped = true;
  }
}

void MemoryTransport::release(const Connection& connection) {
  End& end = connection.end();
  end.alive = false;
  end.connected = false;
  end.posted.clear();
  while (end.first != nullptr) {
    Item& item = *end.first;
    end.first = item.next;
    item.next = nullptr;
    discard(item);
  }
  end.last = nullptr;
}

// An item that cannot be delivered: its sender gets its pages back all the same.
void MemoryTransport::discard(Item& item) {
  if (item.kind == ItemKind::message && !item.dropped) {
    End& sender = item.pipe->ends[1 - item.side];
    if (sender.transport != nullptr && !std::exchange(sender.given_up, true))
      ++sender.transport->given_up_;
    return_to_sender(item);
  } else {
    network_.free_item(item);
  }
}

void MemoryTransport::return_to_sender(Item& item) {
  const int sender_side = 1 - item.side;
  MemoryTransport* const sender = item.pipe->ends[sender_side].transport;
  if (sender == nullptr || network_.ending_) {
    unlink(item.pipe->ends[sender_side], item);
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
    if (network_.options_.strict) check_untouched(item);
    unlink(end, item);
    end.queued_bytes -= item.size;
    if (end.alive && end.wants_writable && end.queued_bytes <= end.options.send_queue_bytes / 2) {
      end.wants_writable = false;
      end.writable_pending = true;
      list(end, item.pipe, item.side);
    }
  }
  network_.free_item(item);
}

void MemoryTransport::arrivals() {
  const Time now = network_.now();
  while (!heap_.empty() && heap_.front().due <= now) {
    Item& item = *heap_.front().item;
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    heap_.pop_back();
    arrive(item);
  }
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
  if (!end.alive || item.dropped) {
    discard(item);
    return;
  }
  (end.last == nullptr ? end.first : end.last->next) = &item;
  end.last = &item;
  list(end, item.pipe, item.side);
}

void MemoryTransport::list(End& end, const std::shared_ptr<Pipe>& pipe, int side) {
  if (end.listed) return;
  end.listed = true;
  ready_.push_back(Connection{pipe, static_cast<std::uint8_t>(side)});
}

// --- receiving ---

bool MemoryTransport::deliverable(const End& end) const {
  if (!end.handed_out || end.writable_pending) return true;
  if (end.first == nullptr) return false;
  const Item& item = *end.first;
  if (item.kind != ItemKind::message || item.dropped || item.size == 0) return true;
  if (!network_.options_.strict) return end.filler->can_reserve(item.size);
  return !end.posted.empty() || end.options.receive_pool->available() > 0;
}

bool MemoryTransport::has_ready() const {
  return std::any_of(ready_.begin(), ready_.end(), [this](const Connection& connection) {
    return connection.end().alive && deliverable(connection.end());
  });
}

std::size_t MemoryTransport::poll(std::span<Event> events) {
  released_ = false;
  arrivals();
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
    while (end.alive && budget-- > 0 && count < events.size() && deliverable(end)) {
      Event& event = events[count];
      event = Event{.connection = end.id, .handler = end.options.handler};
      if (!deliver_one(connection, event)) continue;
      network_.trace(node_, event);
      ++count;
    }
    if (end.alive && (end.first != nullptr || end.writable_pending || !end.handed_out)) {
      end.listed = true;
      (count == before && !deliverable(end) ? starved_ : ready_).push_back(connection);
    }
  }
  ready_.insert(ready_.begin(), starved_.begin(), starved_.end());
  starved_.clear();
  return count;
}

bool MemoryTransport::deliver_one(const Connection& connection, Event& event) {
  End& end = connection.end();
  if (!end.handed_out) {
    end.handed_out = true;
    event.kind = EventKind::accepted;
    return true;
  }
  if (end.writable_pending) {
    end.writable_pending = false;
    event.kind = EventKind::writable;
    return true;
  }
  Item& item = *end.first;
  if (item.kind == ItemKind::message && !item.dropped && !deliver_message(end, item, event))
    return false;
  end.first = item.next;
  if (end.first == nullptr) end.last = nullptr;
  item.next = nullptr;
  switch (item.kind) {
  case ItemKind::message:
    if (item.dropped) {
      network_.free_item(item);
      return false;
    }
    event.kind = EventKind::message;
    return_to_sender(item);
    return true;
  case ItemKind::connected:
    event.kind = EventKind::connected;
    end.connected = true;
    post_receives(end);
    network_.free_item(item);
    return true;
  case ItemKind::end:
  case ItemKind::connect_request:
  case ItemKind::completion: break;
  }
  event.kind = EventKind::closed;
  event.reason = item.reason;
  if (item.reason == CloseReason::connect_failed && resolver_ != nullptr)
    resolver_->forget(item.pipe->target.host);
  network_.free_item(item);
  drop_outstanding(end); // nobody is there to take it
  const ConnectionId id = end.id;
  release(connection);
  linger(connection);
  connections_.erase(id);
  return true;
}

bool MemoryTransport::deliver_message(End& end, Item& item, Event& event) {
  if (item.size == 0) return true;
  if (!network_.options_.strict) return receive(end, item, event.message);
  if (!receive_strictly(end, item, event.message)) return false;
  const std::uint32_t first = item.extents[0].size;
  if (item.extent_count == 2 && first > 0 && first < item.size) {
    event.rest = event.message.part(first, item.size - first);
    event.message = event.message.part(0, first);
  }
  return true;
}

bool MemoryTransport::receive(End& end, Item& item, memory::View& message) {
  PageFiller::Room room = end.filler->reserve(item.size);
  if (!room.page) return false;
  copy_to(room.page.data() + room.offset, item);
  message = room.page.freeze(room.offset, item.size);
  end.filler->give_back(std::move(room.page), room.offset + item.size);
  return true;
}

// The message goes where a receive was posted; if it fills less than half of the page, it is moved
// to a page that small messages share, and the posted one stays.
bool MemoryTransport::receive_strictly(End& end, Item& item, memory::View& message) {
  post_receives(end);
  if (end.posted.empty()) return false;
  memory::Loan& page = end.posted.back();
  copy_to(page.data(), item);
  if (item.size < page.size() / 2) {
    if (PageFiller::Room room = end.filler->reserve(item.size); room.page) {
      std::memcpy(room.page.data() + room.offset, page.data(), item.size);
      message = room.page.freeze(room.offset, item.size);
      end.filler->give_back(std::move(room.page), room.offset + item.size);
      if (!end.identified) end.posted.clear();
      return true;
    }
  }
  message = page.freeze(0, item.size);
  end.posted.pop_back();
  if (end.identified) post_receives(end);
  return true;
}

void MemoryTransport::mark_identified(ConnectionId connection) {
  const Connection* const found = connections_.find(connection);
  if (found == nullptr || std::exchange(found->end().identified, true)) return;
  post_receives(found->end());
}

void MemoryTransport::post_receives(End& end) {
  if (!network_.options_.strict) return;
  const std::uint32_t wanted = end.identified ? network_.options_.posted_receives : 1;
  while (end.posted.size() < wanted) {
    memory::Loan page = end.options.receive_pool->take();
    if (!page) return;
    end.posted.push_back(std::move(page));
  }
}

bool MemoryTransport::arm() {
  if (released_ || has_ready() || (network_.immediate() && !heap_.empty())) {
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

} // namespace fanin::net::in_memory
