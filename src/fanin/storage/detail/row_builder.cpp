#include "fanin/storage/detail/row_builder.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>

#include "fanin/base/assert.hpp"

namespace fanin::storage::detail {
namespace {

constexpr auto gap_row = std::numeric_limits<std::uint32_t>::max();

wire::FragmentEntry entry_at(const SourcePiece& piece, std::uint64_t index) {
  wire::FragmentEntry entry;
  std::memcpy(&entry, piece.table.data() + index * sizeof entry, sizeof entry);
  return entry;
}

bool continues_fragment(const SourcePiece& piece) { return piece.payload_offset != 0; }

// Of two rows for the same event and source, the one that knows more comes first.
bool before(const MissingRow& a, const MissingRow& b) {
  const auto key = [](const MissingRow& row) {
    const bool just_absent = row.reason == static_cast<std::uint32_t>(wire::MissingReason::absent);
    return std::tuple(row.event, row.source, just_absent);
  };
  return key(a) < key(b);
}

} // namespace

RowBuilder::RowBuilder(std::span<const SourceInfo> sources, NodeId node, Incarnation incarnation)
    : sources_(sources), node_(node), incarnation_(incarnation) {
  FANIN_ASSERT(std::ranges::is_sorted(sources_, {}, &SourceInfo::id));
  required_count_ =
      static_cast<std::uint32_t>(std::ranges::count(sources_, true, &SourceInfo::required));
}

void RowBuilder::start(const RowPositions& positions) {
  positions_ = positions;
  bytes_end_ = positions.bytes;
  events_.clear();
  fragments_.clear();
  missing_.clear();
  gaps_.clear();
  extents_.clear();
}

void RowBuilder::add(const BuiltBatch& batch) {
  add_events(batch);
  sort_pieces(batch);
  count_fragments(batch);
  add_missing(batch);
  place_fragments(batch);
  mark_bad(batch);
  judge_events(batch);
}

void RowBuilder::add_events(const BuiltBatch& batch) {
  batch_events_ = events_.size();
  row_of_.assign(batch.range.count(), 0);
  for (const auto& gap : batch.gaps) {
    FANIN_ASSERT(gap.end <= batch.range.end);
    gaps_.push_back({.first = gap.first, .end = gap.end});
    for (auto event = std::max(gap.first, batch.range.first); event < gap.end; ++event) {
      row_of_[event - batch.range.first] = gap_row;
    }
  }
  for (std::uint64_t i = 0; i < row_of_.size(); ++i) {
    if (row_of_[i] == gap_row) continue;
    row_of_[i] = static_cast<std::uint32_t>(events_.size() - batch_events_);
    events_.push_back({.event = batch.range.first + i,
                       .incarnation = incarnation_,
                       .attempt = batch.attempt,
                       .node = node_});
  }
  placed_.assign(events_.size() - batch_events_, 0);
  required_present_.assign(events_.size() - batch_events_, 0);
}

EventRow& RowBuilder::row(const BuiltBatch& batch, EventNumber event) {
  const auto index = row_of_[event - batch.range.first];
  FANIN_ASSERT(index != gap_row); // a number that has a fragment, or lacks one, is no gap
  return events_[batch_events_ + index];
}

bool RowBuilder::required(SourceId source) const {
  const auto at = std::ranges::lower_bound(sources_, source, {}, &SourceInfo::id);
  return at != sources_.end() && at->id == source && at->required;
}

void RowBuilder::sort_pieces(const BuiltBatch& batch) {
  order_.resize(batch.pieces.size());
  for (std::uint32_t i = 0; i < order_.size(); ++i) order_[i] = i;
  const auto key = [&](std::uint32_t i) {
    const auto& piece = batch.pieces[i];
    return std::tuple(piece.source, piece.range.first, piece.payload_offset, i);
  };
  std::ranges::sort(order_, {}, key);
}

void RowBuilder::count_fragments(const BuiltBatch& batch) {
  batch_missing_.clear();
  for (const auto index : order_) {
    const auto& piece = batch.pieces[index];
    if (continues_fragment(piece)) continue;
    const auto needed = required(piece.source) ? 1U : 0U;
    FANIN_ASSERT(piece.range.first >= batch.range.first && piece.range.end <= batch.range.end);
    FANIN_ASSERT(piece.table.size >= piece.range.count() * sizeof(wire::FragmentEntry));
    for (std::uint64_t i = 0; i < piece.range.count(); ++i) {
      const auto entry = entry_at(piece, i);
      const auto event = piece.range.first + i;
      if (entry.absent()) {
        if (row_of_[event - batch.range.first] != gap_row) {
          batch_missing_.push_back(
              {.event = event,
               .source = piece.source,
               .reason = static_cast<std::uint32_t>(wire::MissingReason::absent)});
        }
        continue;
      }
      auto& event_row = row(batch, event);
      ++event_row.fragment_count;
      event_row.size += entry.size();
      required_present_[row_of_[event - batch.range.first]] += needed;
    }
  }
}

// Union of what the builder names and what the tables say is absent.
void RowBuilder::add_missing(const BuiltBatch& batch) {
  for (const auto& missing : batch.missing) {
    for (auto event = missing.events.first; event < missing.events.end; ++event) {
      FANIN_ASSERT(batch.range.contains(event));
      if (row_of_[event - batch.range.first] == gap_row) continue;
      batch_missing_.push_back({.event = event,
                                .source = missing.source,
                                .reason = static_cast<std::uint32_t>(missing.reason)});
    }
  }
  if (!std::ranges::is_sorted(batch_missing_, before)) {
    std::ranges::sort(batch_missing_, before);
  }
  const auto same = [](const MissingRow& a, const MissingRow& b) {
    return a.event == b.event && a.source == b.source;
  };
  const auto surplus = std::ranges::unique(batch_missing_, same);
  batch_missing_.erase(surplus.begin(), surplus.end());
  for (const auto& missing : batch_missing_) ++row(batch, missing.event).missing_count;
}

void RowBuilder::place_fragments(const BuiltBatch& batch) {
  auto fragments_end = positions_.fragments + fragments_.size();
  auto missing_end = positions_.missing + missing_.size();
  for (auto i = batch_events_; i < events_.size(); ++i) {
    events_[i].first_fragment = fragments_end;
    events_[i].first_missing = missing_end;
    fragments_end += events_[i].fragment_count;
    missing_end += events_[i].missing_count;
  }
  missing_.insert(missing_.end(), batch_missing_.begin(), batch_missing_.end());
  fragments_.resize(fragments_end - positions_.fragments);

  auto expected_end = bytes_end_; // only within a fragment that spans pieces ahead of bytes_end_
  for (const auto index : order_) {
    const auto& piece = batch.pieces[index];
    auto offset = bytes_end_;
    FANIN_ASSERT(continues_fragment(piece) || offset == expected_end);
    if (piece.payload.size != 0) {
      extents_.push_back({.iov_base = const_cast<std::byte*>(piece.payload.data()),
                          .iov_len = piece.payload.size});
      bytes_end_ += piece.payload.size;
    }
    if (continues_fragment(piece)) continue;
    for (std::uint64_t i = 0; i < piece.range.count(); ++i) {
      const auto entry = entry_at(piece, i);
      if (entry.absent()) continue;
      auto& event_row = row(batch, piece.range.first + i);
      const auto flags = fragment_row_flags(entry.flags());
      const auto nth = placed_[row_of_[piece.range.first + i - batch.range.first]]++;
      fragments_[event_row.first_fragment + nth - positions_.fragments] = {.event = event_row.event,
                                                                           .offset = offset,
                                                                           .source = piece.source,
                                                                           .size = entry.size(),
                                                                           .crc32c = entry.crc32c,
                                                                           .flags = flags,
                                                                           .attempt =
                                                                               batch.attempt};
      event_row.flags |= flags;
      offset += entry.size();
    }
    FANIN_ASSERT(offset == bytes_end_ || (piece.range.count() == 1 && offset > bytes_end_));
    expected_end = offset;
  }
  FANIN_ASSERT(bytes_end_ == expected_end);
}

void RowBuilder::mark_bad(const BuiltBatch& batch) {
  for (const auto& bad : batch.bad) {
    FANIN_ASSERT(batch.range.contains(bad.event));
    auto& event_row = row(batch, bad.event);
    const auto flags = fragment_row_flags(bad.flags);
    event_row.flags |= flags;
    const auto own =
        std::span(fragments_)
            .subspan(event_row.first_fragment - positions_.fragments, event_row.fragment_count);
    const auto at = std::ranges::lower_bound(own, bad.source, {}, &FragmentRow::source);
    if (at == own.end() || at->source != bad.source) continue;
    at->flags = static_cast<FragmentRowFlags>(at->flags | flags);
  }
}

void RowBuilder::judge_events(const BuiltBatch& batch) {
  if (!batch.streams.empty()) return judge_filtered(batch);
  for (auto i = batch_events_; i < events_.size(); ++i) {
    if (required_present_[i - batch_events_] != required_count_) {
      events_[i].flags |= event_incomplete;
    }
  }
}

// What is not written was there all the same: only what was missing makes an event incomplete.
void RowBuilder::judge_filtered(const BuiltBatch& batch) {
  FANIN_ASSERT(batch.streams.size() == row_of_.size());
  for (std::size_t i = 0; i < row_of_.size(); ++i) {
    if (row_of_[i] == gap_row) continue;
    auto& event_row = events_[batch_events_ + row_of_[i]];
    event_row.streams = batch.streams[i];
    if (event_row.streams == 0) event_row.flags |= event_rejected;
  }
  for (const auto& missing : batch_missing_) {
    if (required(missing.source)) row(batch, missing.event).flags |= event_incomplete;
  }
}

} // namespace fanin::storage::detail
