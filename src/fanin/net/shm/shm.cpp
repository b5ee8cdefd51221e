#include "fanin/net/shm/shm.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/units.hpp"
#include "fanin/net/shm/connection.hpp"

namespace fanin::net {

using shm::Outbox;
using shm::Piece;
using shm::Record;
using shm::RecordKind;

namespace {

// The kernel is asked what else there is only so often while connections are busy.
constexpr std::uint32_t shm_polls_per_check = 64;
// A connection is looked into for so many polls after the last message: a fraction of a
// millisecond.
constexpr std::uint32_t idle_polls_max = 4096;
constexpr std::size_t shm_messages_per_visit = 16;
constexpr std::uint32_t lent_max = 1U << 20; // messages of one peer held here

} // namespace

// --- life ---

ShmTransport::Connection::Connection(ShmTransport& owner, const ConnectionOptions& given,
                                     PageFiller& pages)
    : options(given),
      filler(&pages),
      lent(shm::LentMemory::make(
          [this, &owner](shm::Return what) { owner.give_back(*this, what); })),
      deadline([this, &owner] { owner.expired_.add(expired); }),
      retry([this, &owner] { owner.try_again(*this); }) {}

ShmTransport::ShmTransport(Loop& loop, ShmOptions options)
    : loop_(loop),
      options_(std::move(options)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      unidentified_pages_(options_.unidentified.peers_max),
      unidentified_(options_.unidentified),
      accounts_(options_.report),
      listeners_(loop, options_.retry_pause, accounts_) {
  if (!epoll_) throw std::system_error(errno, std::generic_category(), "shm transport: epoll");
}

ShmTransport::~ShmTransport() = default;

void ShmTransport::report(CloseReason reason, Connection& connection, std::string_view text) const {
  connection.state.explain(text);
  accounts_.report(reason, connection.target, text);
}

void ShmTransport::mark_identified(ConnectionId id) {
  Connection* const connection = connections_.find(id);
  if (connection == nullptr) return;
  connection->unidentified.mark_identified();
  connection->filler = &fillers_.of(*connection->options.receive_pool);
  poll_eagerly(*connection); // for what it has sent behind its first message
}

std::string ShmTransport::peer_name(ConnectionId id) const {
  const Connection* const connection = connections_.find(id);
  return connection == nullptr ? "" : connection->target;
}

// --- closing ---

void ShmTransport::close(ConnectionId id, bool abort) {
  const auto withdrawn = static_cast<std::uint32_t>(withdraw(id));
  Connection* connection = connections_.find(id);
  if (connection == nullptr || connection->state.stage() == Stage::closing ||
      connection->state.stage() == Stage::retired)
    return;
  accounts_.close(connection->state);
  if (!connection->connected()) {
    erase(*connection);
    return;
  }
  take_no_more(*connection, withdrawn);
  if (abort || connection->state.stage() == Stage::ended) {
    if (abort) signal_aborted(*connection);
    retire(*connection);
    return;
  }
  connection->state.enter(Stage::closing);
  stop_waiting(*connection);
  ++closing_;
  poll_eagerly(*connection);
  continue_closing(*connection);
  connection = connections_.find(id);
  if (connection != nullptr && connection->state.stage() == Stage::closing)
    wait_for_progress(*connection);
}

// What was withdrawn may be more units, but any number that is too small says that not all was
// taken.
void ShmTransport::take_no_more(Connection& connection, std::uint32_t withdrawn) {
  connection.out().closed.store(shm::closed_bit | (connection.receiving.read - withdrawn),
                                std::memory_order_release);
}

void ShmTransport::wait_for_progress(Connection& connection) {
  connection.progress = connection.sending.taken;
  connection.deadline.start(loop_, loop_.now() + options_.linger_timeout);
}

// What was accepted is in the outbox already, or will be when the peer has taken more; the end goes
// behind it. From then on the peer needs nothing of this process, which waits only to know.
void ShmTransport::continue_closing(Connection& connection) {
  const bool peer_takes =
      !connection.peer_has_ended() && connection.peer().closed.load(std::memory_order_acquire) == 0;
  if (peer_takes && !connection.end_written && has_room(connection, 1)) {
    const Record record{.kind = RecordKind::end};
    std::memcpy(begin_record(connection, 1, 0), &record, sizeof record);
    connection.out().written.store(connection.sending.written, std::memory_order_release);
    connection.end_written = true;
    signal(connection, true);
  }
  refresh_taken(connection);
  if (connection.state.stage() != Stage::closing) return; // it lied, and is retired
  const bool untaken = has_untaken(connection);
  const bool to_wait = untaken && !connection.unidentified.unidentified(); // else it is not counted
  if (peer_takes && (to_wait || !connection.end_written)) return;
  if (untaken) give_up(connection, peer_ended_early);
  --closing_;
  retire(connection);
}

// As far as the peer has said.
bool ShmTransport::has_untaken(const Connection& connection) {
  const Sending& sending = connection.sending;
  // After refresh_taken(): once it has closed, a peer throws away what it takes.
  const std::uint64_t closed = connection.peer().closed.load(std::memory_order_acquire);
  const auto taken = closed == 0 ? sending.taken : static_cast<std::uint32_t>(closed);
  const std::uint32_t messages_end = sending.written - (connection.end_written ? 1 : 0);
  return taken != messages_end && taken != sending.written;
}

// It was closed here, in order, and its peer is not done.
void ShmTransport::give_up(Connection& connection, std::string_view why) {
  if (connection.unidentified.unidentified()) return;
  ++given_up_;
  report(CloseReason::peer_died, connection, why);
}

void ShmTransport::abandon_closing(Connection& connection) {
  if (!connection.end_written) signal_aborted(connection);
  --closing_;
  retire(connection);
}

// Over, though not by close(): `closed` follows in poll(), or nothing if nobody knew of it.
void ShmTransport::end(Connection& connection, CloseReason reason) {
  if (connection.state.is_open()) refresh_taken(connection);
  if (connection.state.over()) return; // also where it lied about that
  if (connection.state.is_open() && has_untaken(connection) &&
      !connection.unidentified.unidentified())
    ++given_up_;
  accounts_.end(connection.state, reason);
  connection.unidentified.mark_identified();
  connection.deadline.cancel();
  connection.retry.cancel();
  poll_eagerly(connection);
}

bool ShmTransport::violation(Connection& connection, std::string_view what) {
  if (std::exchange(connection.broken, true)) return false;
  report(CloseReason::protocol_violation, connection, what);
  signal_aborted(connection);
  if (connection.state.stage() == Stage::closing) {
    --closing_;
    connection.state.enter(Stage::retired);
    connection.unidentified.mark_identified();
    poll_eagerly(connection);
  } else {
    end(connection, CloseReason::protocol_violation);
  }
  return false;
}

// Never by shutdown(): where both ends do it, the kernel tells both that the other one has hung up,
// and a hang-up says that nobody there reads our memory any more.
void ShmTransport::signal_aborted(Connection& connection) {
  if (!connection.connected()) return; // hanging up says it
  if (connection.out().closed.load(std::memory_order_relaxed) == 0) take_no_more(connection, 0);
  connection.out().aborted.store(1, std::memory_order_release);
  signal(connection, true);
}

void ShmTransport::check_abort(Connection& connection) {
  if (connection.peer().aborted.load(std::memory_order_acquire) != 0)
    connection.peer_becomes(shm::PeerState::ended);
}

// A page dies only with its holder: as long as one end reads what the other has lent, and both
// live, the socket stays open.
void ShmTransport::retire(Connection& connection) {
  connection.state.enter(Stage::retired);
  connection.unidentified.mark_identified();
  connection.deadline.cancel();
  stop_waiting(connection);
  poll_eagerly(connection);
  erase_if_drained(connection);
}

// No event follows, so nothing has to be waited for.
void ShmTransport::stop_waiting(Connection& connection) {
  connection.wants_writable = connection.writable_pending = false;
  connection.wants_copy = 0;
  connection.receiving.starved_for = 0;
  connection.receiving.holds_all = connection.receiving.lacks_memory = false;
  connection.receiving.packet.reset();
}

void ShmTransport::erase_if_drained(Connection& connection) {
  if (connection.state.stage() != Stage::retired) return;
  const bool all_home = connection.lent_out() == 0 && connection.lent->lent() == 0;
  if (all_home || connection.peer_is_gone() || !connection.connected()) erase(connection);
}

void ShmTransport::erase(Connection& connection) {
  if (connection.state.stage() == Stage::closing) --closing_;
  if (connection.lent_out() > 0) released_ = true;
  connections_.erase(connection.id);
}

void ShmTransport::peer_gone(Connection& connection) {
  connection.peer_becomes(shm::PeerState::gone);
  for (std::uint32_t i = 0; i < connection.sending.slots.size(); ++i) {
    if (connection.sending.slots[i].lent) free_slot(connection, i);
  }
  connection.receiving.returns.clear();
}

void ShmTransport::expire(Connection& connection) {
  if (connection.state.stage() == Stage::closing) {
    refresh_taken(connection);
    if (connection.state.stage() != Stage::closing) return; // it lied
    if (connection.progress != connection.sending.taken && !connection.unidentified.unidentified())
      return wait_for_progress(connection);
    give_up(connection, peer_takes_nothing);
    return abandon_closing(connection);
  }
  if (connection.state.stage() == Stage::handshake) read_packets(connection);
  if (!connection.state.setting_up()) return;
  const CloseReason reason =
      connection.state.ours() ? CloseReason::connect_failed : CloseReason::protocol_violation;
  ++accounts_.handshake_timeouts;
  report(reason, connection,
         fmt::format("no answer within {}", format_duration(options_.handshake_timeout)));
  end(connection, reason);
}

// --- who is looked into by every poll ---

void ShmTransport::poll_eagerly(Connection& connection) {
  connection.idle_polls = 0;
  if (connection.eager.listed()) return;
  eager_.add(connection.eager);
  disarm(connection);
}

void ShmTransport::disarm(Connection& connection) {
  if ((connection.armed & (shm::armed_for_work | shm::armed_for_room)) == 0) return;
  connection.armed &= ~(shm::armed_for_work | shm::armed_for_room);
  connection.out().armed.store(connection.armed, std::memory_order_relaxed);
}

// From now on the peer signals what is new. False: something is new already.
bool ShmTransport::arm(Connection& connection) {
  if (!connection.connected()) return connection.state.stage() != Stage::ended;
  const bool for_room = connection.wants_writable || connection.state.stage() == Stage::closing ||
                        !connection.receiving.returns.empty();
  connection.armed =
      ((connection.armed | 3U) + 1) | shm::armed_for_work | (for_room ? shm::armed_for_room : 0U);
  connection.out().armed.store(connection.armed, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst); // our `armed` before the peer's stores
  if (!has_work(connection)) return true;
  disarm(connection);
  return false;
}

bool ShmTransport::has_work(const Connection& connection) {
  if (connection.state.stage() == Stage::ended || connection.writable_pending) return true;
  if (connection.state.is_open() && !connection.state.announced()) return true;
  if (connection.broken) return false;
  const Outbox& peer = connection.peer();
  const Sending& sending = connection.sending;
  const Receiving& receiving = connection.receiving;
  const auto now = [](const std::atomic<std::uint32_t>& count) {
    return count.load(std::memory_order_acquire);
  };
  if (now(peer.returned) != sending.returns_taken) return !connection.peer_is_gone();
  if (now(peer.taken) != sending.taken &&
      (connection.wants_writable || connection.state.stage() == Stage::closing))
    return true;
  if (connection.wants_copy > 0 && can_copy(connection)) return true;
  if (!receiving.returns.empty() && receiving.returned - now(peer.returns_taken) < shm::returns_max)
    return true;
  const bool over = connection.peer_has_ended() || now(peer.aborted) != 0;
  if (connection.state.stage() == Stage::closing &&
      (over || peer.closed.load(std::memory_order_acquire) != 0))
    return true;
  if (!connection.state.is_open()) {
    return !connection.peer_is_gone() && now(peer.written) != receiving.read &&
           receiving.returns.size() < shm::returns_max;
  }
  if (now(peer.written) != receiving.read && !connection.has_to_wait()) {
    if (receiving.lacks_memory) return over; // or after `retry`
    if (receiving.holds_all) return connection.lent->lent() < lent_max;
    return receiving.starved_for == 0 || connection.filler->can_reserve(receiving.starved_for);
  }
  return over;
}

// For pages that come back to pools of this process: no peer says so.
bool ShmTransport::waits_for_own_pages(const Connection& connection) {
  return connection.receiving.starved_for > 0 || connection.receiving.holds_all ||
         connection.wants_copy > 0;
}

bool ShmTransport::arm() {
  if (released_ || !flush_list_.empty() || !expired_.empty() || listeners_.any_waiting()) {
    released_ = false;
    return false;
  }
  bool idle = true;
  eager_.take_each([&](Connection& connection) {
    const bool armed = idle && arm(connection);
    idle = armed;
    // Pages that come back are not the peer's doing, and are looked for here.
    if (!armed || waits_for_own_pages(connection)) eager_.add(connection.eager);
  });
  return idle;
}

// --- polling ---

std::size_t ShmTransport::poll(std::span<Event> events) {
  released_ = false;
  flush();
  expired_.take_each([this](Connection& connection) { expire(connection); });
  if (eager_.empty() || ++polls_ % shm_polls_per_check == 0) collect();
  listeners_.accept([this](Listener& listener) { return accept_one(listener); });
  EventBatch batch(events);
  for (std::size_t left = eager_.size(); left > 0 && !batch.full(); --left) {
    Connection* connection = eager_.rotate();
    if (connection == nullptr) break;
    const ConnectionId id = connection->id;
    const bool worked = visit(*connection, batch);
    connection = connections_.find(id);
    if (connection == nullptr) continue;
    if (worked) {
      connection->idle_polls = 0;
    } else if (++connection->idle_polls > idle_polls_max &&
               connection->state.stage() != Stage::ended && !waits_for_own_pages(*connection) &&
               arm(*connection)) {
      connection->eager.leave();
    }
  }
  return batch.count();
}

void ShmTransport::collect() {
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (const epoll_event& event :
       std::span(ready).first(static_cast<std::size_t>(std::max(count, 0)))) {
    const std::uint64_t id = event.data.u64 & ~(SocketListeners::epoll_bit | shm::wake_bit);
    if ((event.data.u64 & SocketListeners::epoll_bit) != 0) {
      listeners_.mark_waiting(static_cast<ListenerId>(id));
      continue;
    }
    Connection* const connection = connections_.find(static_cast<ConnectionId>(id));
    if (connection == nullptr) continue;
    poll_eagerly(*connection);
    if ((event.data.u64 & shm::wake_bit) == 0) socket_event(*connection, event.events);
  }
}

void ShmTransport::socket_event(Connection& connection, std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) connection.socket_full = false;
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP)) != 0) read_packets(connection);
  if ((events & EPOLLHUP) != 0) peer_gone(connection);
  if (connection.peer_has_ended() && connection.state.stage() == Stage::handshake) {
    const bool ours = connection.state.ours();
    report(ours ? CloseReason::connect_failed : CloseReason::peer_closed, connection,
           connection.other_user ? belongs_to_another_user
                                 : "closed the connection without an answer");
    end(connection, ours ? CloseReason::connect_failed : CloseReason::peer_closed);
  }
}

// True: something was done, and there may be more.
bool ShmTransport::visit(Connection& connection, EventBatch& events) {
  disarm(connection);
  if (connection.state.stage() == Stage::ended) {
    if (!connection.state.silent()) events.add_closed(connection);
    retire(connection);
    return true;
  }
  if (!connection.connected()) return false;
  if (connection.broken) {
    erase_if_drained(connection);
    return false;
  }
  check_abort(connection);
  bool worked = false;
  if (connection.state.is_open() && !connection.state.announced()) {
    events.add(connection, connection.state.announce());
    worked = true;
  }
  if (!connection.peer_is_gone()) take_returns(connection);
  if (!connection.receiving.returns.empty()) mark_for_flush(connection);
  if (connection.state.is_open()) {
    if (connection.wants_writable) check_writable(connection);
    if (connection.writable_pending && !events.full()) {
      connection.writable_pending = false;
      events.add(connection, EventKind::writable);
      worked = true;
    }
    return take_messages(connection, events) || worked;
  }
  if (!connection.peer_is_gone()) discard_messages(connection);
  if (connection.state.stage() == Stage::closing) {
    continue_closing(connection);
  } else {
    erase_if_drained(connection);
  }
  return false;
}

bool ShmTransport::take_messages(Connection& connection, EventBatch& events) {
  Receiving& receiving = connection.receiving;
  if ((connection.has_to_wait() || receiving.lacks_memory) && connection.peer_has_ended()) {
    end(connection, CloseReason::peer_died);
    return true;
  }
  const std::uint32_t written = connection.peer().written.load(std::memory_order_acquire);
  const std::uint32_t before = receiving.read;
  if (written - receiving.read > shm::units_max)
    return violation(connection, "claims to have sent more than its outbox can hold");
  for (std::size_t left = shm_messages_per_visit;
       left > 0 && receiving.read != written && !events.full() && !connection.has_to_wait();
       --left) {
    if (!take_record(connection, written - receiving.read, events)) break;
  }
  if (receiving.read == written && connection.peer_has_ended() && connection.state.is_open() &&
      connection.peer().written.load(std::memory_order_acquire) == written) {
    end(connection, CloseReason::peer_died); // it did not say that it would
    return true;
  }
  if (receiving.read == before) return false;
  connection.out().taken.store(receiving.read, std::memory_order_release);
  connection.room_to_signal = true;
  mark_for_flush(connection);
  return true;
}

// Copies the record that comes next; how many units it takes, 0: it is none.
std::uint32_t ShmTransport::read_record(Connection& connection, std::uint32_t available,
                                        Record& record) {
  const std::uint32_t index = connection.receiving.read % shm::units_max;
  const std::byte* const at = connection.peer().units.data() + std::size_t{index} * shm::unit_size;
  std::memcpy(&record, at, sizeof record);
  std::uint32_t units = 1;
  switch (record.kind) {
  case RecordKind::skip: units = shm::units_max - index; break;
  case RecordKind::end: break;
  case RecordKind::inlined:
    if (record.length > shm::inline_max) {
      (void)violation(connection, "sent an inlined message that is too long");
      return 0;
    }
    units = shm::units_of(sizeof record + record.length);
    break;
  case RecordKind::lent: {
    Piece first;
    std::memcpy(&first, at + sizeof record, sizeof first);
    units = first.length == record.length ? 1 : 2;
    break;
  }
  default: (void)violation(connection, "sent bytes that are not a message"); return 0;
  }
  if (units <= available && index + units <= shm::units_max) return units;
  (void)violation(connection, "sent a message that is not complete in its outbox");
  return 0;
}

// After close(): what still comes is nobody's, and the peer gets its memory back. Both ends may
// have closed, each with messages that the other has not taken.
void ShmTransport::discard_messages(Connection& connection) {
  Receiving& receiving = connection.receiving;
  const std::uint32_t written = connection.peer().written.load(std::memory_order_acquire);
  if (written == receiving.read) return;
  while (written != receiving.read && receiving.returns.size() < shm::returns_max) {
    Record record;
    const std::uint32_t available = written - receiving.read;
    const std::uint32_t units =
        available > shm::units_max ? 0 : read_record(connection, available, record);
    if (units == 0) {
      receiving.read = written;
      break;
    }
    if (record.kind == RecordKind::lent) give_back(connection, {record.slot, record.use});
    receiving.read += units;
  }
  connection.out().taken.store(receiving.read, std::memory_order_release);
  connection.room_to_signal = true;
  mark_for_flush(connection);
}

// False: nothing more can be taken now.
bool ShmTransport::take_record(Connection& connection, std::uint32_t available,
                               EventBatch& events) {
  Receiving& receiving = connection.receiving;
  const std::uint32_t index = receiving.read % shm::units_max;
  Record record;
  const std::uint32_t units = read_record(connection, available, record);
  if (units == 0) return false;
  if (record.kind == RecordKind::end) end(connection, CloseReason::peer_closed);
  if (record.length > connection.options.max_message) {
    if (record.kind == RecordKind::inlined || record.kind == RecordKind::lent) {
      report(CloseReason::message_too_large, connection, "sent a message larger than was agreed");
      signal_aborted(connection);
      end(connection, CloseReason::message_too_large);
      return false;
    }
  }
  if (record.kind == RecordKind::inlined && !take_inlined(connection, record, index, events))
    return false;
  if (record.kind == RecordKind::lent && !take_lent(connection, record, index, events))
    return false;
  receiving.read += units;
  return connection.state.is_open();
}

bool ShmTransport::take_inlined(Connection& connection, const Record& record, std::uint32_t index,
                                EventBatch& events) {
  Receiving& receiving = connection.receiving;
  memory::View view;
  if (record.length > 0) {
    const std::byte* const at =
        connection.peer().units.data() + std::size_t{index} * shm::unit_size + sizeof record;
    view = connection.filler->copy({at, record.length});
    receiving.starved_for = view.page ? 0 : record.length;
    if (!view.page) return false;
  }
  connection.spoke = true;
  events.add(connection, EventKind::message).message = std::move(view);
  return true;
}

bool ShmTransport::take_lent(Connection& connection, const Record& record, std::uint32_t index,
                             EventBatch& events) {
  std::array<Piece, shm::pieces_max> pieces;
  const std::byte* const at =
      connection.peer().units.data() + std::size_t{index} * shm::unit_size + sizeof record;
  std::memcpy(&pieces[0], at, sizeof(Piece));
  std::size_t count = 1;
  if (pieces[0].length != record.length) {
    std::memcpy(&pieces[1], at + sizeof(Piece), sizeof(Piece));
    count = 2;
  }
  std::uint64_t total = 0;
  for (const Piece& piece : std::span(pieces).first(count)) {
    // The memory was announced before the message, so it is there if it is anywhere.
    if (piece.memory >= connection.lent->memories()) read_packets(connection);
    if (!connection.state.is_open() || connection.receiving.lacks_memory) return false;
    if (piece.length == 0 || !connection.lent->contains(piece))
      return violation(connection, "sent a message that lies outside its memory");
    total += piece.length;
  }
  if (total != record.length || pieces[0].offset % PageFiller::alignment != 0)
    return violation(connection, "sent a message whose lengths do not add up");
  connection.receiving.holds_all = connection.lent->lent() >= lent_max;
  if (connection.receiving.holds_all) return false; // until some go back
  std::array<memory::View, shm::pieces_max> views;
  connection.lent->lend(std::span(pieces).first(count), {record.slot, record.use}, views);
  connection.spoke = true;
  Event& event = events.add(connection, EventKind::message);
  event.message = std::move(views[0]);
  event.rest = std::move(views[1]);
  return true;
}

} // namespace fanin::net
