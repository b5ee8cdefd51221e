// In which order a readout unit sends to its builder units: the sending half of a shaping policy.
// What may be sent at all (grants) and how (connections) is decided outside of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "fanin/base/clock.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/builder/shaping/shaping.hpp"

namespace fanin::builder::shaping {

// A builder unit, as a readout unit sees it.
struct Destination {
  bool waits = false; // something is to be sent to it
  bool open = false;  // and may be: it is granted, and the connection takes it
  std::uint32_t under_way = 0; // whole carriers that it has not confirmed with a grant
};

// Thread: the readout unit's loop.
class Order {
public:
  virtual ~Order() = default;
  // Which one gets the next carrier, of those that wait and are open; none: nobody now.
  [[nodiscard]] virtual std::optional<NodeId> next(std::span<const Destination> to, Time now) = 0;
  // It got one.
  virtual void sent(NodeId to, Time now) = 0;
  // Its connection has ended, and what was under way is lost.
  virtual void closed(NodeId /*to*/) {}
  // When next() may answer otherwise although nothing else has changed.
  [[nodiscard]] virtual Time wake() const { return never; }
};

// That of the policy, for one readout unit and one rail. `seed`: of its random numbers.
[[nodiscard]] std::unique_ptr<Order> make_order(Policy policy, std::size_t readout_units,
                                                std::size_t builder_units, NodeId readout_unit,
                                                std::uint64_t seed);

} // namespace fanin::builder::shaping
