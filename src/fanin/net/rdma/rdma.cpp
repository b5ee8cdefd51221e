#include "fanin/net/rdma/rdma.hpp"

#include <bit>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/units.hpp"
#include "fanin/net/rdma/connection.hpp"

namespace fanin::net {

using rdma::Completion;
using rdma::Operation;
using rdma::TagKind;

namespace {

// Asking for the events of endpoints costs a system call, and while messages flow there are none.
constexpr std::uint32_t rdma_polls_per_check = 64;
constexpr int reads_per_poll = 4;
constexpr std::size_t rdma_messages_per_visit = 16;

// For bytes under way after close(): 1 MB/s.
constexpr Duration linger_per_byte = std::chrono::microseconds{1};

// Of receives that are posted after what came with `tag`: what has brought credits was no message's
// receive, and is posted again at once.
std::uint32_t for_messages(std::uint32_t posted, rdma::Tag tag) {
  return tag.kind == TagKind::credits && posted > 0 ? posted - 1 : posted;
}

} // namespace

// --- life ---

rdma::Traffic::Traffic(Endpoint& endpoint, std::unique_ptr<Receives> given)
    : receives(std::move(given)),
      arrived(std::bit_ceil(receives->most())),
      other{.endpoint = &endpoint} {
  for (Sent& sent : sending.ring) sent.operation.endpoint = &endpoint;
}

RdmaTransport::RdmaTransport(Loop& loop, std::unique_ptr<rdma::Provider> provider,
                             RdmaOptions options)
    : loop_(loop),
      options_(std::move(options)),
      provider_(std::move(provider)),
      accounts_(options_.report) {}

RdmaTransport::~RdmaTransport() { provider_->stop(); }

void RdmaTransport::report(CloseReason reason, Connection& connection,
                           std::string_view text) const {
  connection.state.explain(text);
  accounts_.report(reason, connection.endpoint->peer, text);
}

std::string RdmaTransport::peer_name(ConnectionId id) const {
  const Connection* const connection = connections_.find(id);
  return connection == nullptr ? "" : connection->endpoint->peer;
}

void RdmaTransport::mark_identified(ConnectionId id) {
  Connection* const connection = connections_.find(id);
  if (connection == nullptr) return;
  connection->identified = true;
  ready_.add(connection->ready);
  if (!connection->admitted) return;
  connection->traffic->receives->set_limited(false);
  if (connection->state.is_open() && !connection->is_cut()) {
    replenish(*connection);
    mark_starved(*connection);
  }
  leave_unidentified(*connection);
}

// --- closing ---

void RdmaTransport::close(ConnectionId id, bool abort) {
  const auto withdrawn = static_cast<std::uint32_t>(withdraw(id));
  Connection* const connection = connections_.find(id);
  if (connection == nullptr || connection->state.stage() == Stage::closing ||
      connection->state.stage() == Stage::retired)
    return;
  accounts_.close(connection->state);
  if (abort || !connection->state.is_open()) return retire(*connection);
  connection->traffic->messages_taken -= withdrawn;
  if (connection->is_cut()) {
    if (connection->traffic->sending.has_untaken()) return give_up(*connection, peer_ended_early);
    return retire(*connection);
  }
  connection->state.enter(Stage::closing);
  ++closing_;
  ready_.add(connection->ready);
  pump(*connection);
  wait_for_progress(*connection);
}

// The network says only of a whole message that the peer has taken it.
void RdmaTransport::wait_for_progress(Connection& connection) {
  const rdma::Sending& sending = connection.traffic->sending;
  connection.progress = sending.progress();
  const auto under_way = static_cast<Duration::rep>(sending.bytes_under_way());
  connection.deadline.start(loop_,
                            loop_.now() + options_.linger_timeout + under_way * linger_per_byte);
}

// It was closed here, in order, and its peer has not taken everything.
void RdmaTransport::give_up(Connection& connection, std::string_view why) {
  if (connection.identified) {
    ++given_up_;
    report(CloseReason::peer_died, connection, why);
  }
  retire(connection);
}

// Over, though not by close(): `closed` follows in poll(), or nothing if nobody knew of it.
void RdmaTransport::end(Connection& connection, CloseReason reason) {
  if (connection.state.over()) return;
  if (connection.state.setting_up()) --setting_up_;
  if (reason == CloseReason::connect_failed && !connection.question.waits())
    loop_.resolver().forget(connection.target.host); // it may have moved
  if (connection.state.is_open() && reason != CloseReason::peer_closed &&
      connection.traffic->sending.has_untaken())
    ++given_up_;
  accounts_.end(connection.state, reason);
  connection.unidentified.mark_identified();
  connection.waiting.leave();
  connection.deadline.cancel();
  ready_.add(connection.ready);
}

void RdmaTransport::violation(Connection& connection, std::string_view what) {
  if (connection.state.is_open()) report(CloseReason::protocol_violation, connection, what);
  end(connection, CloseReason::protocol_violation);
}

// The peer has hung up, or the provider has. What came before is still delivered: it is all there
// when the queues of completions have been empty once.
void RdmaTransport::cut(Connection& connection, CloseReason reason) {
  if (connection.is_cut() || connection.state.stage() == Stage::retired) return;
  if (connection.state.setting_up())
    return refuse(connection.state.ours() ? CloseReason::connect_failed : CloseReason::peer_closed,
                  connection, "the connection was closed while it was being made");
  connection.cut = rdma::Cut::cut;
  connection.cut_reason = reason;
  to_sweep_.add(connection.sweep);
}

// From here on, or once its endpoint is retired, the provider does not touch our memory.
// Completions that name the connection may still be in the queues: it stays until those have been
// empty once.
void RdmaTransport::retire(Connection& connection) {
  if (connection.state.stage() == Stage::closing) --closing_;
  if (connection.state.setting_up()) --setting_up_;
  connection.state.enter(Stage::retired);
  connection.unidentified.mark_identified();
  connection.waiting.leave();
  connection.deadline.cancel();
  if (!connection.traffic && !connection.state.ours())
    connection.endpoint->reject(encode(rdma::Hello{}));
  connection.endpoint->close();
  if (connection.traffic) {
    rdma::Traffic& traffic = *connection.traffic;
    for (; traffic.taken != traffic.came; ++traffic.taken) drop(connection, traffic.next().slot);
    if (connection.endpoint->is_retired()) {
      traffic.receives->give_back();
      for (rdma::Sent& sent : traffic.sending.ring) sent.extents = {};
    }
  }
  if (!connection.endpoint->is_retired())
    connection.deadline.start(loop_, loop_.now() + options_.retire_timeout);
  released_ = true;
  to_sweep_.add(connection.sweep);
}

void RdmaTransport::sweep() {
  to_sweep_.take_each([this](Connection& connection) {
    if (connection.state.stage() == Stage::retired) {
      draining_.add(connection.draining);
    } else {
      FANIN_ASSERT(connection.cut == rdma::Cut::cut);
      connection.cut = rdma::Cut::complete;
      ready_.add(connection.ready);
    }
  });
  draining_.take_each([this](Connection& connection) {
    if (!connection.endpoint->is_retired()) return draining_.add(connection.draining);
    leave_unidentified(connection);
    connections_.erase(connection.id);
    released_ = true;
  });
  draining_.take_each([this](Connection& connection) {
    draining_.add(connection.draining);
    connection.endpoint->drained();
    if (connection.endpoint->is_retired()) released_ = true; // it goes when all is read again
  });
  std::erase_if(shared_, [](const auto& shared) { return shared->unused(); });
}

void RdmaTransport::expire(Connection& connection) {
  if (connection.state.stage() == Stage::retired) {
    if (!connection.deadline.active())
      connection.endpoint->retire_now(); // else it is an older deadline
    return;
  }
  if (connection.state.stage() == Stage::closing) {
    const rdma::Sending& sending = connection.traffic->sending;
    if (connection.end_sent && !sending.has_untaken()) // its device has the rest
      return give_up(connection, peer_is_silent);
    if (connection.progress == sending.progress() || !connection.identified)
      return give_up(connection, peer_takes_nothing);
    return wait_for_progress(connection);
  }
  if (!connection.state.setting_up()) return;
  ++accounts_.handshake_timeouts;
  const bool no_page = !connection.traffic || (connection.state.stage() == Stage::connecting &&
                                               connection.endpoint->ready());
  refuse(connection.state.ours() ? CloseReason::connect_failed : CloseReason::protocol_violation,
         connection,
         fmt::format("{} {}", no_page ? "no free page in the receive pool for" : "no answer within",
                     format_duration(options_.handshake_timeout)));
}

void RdmaTransport::probe() {
  connections_.for_each([](ConnectionId, Connection& connection) {
    if (!connection.state.is_open() || connection.is_cut()) return;
    rdma::Traffic& traffic = *connection.traffic;
    if (std::exchange(traffic.heard, traffic.came) == traffic.came)
      connection.endpoint->probe(traffic.other);
  });
  if (connections_.size() > 0) probe_tick_.start(loop_, loop_.now() + options_.keep_alive);
}

// --- polling ---

bool RdmaTransport::arm() {
  if (released_ || !flush_list_.empty() || !ready_.empty() || !expired_.empty() ||
      !to_sweep_.empty() || !given_out_.empty()) {
    released_ = false;
    return false;
  }
  for (const auto& shared : shared_) shared->try_again();
  const bool pages_are_back = starved_.any([](const Connection& connection) {
    return connection.state.stage() == Stage::retired ||
           connection.traffic->receives->can_replenish();
  });
  if (pages_are_back || copying_.any(may_copy)) return false;
  if (!provider_->arm()) return false;
  check_endpoints_ = true;
  return true;
}

std::size_t RdmaTransport::poll(std::span<Event> events) {
  released_ = false;
  flush();
  if (std::exchange(check_endpoints_, false) || setting_up_ > 0 ||
      ++polls_ % rdma_polls_per_check == 0)
    read_events();
  reap();
  // Judged when all that has come is known: this process may have had no processor for long.
  expired_.take_each([this](Connection& connection) { expire(connection); });
  if (!starved_.empty()) retry_starved(); // before those that have pages
  if (!given_out_.empty()) replenish_given_back();
  if (!copying_.empty()) retry_copying();
  EventBatch batch(events);
  for (std::size_t left = ready_.size(); left > 0 && !batch.full(); --left) {
    Connection* const connection = ready_.take();
    if (connection == nullptr) break;
    visit(*connection, batch);
  }
  return batch.count();
}

// --- completions ---

void RdmaTransport::reap() {
  for (int left = reads_per_poll; left > 0; --left) {
    const std::size_t count = provider_->completions(completions_);
    for (const Completion& completion : std::span(completions_).first(count))
      take_completion(completion);
    if (count == completions_.size()) continue;
    if (!to_sweep_.empty() || !draining_.empty()) sweep();
    return;
  }
}

void RdmaTransport::take_completion(const Completion& completion) {
  const Operation& operation = *completion.operation;
  if (operation.shared != nullptr && completion.endpoint == nullptr)
    return operation.shared->forget(operation.number);
  const rdma::Endpoint& endpoint =
      operation.shared != nullptr ? *completion.endpoint : *operation.endpoint;
  Connection& connection = *endpoint.connection;
  const bool wanted =
      connection.state.stage() != Stage::retired && completion.status == Completion::Status::done;
  if (operation.shared != nullptr && !wanted) drop(connection, operation.number);
  if (connection.state.stage() == Stage::retired) return;
  // The peer may hear of the connection, and say something, before this side does.
  if (connection.state.stage() == Stage::handshake && !connection.state.ours() &&
      completion.status != Completion::Status::canceled)
    take_connected(connection, {});
  if (completion.status != Completion::Status::done) return take_failure(connection, completion);
  rdma::Traffic& traffic = *connection.traffic;
  switch (operation.kind) {
  case Operation::Kind::other: return;
  case Operation::Kind::message: sent_until(connection, operation.number + 1); return;
  case Operation::Kind::receive:
    if (traffic.overrun()) {
      drop(connection, operation.number);
      return violation(connection, "sent more messages than it was allowed to");
    }
    traffic.arrived[traffic.came % traffic.arrived.size()] = {operation.number, completion.size,
                                                              completion.tag};
    ++traffic.came;
    ready_.add(connection.ready);
    return;
  }
}

// What was under way when the connection ended, or what has ended it.
void RdmaTransport::take_failure(Connection& connection, const Completion& completion) {
  if (connection.is_cut() && !connection.cut_unexplained) return;
  const bool too_large = completion.status == Completion::Status::too_large;
  const CloseReason reason = too_large ? CloseReason::message_too_large : CloseReason::peer_died;
  // What has failed may be told after what was cancelled for it.
  connection.cut_unexplained = completion.status == Completion::Status::canceled;
  if (!connection.cut_unexplained) {
    report(reason, connection,
           too_large ? "sent a message larger than was agreed" : completion.text);
  }
  if (connection.is_cut()) {
    connection.cut_reason = reason;
  } else {
    cut(connection, reason);
  }
}

// --- receives ---

// When a connection was cut its own receives are of no use; those that it shares are others' too.
void RdmaTransport::post_collected(Connection& connection) {
  if (connection.is_cut() && !connection.traffic->receives->shared()) collected_.clear();
  if (collected_.empty()) return;
  const auto posted =
      connection.endpoint->post_receives(collected_, connection.traffic->receives->slot_size());
  collected_.clear();
  if (posted) return;
  report(CloseReason::peer_died, connection, posted.error().text);
  cut(connection, CloseReason::peer_died);
}

// What has come is not wanted, and nothing more is promised to the peer for it.
void RdmaTransport::drop(Connection& connection, std::uint32_t slot) {
  connection.traffic->receives->drop(slot);
  connection.traffic->receives->replace_used(collected_);
  post_collected(connection);
}

void RdmaTransport::replenish(Connection& connection) {
  rdma::Traffic& traffic = *connection.traffic;
  const std::uint32_t posted = traffic.receives->replenish(collected_);
  post_collected(connection);
  if (posted == 0) return;
  traffic.credits.posted(posted);
  if (traffic.credits.update_is_due() || traffic.sending.waits()) flush_list_.add(connection.flush);
}

// What the last poll has handed out may have come back since: its page takes more, where another
// one would have been needed, and the peer hears of it sooner.
void RdmaTransport::replenish_given_back() {
  given_out_.take_each([this](Connection& connection) {
    if (connection.state.is_open() && !connection.is_cut()) replenish(connection);
  });
}

void RdmaTransport::mark_starved(Connection& connection) {
  if (connection.traffic->receives->starved()) starved_.add(connection.starved);
}

void RdmaTransport::retry_starved() {
  for (const auto& shared : shared_) shared->try_again();
  starved_.take_each([this](Connection& connection) {
    if (connection.is_cut() || connection.state.stage() == Stage::ended ||
        connection.state.stage() == Stage::retired)
      return;
    const rdma::Receives& receives = *connection.traffic->receives;
    if (!receives.starved() || receives.can_replenish()) {
      if (connection.state.stage() == Stage::connecting) {
        start(connection);
      } else {
        replenish(connection);
      }
    }
    mark_starved(connection);
  });
}

// --- events ---

void RdmaTransport::visit(Connection& connection, EventBatch& events) {
  switch (connection.state.stage()) {
  case Stage::connecting:
  case Stage::handshake:
  case Stage::retired: return;
  case Stage::ended:
    if (!connection.state.silent()) events.add_closed(connection);
    retire(connection);
    return;
  case Stage::closing: discard_arrived(connection); return;
  case Stage::open: break;
  }
  if (!connection.state.announced()) events.add(connection, connection.state.announce());
  const bool more = take_arrived(connection, events);
  post_collected(connection);
  if (!connection.state.is_open()) return;
  if (connection.wants_writable) check_writable(connection);
  if (connection.writable_pending && !events.full() && !connection.is_cut()) {
    connection.writable_pending = false;
    events.add(connection, EventKind::writable);
  }
  const rdma::Traffic& traffic = *connection.traffic;
  if (connection.cut == rdma::Cut::complete && traffic.came == traffic.taken)
    end(connection, connection.cut_reason);
  if (more || (connection.writable_pending && !connection.is_cut())) ready_.add(connection.ready);
}

// True: there is more that can be taken. Receives to be posted are collected.
bool RdmaTransport::take_arrived(Connection& connection, EventBatch& events) {
  rdma::Traffic& traffic = *connection.traffic;
  rdma::Receives& receives = *traffic.receives;
  const std::uint32_t before = traffic.taken;
  std::uint32_t reposted = 0; // for messages
  std::size_t left = rdma_messages_per_visit;
  const memory::PagePool& pool = connection.filler->pool();
  const bool roomy =
      connection.options.low_latency && 4ULL * pool.available() >= 3ULL * pool.pages();
  const auto finish = [&](bool more) {
    if (traffic.taken == before) return more;
    traffic.credits.posted(reposted);
    mark_starved(connection);
    if (traffic.credits.update_is_due() || traffic.sending.waits())
      flush_list_.add(connection.flush);
    return more;
  };
  while (traffic.taken != traffic.came) {
    if (left == 0 || events.full()) return finish(true);
    const rdma::Arrived front = traffic.next();
    const auto tag = rdma::decode_tag(front.tag);
    if (!tag || (tag->kind != TagKind::message && front.size > 0)) {
      violation(connection, "sent bytes that are not a message of fanin");
      return false;
    }
    if (front.size > connection.options.max_message) {
      report(CloseReason::message_too_large, connection, "sent a message larger than was agreed");
      end(connection, CloseReason::message_too_large);
      return false;
    }
    if (!connection.identified && front.size > unidentified_message_max) return finish(false);
    if (!traffic.credits.take(*tag)) {
      violation(connection, "sent more messages than it was allowed to");
      return false;
    }
    ++traffic.taken;
    if (tag->kind == TagKind::end) {
      receives.drop(front.slot);
      if (traffic.sending.has_untaken(*tag)) ++given_up_;
      end(connection, CloseReason::peer_closed);
      return false;
    }
    if (tag->kind == TagKind::message) {
      bool moved = false;
      events.add(connection, EventKind::message).message =
          receives.take(front.slot, front.size, roomy, *connection.filler, moved);
      if (moved) {
        ++counters_.moved;
      } else if (front.size > 0 && !receives.shared()) {
        given_out_.add(connection.given_out);
      }
      ++traffic.messages_taken;
      --left;
    } else {
      receives.drop(front.slot);
    }
    reposted += for_messages(receives.replenish(front.slot, collected_), *tag);
  }
  return finish(false);
}

// After close(): what still comes is nobody's. The peer's end, or that it has hung up, is ours.
void RdmaTransport::discard_arrived(Connection& connection) {
  rdma::Traffic& traffic = *connection.traffic;
  bool over = connection.cut == rdma::Cut::complete;
  bool untaken = !connection.end_sent && traffic.sending.has_untaken();
  while (traffic.taken != traffic.came) {
    const rdma::Arrived front = traffic.next();
    const auto tag = rdma::decode_tag(front.tag);
    if (tag && tag->kind == TagKind::end) untaken = traffic.sending.has_untaken(*tag);
    if (!tag || tag->kind == TagKind::end || !traffic.credits.take(*tag)) {
      over = true;
      break;
    }
    ++traffic.taken;
    traffic.receives->drop(front.slot);
    traffic.credits.posted(for_messages(traffic.receives->replenish(front.slot, collected_), *tag));
  }
  if (over && !traffic.receives->shared()) collected_.clear();
  post_collected(connection);
  if (!over) return flush_list_.add(connection.flush);
  if (untaken) return give_up(connection, peer_ended_early);
  retire(connection);
}

} // namespace fanin::net
