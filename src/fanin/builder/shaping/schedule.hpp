// What a readout unit may send to whom over one rail, and to whom next: grants that have come, and
// the order of the policy.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/builder/shaping/order.hpp"

namespace fanin::builder::shaping {

// Knows no connection; time comes in. Thread: the readout unit's loop.
class FANIN_INTERNAL_API Schedule {
public:
  // A policy other than `none`. `seed`: of its random numbers.
  Schedule(const Shaping& shaping, std::size_t readout_units, std::size_t builder_units,
           NodeId readout_unit, std::uint64_t seed);

  // A new connection to it: nothing is granted.
  void opened(NodeId builder);
  void closed(NodeId builder);
  // It has granted so many bytes since the connection was opened. False: no good builder unit says
  // that, since it is more than its window.
  [[nodiscard]] bool granted(NodeId builder, std::uint64_t bytes);
  // The message that is to be sent to it next has so many bytes; 0: there is none.
  void set_waiting(NodeId builder, std::uint64_t bytes);
  // Its connection takes nothing more now, or does again.
  void set_full(NodeId builder, bool full);

  // Which one gets the next carrier; none: nobody now.
  [[nodiscard]] std::optional<NodeId> next(Time now);
  // Bytes that may be sent to it.
  [[nodiscard]] std::uint64_t room(NodeId builder) const {
    return builders_[builder].granted - builders_[builder].sent;
  }
  // A message has left, within its carrier. `fills`: the carrier is full with it, so that a grant
  // follows when it has been received.
  void sent(NodeId builder, std::uint64_t bytes, bool fills = false);
  // The carrier is complete.
  void carried(NodeId builder, Time now);
  // When next() has to be asked although nothing has changed.
  [[nodiscard]] Time wake() const;

  struct Credit { // of a connection, bytes since it was opened
    std::uint64_t granted = 0;
    std::uint64_t sent = 0;
  };
  [[nodiscard]] std::uint64_t carriers() const { return carriers_; } // that have left
  [[nodiscard]] Credit credit(NodeId builder) const {
    return {builders_[builder].granted, builders_[builder].sent};
  }

private:
  struct Builder : Credit {
    bool connected = false;
    std::uint64_t waiting = 0;
    bool full = false;
    std::vector<std::uint64_t> full_carriers; // not confirmed by a grant: `sent` at their ends
  };
  void update(NodeId builder);
  // Bytes that must be granted before one of them is sent.
  [[nodiscard]] std::uint64_t least(const Builder& builder) const;

  const Shaping shaping_;
  const std::uint64_t share_;
  std::vector<Builder> builders_;
  std::vector<Destination> to_; // the same, as the order sees them
  std::unique_ptr<Order> order_;
  std::uint64_t carriers_ = 0;
};

} // namespace fanin::builder::shaping
