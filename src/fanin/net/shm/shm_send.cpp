// The sending half of ShmTransport, and what goes back to the peer.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/units.hpp"
#include "fanin/memory/copy.hpp"
#include "fanin/net/shm/connection.hpp"

namespace fanin::net {

using shm::Outbox;
using shm::Piece;
using shm::Record;
using shm::RecordKind;

namespace {

bool can_be_lent(std::span<const memory::View> extents) {
  if (extents.size() > shm::pieces_max || extents.front().offset % PageFiller::alignment != 0)
    return false;
  for (const memory::View& extent : extents) {
    if (extent.size == 0) return false;
    const memory::Arena* const arena = extent.page.get()->home->arena();
    if (arena == nullptr || arena->descriptor() < 0) return false;
  }
  return true;
}

} // namespace

SendOutcome ShmTransport::send(ConnectionId id, std::span<const memory::View> extents) {
  Connection* const connection = connections_.find(id);
  if (connection == nullptr || !connection->state.is_open() || connection->peer_has_ended())
    return SendOutcome::closed;
  std::uint64_t size = 0;
  for (const memory::View& extent : extents) size += extent.size;
  if (extents.size() > max_extents || size > connection->peer_max_message)
    return SendOutcome::too_large;
  const auto bytes = static_cast<std::uint32_t>(size);
  Sending& sending = connection->sending;
  const bool inlined = size <= shm::inline_max;
  const bool lent = !inlined && can_be_lent(extents);
  const std::uint32_t units =
      inlined ? shm::units_of(sizeof(Record) + size)
              : shm::units_of(sizeof(Record) + (lent ? extents.size() : 1) * sizeof(Piece));
  if (sending.queued_bytes > 0 &&
      sending.queued_bytes + size > connection->options.send_queue_bytes)
    refresh_taken(*connection);
  const bool queue_full = sending.queued_bytes > 0 &&
                          sending.queued_bytes + size > connection->options.send_queue_bytes;
  const bool holds_enough = !inlined && sending.held_bytes > 0 &&
                            sending.held_bytes + size > connection->options.held_bytes;
  const bool full = queue_full || holds_enough;
  SendOutcome outcome = SendOutcome::backpressure;
  if (!full && has_room(*connection, units)) {
    if (inlined) {
      put_inlined(*connection, extents, bytes);
      outcome = SendOutcome::accepted;
    } else if (lent) {
      if (announce(*connection, extents)) {
        ++counters_.lent;
        put_lent(*connection, extents, bytes);
        outcome = SendOutcome::accepted;
      }
    } else {
      outcome = send_copied(*connection, extents, bytes);
    }
  }
  if (outcome == SendOutcome::backpressure) {
    connection->wants_writable = true;
    connection->refused_bytes = bytes;
    poll_eagerly(*connection); // it is armed again, for room too
  }
  return outcome;
}

// Pages for what is not in shared memory; null: none are so large.
PageFiller* ShmTransport::find_copy_filler(std::uint32_t size) {
  for (const auto& pool : copy_pools_) {
    if (pool->page_size() >= size) return &fillers_.of(*pool);
  }
  return nullptr;
}

// Whether what was refused for want of a page could be copied now.
bool ShmTransport::can_copy(const Connection& connection) {
  return connection.wants_copy == 0 ||
         find_copy_filler(connection.wants_copy)->can_reserve(connection.wants_copy);
}

// Null: there is no memory.
PageFiller* ShmTransport::make_copy_filler(std::uint32_t size) {
  constexpr std::uint32_t page_least = 256U << 10;
  constexpr std::uint32_t page_most = 1U << 31;
  if (size > page_most) return nullptr;
  const std::uint32_t page = std::bit_ceil(std::max(size, page_least));
  auto pool = memory::PagePool::make(
      {.page_size = page,
       .pages = static_cast<std::uint32_t>(std::max<std::uint64_t>(2, options_.copy_pool / page)),
       .arena = {.shared = true}});
  if (!pool) {
    accounts_.report(CloseReason::local, "shm",
                     fmt::format("to copy a message of {}: {}; send it from a shared pool",
                                 format_size(size), pool.error().text));
    return nullptr;
  }
  return &fillers_.of(*copy_pools_.emplace_back(std::move(*pool)));
}

SendOutcome ShmTransport::send_copied(Connection& connection, std::span<const memory::View> extents,
                                      std::uint32_t size) {
  PageFiller* copies = find_copy_filler(size);
  if (copies == nullptr) copies = make_copy_filler(size);
  if (copies == nullptr) return SendOutcome::too_large;
  const memory::View view = copies->make(size, [&](std::byte* to) { copy_extents(to, extents); });
  if (!view.page) { // until a peer gives pages back
    connection.wants_copy = size;
    return SendOutcome::backpressure;
  }
  if (!announce(connection, {&view, 1})) return SendOutcome::backpressure;
  ++counters_.copied;
  put_lent(connection, {&view, 1}, size);
  return SendOutcome::accepted;
}

// The peer can map the memory that these lie in. False: its socket takes no more just now.
bool ShmTransport::announce(Connection& connection, std::span<const memory::View> extents) {
  auto& announced = connection.sending.announced;
  for (const memory::View& extent : extents) {
    const memory::Arena& arena = *extent.page.get()->home->arena();
    if (std::ranges::find(announced, arena.id()) != announced.end()) continue;
    const int descriptor = arena.descriptor();
    if (!shm::send_packet(connection.socket.get(), shm::encode(shm::Memory{arena.size()}),
                          {&descriptor, 1})) {
      connection.socket_full = true; // epoll says when it is not, unless the kernel lacks something
      if (errno != EAGAIN) connection.retry.start(loop_, loop_.now() + options_.retry_pause);
      return false;
    }
    announced.push_back(arena.id());
  }
  return true;
}

// What the peer has taken since it was last looked at.
void ShmTransport::refresh_taken(Connection& connection) {
  Sending& sending = connection.sending;
  const std::uint32_t taken = connection.peer().taken.load(std::memory_order_acquire);
  if (taken == sending.taken) return;
  if (taken - sending.taken > sending.written - sending.taken) {
    (void)violation(connection, "claims to have taken messages that were never sent");
    return;
  }
  for (; sending.taken != taken; ++sending.taken) {
    sending.queued_bytes -=
        std::exchange(sending.bytes_at[sending.taken % shm::units_max], std::uint32_t{0});
  }
}

bool ShmTransport::has_room(Connection& connection, std::uint32_t units) {
  const Sending& sending = connection.sending;
  const std::uint32_t index = sending.written % shm::units_max;
  const std::uint32_t skipped = index + units > shm::units_max ? shm::units_max - index : 0;
  const auto fits = [&] {
    return shm::units_max - (sending.written - sending.taken) >= units + skipped;
  };
  if (!fits()) refresh_taken(connection);
  return fits();
}

// Where a record of so many units goes, for which there is room.
std::byte* ShmTransport::begin_record(Connection& connection, std::uint32_t units,
                                      std::uint32_t message_bytes) {
  Sending& sending = connection.sending;
  std::byte* const ring = connection.out().units.data();
  std::uint32_t index = sending.written % shm::units_max;
  if (index + units > shm::units_max) {
    const Record skip{};
    std::memcpy(ring + std::size_t{index} * shm::unit_size, &skip, sizeof skip);
    sending.written += shm::units_max - index;
    index = 0;
  }
  sending.bytes_at[index] = message_bytes;
  sending.queued_bytes += message_bytes;
  sending.written += units;
  return ring + std::size_t{index} * shm::unit_size;
}

void ShmTransport::put_inlined(Connection& connection, std::span<const memory::View> extents,
                               std::uint32_t size) {
  const Record record{.kind = RecordKind::inlined, .length = size};
  std::byte* const at = begin_record(connection, shm::units_of(sizeof record + size), size);
  std::memcpy(at, &record, sizeof record);
  copy_extents(at + sizeof record, extents);
  publish_records(connection);
}

void ShmTransport::put_lent(Connection& connection, std::span<const memory::View> extents,
                            std::uint32_t size) {
  Sending& sending = connection.sending;
  if (sending.free_slots.empty()) {
    sending.free_slots.push_back(static_cast<std::uint32_t>(sending.slots.size()));
    sending.slots.emplace_back();
  }
  const std::uint32_t number = sending.free_slots.back();
  sending.free_slots.pop_back();
  Slot& slot = sending.slots[number];
  slot.lent = true;
  slot.bytes = size;
  sending.held_bytes += size;
  const Record record{.kind = RecordKind::lent, .length = size, .slot = number, .use = ++slot.use};
  std::byte* at =
      begin_record(connection, shm::units_of(sizeof record + extents.size() * sizeof(Piece)), size);
  std::memcpy(at, &record, sizeof record);
  at += sizeof record;
  for (std::size_t i = 0; i < extents.size(); ++i, at += sizeof(Piece)) {
    const memory::View& extent = extents[i];
    const memory::Arena& arena = *extent.page.get()->home->arena();
    const auto known = std::ranges::find(sending.announced, arena.id());
    const Piece piece{.memory = static_cast<std::uint32_t>(known - sending.announced.begin()),
                      .length = extent.size,
                      .offset = static_cast<std::uint64_t>(extent.data() - arena.data())};
    std::memcpy(at, &piece, sizeof piece);
    slot.extents[i] = extent;
    extent.page.get()->read_elsewhere = true;
  }
  publish_records(connection);
}

// New records: seen at once by a peer that looks; one that sleeps is woken by flush().
void ShmTransport::publish_records(Connection& connection) {
  connection.out().written.store(connection.sending.written, std::memory_order_release);
  connection.to_signal = true;
  if (connection.options.low_latency) {
    signal(connection, true);
    connection.to_signal = false;
  } else {
    mark_for_flush(connection);
  }
  if (!connection.eager.listed()) poll_eagerly(connection); // it may answer
}

void ShmTransport::mark_for_flush(Connection& connection) { flush_list_.add(connection.flush); }

// Wakes the peer if it sleeps and waits for what is new: work, or only room.
void ShmTransport::signal(Connection& connection, bool work) {
  std::atomic_thread_fence(std::memory_order_seq_cst); // our stores before its `armed`
  const std::uint64_t armed = connection.peer().armed.load(std::memory_order_relaxed);
  const std::uint64_t wanted = work ? shm::armed_for_work : shm::armed_for_room;
  if ((armed & wanted) == 0 || armed == connection.sending.signalled) return;
  connection.sending.signalled = armed;
  ++counters_.wakes;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(connection.peer_wake.get(), &one, sizeof one);
}

void ShmTransport::flush() {
  flush_list_.take_each([this](Connection& connection) { flush(connection); });
}

void ShmTransport::flush(Connection& connection) {
  if (!connection.connected() || connection.broken) return;
  if (!connection.receiving.returns.empty()) {
    put_returns(connection);
    if (!connection.receiving.returns.empty()) poll_eagerly(connection); // for the rest
  }
  const bool work = std::exchange(connection.to_signal, false);
  const bool room = std::exchange(connection.room_to_signal, false);
  if (work || room) signal(connection, work);
  erase_if_drained(connection);
}

// --- what the peer gives back ---

void ShmTransport::take_returns(Connection& connection) {
  Sending& sending = connection.sending;
  const Outbox& peer = connection.peer();
  const std::uint32_t returned = peer.returned.load(std::memory_order_acquire);
  if (returned == sending.returns_taken) return;
  if (returned - sending.returns_taken > shm::returns_max) {
    (void)violation(connection, "returns more messages than it can hold");
    return;
  }
  for (; sending.returns_taken != returned; ++sending.returns_taken) {
    const shm::Return back = peer.returns[sending.returns_taken % shm::returns_max];
    if (back.slot >= sending.slots.size() || !sending.slots[back.slot].lent ||
        sending.slots[back.slot].use != back.use) {
      (void)violation(connection, "returns a message that it does not hold");
      return;
    }
    free_slot(connection, back.slot);
  }
  connection.out().returns_taken.store(sending.returns_taken, std::memory_order_release);
  connection.room_to_signal = true;
  mark_for_flush(connection);
}

void ShmTransport::free_slot(Connection& connection, std::uint32_t number) {
  Slot& slot = connection.sending.slots[number];
  FANIN_ASSERT(slot.lent && slot.bytes <= connection.sending.held_bytes);
  slot.lent = false;
  connection.sending.held_bytes -= slot.bytes;
  for (memory::View& extent : slot.extents) extent = {};
  connection.sending.free_slots.push_back(number);
  released_ = true;
}

// --- what goes back to the peer ---

void ShmTransport::give_back(Connection& connection, shm::Return what) {
  connection.receiving.returns.push_back(what);
  mark_for_flush(connection);
}

void ShmTransport::put_returns(Connection& connection) {
  Receiving& receiving = connection.receiving;
  Outbox& out = connection.out();
  const std::uint32_t used =
      receiving.returned - connection.peer().returns_taken.load(std::memory_order_acquire);
  if (used > shm::returns_max) {
    (void)violation(connection, "claims to have got back messages that were not returned");
    return;
  }
  const std::size_t count =
      std::min<std::size_t>(receiving.returns.size(), shm::returns_max - used);
  for (std::size_t i = 0; i < count; ++i) {
    out.returns[receiving.returned % shm::returns_max] = receiving.returns[i];
    ++receiving.returned;
  }
  receiving.returns.erase(receiving.returns.begin(),
                          receiving.returns.begin() + static_cast<std::ptrdiff_t>(count));
  if (count == 0) return;
  out.returned.store(receiving.returned, std::memory_order_release);
  connection.to_signal = true;
}

// After backpressure.
void ShmTransport::check_writable(Connection& connection) {
  const Sending& sending = connection.sending;
  refresh_taken(connection);
  if (can_copy(connection)) connection.wants_copy = 0;
  if (connection.socket_full || connection.wants_copy > 0) return;
  if (sending.queued_bytes > connection.options.send_queue_bytes / 2) return;
  // A receiver may keep some of it for as long as nothing new comes.
  if (sending.held_bytes > 0 &&
      sending.held_bytes + connection.refused_bytes > connection.options.held_bytes)
    return;
  if (sending.written - sending.taken > shm::units_max / 2) return;
  connection.wants_writable = false;
  connection.writable_pending = true;
}

} // namespace fanin::net
