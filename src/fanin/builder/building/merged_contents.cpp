#include "fanin/builder/building/merged_contents.hpp"

#include <fmt/format.h>

#include "fanin/base/counted.hpp"

namespace fanin::builder {

namespace {
constexpr std::size_t listed_max = 1000; // ranges of a batch, of members
} // namespace

MergedContents::MergedContents(const System& system) : slice_(system.slice), reader_(slice_) {
  for (const SourceInfo& source : system.sources) {
    if (!source.merged.empty()) sources_.push_back(&source);
  }
}

void MergedContents::read(std::span<const storage::SourcePiece> pieces) {
  incomplete_.clear();
  lacking_.clear();
  damaged_.clear();
  not_fitting_.clear();
  for (const SourceInfo* const source : sources_) {
    pieces_.clear();
    for (const storage::SourcePiece& piece : pieces) {
      if (piece.source == source->id) pieces_.push_back(&piece);
    }
    read_source(*source);
  }
}

void MergedContents::read_source(const SourceInfo& source) {
  lacking_at_.assign(source.merged.size() + 1, System::npos);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const storage::SourcePiece& piece = *pieces_[i];
    if (piece.payload_offset != 0) continue;
    std::uint64_t from = 0;
    for (std::uint64_t k = 0; k < piece.range.count(); ++k) {
      const wire::FragmentEntry entry = storage::entry_at(piece, k);
      if (entry.absent()) continue;
      const auto pieces = std::span(pieces_).subspan(i);
      read_members(source, piece.range.first + k, reader_.read(pieces, k, from, source.merged));
      from += entry.size();
    }
  }
}

void MergedContents::read_members(const SourceInfo& source, EventNumber event,
                                  const std::expected<wire::SuperHead, storage::SuperFault>& head) {
  if (!head) return add_not_fitting(source, event, head.error());
  std::uint32_t flags = 0;
  for (std::size_t k = 0; k < source.merged.size(); ++k) {
    const wire::SuperEntry member = head->entry(k);
    if (!member.entry.absent()) {
      flags |= member.entry.flags();
    } else if (source.merged[k].required) {
      add_incomplete(event);
      add_lacking(source.id, member.source, k, event, member.missing_reason());
    }
  }
  if (flags != 0) damaged_.push_back({event, source.id, flags});
}

// All members are missing.
void MergedContents::add_not_fitting(const SourceInfo& source, EventNumber event,
                                     const storage::SuperFault& fault) {
  if (not_fitting_.empty() || not_fitting_.back().source != source.id) {
    not_fitting_.push_back({.source = source.id, .first = event, .fault = fault});
  }
  ++not_fitting_.back().count;
  if (source.required) add_incomplete(event); // one of its members is
  add_lacking(source.id, source.id, source.merged.size(), event, wire::MissingReason::dropped);
}

void MergedContents::add_incomplete(EventNumber event) {
  if (incomplete_.empty() || incomplete_.back() != event) incomplete_.push_back(event);
}

void MergedContents::add_lacking(SourceId source, SourceId member, std::size_t index,
                                 EventNumber event, wire::MissingReason reason) {
  const auto why = static_cast<std::uint16_t>(reason);
  if (lacking_at_[index] != System::npos) {
    wire::MissingRange& last = lacking_[lacking_at_[index]];
    if (last.reason == why && last.first + last.count == event) {
      ++last.count;
      return;
    }
  }
  if (member != source && lacking_.size() >= listed_max) return;
  lacking_at_[index] = lacking_.size();
  lacking_.push_back(
      {.source = source, .count = 1, .first = event, .reason = why, .within = 1, .member = member});
}

std::string text_of(const MergedContents::NotFitting& not_fitting, const System& system) {
  return fmt::format("{} of source {} dropped: that of event {} {}",
                     counted(not_fitting.count, "super-fragment"),
                     system.name_of(not_fitting.source), not_fitting.first,
                     text_of(not_fitting.fault, system.slice));
}

} // namespace fanin::builder
