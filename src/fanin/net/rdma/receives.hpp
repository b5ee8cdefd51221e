// The memory in which a connection receives: slots of pages of its receive pool, posted in advance
// (slot_layout.hpp says how pages are cut). They are its own (own_receives.hpp), or its share of a
// queue that connections have in common (shared_receives.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "fanin/memory/page_pool.hpp"
#include "fanin/net/page_filler.hpp"
#include "fanin/net/rdma/provider.hpp"

namespace fanin::net::rdma {

class Receives {
public:
  Receives() = default;
  Receives(const Receives&) = delete;
  Receives& operator=(const Receives&) = delete;
  virtual ~Receives() = default;

  [[nodiscard]] virtual std::uint32_t most() const = 0; // that the peer may use at once
  [[nodiscard]] virtual std::uint32_t slot_size() const = 0;
  [[nodiscard]] virtual bool shared() const = 0;

  // Appends the receives that have to be posted now to `to`. Returns how many more the peer may
  // use.
  [[nodiscard]] virtual std::uint32_t replenish(std::vector<Receive>& to) = 0;
  // The same after take() or drop() of this slot, and cheaper.
  [[nodiscard]] virtual std::uint32_t replenish(std::uint32_t slot, std::vector<Receive>& to) = 0;
  // Pages are missing.
  [[nodiscard]] virtual bool starved() const = 0;
  // It may be worth replenishing.
  [[nodiscard]] virtual bool can_replenish() const = 0;

  // A receive has completed with so many bytes, at most slot_size(). The message is in a page that
  // small messages share if it was `moved`; where it is `roomy`, only small ones are.
  [[nodiscard]] virtual memory::View take(std::uint32_t slot, std::uint32_t size, bool roomy,
                                          PageFiller& filler, bool& moved) = 0;
  // A receive has completed, and what it brought is not wanted.
  virtual void drop(std::uint32_t slot) = 0;
  // This connection's peer may have used receives that were promised to others: adds as many to
  // `to`, to be posted in their place.
  virtual void replace_used(std::vector<Receive>& to) = 0;
  // The provider does not write for this connection any more.
  virtual void give_back() = 0;
  // While it is limited, it posts one page, or the least that credits need: the peer is
  // unidentified.
  virtual void set_limited(bool limited) = 0;
};

} // namespace fanin::net::rdma
