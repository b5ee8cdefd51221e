// Turns built batches into the rows of a run file and the list of memory to be written.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <sys/uio.h>

#include "fanin/storage/detail/extent_index.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/storage/layout.hpp"
#include "fanin/storage/super_reader.hpp"
#include "fanin/wire/slice.hpp"

namespace fanin::storage::detail {

// Where the next rows go: what the file holds already.
struct RowPositions {
  std::uint64_t fragments = 0;
  std::uint64_t missing = 0;
  std::uint64_t bytes = 0;
};

// Whose rows they are.
struct RowOptions {
  std::span<const SourceInfo> sources; // of rows, ascending by id; must outlive the builder
  std::span<const MergedSource> merged; // likewise
  wire::Slice slice; // rows have the detector's numbers, batches those of the slice
  RunNumber run = 0; // of super-fragments; 0: any
  NodeId node = 0;
  Incarnation incarnation = 1;
};

// Thread: one; reads the pages of a batch and never touches their counts. Keeps the capacity of its
// vectors from group to group.
class RowBuilder {
public:
  explicit RowBuilder(const RowOptions& options);

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
  void sort_fragments();
  [[nodiscard]] EventRow& row(const BuiltBatch& batch, EventNumber event);
  [[nodiscard]] bool required(SourceId source) const;
  [[nodiscard]] const MergedSource* find_merged(SourceId source) const;
  // Calls use(source, entry, offset, why) for each fragment in the `i`th fragment of the piece at
  // `place` of order_, which begins at `offset` in /bytes: itself, or those that it merges.
  template <class Use>
  void each_fragment(std::size_t place, std::uint64_t i, std::uint64_t offset, Use use);
  template <class Use>
  void each_member(std::size_t place, std::uint64_t i, std::uint64_t offset,
                   const MergedSource& merged, Use use);
  [[nodiscard]] std::vector<FragmentRow*> damaged_members(std::span<FragmentRow> fragments,
                                                          const MergedSource& merged,
                                                          FragmentRowFlags flags) const;

  RowOptions options_;
  std::uint32_t required_count_ = 0;
  RowPositions positions_;
  std::uint64_t bytes_end_ = 0;

  std::vector<EventRow> events_;
  std::vector<FragmentRow> fragments_;
  std::vector<MissingRow> missing_;
  std::vector<GapRow> gaps_;
  std::vector<iovec> extents_;

  // Of the batch at hand.
  std::size_t batch_events_ = 0; // its first row in events_
  std::size_t batch_extents_ = 0; // its first one in extents_
  std::uint64_t batch_bytes_ = 0; // where it begins in /bytes
  ExtentIndex index_; // of its extents
  std::vector<std::uint32_t> row_of_; // per event number of the range; gap_row: none
  std::vector<std::uint32_t> placed_; // per event: fragments placed so far
  std::vector<std::uint32_t> required_present_; // per event
  std::vector<const SourcePiece*> order_; // ascending by source, event, offset
  std::vector<MissingRow> batch_missing_;
  SuperReader reader_;
};

} // namespace fanin::storage::detail
