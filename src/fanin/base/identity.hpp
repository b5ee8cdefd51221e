// The numbers that identify data, in the field's words.
#pragma once

#include <cstdint>

namespace fanin {

using EventNumber = std::uint64_t; // one collision or trigger, unique within a run
inline constexpr EventNumber event_number_end = EventNumber{1} << 63; // all are below
using SourceId = std::uint32_t;    // one detector link
using RunNumber = std::uint32_t;
using NodeId = std::uint16_t;      // index of a readout or builder unit in the configuration
using Incarnation = std::uint32_t; // counts the starts of one node within a run; 0: none yet
using Attempt = std::uint16_t;     // counts the assignments of one batch; 0: the first

// A half-open run of event numbers.
struct EventRange {
  EventNumber first = 0;
  EventNumber end = 0;
  [[nodiscard]] std::uint64_t count() const { return end - first; }
  [[nodiscard]] bool empty() const { return first >= end; }
  [[nodiscard]] bool contains(EventNumber event) const { return event >= first && event < end; }
  friend bool operator==(const EventRange&, const EventRange&) = default;
};

} // namespace fanin
