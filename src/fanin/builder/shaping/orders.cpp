#include "fanin/builder/shaping/orders.hpp"

namespace fanin::builder::shaping {

std::unique_ptr<Order> make_order(Policy policy, std::size_t builder_units, NodeId readout_unit,
                                  std::uint64_t seed) {
  switch (policy) {
  case Policy::none: break;
  case Policy::random: return std::make_unique<RandomOrder>(seed);
  case Policy::linear_shift:
  case Policy::tokens: return std::make_unique<LinearShift>(builder_units, readout_unit);
  }
  return nullptr;
}

std::optional<NodeId> RandomOrder::next(std::span<const Destination> to, Time) {
  std::optional<NodeId> chosen;
  std::uint64_t open = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i].open && random_.below(++open) == 0) chosen = static_cast<NodeId>(i);
  }
  return chosen;
}

std::optional<NodeId> LinearShift::next(std::span<const Destination> to, Time) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::size_t node = (next_ + i) % to.size();
    if (to[node].open) return static_cast<NodeId>(node);
  }
  return {};
}

} // namespace fanin::builder::shaping
