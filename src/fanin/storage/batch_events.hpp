/// \file
/// A built batch read event by event, as a run file would have it: for sinks that want events and
/// not the pieces in which data came.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/storage/layout.hpp"
#include "fanin/wire/slice.hpp"

namespace fanin::storage {

/// The sources of a run, as its files name them.
struct EventSources {
  std::vector<SourceInfo> sources; ///< ascending by id
  std::vector<MergedSource> merged; ///< ascending by source; only in the second of two stages
  wire::Slice slice; ///< likewise
  RunNumber run = 0; ///< likewise: that of super-fragments; 0: any
};

struct EventFragment {
  SourceId source = 0;
  std::uint32_t crc32c = 0; ///< as the source computed it; 0 where integrity is "none"
  FragmentRowFlags flags = 0; ///< bits of EventFlag
  std::span<const std::byte> payload;
};

/// Valid until the next call of read() or event() of its BatchEvents.
struct BuiltEvent {
  EventNumber number = 0; ///< of the detector
  std::uint32_t flags = 0; ///< EventFlag
  std::uint32_t streams = 0; ///< with filter units: as EventRow::streams
  std::int64_t time_unix_ns = 0; ///< as EventRow::time_unix_ns
  std::span<const EventFragment> fragments; ///< ascending by source
  std::span<const MissingRow> missing; ///< likewise
};

/// Thread: one. Keeps its memory from batch to batch.
class FANIN_API BatchEvents {
public:
  explicit BatchEvents(EventSources sources);
  ~BatchEvents();
  BatchEvents(const BatchEvents&) = delete;
  BatchEvents& operator=(const BatchEvents&) = delete;

  /// Reads the tables of `batch`, whose pages must stay while its events are asked for.
  void read(const BuiltBatch& batch);
  [[nodiscard]] std::size_t size() const; ///< number of events, rejected ones included, no gaps
  [[nodiscard]] EventNumber number(std::size_t i) const; ///< of the event `i`, ascending
  /// The event `i`. Copies only fragments that came in several messages.
  [[nodiscard]] BuiltEvent event(std::size_t i);

private:
  struct Rows;
  [[nodiscard]] std::span<const std::byte> payload_of(const FragmentRow& row);

  std::unique_ptr<Rows> rows_;
  std::vector<EventFragment> fragments_; // of the latest event
  std::vector<std::vector<std::byte>> joined_; // likewise: payloads that lay apart
};

} // namespace fanin::storage
