/// \file
/// The numbers that identify data (docs/glossary.md).
#pragma once

#include <cstdint>
#include <limits>

namespace fanin {

using EventNumber = std::uint64_t; ///< one collision or trigger, unique within a run
inline constexpr EventNumber event_number_end = EventNumber{1} << 63; ///< all are below
using SourceId = std::uint32_t; ///< one detector link
using RunNumber = std::uint32_t; ///< from 1
inline constexpr RunNumber run_number_max = std::numeric_limits<RunNumber>::max();
using NodeId = std::uint16_t; ///< index of a readout or builder unit in the configuration
using Incarnation = std::uint32_t; ///< number of the start of a node within a run, from 1; 0: not
                                   ///< started yet
using Attempt = std::uint16_t; ///< number of the assignment of a batch; 0: the first

/// Which run it is.
struct RunIdentity {
  RunNumber number = 0; ///< 0: not known
  std::uint64_t id = 0; ///< random
  /// One command has started all event builders of two stages, with this id. Else each has its own.
  bool shared = false;
};

/// The event numbers [first, end).
struct EventRange {
  EventNumber first = 0;
  EventNumber end = 0;
  [[nodiscard]] std::uint64_t count() const { return end - first; }
  [[nodiscard]] bool empty() const { return first >= end; }
  [[nodiscard]] bool contains(EventNumber event) const { return event >= first && event < end; }
  friend bool operator==(const EventRange&, const EventRange&) = default;
};

} // namespace fanin
