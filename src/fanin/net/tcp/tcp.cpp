#include "fanin/net/tcp/tcp.hpp"

#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "fanin/base/units.hpp"

namespace fanin::net {
namespace {

using tcp::error_text;
using tcp::set_reset_on_close;

constexpr std::size_t bytes_per_poll = 1U << 20;
constexpr std::size_t bytes_per_visit = 256U << 10;
constexpr int discards_per_visit = 16;
// Answers are waited for by reading: epoll costs more than a read that finds nothing, and is asked
// only every so many polls in which nothing happened.
constexpr std::size_t hot_max = 4;
constexpr std::uint16_t misses_max = 256;
constexpr std::uint32_t tcp_polls_per_look = 16;
// While they come and go, a stream beside them is read and written in portions: its share of a turn
// is what they wait for.
constexpr std::size_t bytes_beside_hot = 32U << 10;
// Data queued in one turn is written before it leaves the cache.
constexpr std::uint64_t write_early_bytes = 512U << 10;
constexpr std::size_t pieces_per_write = 256;
constexpr Duration look_period = std::chrono::seconds{5}; // for hosts that have died

// True: there was more.
bool cut_to(msghdr& message, std::size_t bytes) {
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
    iovec& piece = message.msg_iov[i];
    if (piece.iov_len < bytes) {
      bytes -= piece.iov_len;
      continue;
    }
    const bool more = piece.iov_len > bytes || i + 1 < message.msg_iovlen;
    piece.iov_len = bytes;
    message.msg_iovlen = i + 1;
    return more;
  }
  return false;
}

} // namespace

// --- life ---

TcpTransport::Connection::Connection(TcpTransport& owner, const ConnectionOptions& given,
                                     PageFiller& filler, std::uint32_t largest)
    : options(given),
      receiver(filler, largest),
      queue(owner.store_),
      question(
          [this, &owner](const Resolver::Found& found) { owner.take_addresses(*this, found); }),
      deadline([this, &owner] { owner.expired_.push_back(id); }) {}

TcpTransport::TcpTransport(Loop& loop, TcpOptions options)
    : loop_(loop),
      options_(std::move(options)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      unidentified_(options_.strangers_max) {
  if (!epoll_) throw std::system_error(errno, std::generic_category(), "tcp transport: epoll");
}

TcpTransport::~TcpTransport() = default;

TcpTransport::Connection& TcpTransport::make_connection(const ConnectionOptions& options) {
  memory::PagePool& pool = *options.receive_pool;
  const std::uint32_t largest =
      options.max_message == 0 ? pool.page_size() / 2 : options.max_message;
  const auto [id, connection] = connections_.emplace(*this, options, fillers_.of(pool), largest);
  connection.id = id;
  connection.max_message = largest;
  connection.deadline.start(loop_, loop_.now() + options_.handshake_timeout);
  if (!looking_.active()) looking_.start(loop_, loop_.now() + look_period);
  return connection;
}

TcpTransport::Connection* TcpTransport::find_open(ConnectionId id) const {
  Connection* const connection = connections_.find(id);
  return connection != nullptr && connection->stage == Stage::open ? connection : nullptr;
}

void TcpTransport::list(Connection& connection, bool first) {
  if (connection.listed) return;
  connection.listed = true;
  if (first) {
    ready_.push_front(connection.id);
  } else {
    ready_.push_back(connection.id);
  }
}

std::string TcpTransport::peer_text(const Connection& connection) {
  return connection.peer.length > 0 ? tcp::address_text(connection.peer) : connection.target.text();
}

void TcpTransport::report(CloseReason reason, const Connection& connection,
                          std::string_view text) const {
  if (options_.report) options_.report(reason, fmt::format("{}: {}", peer_text(connection), text));
}

bool TcpTransport::watch(Connection& connection) {
  epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                    .data = {.u64 = static_cast<std::uint64_t>(connection.id)}};
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.socket.get(), &event) == 0;
}

// --- sending ---

SendOutcome TcpTransport::send(ConnectionId id, std::span<const memory::View> extents) {
  Connection* const connection = find_open(id);
  if (connection == nullptr || connection->send_failed) return SendOutcome::closed;
  std::uint64_t size = 0;
  for (const memory::View& extent : extents) size += extent.size;
  if (extents.size() > max_extents || size > connection->max_message) return SendOutcome::too_large;
  tcp::SendQueue& queue = connection->queue;
  const bool was_empty = queue.empty();
  if (!was_empty &&
      queue.charged_bytes() + tcp::SendQueue::charge(size) > connection->options.send_queue_bytes) {
    connection->wants_writable = true;
    return SendOutcome::backpressure;
  }
  queue.push(extents, static_cast<std::uint32_t>(size));
  if (!connection->can_write) return SendOutcome::accepted; // goes on when the socket says so
  if (connection->options.low_latency || queue.charged_bytes() >= write_early_bytes) {
    write(*connection);
  } else if (!connection->to_flush) {
    connection->to_flush = true;
    flush_list_.push_back(id);
  }
  return SendOutcome::accepted;
}

void TcpTransport::flush() {
  flushing_.swap(flush_list_);
  for (const ConnectionId id : flushing_) {
    Connection* const connection = connections_.find(id);
    if (connection == nullptr) continue;
    connection->to_flush = false;
    write(*connection);
  }
  flushing_.clear();
}

void TcpTransport::write(Connection& connection) {
  tcp::SendQueue& queue = connection.queue;
  std::size_t left = hot_.empty() || connection.options.low_latency ? SIZE_MAX : bytes_beside_hot;
  while (connection.can_write && !queue.empty()) {
    if (left == 0) { // the rest in the next turn
      if (!std::exchange(connection.to_flush, true)) flush_list_.push_back(connection.id);
      break;
    }
    std::array<iovec, pieces_per_write> pieces;
    bool all = false;
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = queue.gather(pieces, all);
    if (left != SIZE_MAX) all = !cut_to(message, left) && all;
    const ssize_t written =
        ::sendmsg(connection.socket.get(), &message, MSG_NOSIGNAL | (all ? 0 : MSG_MORE));
    if (written >= 0) {
      if (left != SIZE_MAX) left -= static_cast<std::size_t>(written);
      if (queue.consume(static_cast<std::size_t>(written)) > 0) released_ = true;
    } else if (errno == EAGAIN) {
      connection.can_write = false;
    } else if (errno != EINTR) {
      send_nothing_more(connection);
    }
  }
  if (connection.wants_writable && connection.stage == Stage::open && !connection.send_failed &&
      queue.charged_bytes() <= connection.options.send_queue_bytes / 2) {
    connection.wants_writable = false;
    connection.writable_pending = true;
    list(connection);
  }
  if (connection.stage == Stage::closing) list(connection);
}

// --- closing ---

void TcpTransport::close(ConnectionId id, bool abort) {
  Connection* const connection = connections_.find(id);
  if (connection == nullptr || connection->stage == Stage::closing) return;
  withdraw(id);
  if (connection->stage != Stage::ended)
    ++counters_.closed[static_cast<std::size_t>(CloseReason::local)];
  if (abort || connection->stage != Stage::open || connection->send_failed) {
    if (abort) set_reset_on_close(connection->socket);
    erase(*connection);
    return;
  }
  connection->stage = Stage::closing;
  ++closing_;
  connection->receiver.reset();
  connection->queue.push_end_of_stream();
  connection->deadline.start(loop_, loop_.now() + options_.linger_timeout);
  write(*connection);
}

void TcpTransport::trust(ConnectionId id) {
  Connection* const connection = connections_.find(id);
  if (connection == nullptr) return;
  no_stranger(*connection);
  connection->receiver.trust(fillers_.of(*connection->options.receive_pool));
}

void TcpTransport::no_stranger(Connection& connection) {
  if (std::exchange(connection.stranger, false)) --strangers_;
}

// Closing at once would make the kernel answer what the peer still sends with a reset, which
// destroys what is on its way to the peer. So everything is written, and what comes is read and
// thrown away, until the peer closes too.
void TcpTransport::continue_closing(Connection& connection) {
  if (connection.queue.empty() && !connection.shut_down) {
    connection.shut_down = true;
    (void)::shutdown(connection.socket.get(), SHUT_WR);
  }
  for (int i = 0; connection.readable && i < discards_per_visit; ++i) {
    const ssize_t discarded = ::recv(connection.socket.get(), nullptr, 1U << 20, MSG_TRUNC);
    if (discarded > 0 || (discarded < 0 && errno == EINTR)) continue;
    if (discarded < 0 && errno == EAGAIN) {
      connection.readable = false;
    } else {
      erase(connection);
      return;
    }
  }
  if (connection.readable) list(connection);
}

// Over, though not by close(): `closed` follows in poll(), or nothing if nobody knew of it.
void TcpTransport::end(Connection& connection, CloseReason reason, bool reset) {
  ++counters_.closed[static_cast<std::size_t>(reason)];
  connection.silent =
      connection.listener != ListenerId::none && connection.stage == Stage::handshake;
  no_stranger(connection);
  connection.stage = Stage::ended;
  connection.reason = reason;
  if (reset) set_reset_on_close(connection.socket);
  connection.question.withdraw();
  connection.socket.reset();
  connection.receiver.reset();
  if (!connection.queue.empty()) released_ = true;
  connection.queue.clear();
  connection.deadline.cancel();
  list(connection);
}

// What the peer sent before it went is still to be read; reading then finds the end.
void TcpTransport::send_nothing_more(Connection& connection) {
  connection.send_failed = true;
  connection.can_write = false;
  connection.readable = true;
  connection.peer_shut_down = true;
  connection.queue.clear();
  released_ = true;
  if (!connection.starving) list(connection);
}

// The kernel itself would go on for a quarter of an hour.
void TcpTransport::cut_unanswered() {
  connections_.for_each([this](ConnectionId, Connection& connection) {
    if (connection.stage != Stage::open || !tcp::is_unanswered(connection.socket.get())) return;
    report(CloseReason::peer_died, connection, "its host or the network does not answer");
    (void)::shutdown(connection.socket.get(), SHUT_RDWR); // what has come can still be read
    send_nothing_more(connection);
  });
  if (connections_.size() > 0) looking_.start(loop_, loop_.now() + look_period);
}

void TcpTransport::erase(Connection& connection) {
  if (connection.stage == Stage::closing) --closing_;
  no_stranger(connection);
  if (!connection.queue.empty()) released_ = true;
  connections_.erase(connection.id);
}

void TcpTransport::expire(Connection& connection) {
  if (connection.stage == Stage::closing) {
    set_reset_on_close(connection.socket);
    erase(connection);
    return;
  }
  if (connection.stage != Stage::connecting && connection.stage != Stage::handshake) return;
  if (connection.stage == Stage::connecting && !connection.addresses.empty())
    return connect_next(connection, ETIMEDOUT);
  const bool stranger = connection.listener != ListenerId::none;
  const CloseReason reason =
      stranger ? CloseReason::protocol_violation : CloseReason::connect_failed;
  ++counters_.handshake_timeouts;
  const bool named = !connection.question.waits();
  if (named && !stranger) { // another host may have its address now
    loop_.resolver().forget(connection.target.host);
  }
  report(reason, connection,
         fmt::format("no answer {}within {}", named ? "" : "of the name service ",
                     format_duration(options_.handshake_timeout)));
  end(connection, reason, true);
}

// --- polling ---

std::size_t TcpTransport::poll(std::span<Event> events) {
  released_ = false;
  flush();
  for (std::size_t i = 0; i < expired_.size(); ++i) {
    if (Connection* const connection = connections_.find(expired_[i])) expire(*connection);
  }
  expired_.clear();
  if (hot_.empty() || quiet_polls_ % tcp_polls_per_look == 0) collect_ready();
  list_hot();
  accept_all();
  wake_starving();
  const std::size_t bytes = hot_.empty() ? bytes_per_poll : bytes_beside_hot;
  Budget budget{.events = events, .bytes = bytes};
  for (std::size_t visits = ready_.size(); visits > 0 && !budget.full(); --visits) {
    Connection* const connection = connections_.find(ready_.front());
    ready_.pop_front();
    if (connection == nullptr) continue;
    connection->listed = false;
    budget.visit_bytes = std::min(budget.bytes, bytes_per_visit);
    budget.before = budget.count;
    visit(*connection, budget);
  }
  starving_.insert(starving_.end(), served_.begin(), served_.end());
  served_.clear();
  quiet_polls_ = budget.count == 0 && budget.bytes == bytes ? quiet_polls_ + 1 : 0;
  return budget.count;
}

void TcpTransport::heat(Connection& connection) {
  connection.misses = 0;
  if (connection.hot || hot_.size() == hot_max) return;
  connection.hot = true;
  hot_.push_back(connection.id);
}

void TcpTransport::list_hot() {
  std::erase_if(hot_, [this](ConnectionId id) {
    Connection* const connection = connections_.find(id);
    if (connection == nullptr) return true;
    connection->hot = connection->stage == Stage::open && ++connection->misses < misses_max;
    if (connection->hot && !connection->starving) {
      connection->readable = true;
      list(*connection, true);
    }
    return !connection->hot;
  });
}

void TcpTransport::collect_ready() {
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (const epoll_event& event :
       std::span(ready).first(static_cast<std::size_t>(std::max(count, 0)))) {
    if ((event.data.u64 & listener_bit) != 0) {
      accepting_.push_back(static_cast<ListenerId>(event.data.u64 & ~listener_bit));
      continue;
    }
    Connection* const connection = connections_.find(static_cast<ConnectionId>(event.data.u64));
    if (connection == nullptr || connection->stage == Stage::ended) continue;
    if ((event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) connection->peer_shut_down = true;
    if ((event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0)
      connection->readable = true;
    if (connection->stage == Stage::connecting) {
      connect_progress(*connection);
      continue;
    }
    if ((event.events & EPOLLOUT) != 0 && !connection->send_failed) {
      connection->can_write = true;
      if (!connection->queue.empty()) write(*connection);
    }
    if (connection->readable && !connection->starving) list(*connection);
  }
}

// They come before those who did not wait, in the order in which they have begun to: or one that
// always has something to read would take every page that comes back. Only who holds the page that
// is being filled is before them, as in take_messages().
void TcpTransport::wake_starving() {
  if (starving_.empty()) return;
  const Connection* const next = ready_.empty() ? nullptr : connections_.find(ready_.front());
  std::ptrdiff_t at = next != nullptr && next->receiver.holds_page() ? 1 : 0;
  std::erase_if(starving_, [&](ConnectionId id) {
    Connection* const connection = connections_.find(id);
    if (connection == nullptr) return true;
    if (connection->stage == Stage::open && !connection->receiver.can_go_on()) return false;
    connection->starving = false;
    if (!std::exchange(connection->listed, true)) ready_.insert(ready_.begin() + at++, id);
    return true;
  });
}

// A message that has hardly begun may take for ever. What it has reserved, others wait for.
void TcpTransport::retreat() {
  if (starving_.empty()) return;
  connections_.for_each([this](ConnectionId, Connection& connection) {
    const memory::PagePool& pool = *connection.options.receive_pool;
    if (connection.stage == Stage::open && pool.available() == 0)
      released_ |= connection.receiver.retreat();
  });
  retreating_.start(loop_, loop_.now() + options_.retreat_period);
}

void TcpTransport::visit(Connection& connection, Budget& budget) {
  switch (connection.stage) {
  case Stage::connecting: break;
  case Stage::handshake:
  case Stage::open: receive(connection, budget); break;
  case Stage::ended: emit_closed(connection, budget); break;
  case Stage::closing: continue_closing(connection); break;
  }
}

void TcpTransport::receive(Connection& connection, Budget& budget) {
  if (connection.writable_pending) { // not behind messages that may lack pages
    connection.writable_pending = false;
    emit(connection, budget, EventKind::writable);
  }
  if (connection.starving) return;
  take_messages(connection, budget);
  if (connection.stage == Stage::ended) emit_closed(connection, budget);
}

void TcpTransport::take_messages(Connection& connection, Budget& budget) {
  using Step = tcp::StreamReceiver::Step;
  memory::View view;
  while (connection.stage != Stage::ended) {
    if (budget.full()) {
      // It comes first next time if it holds the page that is being filled: others would begin a
      // page of their own, and one of the two would be left behind half empty.
      list(connection, connection.receiver.holds_page());
      return;
    }
    switch (connection.receiver.next(view)) {
    case Step::message:
      emit(connection, budget, EventKind::message).message = std::move(view);
      break;
    case Step::opened: opened(connection, budget); break;
    case Step::ended: end(connection, CloseReason::peer_closed, false); break;
    case Step::failed: stream_failed(connection); break;
    case Step::starved: starve(connection, budget); return;
    case Step::need_bytes:
      if (!connection.readable) return;
      if (budget.visit_bytes == 0) {
        list(connection);
        return;
      }
      read(connection, budget);
      if (connection.starving) return;
      break;
    }
  }
}

void TcpTransport::opened(Connection& connection, Budget& budget) {
  if (!connection.options.strangers) no_stranger(connection);
  connection.stage = Stage::open;
  connection.deadline.cancel();
  connection.max_message = std::min(connection.receiver.peer().max_message, tcp::end_of_stream - 1);
  emit(connection, budget,
       connection.listener == ListenerId::none ? EventKind::connected : EventKind::accepted);
}

// Who has got something in this visit goes behind those who get nothing in this poll.
void TcpTransport::starve(Connection& connection, const Budget& budget) {
  connection.starving = true;
  (budget.count == budget.before ? starving_ : served_).push_back(connection.id);
  if (!retreating_.active()) retreating_.start(loop_, loop_.now() + options_.retreat_period);
}

void TcpTransport::read(Connection& connection, Budget& budget) {
  std::array<iovec, tcp::StreamReceiver::pieces_max> pieces;
  const std::size_t count = connection.receiver.prepare(pieces);
  if (count == 0) {
    starve(connection, budget);
    return;
  }
  std::size_t room = 0;
  for (std::size_t i = 0; i < count; ++i) room += pieces[i].iov_len;
  const ssize_t got = ::readv(connection.socket.get(), pieces.data(), static_cast<int>(count));
  const int error = got < 0 ? errno : 0;
  connection.receiver.received(got > 0 ? static_cast<std::size_t>(got) : 0);
  if (got > 0) {
    if (connection.options.low_latency) heat(connection);
    const auto bytes = static_cast<std::size_t>(got);
    budget.bytes -= std::min(budget.bytes, bytes);
    budget.visit_bytes -= std::min(budget.visit_bytes, bytes);
    // Less than there was room for: the socket is empty, and what comes next is a new edge. Except
    // for the end of the stream, whose edge has been seen.
    if (bytes < room && !connection.peer_shut_down) connection.readable = false;
  } else if (got < 0 && error == EAGAIN) {
    connection.readable = false;
  } else if (got == 0 || error != EINTR) {
    read_failed(connection, error);
  }
}

void TcpTransport::read_failed(Connection& connection, int error) {
  if (connection.stage == Stage::open) {
    end(connection, CloseReason::peer_died, false); // it did not say that it would
    return;
  }
  const CloseReason reason = connection.listener == ListenerId::none ? CloseReason::connect_failed
                                                                     : CloseReason::peer_closed;
  report(reason, connection,
         fmt::format("closed the connection without an answer ({})",
                     error == 0 ? "end of stream" : error_text(error)));
  end(connection, reason, false);
}

void TcpTransport::stream_failed(Connection& connection) {
  const CloseReason reason = connection.receiver.reason();
  const tcp::Preface& peer = connection.receiver.peer();
  switch (reason) {
  case CloseReason::version_mismatch:
    report(
        reason, connection,
        peer.version == tcp::protocol_version
            ? "has another byte order than this host"
            : fmt::format("speaks version {} of the protocol, this process version {}: install the "
                          "same release on all nodes",
                          peer.version, tcp::protocol_version));
    break;
  case CloseReason::message_too_large:
    report(reason, connection, "sent a message larger than was agreed");
    break;
  default:
    report(reason, connection,
           connection.stage == Stage::open ? "sent bytes that are not a message"
                                           : "is not a fanin process");
  }
  // Without a reset in the case of versions, so that the peer gets to read ours.
  end(connection, reason, reason != CloseReason::version_mismatch);
}

Event& TcpTransport::emit(const Connection& connection, Budget& budget, EventKind kind) {
  Event& event = budget.events[budget.count++];
  event.kind = kind;
  event.reason = CloseReason::local;
  event.connection = connection.id;
  event.handler = connection.options.handler;
  event.message = {};
  event.rest = {};
  return event;
}

void TcpTransport::emit_closed(Connection& connection, Budget& budget) {
  if (!connection.silent) {
    if (budget.full()) {
      list(connection);
      return;
    }
    emit(connection, budget, EventKind::closed).reason = connection.reason;
  }
  connections_.erase(connection.id);
}

bool TcpTransport::arm() {
  for (const ConnectionId id : hot_) { // from here on epoll says what comes
    if (Connection* const connection = connections_.find(id)) connection->hot = false;
  }
  hot_.clear();
  if (released_ || !ready_.empty() || !expired_.empty() || !accepting_.empty() ||
      !flush_list_.empty()) {
    released_ = false;
    return false;
  }
  return std::none_of(starving_.begin(), starving_.end(), [this](ConnectionId id) {
    const Connection* const connection = connections_.find(id);
    return connection == nullptr || connection->stage != Stage::open ||
           connection->receiver.can_go_on();
  });
}

std::string TcpTransport::peer_name(ConnectionId id) const {
  const Connection* const connection = connections_.find(id);
  return connection == nullptr ? "" : peer_text(*connection);
}

} // namespace fanin::net
