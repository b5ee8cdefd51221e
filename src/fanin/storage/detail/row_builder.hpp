// Turns built batches into the rows of a run file and the list of memory to be written.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <sys/uio.h>

#include "fanin/storage/event_sink.hpp"
#include "fanin/storage/layout.hpp"

namespace fanin::storage::detail {

// Where the next rows go: what the file holds already.
struct RowPositions {
  std::uint64_t fragments = 0;
  std::uint64_t missing = 0;
  std::uint64_t bytes = 0;
};

// Thread: one; reads the pages of a batch and never touches their counts. Keeps the capacity of its
// vectors from group to group.
class RowBuilder {
public:
  // `sources` ascending by id; must outlive the builder.
  RowBuilder(std::span<const SourceInfo> sources, NodeId node, Incarnation incarnation);

  // Forgets all rows and starts at `positions`.
  void start(const RowPositions& positions);
  // Appends a batch. Its pages must stay until extents() have been written.
  void add(const BuiltBatch& batch);

  [[nodiscard]] std::span<const EventRow> events() const { return events_; }
  [[nodiscard]] std::span<const FragmentRow> fragments() const { return fragments_; }
  [[nodiscard]] std::span<const MissingRow> missing() const { return missing_; }
  [[nodiscard]] std::span<const GapRow> gaps() const { return gaps_; }
  [[nodiscard]] std::span<const iovec> extents() const { return extents_; } // in order of /bytes
  [[nodiscard]] std::uint64_t payload_bytes() const { return bytes_end_ - positions_.bytes; }

private:
  void add_events(const BuiltBatch& batch);
  void sort_pieces(const BuiltBatch& batch);
  void count_fragments(const BuiltBatch& batch);
  void add_missing(const BuiltBatch& batch);
  void place_fragments(const BuiltBatch& batch);
  void mark_bad(const BuiltBatch& batch);
  void judge_events(const BuiltBatch& batch);
  void judge_filtered(const BuiltBatch& batch);
  [[nodiscard]] EventRow& row(const BuiltBatch& batch, EventNumber event);
  [[nodiscard]] bool required(SourceId source) const;

  std::span<const SourceInfo> sources_;
  std::uint32_t required_count_ = 0;
  NodeId node_;
  Incarnation incarnation_;
  RowPositions positions_;
  std::uint64_t bytes_end_ = 0;

  std::vector<EventRow> events_;
  std::vector<FragmentRow> fragments_;
  std::vector<MissingRow> missing_;
  std::vector<GapRow> gaps_;
  std::vector<iovec> extents_;

  // Of the batch at hand.
  std::size_t batch_events_ = 0; // its first row in events_
  std::vector<std::uint32_t> row_of_; // per event number of the range; gap_row: none
  std::vector<std::uint32_t> placed_; // per event: fragments placed so far
  std::vector<std::uint32_t> required_present_; // per event
  std::vector<std::uint32_t> order_; // pieces, ascending by source, event, offset
  std::vector<MissingRow> batch_missing_;
};

} // namespace fanin::storage::detail
