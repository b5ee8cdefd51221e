// What both kinds of endpoints do with messages: their pieces as libfabric wants them, and
// completions as the transport does.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstring>
#include <span>

#include "fanin/net/ofi/fabric.hpp"
#include "fanin/net/rdma/provider.hpp"

namespace fanin::net::ofi {

inline constexpr std::size_t copied_room = 512; // bytes of a message that the provider copies
static_assert(sizeof(rdma::Operation::of_provider) >= sizeof(fi_context2));

// The bytes of a message that is `inlined`, in one piece: its own, or put together in `room`.
[[nodiscard]] inline const std::byte* in_one_piece(const rdma::Send& send,
                                                   std::span<std::byte, copied_room> room) {
  if (send.extents.size() == 1) return send.extents.front().data();
  std::byte* to = room.data();
  for (const memory::View& extent : send.extents) {
    std::memcpy(to, extent.data(), extent.size);
    to += extent.size;
  }
  return room.data();
}

// Pieces of memory that the connection can reach.
struct Pieces {
  Pieces(Domain& domain, std::span<const memory::View> extents) {
    for (const memory::View& extent : extents) {
      vectors[count] = {const_cast<std::byte*>(extent.data()), extent.size};
      if (domain.needs_registration())
        descriptions[count] = domain.description(*extent.page.get()->home->arena()).value();
      ++count;
    }
  }
  std::array<iovec, max_extents> vectors;
  std::array<void*, max_extents> descriptions{};
  std::size_t count = 0;
};

// Reads completions; fewer than there is room for: the queue was empty. It leaves out those for
// which nobody waits.
template <class Entry>
[[nodiscard]] std::size_t read(const Completions& queue, std::span<rdma::Completion> to,
                               std::uint64_t (*tag_of)(const Entry&)) {
  using rdma::Completion;
  std::array<Entry, 64> entries;
  std::size_t count = 0;
  while (count < to.size()) {
    const std::size_t wanted = std::min(entries.size(), to.size() - count);
    forget_errno();
    const ssize_t got = fi_cq_read(queue.queue.get(), entries.data(), wanted);
    if (got <= 0 && got != -FI_EAVAIL) break;
    const auto taken = static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    for (const Entry& entry : std::span(entries).first(taken)) {
      to[count++] = {.operation = static_cast<rdma::Operation*>(entry.op_context),
                     .tag = tag_of(entry),
                     .size = static_cast<std::uint32_t>(entry.len)};
    }
    if (taken == wanted) continue;
    // The queue is empty, or an error stands in the way. To read again to find out would cost
    // system calls while the peer waits for an answer.
    fi_cq_err_entry error{};
    if (fi_cq_readerr(queue.queue.get(), &error, 0) <= 0) break;
    if (error.op_context == nullptr) continue;
    const bool too_large = error.err == FI_ETRUNC || error.err == FI_EMSGSIZE;
    const auto status = error.err == FI_ECANCELED ? Completion::Status::canceled
                        : too_large               ? Completion::Status::too_large
                                                  : Completion::Status::failed;
    to[count++] = {.operation = static_cast<rdma::Operation*>(error.op_context),
                   .status = status,
                   .text = fi_strerror(error.err)};
  }
  return count;
}

} // namespace fanin::net::ofi
