#include "fanin/builder/building/assembler.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/attempt.hpp"
#include "fanin/wire/checksum.hpp"

namespace fanin::builder {

namespace {
// Batches of which blocks have come before their assignment; what is beyond is thrown away, and
// sent again.
constexpr std::size_t early_max = 4096;

wire::MissingReason reason_of(const wire::FragmentEntry& absent) {
  return wire::missing_reason(static_cast<wire::AbsentReason>(absent.crc32c));
}

bool has_reason(const wire::MissingRange& lost) { return wire::is_missing_reason(lost.reason); }

// What a readout unit had of a batch before it died, or did not read since it was dead.
struct LostRange {
  SourceId source = 0;
  wire::MissingReason reason{};
  EventNumber first = 0;
  EventNumber end = 0; // the last one of this range and those before it
};

// By source and number, to be searched. They may overlap.
std::vector<LostRange> lost_of(const Assembly& assembly) {
  std::vector<LostRange> lost;
  for (const wire::MissingRange& one : assembly.lost) {
    if (one.first >= assembly.range.end) continue;
    const std::uint64_t count = std::min<std::uint64_t>(one.count, assembly.range.end - one.first);
    lost.push_back({.source = one.source,
                    .reason = static_cast<wire::MissingReason>(one.reason),
                    .first = one.first,
                    .end = one.first + count});
  }
  std::ranges::sort(lost, {},
                    [](const LostRange& one) { return std::pair{one.source, one.first}; });
  for (std::size_t i = 1; i < lost.size(); ++i) {
    if (lost[i].source == lost[i - 1].source) lost[i].end = std::max(lost[i].end, lost[i - 1].end);
  }
  return lost;
}

std::optional<wire::MissingReason> find_lost(std::span<const LostRange> lost, SourceId source,
                                             EventNumber event) {
  const auto after =
      std::ranges::upper_bound(lost, std::pair{source, event}, {}, [](const LostRange& one) {
        return std::pair{one.source, one.first};
      });
  if (after == lost.begin()) return {};
  const LostRange& one = *std::prev(after);
  if (one.source != source || event >= one.end) return {};
  return one.reason;
}
} // namespace

Assembler::Assembler(const System& system, const SourceIndex& sources)
    : system_(system), sources_(sources), merged_(system) {}

// --- assemblies ----------------------------------------------------------------------------------

Assembly& Assembler::open(EventRange range, Attempt attempt) {
  if (spare_.empty()) {
    all_.push_back(std::make_unique<Assembly>());
    spare_.push_back(all_.back().get());
  }
  Assembly& assembly = *spare_.back();
  spare_.pop_back();
  assembly.range = range;
  assembly.state = AssemblyState::early;
  assembly.attempt = attempt;
  assembly.blocks_dropped = assembly.heard = false;
  ++early_;
  assembly.bytes = 0;
  assembly.incomplete = assembly.rejected = assembly.undecided = assembly.undelivered = 0;
  assembly.missing_reported = assembly.bad_reported = 0;
  assembly.open_sources = static_cast<std::uint32_t>(system_.sources.size());
  assembly.progress.assign(system_.sources.size(), Assembly::Progress{.next = range.first});
  assemblies_[range.first] = &assembly;
  return assembly;
}

void Assembler::release(Assembly& assembly) {
  FANIN_ASSERT(find(assembly.range.first) == &assembly);
  assemblies_.erase(assembly.range.first);
  if (assembly.state == AssemblyState::early) --early_;
  assembly.batch.pieces.clear();
  assembly.batch.missing.clear();
  assembly.batch.gaps.clear();
  assembly.batch.bad.clear();
  assembly.missing.clear();
  assembly.bad.clear();
  assembly.gaps.clear();
  assembly.lost.clear();
  spare_.push_back(&assembly);
}

void Assembler::hand_back(Assembly& assembly) {
  recently_decided_.note(assembly.range.first, assembly.attempt);
  release(assembly);
}

void Assembler::throw_away(Assembly& assembly) {
  late_ += assembly.batch.pieces.size();
  hand_back(assembly);
}

void Assembler::clear() {
  while (!assemblies_.empty()) release(*assemblies_.begin()->second);
  recently_decided_ = {};
}

Assembly* Assembler::find(EventNumber first) const {
  const auto found = assemblies_.find(first);
  return found == assemblies_.end() ? nullptr : found->second;
}

// --- blocks --------------------------------------------------------------------------------------

// The batch that a block belongs to; null: there is none yet, or the block is of no use.
Assembly* Assembler::find_for(const wire::DataBlockHeader& header) {
  Assembly* const found = find(header.batch_first);
  if (found == nullptr) return open_early(header);
  if (found->state == AssemblyState::early && is_later(header.attempt, found->attempt)) {
    throw_away(*found); // of an attempt before
    return open_early(header);
  }
  const bool same = found->range == header.batch() && found->attempt == header.attempt;
  if (same && found->state != AssemblyState::decided) return found;
  ++(same ? late_ : stale_);
  if (!same && header.attempt == found->attempt) found->blocks_dropped = true; // one of them lies
  return nullptr;
}

// Null: it was decided, or there are too many.
Assembly* Assembler::open_early(const wire::DataBlockHeader& header) {
  if (recently_decided_.contains_or_later(header.batch_first, header.attempt)) {
    ++late_;
    return nullptr;
  }
  if (early_ >= early_max) {
    ++late_;
    recently_decided_.note(header.batch_first, header.attempt);
    return nullptr;
  }
  return &open(header.batch(), header.attempt);
}

// Empty: it goes on where the source has got.
std::string Assembler::wrong_with(const Assembly::Progress& progress,
                                  const wire::DataBlockView& view) {
  const wire::DataBlockHeader& header = view.header;
  if (header.first_event != progress.next || header.payload_offset != progress.payload_offset) {
    return fmt::format("source {:#x} left out a part of event {}", header.source, progress.next);
  }
  if (header.payload_offset != 0 && view.table.front() != progress.entry) {
    return fmt::format("source {:#x}: parts of event {} that disagree", header.source,
                       progress.next);
  }
  return {};
}

Assembler::Added Assembler::add(const Block& block) {
  const wire::DataBlockView& view = block.view;
  const wire::DataBlockHeader& header = view.header;
  Assembly* const found = find_for(header);
  if (found == nullptr) return {};
  Assembly& assembly = *found;
  const bool first = assembly.state == AssemblyState::early && assembly.batch.pieces.empty();
  Added added{.batch = found, .early = first ? found : nullptr};
  assembly.heard = true;
  Assembly::Progress& progress = assembly.progress[block.source];
  if (header.first_event < progress.next ||
      (header.first_event == progress.next && header.payload_offset < progress.payload_offset)) {
    ++stale_; // sent again after a lost connection
    return added;
  }
  added.wrong = wrong_with(progress, view);
  if (!added.wrong.empty()) return added;
  keep(assembly, block);
  if (view.partial()) {
    add_partial(assembly, progress, view);
  } else {
    check_fragments(assembly, view);
    progress.next = header.events().end;
  }
  if (progress.next != assembly.range.end) return added;
  FANIN_ASSERT(assembly.open_sources > 0);
  --assembly.open_sources;
  const bool complete = assembly.open_sources == 0 && assembly.state == AssemblyState::assigned;
  if (complete) added.complete = found;
  return added;
}

void Assembler::keep(Assembly& assembly, const Block& block) {
  const wire::DataBlockHeader& header = block.view.header;
  const auto table_size = static_cast<std::uint32_t>(block.view.table.size_bytes());
  assembly.batch.pieces.reserve(system_.sources.size()); // usually one block each
  assembly.batch.pieces.push_back(
      {.source = header.source,
       .range = header.events(),
       .table = block.message.subview(sizeof header, table_size),
       .payload = block.payload.size > 0
                      ? block.payload
                      : block.message.subview(sizeof header + table_size, header.payload_size),
       .payload_offset = header.payload_offset});
  assembly.bytes += header.payload_size;
}

// A piece of a fragment that spans messages: its checksum is known with the last one.
void Assembler::add_partial(Assembly& assembly, Assembly::Progress& progress,
                            const wire::DataBlockView& view) {
  const wire::FragmentEntry& entry = view.table.front();
  progress.entry = entry;
  if (system_.integrity) progress.crc32c = wire::crc32c(view.payload, progress.crc32c);
  progress.payload_offset += view.header.payload_size;
  if (progress.payload_offset < entry.size()) return;
  std::uint32_t flags = entry.flags();
  if (system_.integrity && progress.crc32c != entry.crc32c) flags |= wire::fragment_bad_checksum;
  if (flags != 0) flagged(assembly, view.header.first_event, view.header.source, flags);
  progress = {.next = view.header.first_event + 1};
}

// The first stage marks a super-fragment that lacks something as cut short, which is no damage.
void Assembler::flagged(Assembly& assembly, EventNumber event, SourceId source,
                        std::uint32_t flags) {
  const bool merges = !system_.sources[sources_.find(source)].merged.empty();
  if (merges) flags &= ~wire::fragment_truncated;
  if (flags != 0) assembly.bad.push_back({event, source, flags});
}

// The hot path: once per fragment.
void Assembler::check_fragments(Assembly& assembly, const wire::DataBlockView& view) {
  const std::byte* payload = view.payload.data();
  const bool checksum = system_.integrity;
  EventNumber event = view.header.first_event;
  for (const wire::FragmentEntry& entry : view.table) {
    const std::uint32_t size = entry.size();
    std::uint32_t flags = entry.flags();
    if (checksum && size != 0 && wire::crc32c({payload, size}) != entry.crc32c) {
      flags |= wire::fragment_bad_checksum;
    }
    if (flags != 0) [[unlikely]] {
      if ((flags & wire::fragment_absent) != 0) {
        add_missing(assembly, view.header.source, {event, event + 1}, reason_of(entry));
      } else {
        flagged(assembly, event, view.header.source, flags);
      }
    }
    payload += size;
    ++event;
  }
}

// --- what the event manager says -----------------------------------------------------------------

Assembler::Assigned Assembler::assign(const wire::Assign& assign, std::span<const wire::Gap> gaps,
                                      std::span<const wire::MissingRange> lost) {
  Assembly* found = find(assign.first);
  if (found != nullptr && found->state != AssemblyState::early) return {};
  bool blocks_dropped = recently_decided_.contains(assign.first, assign.attempt);
  if (found != nullptr) { // blocks that came early: the event manager's word counts
    const bool same = found->range == assign.range() && found->attempt == assign.attempt;
    blocks_dropped = blocks_dropped || found->blocks_dropped ||
                     (!same && !is_later(assign.attempt, found->attempt));
    if (!same) {
      throw_away(*found);
      found = nullptr;
    }
  }
  Assembly& assembly = found != nullptr ? *found : open(assign.range(), assign.attempt);
  for (const auto& gap : gaps) {
    if (gap.end <= gap.first || gap.end > assign.range().end) return {};
    assembly.gaps.push_back(gap);
  }
  if (!std::ranges::all_of(lost, has_reason)) return {};
  assembly.lost.insert(assembly.lost.end(), lost.begin(), lost.end());
  if (assign.more != 0) return {.valid = true};
  assembly.state = AssemblyState::assigned;
  --early_;
  assembly.epoch = assign.epoch;
  assembly.seal = assign.seal;
  assembly.batch.time_unix_ns = assign.cut_unix_ns;
  return {.valid = true, .assembly = &assembly, .blocks_dropped = blocks_dropped};
}

bool Assembler::add_lost(std::span<const wire::MissingRange> lost) {
  for (const wire::MissingRange& run : lost) {
    const EventNumber end = run.first + run.count;
    if (end < run.first || sources_.find(run.source) == System::npos || !has_reason(run)) {
      return false;
    }
    auto at = assemblies_.upper_bound(run.first);
    if (at != assemblies_.begin()) --at;
    for (; at != assemblies_.end() && at->first < end; ++at) {
      Assembly& assembly = *at->second;
      const EventNumber first = std::max(run.first, assembly.range.first);
      const EventNumber until = std::min(end, assembly.range.end);
      if (assembly.state != AssemblyState::assigned || first >= until) continue;
      assembly.lost.push_back({.source = run.source,
                               .count = static_cast<std::uint32_t>(until - first),
                               .first = first,
                               .reason = run.reason});
    }
  }
  return true;
}

// --- what is missing -----------------------------------------------------------------------------

void Assembler::add_missing(Assembly& assembly, SourceId source, EventRange events,
                            wire::MissingReason reason) {
  const auto why = static_cast<std::uint16_t>(reason);
  if (!assembly.missing.empty()) {
    wire::MissingRange& last = assembly.missing.back();
    if (last.source == source && last.reason == why && last.first + last.count == events.first) {
      last.count += static_cast<std::uint32_t>(events.count());
      return;
    }
  }
  assembly.missing.push_back({.source = source,
                              .count = static_cast<std::uint32_t>(events.count()),
                              .first = events.first,
                              .reason = why});
}

void Assembler::give_up_source(Assembly& assembly, std::size_t source) {
  Assembly::Progress& progress = assembly.progress[source];
  if (progress.next == assembly.range.end) return;
  if (progress.payload_offset != 0) { // a fragment of which only a part has come
    auto& pieces = assembly.batch.pieces;
    std::erase_if(pieces, [&](const storage::SourcePiece& piece) {
      if (piece.source != system_.sources[source].id || piece.range.first != progress.next)
        return false;
      assembly.bytes -= piece.payload.size;
      return true;
    });
  }
  add_missing(assembly, system_.sources[source].id, {progress.next, assembly.range.end},
              wire::MissingReason::absent);
  progress = {.next = assembly.range.end};
  --assembly.open_sources;
}

void Assembler::give_up(Assembly& assembly, NodeId readout) {
  const auto [first, last] = system_.sources_of(readout);
  for (std::size_t source = first; source < last; ++source) give_up_source(assembly, source);
}

bool Assembler::owes(const Assembly& assembly, const Lane& lane) const {
  const auto [first, last] = system_.sources_of(lane.readout);
  for (std::size_t source = first + lane.index; source < last; source += lane.count) {
    if (assembly.progress[source].next != assembly.range.end) return true;
  }
  return false;
}

std::optional<NodeId> Assembler::owing(const Assembly& assembly,
                                       std::span<const Lane> lanes) const {
  const auto lane =
      std::ranges::find_if(lanes, [&](const Lane& one) { return owes(assembly, one); });
  return lane == lanes.end() ? std::nullopt : std::optional{lane->readout};
}

bool Assembler::owes(const Lane& lane, Duration assigned_until) const {
  return std::ranges::any_of(assemblies_, [&](const auto& entry) {
    const Assembly& assembly = *entry.second;
    return assembly.state == AssemblyState::assigned && assembly.assigned_at <= assigned_until &&
           owes(assembly, lane);
  });
}

std::vector<Assembly*> Assembler::owed_by(const Lane& lane) const {
  std::vector<Assembly*> owed;
  for (const auto& [first, assembly] : assemblies_) {
    if (assembly->state != AssemblyState::assigned || !owes(*assembly, lane)) continue;
    owed.push_back(assembly);
  }
  return owed;
}

void Assembler::decide(Assembly& assembly) {
  FANIN_ASSERT(assembly.open_sources == 0);
  assembly.state = AssemblyState::decided;
  merged_.read(assembly.batch.pieces);
  if (!assembly.missing.empty() || !assembly.gaps.empty() || !merged_.incomplete().empty()) {
    sort_out_missing(assembly);
  }
  recently_decided_.note(assembly.range.first, assembly.attempt);
  storage::BuiltBatch& batch = assembly.batch;
  batch.ticket = assembly.range.first;
  batch.range = assembly.range;
  batch.attempt = assembly.attempt;
  for (const auto& run : assembly.missing) {
    batch.missing.push_back({{run.first, run.first + run.count},
                             run.source,
                             static_cast<wire::MissingReason>(run.reason)});
  }
  for (const auto& gap : assembly.gaps) batch.gaps.push_back({gap.first, gap.end});
  for (const auto& bad : assembly.bad) batch.bad.push_back({bad.event, bad.source, bad.flags});
  report_within(assembly);
}

// What the event manager is told of super-fragments. Storage reads them itself.
void Assembler::report_within(Assembly& assembly) const {
  const auto lacking = merged_.lacking();
  const auto damaged = merged_.damaged();
  assembly.missing.insert(assembly.missing.end(), lacking.begin(), lacking.end());
  if (damaged.empty()) return;
  auto& bad = assembly.bad;
  bad.insert(bad.end(), damaged.begin(), damaged.end());
  const auto key = [](const wire::BadFragment& one) { return std::pair{one.event, one.source}; };
  std::ranges::sort(bad, {}, key);
  std::size_t kept = 0;
  for (std::size_t i = 1; i < bad.size(); ++i) {
    if (key(bad[i]) == key(bad[kept])) {
      bad[kept].flags |= bad[i].flags;
    } else {
      bad[++kept] = bad[i];
    }
  }
  bad.resize(kept + 1);
}

// Leaves out gaps in which a source has something. Gives which events of the batch are in one of
// the others.
std::vector<bool> Assembler::drop_false_gaps(Assembly& assembly) const {
  const EventNumber first = assembly.range.first;
  const auto count = static_cast<std::size_t>(assembly.range.count());
  std::vector<std::uint32_t> missing(count);
  for (const auto& run : assembly.missing) {
    for (std::size_t i = 0; i < run.count; ++i) ++missing[run.first - first + i];
  }
  std::vector<bool> gap(count);
  std::erase_if(assembly.gaps, [&](const wire::Gap& one) {
    for (EventNumber event = std::max(one.first, first); event < one.end; ++event) {
      if (missing[event - first] != system_.sources.size()) return true; // somebody is wrong
    }
    for (EventNumber event = std::max(one.first, first); event < one.end; ++event) {
      gap[event - first] = true;
    }
    return false;
  });
  return gap;
}

// Of numbers that no source has nothing is missing. What a readout unit had before it died was
// lost, whatever it says when it is here again. What is missing makes events incomplete if the
// source is required.
void Assembler::sort_out_missing(Assembly& assembly) {
  const EventNumber first = assembly.range.first;
  const std::vector<bool> gap = drop_false_gaps(assembly);
  std::vector<bool> incomplete(gap.size());
  const std::vector<LostRange> lost = lost_of(assembly);
  for (const auto& run : std::exchange(assembly.missing, {})) {
    const bool required = system_.sources[sources_.find(run.source)].required;
    for (EventNumber event = run.first; event < run.first + run.count; ++event) {
      if (gap[event - first]) continue;
      add_missing(assembly, run.source, {event, event + 1},
                  find_lost(lost, run.source, event)
                      .value_or(static_cast<wire::MissingReason>(run.reason)));
      if (required) incomplete[event - first] = true;
    }
  }
  for (const EventNumber event : merged_.incomplete()) incomplete[event - first] = true;
  assembly.incomplete = static_cast<std::uint32_t>(std::ranges::count(incomplete, true));
}

} // namespace fanin::builder
