#include "fanin/builder/filtering/batch_selection.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fanin/base/assert.hpp"
#include "fanin/builder/filtering/prescale.hpp"
#include "fanin/wire/fragment.hpp"

namespace fanin::builder {
namespace {

using storage::BuiltBatch;
using storage::SourcePiece;

// Which fragments of a source are written. Events that follow each other are mostly in the same
// streams.
class Carried {
public:
  Carried(const std::vector<storage::StreamInfo>& streams, const BuiltBatch& batch, SourceId source)
      : streams_(streams), batch_(batch), source_(source) {}

  [[nodiscard]] bool operator()(EventNumber event) {
    const std::uint32_t bits = batch_.streams[event - batch_.range.first];
    if (bits != bits_) {
      bits_ = bits;
      carried_ = storage::carries(streams_, bits, source_);
    }
    return carried_;
  }

private:
  const std::vector<storage::StreamInfo>& streams_;
  const BuiltBatch& batch_;
  SourceId source_;
  std::uint32_t bits_ = 0;
  bool carried_ = false;
};

std::uint32_t size_at(const SourcePiece& piece, std::uint64_t index) {
  wire::FragmentEntry entry;
  std::memcpy(&entry, piece.table.data() + index * sizeof entry, sizeof entry);
  return entry.size();
}

// Cuts a piece into those of its runs of events that are written.
void keep_carried(const SourcePiece& piece, Carried& carried, std::vector<SourcePiece>& kept) {
  const auto count = static_cast<std::uint32_t>(piece.range.count());
  std::uint32_t offset = 0; // in the payload
  for (std::uint32_t i = 0; i < count;) {
    const bool keeps = carried(piece.range.first + i);
    const std::uint32_t begin = i;
    const std::uint32_t begin_offset = offset;
    for (; i < count && carried(piece.range.first + i) == keeps; ++i) offset += size_at(piece, i);
    if (!keeps) continue;
    constexpr auto entry = static_cast<std::uint32_t>(sizeof(wire::FragmentEntry));
    kept.push_back({.source = piece.source,
                    .range = {piece.range.first + begin, piece.range.first + i},
                    .table = piece.table.subview(begin * entry, (i - begin) * entry),
                    .payload = piece.payload.subview(begin_offset, offset - begin_offset)});
  }
}

void keep_carried(BuiltBatch& batch, const std::vector<storage::StreamInfo>& streams) {
  std::vector<SourcePiece> kept;
  kept.reserve(batch.pieces.size());
  for (SourcePiece& piece : batch.pieces) {
    Carried carried{streams, batch, piece.source};
    bool all = true;
    for (EventNumber event = piece.range.first; all && event < piece.range.end; ++event)
      all = carried(event);
    if (all) {
      kept.push_back(std::move(piece));
    } else if (piece.range.count() > 1) {
      keep_carried(piece, carried, kept);
    }
  }
  batch.pieces = std::move(kept);
  std::erase_if(batch.bad, [&](const storage::BadFragment& bad) {
    return !Carried{streams, batch, bad.source}(bad.event);
  });
}

void add_results(BuiltBatch& batch, const FilterResults& results, ResultPages& pages) {
  std::vector<const FilterResult*> kept;
  std::uint64_t bytes = 0;
  for (const FilterResult& result : results.of_events) {
    if (batch.streams[result.event - batch.range.first] == 0) continue;
    kept.push_back(&result);
    bytes += result.size;
  }
  if (kept.empty()) return;
  constexpr auto entry = static_cast<std::uint32_t>(sizeof(wire::FragmentEntry));
  const auto table = static_cast<std::uint32_t>(kept.size()) * entry;
  const auto page =
      pages.make(table + static_cast<std::uint32_t>(bytes), [&](std::span<std::byte> room) {
        std::byte* to = room.data() + table;
        for (std::size_t i = 0; i < kept.size(); ++i) {
          const wire::FragmentEntry made{kept[i]->size, kept[i]->crc32c};
          std::memcpy(room.data() + i * entry, &made, sizeof made);
          if (kept[i]->size != 0)
            std::memcpy(to, results.bytes.data() + kept[i]->offset, kept[i]->size);
          to += kept[i]->size;
        }
      });
  std::uint32_t offset = table;
  for (std::uint32_t i = 0; i < kept.size();) { // runs of events that follow each other
    const std::uint32_t begin = i;
    const std::uint32_t begin_offset = offset;
    do {
      offset += kept[i++]->size;
    } while (i < kept.size() && kept[i]->event == kept[i - 1]->event + 1);
    batch.pieces.push_back({.source = storage::filter_source,
                            .range = {kept[begin]->event, kept[i - 1]->event + 1},
                            .table = page.subview(begin * entry, (i - begin) * entry),
                            .payload = page.subview(begin_offset, offset - begin_offset)});
  }
}

} // namespace

Selected select(BuiltBatch& batch, RunNumber run, const std::vector<storage::StreamInfo>& streams,
                std::span<const std::uint32_t> wanted, const FilterResults& results,
                ResultPages& pages) {
  FANIN_ASSERT(wanted.size() == batch.range.count());
  batch.streams.assign(wanted.begin(), wanted.end());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if ((wanted[i] & storage::error_stream) != 0) continue;
    batch.streams[i] = prescaled(streams, run, batch.range.first + i, wanted[i]);
  }
  std::vector<bool> gap(wanted.size());
  for (const EventRange& range : batch.gaps) {
    for (EventNumber event = std::max(range.first, batch.range.first); event < range.end; ++event)
      gap[event - batch.range.first] = true;
  }
  Selected selected;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (gap[i]) continue;
    if (batch.streams[i] == 0) ++selected.rejected;
    if ((batch.streams[i] & storage::error_stream) != 0) ++selected.undecided;
  }
  keep_carried(batch, streams);
  add_results(batch, results, pages);
  return selected;
}

} // namespace fanin::builder
