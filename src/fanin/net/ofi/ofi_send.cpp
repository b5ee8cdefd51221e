// The sending half of OfiTransport.
#include <sys/uio.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "fanin/base/assert.hpp"
#include "fanin/net/ofi/connection.hpp"

namespace fanin::net {

using posted::TagKind;

namespace {

constexpr std::uint32_t copy_page_least = 64U << 10;
constexpr std::uint32_t copy_page_most = 1U << 30;

void copy_extents(std::byte* to, std::span<const memory::View> extents) {
  for (const memory::View& extent : extents) {
    if (extent.size == 0) continue;
    std::memcpy(to, extent.data(), extent.size);
    to += extent.size;
  }
}

} // namespace

SendOutcome OfiTransport::send(ConnectionId id, std::span<const memory::View> extents) {
  Connection* const connection = find_open(id);
  if (connection == nullptr) return SendOutcome::closed;
  std::uint64_t size = 0;
  for (const memory::View& extent : extents) size += extent.size;
  if (extents.size() > max_extents || size > connection->peer_max_message)
    return SendOutcome::too_large;
  const auto bytes = static_cast<std::uint32_t>(size);
  ofi::Sending& sending = *connection->sending;
  const bool too_much = sending.queued_bytes > 0 &&
                        sending.queued_bytes + size > connection->options.send_queue_bytes;
  memory::View copied;
  const bool to_copy = size > connection->inject_most && must_copy(*connection, extents);
  if (too_much || sending.full() || (to_copy && !copy(*connection, extents, bytes, copied))) {
    connection->wants_writable = true;
    return SendOutcome::backpressure;
  }
  ofi::Sent& sent = sending.at(sending.accepted);
  sent.size = bytes;
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
  pump(*connection);
  return SendOutcome::accepted;
}

// Some providers only read what lies in memory that they know, and only so many pieces.
bool OfiTransport::must_copy(const Connection& connection,
                             std::span<const memory::View> extents) const {
  std::size_t pieces = 0;
  for (const memory::View& extent : extents) {
    if (extent.size == 0) continue;
    ++pieces;
    if (!connection.domain->needs_registration()) continue;
    const memory::Arena* const arena = extent.page.get()->home->arena();
    if (arena == nullptr || !connection.domain->description(*arena)) return true;
  }
  return pieces > connection.pieces_most;
}

bool OfiTransport::copy(Connection& connection, std::span<const memory::View> extents,
                        std::uint32_t size, memory::View& made) {
  if (connection.copies == nullptr) connection.copies = copy_filler(connection.peer_max_message);
  connection.wants_copy = size;
  if (connection.copies == nullptr) return false;
  PageFiller::Room room = connection.copies->reserve(size);
  if (!room.page) return false; // until what was sent from there has gone
  copy_extents(room.page.data() + room.offset, extents);
  made = room.page.freeze(room.offset, size);
  connection.copies->give_back(std::move(room.page), room.offset + size);
  connection.wants_copy = 0;
  ++counters_.copied;
  return true;
}

// Pages for what has to be copied, for messages up to `largest`; null: no memory.
PageFiller* OfiTransport::copy_filler(std::uint32_t largest) {
  const std::uint32_t page = std::bit_ceil(std::clamp(largest, copy_page_least, copy_page_most));
  for (const auto& filler : copy_fillers_) {
    if (filler->pool().page_size() == page) return filler.get();
  }
  auto pool = memory::PagePool::make(
      {.page_size = page,
       .pages = static_cast<std::uint32_t>(std::max<std::uint64_t>(2, options_.copy_pool / page)),
       .arena = {}});
  if (!pool) return nullptr;
  copy_pools_.push_back(std::move(*pool));
  return copy_fillers_.emplace_back(std::make_unique<PageFiller>(*copy_pools_.back())).get();
}

// Hands over to the provider what there are credits for, and behind the last message the end.
void OfiTransport::pump(Connection& connection) {
  ofi::Sending& sending = *connection.sending;
  connection.blocked = false;
  while (sending.posted != sending.accepted && connection.credits.can_send()) {
    if (!post(connection, sending.posted)) return;
    ++sending.posted;
  }
  if (connection.stage != Stage::closing || connection.end_sent || connection.cut ||
      sending.posted != sending.accepted || !connection.credits.can_send())
    return;
  posted::Credits after = connection.credits;
  if (!inject(connection, encode(after.spend(TagKind::end)), {})) return;
  connection.credits = after;
  connection.end_sent = true;
}

// False: the provider takes nothing just now.
bool OfiTransport::post(Connection& connection, std::uint32_t number) {
  ofi::Sending& sending = *connection.sending;
  ofi::Sent& sent = sending.at(number);
  const auto extents = std::span(sent.extents).first(sent.count);
  posted::Credits after = connection.credits;
  const std::uint32_t tag = encode(after.spend(TagKind::message));
  if (sent.size <= connection.inject_most) {
    if (!inject(connection, tag, extents)) return false;
    connection.credits = after;
    ++counters_.injected;
    send_done(connection, number);
    return true;
  }
  std::array<iovec, max_extents> pieces;
  std::array<void*, max_extents> descriptions{};
  for (std::size_t i = 0; i < extents.size(); ++i) {
    pieces[i] = {const_cast<std::byte*>(extents[i].data()), extents[i].size};
    if (!connection.domain->needs_registration()) continue;
    descriptions[i] =
        connection.domain->description(*extents[i].page.get()->home->arena()).value();
  }
  sent.operation.connection = &connection;
  sent.operation.number = number;
  const fi_msg message{.msg_iov = pieces.data(),
                       .desc = descriptions.data(),
                       .iov_count = extents.size(),
                       .addr = 0,
                       .context = &sent.operation,
                       .data = tag};
  const ssize_t error = fi_sendmsg(connection.endpoint.get(), &message, FI_REMOTE_CQ_DATA);
  if (error == 0) {
    connection.credits = after;
    return true;
  }
  connection.blocked = true;
  if (error != -FI_EAGAIN) cut(connection, CloseReason::peer_died);
  mark(connection);
  return false;
}

// What is small enough is copied by the provider: nothing is told of it any more.
bool OfiTransport::inject(Connection& connection, std::uint32_t tag,
                          std::span<const memory::View> extents) {
  std::array<std::byte, ofi::inject_room> room;
  const std::byte* bytes = room.data();
  std::size_t size = 0;
  for (const memory::View& extent : extents) size += extent.size;
  if (extents.size() == 1) {
    bytes = extents.front().data();
  } else {
    copy_extents(room.data(), extents);
  }
  const ssize_t error = fi_injectdata(connection.endpoint.get(), bytes, size, tag, 0);
  if (error == 0) return true;
  connection.blocked = true;
  if (error != -FI_EAGAIN) cut(connection, CloseReason::peer_died);
  mark(connection);
  return false;
}

void OfiTransport::send_done(Connection& connection, std::uint32_t number) {
  ofi::Sending& sending = *connection.sending;
  ofi::Sent& sent = sending.at(number);
  sent.done = true;
  for (memory::View& extent : std::span(sent.extents).first(sent.count)) extent = {};
  sending.queued_bytes -= sent.size;
  released_ = true;
  while (sending.done != sending.accepted && sending.at(sending.done).done) ++sending.done;
  if (connection.wants_writable) make_ready(connection);
}

// After backpressure.
void OfiTransport::check_writable(Connection& connection) {
  const ofi::Sending& sending = *connection.sending;
  if (connection.wants_copy > 0 && connection.copies != nullptr &&
      !connection.copies->can_reserve(connection.wants_copy))
    return;
  if (sending.queued_bytes > connection.options.send_queue_bytes / 2) return;
  if (sending.accepted - sending.done > ofi::sends_most / 2) return;
  connection.wants_writable = false;
  connection.wants_copy = 0;
  connection.writable_pending = true;
}

void OfiTransport::mark(Connection& connection) {
  if (connection.marked) return;
  connection.marked = true;
  marked_.push_back(connection.id);
}

// Sends on where the provider took nothing, and gives credits back.
void OfiTransport::flush() {
  if (marked_.empty()) return;
  flushing_.swap(marked_);
  for (const ConnectionId id : flushing_) {
    Connection* const connection = connections_.find(id);
    if (connection == nullptr) continue;
    connection->marked = false;
    if ((connection->stage != Stage::open && connection->stage != Stage::closing) ||
        connection->cut)
      continue;
    pump(*connection);
    if (connection->end_sent || connection->cut || !connection->credits.update_is_due()) continue;
    posted::Credits after = connection->credits;
    if (!inject(*connection, encode(after.update()), {})) continue;
    connection->credits = after;
    ++counters_.updates;
  }
  flushing_.clear();
}

} // namespace fanin::net
