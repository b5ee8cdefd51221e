#include "fanin/net/ofi/ofi.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/units.hpp"
#include "fanin/net/ofi/connection.hpp"

namespace fanin::net {

using posted::Tag;
using posted::TagKind;

namespace {

// Asking for the events of endpoints costs a system call, and while messages flow there are none.
constexpr std::uint32_t polls_per_look = 64;
constexpr std::size_t completions_per_read = 64;
constexpr int reads_per_poll = 4;
constexpr std::size_t messages_per_visit = 16;
constexpr std::uint32_t strangers_largest = 4096; // bytes

} // namespace

// --- life ---

OfiTransport::Connection::Connection(OfiTransport& owner, const ConnectionOptions& given,
                                     const Terms& terms, std::uint32_t receives_at_once,
                                     PageFiller& pages)
    : max_message(terms.max_message),
      options(given),
      filler(&pages),
      receives(pages.pool(), terms.max_message, terms.pages, receives_at_once),
      receive_operations(receives.slots()),
      arrived(receives.slots()),
      sending(std::make_unique<ofi::Sending>()),
      deadline([this, &owner] { owner.expired_.push_back(id); }) {
  for (std::uint32_t slot = 0; slot < receives.slots(); ++slot) {
    receive_operations[slot].connection = this;
    receive_operations[slot].number = slot;
    receive_operations[slot].receive = true;
  }
}

Result<std::unique_ptr<OfiTransport>> OfiTransport::make(Loop& loop, std::string_view provider,
                                                         OfiOptions options) {
  if (auto checked = ofi::check_provider(provider); !checked)
    return std::unexpected(checked.error());
  Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno(ErrorKind::exhausted, "ofi transport: epoll", errno);
  return std::unique_ptr<OfiTransport>(
      new OfiTransport(loop, provider, std::move(options), std::move(epoll)));
}

OfiTransport::OfiTransport(Loop& loop, std::string_view provider, OfiOptions options,
                           Descriptor epoll)
    : loop_(loop), provider_(provider), options_(std::move(options)), epoll_(std::move(epoll)) {}

OfiTransport::~OfiTransport() = default;

OfiTransport::Connection* OfiTransport::find_open(ConnectionId id) const {
  Connection* const connection = connections_.find(id);
  const bool open = connection != nullptr && connection->stage == Stage::open && !connection->cut;
  return open ? connection : nullptr;
}

void OfiTransport::report(CloseReason reason, const Connection& connection,
                          std::string_view text) const {
  if (options_.report) options_.report(reason, fmt::format("{}: {}", connection.target, text));
}

std::string OfiTransport::peer_name(ConnectionId id) const {
  const Connection* const connection = connections_.find(id);
  return connection == nullptr ? "" : connection->target;
}

void OfiTransport::trust(ConnectionId id) {
  Connection* const connection = connections_.find(id);
  if (connection == nullptr) return;
  connection->trusted = true;
  make_ready(*connection);
}

// --- closing ---

void OfiTransport::close(ConnectionId id, bool abort) {
  Connection* const connection = connections_.find(id);
  if (connection == nullptr || connection->stage == Stage::closing ||
      connection->stage == Stage::buried)
    return;
  withdraw(id);
  if (connection->stage != Stage::ended)
    ++counters_.closed[static_cast<std::size_t>(CloseReason::local)];
  if (abort || connection->stage != Stage::open || connection->cut) {
    bury(*connection);
    return;
  }
  connection->stage = Stage::closing;
  ++closing_;
  connection->deadline.start(loop_, loop_.now() + options_.linger_timeout);
  make_ready(*connection);
  pump(*connection);
}

// Over, though not by close(): `closed` follows in poll(), or nothing if nobody knew of it.
void OfiTransport::end(Connection& connection, CloseReason reason) {
  if (connection.stage == Stage::closing || connection.stage == Stage::ended ||
      connection.stage == Stage::buried)
    return;
  ++counters_.closed[static_cast<std::size_t>(reason)];
  if (connection.stage == Stage::handshake) --setting_up_;
  connection.silent = !connection.ours() && !connection.handed_out;
  connection.stage = Stage::ended;
  connection.reason = reason;
  connection.deadline.cancel();
  make_ready(connection);
}

void OfiTransport::violation(Connection& connection, std::string_view what) {
  report(CloseReason::protocol_violation, connection, what);
  end(connection, CloseReason::protocol_violation);
}

// The peer has hung up, or the network has. What came before is still delivered: it is all there
// when the queue of completions has been empty once.
void OfiTransport::cut(Connection& connection, CloseReason reason) {
  if (connection.cut) return;
  if (connection.stage == Stage::handshake || connection.stage == Stage::waiting)
    return refuse(connection.ours() ? CloseReason::connect_failed : CloseReason::peer_closed,
                  connection, "the connection was closed while it was being made");
  connection.cut = true;
  connection.cut_reason = reason;
  leaving_.push_back(connection.id);
}

// From here on the network does not touch our memory. Completions that name the connection may
// still be in the queue: it stays until that has been empty once.
void OfiTransport::bury(Connection& connection) {
  if (connection.stage == Stage::closing) --closing_;
  if (connection.stage == Stage::handshake) --setting_up_;
  connection.stage = Stage::buried;
  connection.deadline.cancel();
  if (connection.endpoint) (void)fi_shutdown(connection.endpoint.get(), 0);
  connection.endpoint.reset();
  connection.receives.give_back();
  for (ofi::Sent& sent : connection.sending->ring) sent.extents = {};
  released_ = true;
  leaving_.push_back(connection.id);
}

void OfiTransport::sweep(ofi::Completions& completions) {
  std::erase_if(leaving_, [&](ConnectionId id) {
    Connection* const connection = connections_.find(id);
    if (connection == nullptr) return true;
    if (connection->completions != &completions) return false;
    if (connection->stage == Stage::buried) {
      completions.room += connection->operations;
      connections_.erase(id);
    } else {
      connection->cut_is_known = true;
      make_ready(*connection);
    }
    return true;
  });
}

void OfiTransport::expire(Connection& connection) {
  if (connection.stage == Stage::closing) { // the peer has not taken everything
    bury(connection);
    return;
  }
  if (connection.stage != Stage::waiting && connection.stage != Stage::handshake) return;
  ++counters_.handshake_timeouts;
  refuse(connection.ours() ? CloseReason::connect_failed : CloseReason::protocol_violation,
         connection,
         connection.stage == Stage::waiting
             ? fmt::format("no page to receive in for {}", format_duration(options_.handshake_timeout))
             : fmt::format("no answer within {}", format_duration(options_.handshake_timeout)));
}

// --- polling ---

bool OfiTransport::arm() {
  if (released_ || !marked_.empty() || !ready_.empty() || !expired_.empty() || !leaving_.empty()) {
    released_ = false;
    return false;
  }
  for (const ConnectionId id : poor_) {
    const Connection* const connection = connections_.find(id);
    if (connection == nullptr || connection->receives.can_replenish()) return false;
  }
  for (const auto& fabric : fabrics_) {
    std::vector<fid*>& waited_for = fabric->waited_for;
    waited_for.assign(1, &fabric->events->fid);
    for (const auto& domain : domains_) {
      if (&domain->fabric() != fabric.get()) continue;
      for (const auto& known : domain->all_completions()) waited_for.push_back(&known->queue->fid);
    }
    if (fi_trywait(fabric->fabric.get(), waited_for.data(),
                   static_cast<int>(waited_for.size())) != FI_SUCCESS)
      return false;
  }
  look_ = true;
  return true;
}

std::size_t OfiTransport::poll(std::span<Event> events) {
  released_ = false;
  flush();
  for (std::size_t i = 0; i < expired_.size(); ++i) {
    if (Connection* const connection = connections_.find(expired_[i])) expire(*connection);
  }
  expired_.clear();
  if (std::exchange(look_, false) || setting_up_ > 0 || ++polls_ % polls_per_look == 0)
    read_events();
  for (const auto& domain : domains_) {
    for (const auto& completions : domain->all_completions()) reap(*completions);
  }
  if (!poor_.empty()) help_poor();
  Budget budget{.events = events};
  visiting_.clear();
  visiting_.swap(ready_);
  for (const ConnectionId id : visiting_) {
    Connection* const connection = connections_.find(id);
    if (connection == nullptr) continue;
    connection->ready = false;
    if (budget.full() || visit(*connection, budget)) make_ready(*connection);
  }
  return budget.count;
}

void OfiTransport::help_poor() {
  std::erase_if(poor_, [this](ConnectionId id) {
    Connection* const connection = connections_.find(id);
    if (connection == nullptr) return true;
    connection->poor = false;
    if (connection->stage == Stage::waiting) {
      if (connection->receives.can_replenish()) start(*connection);
    } else if (connection->stage == Stage::open || connection->stage == Stage::closing) {
      if (connection->receives.can_replenish()) {
        connection->credits.posted(connection->receives.replenish(
            [&](std::uint32_t slot) { post_receive(*connection, slot); }));
        mark(*connection);
      }
    } else {
      return true;
    }
    connection->poor = connection->receives.starving();
    return !connection->poor;
  });
}

void OfiTransport::make_ready(Connection& connection) {
  if (connection.ready) return;
  connection.ready = true;
  ready_.push_back(connection.id);
}

void OfiTransport::reap(ofi::Completions& completions) {
  std::array<fi_cq_data_entry, completions_per_read> entries;
  for (int left = reads_per_poll; left > 0; --left) {
    const ssize_t count = fi_cq_read(completions.queue.get(), entries.data(), entries.size());
    if (count == -FI_EAVAIL) {
      take_failure(completions);
      continue;
    }
    if (count <= 0) {
      if (!leaving_.empty()) sweep(completions);
      return;
    }
    for (const fi_cq_data_entry& entry :
         std::span(entries).first(static_cast<std::size_t>(count)))
      take_completion(entry);
  }
}

void OfiTransport::take_completion(const fi_cq_data_entry& entry) {
  const auto& operation = *static_cast<const ofi::Operation*>(entry.op_context);
  auto& connection = *static_cast<Connection*>(operation.connection);
  if (connection.stage == Stage::buried) return;
  if (!operation.receive) {
    send_done(connection, operation.number);
    if (connection.sending->posted != connection.sending->accepted) mark(connection);
    return;
  }
  const bool tagged = (entry.flags & FI_REMOTE_CQ_DATA) != 0;
  connection.arrived[connection.came % connection.arrived.size()] = {
      operation.number, static_cast<std::uint32_t>(entry.len), tagged ? entry.data : ~0ULL};
  ++connection.came;
  make_ready(connection);
}

// What was under way when the connection ended, or what has ended it.
void OfiTransport::take_failure(ofi::Completions& completions) {
  fi_cq_err_entry error{};
  if (fi_cq_readerr(completions.queue.get(), &error, 0) < 0 || error.op_context == nullptr) return;
  const auto& operation = *static_cast<const ofi::Operation*>(error.op_context);
  auto& connection = *static_cast<Connection*>(operation.connection);
  if (connection.stage == Stage::buried || connection.cut) return;
  const bool too_large = error.err == FI_ETRUNC || error.err == FI_EMSGSIZE;
  if (error.err != FI_ECANCELED) {
    report(too_large ? CloseReason::message_too_large : CloseReason::peer_died, connection,
           too_large ? "sent a message larger than what was agreed" : ofi::error_text(error.err));
  }
  cut(connection, too_large ? CloseReason::message_too_large : CloseReason::peer_died);
}

void OfiTransport::post_receive(Connection& connection, std::uint32_t slot) {
  ofi::Operation& operation = connection.receive_operations[slot];
  const ssize_t error = fi_recv(connection.endpoint.get(), connection.receives.data(slot),
                                connection.receives.slot_size(),
                                connection.receive_description, 0, &operation);
  if (error == 0) return;
  // There are never more than the provider said it takes.
  report(CloseReason::peer_died, connection,
         fmt::format("cannot post a receive: {}", ofi::error_text(error)));
  cut(connection, CloseReason::peer_died);
}

// True: something was done, and there may be more.
bool OfiTransport::visit(Connection& connection, Budget& budget) {
  switch (connection.stage) {
  case Stage::waiting:
  case Stage::handshake:
  case Stage::buried: return false;
  case Stage::ended:
    if (!connection.silent) emit(connection, budget, EventKind::closed).reason = connection.reason;
    bury(connection);
    return false;
  case Stage::closing: discard_arrived(connection); return false;
  case Stage::open: break;
  }
  if (!connection.handed_out) {
    connection.handed_out = true;
    emit(connection, budget, connection.ours() ? EventKind::connected : EventKind::accepted);
  }
  const bool more = take_arrived(connection, budget);
  if (connection.stage != Stage::open) return false;
  if (connection.wants_writable) check_writable(connection);
  if (connection.writable_pending && !budget.full() && !connection.cut) {
    connection.writable_pending = false;
    emit(connection, budget, EventKind::writable);
  }
  if (connection.cut_is_known && connection.came == connection.taken)
    end(connection, connection.cut_reason);
  return more || (connection.writable_pending && !connection.cut);
}

// True: there is more that can be taken.
bool OfiTransport::take_arrived(Connection& connection, Budget& budget) {
  std::size_t left = messages_per_visit;
  while (connection.taken != connection.came) {
    if (left == 0 || budget.full()) return true;
    const ofi::Arrived& front =
        connection.arrived[connection.taken % connection.arrived.size()];
    const auto tag = posted::decode_tag(front.tag);
    if (!tag) {
      violation(connection, "sent what is no message of fanin");
      return false;
    }
    if (front.size > connection.max_message) {
      report(CloseReason::message_too_large, connection,
             "sent a message larger than what was agreed");
      end(connection, CloseReason::message_too_large);
      return false;
    }
    if (!connection.trusted && front.size > strangers_largest) return false; // until trust()
    if (!connection.credits.take(*tag)) {
      violation(connection, "sent more than it was allowed to");
      return false;
    }
    ++connection.taken;
    if (tag->kind == TagKind::end) {
      end(connection, CloseReason::peer_closed);
      return false;
    }
    bool moved = false;
    if (tag->kind == TagKind::message) {
      Event& event = emit(connection, budget, EventKind::message);
      event.message =
          connection.receives.take(front.slot, front.size, *connection.filler, moved);
      --left;
    } else {
      connection.receives.drop(front.slot);
    }
    if (moved) ++counters_.moved;
    repost(connection, front.slot, tag->kind);
  }
  return false;
}

void OfiTransport::repost(Connection& connection, std::uint32_t slot, TagKind kind) {
  if (connection.cut) return;
  const std::uint32_t posted = connection.receives.replenish(
      slot, [&](std::uint32_t which) { post_receive(connection, which); });
  // What brought credits was no message's receive, and is posted again at once.
  connection.credits.posted(kind == TagKind::credits ? posted - 1 : posted);
  if (connection.receives.starving() && !connection.poor) {
    connection.poor = true;
    poor_.push_back(connection.id);
  }
  if (connection.credits.update_is_due() ||
      connection.sending->posted != connection.sending->accepted)
    mark(connection);
}

// After close(): what still comes is nobody's. The peer's end, or that it has hung up, is ours.
void OfiTransport::discard_arrived(Connection& connection) {
  while (connection.taken != connection.came) {
    const ofi::Arrived& front =
        connection.arrived[connection.taken % connection.arrived.size()];
    const auto tag = posted::decode_tag(front.tag);
    if (!tag || tag->kind == TagKind::end || !connection.credits.take(*tag)) {
      bury(connection);
      return;
    }
    ++connection.taken;
    connection.receives.drop(front.slot);
    repost(connection, front.slot, tag->kind);
  }
  if (connection.cut_is_known) {
    bury(connection);
    return;
  }
  if (!connection.end_sent) mark(connection);
}

Event& OfiTransport::emit(const Connection& connection, Budget& budget, EventKind kind) {
  FANIN_ASSERT(!budget.full());
  Event& event = budget.events[budget.count++];
  event.kind = kind;
  event.reason = CloseReason::local;
  event.connection = connection.id;
  event.handler = connection.options.handler;
  event.message = {};
  event.rest = {};
  return event;
}

} // namespace fanin::net
