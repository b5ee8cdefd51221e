#include "fanin/storage/detail/row_builder.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>

#include "fanin/base/assert.hpp"
#include "fanin/wire/super_fragment.hpp"

namespace fanin::storage::detail {
namespace {

constexpr auto gap_row = std::numeric_limits<std::uint32_t>::max();

void mark(FragmentRow& fragment, FragmentRowFlags flags) {
  fragment.flags = static_cast<FragmentRowFlags>(fragment.flags | flags);
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

RowBuilder::RowBuilder(const RowOptions& options)
    : options_(options), reader_(options.slice, options.run) {
  FANIN_ASSERT(std::ranges::is_sorted(options_.sources, {}, &SourceInfo::id));
  FANIN_ASSERT(std::ranges::is_sorted(options_.merged, {}, &MergedSource::source));
  required_count_ =
      static_cast<std::uint32_t>(std::ranges::count(options_.sources, true, &SourceInfo::required));
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
  batch_extents_ = extents_.size();
  batch_bytes_ = bytes_end_;
  add_events(batch);
  sort_pieces(batch);
  count_fragments(batch);
  add_missing(batch);
  place_fragments(batch);
  if (!options_.merged.empty()) sort_fragments();
  mark_bad(batch);
  judge_events(batch);
}

void RowBuilder::add_events(const BuiltBatch& batch) {
  batch_events_ = events_.size();
  row_of_.assign(batch.range.count(), 0);
  for (const auto& gap : batch.gaps) {
    FANIN_ASSERT(gap.end <= batch.range.end);
    gaps_.push_back({.first = options_.slice.detector_number(gap.first),
                     .end = options_.slice.detector_end(gap.end)});
    for (auto event = std::max(gap.first, batch.range.first); event < gap.end; ++event) {
      row_of_[event - batch.range.first] = gap_row;
    }
  }
  for (std::uint64_t i = 0; i < row_of_.size(); ++i) {
    if (row_of_[i] == gap_row) continue;
    row_of_[i] = static_cast<std::uint32_t>(events_.size() - batch_events_);
    events_.push_back({.event = options_.slice.detector_number(batch.range.first + i),
                       .incarnation = options_.incarnation,
                       .attempt = batch.attempt,
                       .node = options_.node,
                       .time_unix_ns = batch.time_unix_ns});
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
  const auto at = std::ranges::lower_bound(options_.sources, source, {}, &SourceInfo::id);
  return at != options_.sources.end() && at->id == source && at->required;
}

const MergedSource* RowBuilder::find_merged(SourceId source) const {
  if (options_.merged.empty()) return nullptr;
  const auto at = std::ranges::lower_bound(options_.merged, source, {}, &MergedSource::source);
  return at != options_.merged.end() && at->source == source ? &*at : nullptr;
}

template <class Use>
void RowBuilder::each_member(std::size_t place, std::uint64_t i, std::uint64_t from,
                             const MergedSource& merged, Use use) {
  const auto& members = merged.members;
  const auto all_missing = [&](wire::MissingReason why) {
    const wire::FragmentEntry none{.size_and_flags = wire::fragment_absent, .crc32c = 0};
    for (const auto& member : members) use(member.id, none, std::uint64_t{0}, why);
  };
  const auto pieces = std::span(order_).subspan(place);
  if (entry_at(*pieces.front(), i).absent()) return all_missing(wire::MissingReason::absent);
  const auto head = reader_.read(pieces, i, from, members);
  if (!head) return all_missing(wire::MissingReason::dropped);
  std::uint64_t inner = wire::super_head_size(members.size());
  for (std::size_t k = 0; k < members.size(); ++k) {
    const auto one = head->entry(k);
    use(one.source, one.entry, inner, one.missing_reason());
    inner += one.entry.size();
  }
}

template <class Use>
void RowBuilder::each_fragment(std::size_t place, std::uint64_t i, std::uint64_t from, Use use) {
  const auto& piece = *order_[place];
  if (const MergedSource* const merged = find_merged(piece.source)) {
    return each_member(place, i, from, *merged, use);
  }
  use(piece.source, entry_at(piece, i), std::uint64_t{0}, wire::MissingReason::absent);
}

void RowBuilder::sort_pieces(const BuiltBatch& batch) {
  order_.clear();
  for (const SourcePiece& piece : batch.pieces) order_.push_back(&piece);
  const auto key = [](const SourcePiece* piece) {
    return std::tuple(piece->source, piece->range.first, piece->payload_offset, piece);
  };
  std::ranges::sort(order_, {}, key);
}

void RowBuilder::count_fragments(const BuiltBatch& batch) {
  batch_missing_.clear();
  for (std::size_t place = 0; place < order_.size(); ++place) {
    const auto& piece = *order_[place];
    if (continues_fragment(piece)) continue;
    const bool piece_needed = required(piece.source);
    FANIN_ASSERT(piece.range.first >= batch.range.first && piece.range.end <= batch.range.end);
    FANIN_ASSERT(piece.table.size >= piece.range.count() * sizeof(wire::FragmentEntry));
    std::uint64_t from = 0;
    for (std::uint64_t i = 0; i < piece.range.count(); ++i) {
      const auto event = piece.range.first + i;
      const auto count = [&](SourceId source, const wire::FragmentEntry& entry, std::uint64_t,
                             wire::MissingReason why) {
        if (entry.absent()) {
          if (row_of_[event - batch.range.first] != gap_row) {
            batch_missing_.push_back(
                {.event = event, .source = source, .reason = static_cast<std::uint32_t>(why)});
          }
          return;
        }
        auto& event_row = row(batch, event);
        ++event_row.fragment_count;
        event_row.size += entry.size();
        const bool needed = source == piece.source ? piece_needed : required(source);
        required_present_[row_of_[event - batch.range.first]] += needed ? 1U : 0U;
      };
      each_fragment(place, i, from, count);
      from += entry_at(piece, i).size();
    }
  }
}

// Union of what the builder names and what the tables say is absent.
void RowBuilder::add_missing(const BuiltBatch& batch) {
  for (const auto& missing : batch.missing) {
    const MergedSource* const merged = find_merged(missing.source);
    for (auto event = missing.events.first; event < missing.events.end; ++event) {
      FANIN_ASSERT(batch.range.contains(event));
      if (row_of_[event - batch.range.first] == gap_row) continue;
      const auto add = [&](SourceId source) {
        batch_missing_.push_back({.event = event,
                                  .source = source,
                                  .reason = static_cast<std::uint32_t>(missing.reason)});
      };
      if (merged == nullptr) add(missing.source);
      for (std::size_t k = 0; merged != nullptr && k < merged->members.size(); ++k) {
        add(merged->members[k].id);
      }
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
  for (const auto& missing : batch_missing_) {
    missing_.push_back({.event = row(batch, missing.event).event,
                        .source = missing.source,
                        .reason = missing.reason});
  }
  fragments_.resize(fragments_end - positions_.fragments);

  auto expected_end = bytes_end_; // only within a fragment that spans pieces ahead of bytes_end_
  for (std::size_t place = 0; place < order_.size(); ++place) {
    const auto& piece = *order_[place];
    const auto begin = bytes_end_;
    auto offset = begin;
    FANIN_ASSERT(continues_fragment(piece) || offset == expected_end);
    if (piece.payload.size != 0) {
      extents_.push_back({.iov_base = const_cast<std::byte*>(piece.payload.data()),
                          .iov_len = piece.payload.size});
      bytes_end_ += piece.payload.size;
    }
    if (continues_fragment(piece)) continue;
    for (std::uint64_t i = 0; i < piece.range.count(); ++i) {
      const auto event = piece.range.first + i;
      const auto put = [&](SourceId source, const wire::FragmentEntry& entry, std::uint64_t inner,
                           wire::MissingReason) {
        if (entry.absent()) return;
        auto& event_row = row(batch, event);
        const auto flags = fragment_row_flags(entry.flags());
        const auto nth = placed_[row_of_[event - batch.range.first]]++;
        fragments_[event_row.first_fragment + nth - positions_.fragments] = {
            .event = event_row.event,
            .offset = offset + inner,
            .source = source,
            .size = entry.size(),
            .crc32c = entry.crc32c,
            .flags = flags,
            .attempt = batch.attempt};
        event_row.flags |= flags;
      };
      each_fragment(place, i, offset - begin, put);
      offset += entry_at(piece, i).size();
    }
    FANIN_ASSERT(offset == bytes_end_ || (piece.range.count() == 1 && offset > bytes_end_));
    expected_end = offset;
  }
  FANIN_ASSERT(bytes_end_ == expected_end);
}

// Merged sources may be in another order than what they merge.
void RowBuilder::sort_fragments() {
  for (auto i = batch_events_; i < events_.size(); ++i) {
    const auto own =
        std::span(fragments_)
            .subspan(events_[i].first_fragment - positions_.fragments, events_[i].fragment_count);
    std::ranges::sort(own, {}, &FragmentRow::source);
  }
}

void RowBuilder::mark_bad(const BuiltBatch& batch) {
  if (batch.bad.empty()) return;
  if (!options_.merged.empty()) index_.read(std::span(extents_).subspan(batch_extents_));
  for (const auto& bad : batch.bad) {
    FANIN_ASSERT(batch.range.contains(bad.event));
    auto& event_row = row(batch, bad.event);
    const auto flags = fragment_row_flags(bad.flags);
    event_row.flags |= flags; // also where nothing of the fragment is there to be marked
    const auto own =
        std::span(fragments_)
            .subspan(event_row.first_fragment - positions_.fragments, event_row.fragment_count);
    if (const MergedSource* const merged = find_merged(bad.source)) {
      for (FragmentRow* const member : damaged_members(own, *merged, flags)) {
        mark(*member, flags);
      }
      continue;
    }
    const auto at = std::ranges::lower_bound(own, bad.source, {}, &FragmentRow::source);
    if (at != own.end() && at->source == bad.source) mark(*at, flags);
  }
}

// Of a super-fragment that was damaged on its way, the checksums tell which fragments are: if they
// tell of none, its table is, and so are all.
std::vector<FragmentRow*> RowBuilder::damaged_members(std::span<FragmentRow> fragments,
                                                      const MergedSource& merged,
                                                      FragmentRowFlags flags) const {
  std::vector<FragmentRow*> members;
  std::vector<FragmentRow*> damaged;
  for (FragmentRow& fragment : fragments) {
    if (!std::ranges::binary_search(merged.members, fragment.source, {}, &SourceInfo::id)) continue;
    members.push_back(&fragment);
    const bool known = (fragment.flags & event_bad_checksum) != 0; // of the first stage
    const std::uint64_t offset = fragment.offset - batch_bytes_;
    if (!known && index_.crc32c(offset, fragment.size) != fragment.crc32c) {
      damaged.push_back(&fragment);
    }
  }
  const bool told = flags == event_bad_checksum && !damaged.empty();
  return told ? damaged : members;
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
