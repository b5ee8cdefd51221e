// The sending half of RdmaTransport.
#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/net/rdma/connection.hpp"

namespace fanin::net {

using rdma::Sending;
using rdma::Sent;
using rdma::TagKind;

namespace {

constexpr std::uint32_t copy_page_least = 64U << 10;
constexpr std::uint32_t copy_page_most = 1U << 30;
// Then what was gathered leaves before the turn's end, while it is in cache.
constexpr std::uint32_t gathered_most = 16; // messages
constexpr std::uint64_t gathered_bytes = 256U << 10;

} // namespace

SendOutcome RdmaTransport::send(ConnectionId id, std::span<const memory::View> extents) {
  Connection* const connection = connections_.find(id);
  if (connection == nullptr || !connection->state.is_open() || connection->is_cut())
    return SendOutcome::closed;
  std::uint64_t size = 0;
  for (const memory::View& extent : extents) size += extent.size;
  if (extents.size() > max_extents || size > connection->peer_max_message)
    return SendOutcome::too_large;
  const auto bytes = static_cast<std::uint32_t>(size);
  Sending& sending = connection->traffic->sending;
  const bool too_much = sending.queued_bytes > 0 &&
                        sending.queued_bytes + size > connection->options.send_queue_bytes;
  memory::View copied;
  const bool inlined = size <= connection->limits.inline_most;
  const bool to_copy = !inlined && must_copy(*connection, extents);
  if (too_much || sending.full() || (to_copy && !copy(*connection, extents, bytes, copied))) {
    if (connection->is_cut()) return SendOutcome::closed;
    connection->wants_writable = true;
    return SendOutcome::backpressure;
  }
  Sent& sent = sending.at(sending.accepted);
  sent.operation.number = sending.accepted;
  sent.size = bytes;
  sent.inlined = inlined;
  sent.done = false;
  sent.count = 0;
  if (to_copy) {
    sent.extents[sent.count++] = std::move(copied);
  } else {
    for (const memory::View& extent : extents) {
      if (extent.size > 0) sent.extents[sent.count++] = extent;
    }
  }
  ++sending.accepted;
  sending.queued_bytes += size;
  sending.waiting_bytes += size;
  if (connection->options.low_latency || sending.accepted - sending.posted >= gathered_most ||
      sending.waiting_bytes >= gathered_bytes) {
    pump(*connection);
  } else {
    flush_list_.add(connection->flush);
  }
  return SendOutcome::accepted;
}

// Some providers only read what lies in memory that they know, and only so many pieces.
bool RdmaTransport::must_copy(Connection& connection, std::span<const memory::View> extents) {
  std::size_t pieces = 0;
  for (const memory::View& extent : extents) {
    if (extent.size == 0) continue;
    ++pieces;
    if (!reaches(connection, extent.page.get()->home->arena())) return true;
  }
  return pieces > connection.limits.pieces_most;
}

bool RdmaTransport::reaches(Connection& connection, const memory::Arena* arena) {
  if (connection.limits.reads_anything) return true;
  if (arena == nullptr) return false;
  if (arena->id() == connection.reached) return true;
  const auto known = connection.endpoint->reach(*arena);
  if (known) {
    connection.reached = arena->id();
    return true;
  }
  if (!std::exchange(memory_logged_, true)) {
    report(CloseReason::local, connection,
           fmt::format("messages are copied before they are sent: {}", known.error().text));
  }
  return false;
}

bool RdmaTransport::copy(Connection& connection, std::span<const memory::View> extents,
                         std::uint32_t size, memory::View& made) {
  if (connection.copies == nullptr || connection.copies->pool().page_size() < size) {
    const std::uint64_t usual =
        std::min<std::uint64_t>(connection.peer_max_message, options_.copy_pool / 2);
    connection.copies = copy_filler(std::max(size, static_cast<std::uint32_t>(usual)));
  }
  if (connection.copies == nullptr || !reaches(connection, connection.copies->pool().arena())) {
    report(CloseReason::local, connection,
           "no memory that the network can read is left for copying messages: raise the limits of "
           "memory and of locked memory (ulimit -l)");
    cut(connection, CloseReason::local);
    return false;
  }
  made = connection.copies->make(size, [&](std::byte* to) { copy_extents(to, extents); });
  if (!made.page) { // until what was sent from there has gone, by whomever
    connection.wants_copy = size;
    copying_.add(connection.copying);
    return false;
  }
  ++counters_.copied;
  return true;
}

bool RdmaTransport::may_copy(const Connection& connection) {
  return connection.copies->can_reserve(connection.wants_copy);
}

void RdmaTransport::retry_copying() {
  copying_.take_each([this](Connection& connection) {
    if (!may_copy(connection)) return copying_.add(connection.copying);
    connection.wants_copy = 0;
    ready_.add(connection.ready);
  });
}

// Pages for what has to be copied, for messages up to `largest`; null: no memory.
PageFiller* RdmaTransport::copy_filler(std::uint32_t largest) {
  const std::uint32_t least = std::clamp(largest, copy_page_least, copy_page_most);
  const std::uint32_t step = std::bit_ceil(least) / 8; // few sizes, and not twice what is needed
  const std::uint32_t page = (least + step - 1) / step * step;
  for (const auto& pool : copy_pools_) {
    if (pool->page_size() == page) return &fillers_.of(*pool);
  }
  auto pool = memory::PagePool::make(
      {.page_size = page,
       .pages = static_cast<std::uint32_t>(std::max<std::uint64_t>(2, options_.copy_pool / page)),
       .arena = {}});
  if (!pool) return nullptr;
  return &fillers_.of(*copy_pools_.emplace_back(std::move(*pool)));
}

// Hands over to the provider, at once, what there are credits for, behind the last message the end,
// and where nothing of it goes, credits that are due.
void RdmaTransport::pump(Connection& connection) {
  if (connection.is_cut() || connection.end_sent) return;
  rdma::Traffic& traffic = *connection.traffic;
  Sending& sending = traffic.sending;
  rdma::Credits after = traffic.credits;
  std::size_t messages = 0;
  for (std::uint32_t next = sending.posted; next != sending.accepted && after.can_send(); ++next) {
    Sent& sent = sending.at(next);
    batch_[messages++] = {.extents = std::span(sent.extents).first(sent.count),
                          .size = sent.size,
                          .tag = encode(after.spend()),
                          .operation = sent.inlined ? &traffic.other : &sent.operation,
                          .inlined = sent.inlined};
  }
  std::size_t count = messages;
  const auto add = [&](rdma::Tag tag) {
    batch_[count++] = {
        .extents = {}, .size = 0, .tag = encode(tag), .operation = &traffic.other, .inlined = true};
  };
  const bool ends = connection.state.stage() == Stage::closing && after.can_send() &&
                    sending.posted + messages == sending.accepted;
  const bool updates = !ends && after.update_is_due();
  if (ends) add(after.end(traffic.messages_taken));
  if (updates) add(after.update());
  if (count == 0) return;

  ++counters_.posts;
  const auto posted = connection.endpoint->post_sends(std::span(batch_).first(count));
  if (!posted) {
    report(CloseReason::peer_died, connection, posted.error().text);
    return cut(connection, CloseReason::peer_died);
  }
  for (std::size_t i = 0; i < std::min(*posted, messages); ++i) {
    (void)traffic.credits.spend();
    const std::uint32_t number = sending.posted++;
    sending.waiting_bytes -= sending.at(number).size;
    if (!sending.at(number).inlined) continue;
    ++counters_.inlined;
    release(connection, number);
  }
  if (*posted < count) return flush_list_.add(connection.flush);
  traffic.credits = after;
  connection.end_sent = ends;
  if (updates) ++counters_.updates;
}

void RdmaTransport::sent_until(Connection& connection, std::uint32_t end) {
  Sending& sending = connection.traffic->sending;
  if (end - sending.done > sending.posted - sending.done) return; // a later one has said it
  for (std::uint32_t number = sending.done; number != end; ++number) {
    if (!sending.at(number).done) release(connection, number);
  }
}

void RdmaTransport::release(Connection& connection, std::uint32_t number) {
  Sending& sending = connection.traffic->sending;
  Sent& sent = sending.at(number);
  FANIN_ASSERT(!sent.done && sent.size <= sending.queued_bytes);
  sent.done = true;
  for (memory::View& extent : std::span(sent.extents).first(sent.count)) extent = {};
  sending.queued_bytes -= sent.size;
  released_ = true;
  while (sending.done != sending.posted && sending.at(sending.done).done) ++sending.done;
  if (connection.wants_writable) ready_.add(connection.ready);
}

// After backpressure.
void RdmaTransport::check_writable(Connection& connection) {
  const Sending& sending = connection.traffic->sending;
  if (connection.wants_copy > 0) return; // retry_copying()
  if (sending.queued_bytes > connection.options.send_queue_bytes / 2) return;
  if (sending.accepted - sending.done > rdma::messages_most / 2) return;
  connection.wants_writable = false;
  connection.writable_pending = true;
}

void RdmaTransport::flush() {
  flush_list_.take_each([this](Connection& connection) {
    const bool sends = connection.state.is_open() || connection.state.stage() == Stage::closing;
    if (sends) pump(connection);
  });
}

} // namespace fanin::net
