#include "fanin/net/tcp/tcp.hpp"

#include <sys/epoll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "fanin/base/units.hpp"

namespace fanin::net {
namespace {

constexpr std::size_t bytes_per_poll = 1U << 20;
constexpr std::size_t bytes_per_visit = 256U << 10;
constexpr int discards_per_visit = 16;
constexpr std::size_t bytes_per_discard = 64U << 10;
// Answers are waited for by reading: epoll costs more than a read that finds nothing, and is asked
// only every so many polls in which nothing happened.
constexpr std::size_t eager_max = 4;
constexpr std::uint16_t empty_reads_max = 256;
constexpr std::uint32_t tcp_polls_per_check = 16;
// While they come and go, a stream beside them is read and written in portions: its share of a turn
// is what they wait for.
constexpr std::size_t bytes_beside_eager = 32U << 10;
// Data queued in one turn is written before it leaves the cache.
constexpr std::uint64_t write_early_bytes = 512U << 10;
constexpr std::size_t pieces_per_write = 256;
// Taken by the peer within linger_timeout, to be waited for on.
constexpr std::uint64_t taken_least = 64U << 10;
constexpr Duration dead_host_period = std::chrono::seconds{5}; // for hosts that have died

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
                                     PageFiller& filler)
    : options(given),
      receiver(filler, given.max_message),
      queue(owner.store_),
      question(
          [this, &owner](const Resolver::Found& found) { owner.take_addresses(*this, found); }),
      deadline([this, &owner] { owner.expired_.add(expired); }) {}

TcpTransport::TcpTransport(Loop& loop, TcpOptions options)
    : loop_(loop),
      options_(std::move(options)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      unidentified_pages_(options_.unidentified.peers_max),
      unidentified_(options_.unidentified),
      accounts_(options_.report),
      listeners_(loop, options_.accept_pause, accounts_) {
  if (!epoll_) throw std::system_error(errno, std::generic_category(), "tcp transport: epoll");
}

TcpTransport::~TcpTransport() = default;

TcpTransport::Connection& TcpTransport::make_connection(const ConnectionOptions& checked) {
  const auto [id, connection] =
      connections_.emplace(*this, checked, fillers_.of(*checked.receive_pool));
  connection.id = id;
  connection.deadline.start(loop_, loop_.now() + options_.handshake_timeout);
  if (!dead_host_tick_.active()) dead_host_tick_.start(loop_, loop_.now() + dead_host_period);
  return connection;
}

std::string TcpTransport::peer_text(const Connection& connection) {
  return connection.peer.length > 0 ? address_text(connection.peer) : connection.target.text();
}

void TcpTransport::report(CloseReason reason, Connection& connection, std::string_view text) const {
  connection.state.explain(text);
  accounts_.report(reason, peer_text(connection), text);
}

bool TcpTransport::watch(ConnectionId id, int socket) {
  epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                    .data = {.u64 = static_cast<std::uint64_t>(id)}};
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) == 0;
}

// --- sending ---

SendOutcome TcpTransport::send(ConnectionId id, std::span<const memory::View> extents) {
  Connection* const connection = connections_.find(id);
  if (connection == nullptr || !connection->state.is_open() || connection->send_failed)
    return SendOutcome::closed;
  std::uint64_t size = 0;
  for (const memory::View& extent : extents) size += extent.size;
  if (extents.size() > max_extents || size > connection->peer_max_message)
    return SendOutcome::too_large;
  tcp::SendQueue& queue = connection->queue;
  const bool was_empty = queue.empty();
  if (!was_empty &&
      queue.charged_bytes() + tcp::SendQueue::charge(size) > connection->options.send_queue_bytes) {
    connection->wants_writable = true;
    return SendOutcome::backpressure;
  }
  queue.push(extents, static_cast<std::uint32_t>(size));
  ++connection->messages_sent;
  if (!connection->can_write) return SendOutcome::accepted; // goes on when the socket says so
  if (connection->options.low_latency || queue.charged_bytes() >= write_early_bytes) {
    write(*connection);
  } else {
    flush_list_.add(connection->flush);
  }
  return SendOutcome::accepted;
}

void TcpTransport::flush() {
  flush_list_.take_each([this](Connection& connection) { write(connection); });
}

void TcpTransport::write(Connection& connection) {
  tcp::SendQueue& queue = connection.queue;
  std::size_t left =
      eager_.empty() || connection.options.low_latency ? SIZE_MAX : bytes_beside_eager;
  while (connection.can_write && !queue.empty()) {
    if (left == 0) { // the rest in the next turn
      flush_list_.add(connection.flush);
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
      connection.written += static_cast<std::uint64_t>(written);
      if (left != SIZE_MAX) left -= static_cast<std::size_t>(written);
      if (queue.consume(static_cast<std::size_t>(written)) > 0) released_ = true;
    } else if (errno == EAGAIN) {
      connection.can_write = false;
    } else if (errno != EINTR) {
      send_nothing_more(connection);
    }
  }
  if (connection.wants_writable && connection.state.is_open() && !connection.send_failed &&
      queue.charged_bytes() <= connection.options.send_queue_bytes / 2) {
    connection.wants_writable = false;
    connection.writable_pending = true;
    ready_.add(connection.ready);
  }
  if (connection.state.stage() == Stage::closing) ready_.add(connection.ready);
}

// --- closing ---

void TcpTransport::close(ConnectionId id, bool abort) {
  const std::size_t withdrawn = withdraw(id);
  Connection* const connection = connections_.find(id);
  if (connection == nullptr || connection->state.stage() == Stage::closing) return;
  connection->messages_taken -= withdrawn;
  accounts_.close(connection->state);
  if (abort || !connection->state.is_open()) {
    if (abort) set_reset_on_close(connection->socket);
    erase(*connection);
    return;
  }
  if (connection->send_failed) return give_up(*connection, peer_ended_early);
  connection->state.enter(Stage::closing);
  ++closing_;
  connection->receiver.take_no_more();
  connection->queue.push_end_of_stream(connection->messages_taken);
  connection->deadline.start(loop_, loop_.now() + options_.linger_timeout);
  write(*connection);
  connection->taken = taken(*connection);
}

// What its host has acknowledged. What the kernel of this host has accepted is not enough: its
// buffer may grow while the peer takes nothing.
std::uint64_t TcpTransport::taken(const Connection& connection) {
  const std::uint64_t written = connection.written;
  return written - std::min(written, unacknowledged(connection.socket.get()));
}

bool TcpTransport::has_acknowledged_all(const Connection& connection) {
  return connection.queue.empty() && unacknowledged(connection.socket.get()) == 0;
}

// When its peer has ended. One that ends in order says what it has taken; of another one only what
// its host has acknowledged is known.
bool TcpTransport::has_untaken(const Connection& connection, CloseReason reason) {
  if (reason == CloseReason::peer_closed)
    return connection.receiver.peer_has_taken() != connection.messages_sent;
  return connection.send_failed || !has_acknowledged_all(connection);
}

void TcpTransport::count_given_up(Connection& connection, std::string_view why) {
  if (connection.unidentified.unidentified()) return;
  ++given_up_;
  report(CloseReason::peer_died, connection, why);
}

// It was closed here, in order, and its peer is not done.
void TcpTransport::give_up(Connection& connection, std::string_view why) {
  count_given_up(connection, why);
  erase(connection);
}

void TcpTransport::mark_identified(ConnectionId id) {
  Connection* const connection = connections_.find(id);
  if (connection == nullptr) return;
  connection->unidentified.mark_identified();
  connection->receiver.mark_identified(fillers_.of(*connection->options.receive_pool));
  if (!connection->starved.listed()) ready_.add(connection->ready);
}

// Closing at once would make the kernel answer what the peer still sends with a reset, which
// destroys what is on its way to the peer. So everything is written, and what comes is read and
// thrown away, until the peer closes too.
void TcpTransport::continue_closing(Connection& connection) {
  if (connection.queue.empty() && !connection.shut_down) {
    connection.shut_down = true;
    (void)::shutdown(connection.socket.get(), SHUT_WR);
  }
  if (connection.peer_ended && connection.queue.empty()) return erase(connection);
  discard_what_comes(connection);
}

// Up to what the peer says at its end, and until it closes.
void TcpTransport::discard_what_comes(Connection& connection) {
  if (!look_for_end(connection, {})) return; // what was read ahead may hold the end
  std::array<std::byte, bytes_per_discard> bytes;
  for (int i = 0; connection.readable && i < discards_per_visit; ++i) {
    const ssize_t got = ::recv(connection.socket.get(), bytes.data(), bytes.size(), 0);
    if (got > 0) {
      if (!look_for_end(connection, std::span(bytes).first(static_cast<std::size_t>(got)))) return;
    } else if (got < 0 && errno == EAGAIN) {
      connection.readable = false;
    } else if (got == 0 || errno != EINTR) {
      return peer_gone(connection, got < 0);
    }
  }
  if (connection.readable) ready_.add(connection.ready);
}

// False: the connection is over.
bool TcpTransport::look_for_end(Connection& connection, std::span<const std::byte> bytes) {
  using Step = tcp::StreamReceiver::Step;
  if (connection.peer_ended) return true;
  const Step step = connection.receiver.discard(bytes);
  if (step == Step::failed) {
    set_reset_on_close(connection.socket);
    give_up(connection, "sent bytes that are not a message");
    return false;
  }
  connection.peer_ended = step == Step::ended;
  if (connection.peer_ended && has_untaken(connection, CloseReason::peer_closed))
    count_given_up(connection, peer_ended_early);
  return true;
}

// One that has taken everything has acknowledged everything, but perhaps not our end.
void TcpTransport::peer_gone(Connection& connection, bool died) {
  connection.readable = false;
  const bool lost = died || connection.send_failed;
  if (connection.peer_ended) { // it still has to know what was taken here
    if (lost || connection.queue.empty()) erase(connection);
    return;
  }
  const std::uint64_t our_end = connection.shut_down ? 1 : 0;
  if (lost || connection.queue.holds_messages() ||
      unacknowledged(connection.socket.get()) > our_end)
    return give_up(connection, peer_ended_early);
  erase(connection);
}

// Over, though not by close(): `closed` follows in poll(), or nothing if nobody knew of it.
void TcpTransport::end(Connection& connection, CloseReason reason, bool reset) {
  if (connection.state.is_open() && has_untaken(connection, reason)) ++given_up_;
  accounts_.end(connection.state, reason);
  connection.unidentified.mark_identified();
  if (reset) set_reset_on_close(connection.socket);
  connection.question.withdraw();
  connection.socket.reset();
  connection.receiver.reset();
  if (!connection.queue.empty()) released_ = true;
  connection.queue.clear();
  connection.deadline.cancel();
  ready_.add(connection.ready);
}

// What the peer sent before it went is still to be read; reading then finds the end.
void TcpTransport::send_nothing_more(Connection& connection) {
  connection.send_failed = true;
  connection.can_write = false;
  connection.readable = true;
  connection.peer_shut_down = true;
  connection.queue.clear();
  released_ = true;
  if (!connection.starved.listed()) ready_.add(connection.ready);
}

// The kernel itself would go on for a quarter of an hour.
void TcpTransport::end_dead_hosts() {
  connections_.for_each([this](ConnectionId, Connection& connection) {
    if (!connection.state.is_open() || !is_unanswered(connection.socket.get())) return;
    report(CloseReason::peer_died, connection, "its host or the network does not answer");
    (void)::shutdown(connection.socket.get(), SHUT_RDWR); // what has come can still be read
    send_nothing_more(connection);
  });
  if (connections_.size() > 0) dead_host_tick_.start(loop_, loop_.now() + dead_host_period);
}

void TcpTransport::erase(Connection& connection) {
  if (connection.state.stage() == Stage::closing) --closing_;
  if (!connection.queue.empty()) released_ = true;
  connections_.erase(connection.id);
}

void TcpTransport::expire(Connection& connection) {
  if (connection.state.stage() == Stage::closing) {
    const std::uint64_t before = std::exchange(connection.taken, taken(connection));
    if (!connection.unidentified.unidentified() && connection.taken >= before + taken_least) {
      connection.deadline.start(loop_, loop_.now() + options_.linger_timeout);
      return;
    }
    if (connection.peer_ended) {
      if (!has_acknowledged_all(connection)) set_reset_on_close(connection.socket);
      return erase(connection);
    }
    if (has_acknowledged_all(connection)) // its host has the rest, and the process may not take it
      return give_up(connection, peer_is_silent);
    set_reset_on_close(connection.socket); // or the kernel goes on
    return give_up(connection, peer_takes_nothing);
  }
  if (connection.state.stage() != Stage::connecting && connection.state.stage() != Stage::handshake)
    return;
  if (connection.state.stage() == Stage::connecting && connection.attempts.any_left()) {
    connection.attempts.failed(ETIMEDOUT);
    return connect_next(connection);
  }
  if (connection.state.stage() == Stage::handshake && extend_if_unread(connection)) {
    connection.deadline.start(loop_, loop_.now() + options_.handshake_timeout);
    return;
  }
  const bool ours = connection.state.ours();
  const CloseReason reason = ours ? CloseReason::connect_failed : CloseReason::protocol_violation;
  ++accounts_.handshake_timeouts;
  const bool named = !connection.question.waits();
  if (named && ours) { // another host may have its address now
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
  expired_.take_each([this](Connection& connection) { expire(connection); });
  if (eager_.empty() || empty_polls_ % tcp_polls_per_check == 0) collect_ready();
  list_eager();
  listeners_.accept([this](Listener& listener) { return accept_one(listener); });
  retry_starved();
  Budget budget{.events = EventBatch(events),
                .bytes = eager_.empty() ? bytes_per_poll : bytes_beside_eager};
  // A connection that had its share goes to the back, so those for which nothing is left come first
  // in the next poll.
  for (std::size_t visits = ready_.size(); visits > 0 && !budget.events.full() && budget.bytes > 0;
       --visits) {
    Connection* const connection = ready_.take();
    if (connection == nullptr) break;
    // One that comes first for what it has read ahead of the others is done with that.
    const std::size_t share =
        connection->eager.listed() ? bytes_beside_eager : std::min(budget.bytes, bytes_per_visit);
    budget.visit_bytes = connection->receiver.holds_page() ? 0 : share;
    budget.before = budget.events.count();
    visit(*connection, budget);
  }
  starved_after_message_.take_each(
      [this](Connection& connection) { starved_.add(connection.starved); });
  empty_polls_ = budget.events.count() == 0 && !budget.read ? empty_polls_ + 1 : 0;
  return budget.events.count();
}

void TcpTransport::poll_eagerly(Connection& connection) {
  connection.empty_reads = 0;
  if (eager_.size() < eager_max) eager_.add(connection.eager);
}

void TcpTransport::list_eager() {
  eager_.take_each([this](Connection& connection) {
    if (!connection.state.is_open() || ++connection.empty_reads == empty_reads_max) return;
    eager_.add(connection.eager);
    if (connection.starved.listed()) return;
    connection.readable = true;
    ready_.add_first(connection.ready);
  });
}

void TcpTransport::collect_ready() {
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (const epoll_event& event :
       std::span(ready).first(static_cast<std::size_t>(std::max(count, 0)))) {
    if ((event.data.u64 & SocketListeners::epoll_bit) != 0) {
      listeners_.mark_waiting(
          static_cast<ListenerId>(event.data.u64 & ~SocketListeners::epoll_bit));
      continue;
    }
    Connection* const connection = connections_.find(static_cast<ConnectionId>(event.data.u64));
    if (connection == nullptr || connection->state.stage() == Stage::ended) continue;
    if ((event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) connection->peer_shut_down = true;
    if ((event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0)
      connection->readable = true;
    if (connection->state.stage() == Stage::connecting) {
      connect_progress(*connection);
      continue;
    }
    if ((event.events & EPOLLOUT) != 0 && !connection->send_failed) {
      connection->can_write = true;
      if (!connection->queue.empty()) write(*connection);
    }
    if (connection->readable && !connection->starved.listed()) ready_.add(connection->ready);
  }
}

// They come before those who did not wait, in the order in which they have begun to: or one that
// always has something to read would take every page that comes back. Only who holds the page that
// is being filled is before them, as in take_messages().
void TcpTransport::retry_starved() {
  if (starved_.empty()) return;
  ConnectionList::Place* next = ready_.first();
  if (next != nullptr && next->owner().receiver.holds_page()) next = next->next();
  starved_.take_each([this, next](Connection& connection) {
    if (connection.state.is_open() && !connection.receiver.can_go_on()) {
      starved_.add(connection.starved);
    } else {
      ready_.add_before(next, connection.ready);
    }
  });
}

// A message that has hardly begun, or hardly goes on, may take for ever. What it has reserved,
// others wait for.
void TcpTransport::reclaim_regions() {
  if (starved_.empty()) return;
  const bool check = loop_.now() >= next_stall_check_;
  if (check) next_stall_check_ = loop_.now() + options_.stall_period;
  connections_.for_each([&](ConnectionId, Connection& connection) {
    const memory::PagePool& pool = *connection.options.receive_pool;
    if (connection.state.is_open() && (check || pool.available() == 0)) // a check is of all
      released_ |= connection.receiver.give_up_region(check);
  });
  reclaim_tick_.start(loop_, loop_.now() + options_.reclaim_period);
}

void TcpTransport::visit(Connection& connection, Budget& budget) {
  switch (connection.state.stage()) {
  case Stage::connecting:
  case Stage::retired: break;
  case Stage::handshake:
  case Stage::open: receive(connection, budget); break;
  case Stage::ended: emit_closed(connection, budget); break;
  case Stage::closing: continue_closing(connection); break;
  }
}

void TcpTransport::receive(Connection& connection, Budget& budget) {
  if (connection.writable_pending) { // not behind messages that may lack pages
    connection.writable_pending = false;
    budget.events.add(connection, EventKind::writable);
  }
  if (connection.starved.listed()) return;
  take_messages(connection, budget);
  if (connection.state.stage() == Stage::ended) emit_closed(connection, budget);
}

void TcpTransport::take_messages(Connection& connection, Budget& budget) {
  using Step = tcp::StreamReceiver::Step;
  memory::View view;
  while (connection.state.stage() != Stage::ended) {
    if (connection.spoke && connection.unidentified.unidentified())
      return; // until mark_identified()
    if (budget.events.full()) {
      connection.eager.leave(); // a stream: it waits for its turn
      // It comes first next time if it holds the page that is being filled: others would begin a
      // page of their own, and one of the two would be left behind half empty.
      if (connection.receiver.holds_page()) {
        ready_.add_first(connection.ready);
      } else {
        ready_.add(connection.ready);
      }
      return;
    }
    switch (connection.receiver.next(view)) {
    case Step::message:
      budget.events.add(connection, EventKind::message).message = std::move(view);
      ++connection.messages_taken;
      connection.spoke = true;
      break;
    case Step::opened: opened(connection, budget); break;
    case Step::ended: peer_ended(connection); break;
    case Step::failed: stream_failed(connection); break;
    case Step::starved: mark_starved(connection, budget); return;
    case Step::need_bytes:
      if (!connection.readable) return;
      if (budget.visit_bytes == 0) {
        ready_.add(connection.ready);
        return;
      }
      read(connection, budget);
      if (connection.starved.listed()) return;
      break;
    }
  }
}

void TcpTransport::peer_ended(Connection& connection) {
  if (connection.receiver.peer_has_taken() <= connection.messages_sent)
    return end(connection, CloseReason::peer_closed, false);
  report(CloseReason::protocol_violation, connection,
         "claims to have taken messages that were never sent");
  end(connection, CloseReason::protocol_violation, true);
}

void TcpTransport::opened(Connection& connection, Budget& budget) {
  if (!connection.options.peers_must_identify) connection.unidentified.mark_identified();
  connection.state.enter(Stage::open);
  connection.deadline.cancel();
  connection.peer_max_message =
      std::min(connection.receiver.peer().max_message, tcp::end_of_stream - 1);
  budget.events.add(connection, connection.state.announce());
}

// Who has got something in this visit goes behind those who get nothing in this poll.
void TcpTransport::mark_starved(Connection& connection, const Budget& budget) {
  (budget.events.count() == budget.before ? starved_ : starved_after_message_)
      .add(connection.starved);
  if (!reclaim_tick_.active()) reclaim_tick_.start(loop_, loop_.now() + options_.reclaim_period);
}

void TcpTransport::read(Connection& connection, Budget& budget) {
  std::array<iovec, tcp::StreamReceiver::pieces_max> pieces;
  const std::size_t count = connection.receiver.prepare(pieces);
  if (count == 0) {
    mark_starved(connection, budget);
    return;
  }
  std::size_t room = 0;
  for (std::size_t i = 0; i < count; ++i) room += pieces[i].iov_len;
  const ssize_t got = ::readv(connection.socket.get(), pieces.data(), static_cast<int>(count));
  const int error = got < 0 ? errno : 0;
  connection.receiver.received(got > 0 ? static_cast<std::size_t>(got) : 0);
  if (got > 0) {
    const auto bytes = static_cast<std::size_t>(got);
    if (bytes >= budget.visit_bytes) {
      connection.eager.leave(); // a stream: it waits for its turn
    } else if (connection.options.low_latency) {
      poll_eagerly(connection);
    }
    if (!connection.eager.listed()) budget.bytes -= std::min(budget.bytes, bytes);
    budget.read = true;
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
  if (connection.state.is_open()) {
    connection.send_failed |= error != 0; // a reset: something has come there that nobody took
    end(connection, CloseReason::peer_died, false); // it did not say that it would
    return;
  }
  const CloseReason reason =
      connection.state.ours() ? CloseReason::connect_failed : CloseReason::peer_closed;
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
    report(reason, connection,
           peer.version == tcp::protocol_version
               ? "has another byte order than this host"
               : other_version(peer.version, tcp::protocol_version));
    break;
  case CloseReason::message_too_large:
    report(reason, connection, "sent a message larger than was agreed");
    break;
  default:
    report(reason, connection,
           connection.state.is_open() ? "sent bytes that are not a message"
                                      : "is not a fanin process");
  }
  // Without a reset in the case of versions, so that the peer gets to read ours.
  end(connection, reason, reason != CloseReason::version_mismatch);
}

void TcpTransport::emit_closed(Connection& connection, Budget& budget) {
  if (!connection.state.silent()) {
    if (budget.events.full()) {
      ready_.add(connection.ready);
      return;
    }
    budget.events.add_closed(connection);
  }
  connections_.erase(connection.id);
}

bool TcpTransport::arm() {
  while (eager_.take() != nullptr) { // from here on epoll says what comes
  }
  if (released_ || !ready_.empty() || !expired_.empty() || listeners_.any_waiting() ||
      !flush_list_.empty()) {
    released_ = false;
    return false;
  }
  return !starved_.any([](const Connection& connection) {
    return !connection.state.is_open() || connection.receiver.can_go_on();
  });
}

std::string TcpTransport::peer_name(ConnectionId id) const {
  const Connection* const connection = connections_.find(id);
  return connection == nullptr ? "" : peer_text(*connection);
}

std::uint64_t TcpTransport::unfinished(ConnectionId id) const {
  const Connection* const connection = connections_.find(id);
  return connection == nullptr ? 0 : connection->receiver.unfinished();
}

} // namespace fanin::net
