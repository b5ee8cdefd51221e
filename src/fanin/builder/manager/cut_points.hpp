// Where batches can end. Readout units announce ranges of events with their bytes; a batch ends
// where one of these ranges ends, since there the sizes are known. Ranges of all readout units lie
// in one sorted table, so that a cut costs the ranges inside it and not a search in each readout
// unit's list.
#pragma once

#include <cstdint>
#include <map>
#include <memory_resource>

#include "fanin/base/identity.hpp"

namespace fanin::builder {

// A batch to be assigned.
struct Cut {
  EventRange range;
  std::uint64_t bytes = 0; // of all sources with their metadata, at most
};

// A range of events that a readout unit has announced.
struct AnnouncedRange {
  EventRange range;
  std::uint64_t bytes = 0; // payload of all its sources, at most
};

class CutPoints {
public:
  // `batch_events`: a power of two; a batch never crosses a multiple of it. `batch_bytes`: it is
  // cut earlier beyond so many.
  CutPoints(std::uint32_t batch_events, std::uint64_t batch_bytes, std::size_t sources)
      : batch_events_(batch_events), batch_bytes_(batch_bytes), sources_(sources) {}

  // The range must not be empty, and must end behind start().
  void add(const AnnouncedRange& announced);
  // As it was added, and not behind start() yet.
  void remove(const AnnouncedRange& announced);

  // Events below are assigned.
  [[nodiscard]] EventNumber start() const { return start_; }
  void move_to(EventNumber start);

  // The next batch, from start() on; empty: `end` is not behind start(). A range that the batch
  // cuts in two counts whole, in this batch and in the next one.
  [[nodiscard]] Cut next(EventNumber end) const;

private:
  struct Point {
    std::uint64_t begin_bytes = 0; // of ranges that begin here
    std::uint64_t end_bytes = 0;   // of ranges that end here
    std::uint64_t ends = 0;        // how many
    [[nodiscard]] bool unused() const { return begin_bytes == 0 && ends == 0; }
  };
  using Points = std::pmr::map<EventNumber, Point>;
  [[nodiscard]] std::uint64_t with_metadata(std::uint64_t events, std::uint64_t payload) const;

  std::uint32_t batch_events_;
  std::uint64_t batch_bytes_;
  std::uint64_t sources_;
  std::pmr::unsynchronized_pool_resource memory_; // nodes of the map, reused
  Points points_{&memory_}; // none below start_
  EventNumber start_ = 0;
  std::uint64_t open_bytes_ = 0; // of ranges that begin before start_ and end behind it
};

} // namespace fanin::builder
