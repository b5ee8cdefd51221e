#include "fanin/builder/manager/assignment_policies.hpp"

#include <algorithm>
#include <numeric>

#include "fanin/base/assert.hpp"

namespace fanin::builder {

namespace {
std::vector<NodeId> all_of(std::size_t builder_units) {
  std::vector<NodeId> all(builder_units);
  std::iota(all.begin(), all.end(), NodeId{0});
  return all;
}

// The builder unit's value has grown: it goes behind those of the same value.
void move_back(std::vector<NodeId>& order, NodeId builder,
               const std::vector<std::uint64_t>& values) {
  auto at = std::ranges::find(order, builder);
  for (auto next = at + 1; next != order.end() && values[*next] <= values[builder]; ++at, ++next) {
    std::swap(*at, *next);
  }
}

// Its value has shrunk: it stays behind those of the same value.
void move_forward(std::vector<NodeId>& order, NodeId builder,
                  const std::vector<std::uint64_t>& values) {
  auto at = std::ranges::find(order, builder);
  for (; at != order.begin() && values[*(at - 1)] > values[builder]; --at) {
    std::swap(*at, *(at - 1));
  }
}
} // namespace

std::unique_ptr<Assigner> make_assigner(const System& system) {
  const std::size_t builders = system.builder_units.size();
  switch (system.assignment) {
  case AssignmentPolicy::round_robin: return std::make_unique<RoundRobin>(builders);
  case AssignmentPolicy::least_loaded: return std::make_unique<LeastLoaded>(builders);
  case AssignmentPolicy::weighted:
    return std::make_unique<Weighted>(system.builder_weights, system.batch_size);
  case AssignmentPolicy::by_number:
    return std::make_unique<ByNumber>(builders, system.batch_events);
  }
  return nullptr;
}

RoundRobin::RoundRobin(std::size_t builder_units) : order_(all_of(builder_units)) {
  order_.insert(order_.end(), order_.begin(), order_.begin() + static_cast<int>(builder_units));
}

LeastLoaded::LeastLoaded(std::size_t builder_units)
    : order_(all_of(builder_units)), load_(builder_units) {}

void LeastLoaded::assigned(NodeId builder, const AssignmentRequest& request) {
  load_[builder] += request.bytes;
  move_back(order_, builder, load_);
}

void LeastLoaded::ended(NodeId builder, std::uint64_t bytes) {
  load_[builder] -= bytes;
  move_forward(order_, builder, load_);
}

Weighted::Weighted(const std::vector<std::uint32_t>& weights, std::uint64_t batch_bytes)
    : weights_(weights),
      order_(all_of(weights.size())),
      tags_(weights.size()),
      lag_max_(2 * batch_bytes * weight_max / std::ranges::min(weights)) {}

void Weighted::assigned(NodeId builder, const AssignmentRequest& request) {
  std::uint64_t& tag = tags_[builder];
  tag = std::max(tag, furthest_ - std::min(furthest_, lag_max_));
  tag += (request.bytes + 1) * weight_max / weights_[builder];
  furthest_ = std::max(furthest_, tag);
  move_back(order_, builder, tags_);
  if (furthest_ < (std::uint64_t{1} << 62)) return;
  // Only differences count.
  const std::uint64_t start = furthest_ - lag_max_;
  for (std::uint64_t& each : tags_) each -= std::min(each, start);
  furthest_ -= start;
}

ByNumber::ByNumber(std::size_t builder_units, std::uint32_t batch_events)
    : builders_(all_of(builder_units)), batch_events_(batch_events) {}

} // namespace fanin::builder
