// When a batch is decided, what is missing in it, and how it gets to storage (foundation 6 and 8).
#include "fanin/builder/builder_unit.hpp"

#include <algorithm>

namespace fanin::builder {

BuilderUnit::Assembly& BuilderUnit::open(EventRange range, Attempt attempt) {
  if (spare_.empty()) {
    all_.push_back(std::make_unique<Assembly>());
    spare_.push_back(all_.back().get());
  }
  Assembly& assembly = *spare_.back();
  spare_.pop_back();
  assembly.range = range;
  assembly.attempt = attempt;
  assembly.assigned = assembly.decided = false;
  assembly.bytes = 0;
  assembly.incomplete = 0;
  assembly.open_sources = static_cast<std::uint32_t>(system_.sources.size());
  assembly.progress.assign(system_.sources.size(), Progress{range.first, 0, 0});
  assemblies_[range.first] = &assembly;
  return assembly;
}

void BuilderUnit::release(Assembly& assembly) {
  assemblies_.erase(assembly.range.first);
  assembly.batch.pieces.clear();
  assembly.batch.missing.clear();
  assembly.batch.gaps.clear();
  assembly.batch.bad.clear();
  assembly.missing.clear();
  assembly.bad.clear();
  assembly.gaps.clear();
  spare_.push_back(&assembly);
}

void BuilderUnit::add_missing(Assembly& assembly, SourceId source, EventRange events,
                              storage::MissingReason reason) {
  const auto why = static_cast<std::uint32_t>(reason);
  if (!assembly.missing.empty()) {
    wire::MissingRun& last = assembly.missing.back();
    if (last.source == source && last.reason == why && last.first + last.count == events.first) {
      last.count += static_cast<std::uint32_t>(events.count());
      return;
    }
  }
  assembly.missing.push_back(
      {source, static_cast<std::uint32_t>(events.count()), events.first, why, 0});
}

void BuilderUnit::give_up_source(Assembly& assembly, std::size_t source,
                                 storage::MissingReason reason) {
  Progress& progress = assembly.progress[source];
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
  add_missing(assembly, system_.sources[source].id, {progress.next, assembly.range.end}, reason);
  progress = {assembly.range.end, 0, 0};
  --assembly.open_sources;
}

// Sources whose readout unit is dead, for good and with nothing left on its connection.
void BuilderUnit::give_up_lost(Assembly& assembly) {
  if (!assembly.assigned || assembly.decided) return;
  for (std::size_t node = 0; node < readouts_.size(); ++node) {
    const Readout& readout = readouts_[node];
    const bool is_member = readout.member != 0 && readout.member_since <= assembly.epoch;
    const bool drained = readout.connected == 0 || readout.connected == readout.member;
    if (is_member || !drained) continue;
    const auto [first, last] = system_.sources_of(static_cast<NodeId>(node));
    for (std::size_t source = first; source < last; ++source) {
      give_up_source(assembly, source, storage::MissingReason::lost);
    }
  }
  if (assembly.open_sources == 0) decide(assembly);
}

void BuilderUnit::give_up_lost() {
  for (auto entry = assemblies_.begin(); entry != assemblies_.end();) {
    Assembly& assembly = *entry->second;
    ++entry; // deciding may end in a commit, which releases the assembly
    give_up_lost(assembly);
  }
}

void BuilderUnit::decide(Assembly& assembly) {
  assembly.decided = true;
  if (!assembly.missing.empty()) find_gaps(assembly);
  if (!assembly.bad.empty()) {
    environment_.log(LogLevel::error,
                     fmt::format("{} damaged fragments in events {} to {}, the first of source {}",
                                 assembly.bad.size(), assembly.range.first, assembly.range.end - 1,
                                 assembly.bad.front().source));
  }
  recently_decided_.note(assembly.range.first, assembly.attempt);
  storage::BuiltBatch& batch = assembly.batch;
  batch.ticket = assembly.range.first;
  batch.range = assembly.range;
  batch.attempt = assembly.attempt;
  for (const auto& run : assembly.missing) {
    batch.missing.push_back({{run.first, run.first + run.count},
                             run.source,
                             static_cast<storage::MissingReason>(run.reason)});
  }
  for (const auto& gap : assembly.gaps) batch.gaps.push_back({gap.first, gap.end});
  for (const auto& bad : assembly.bad) batch.bad.push_back({bad.event, bad.source, bad.flags});
  control_->send(wire::Received{assembly.range.first, assembly.attempt});
  decided_.push_back(&assembly);
  submit_decided();
}

// Numbers that no source has are gaps, not events; what is missing for the others makes them
// incomplete if the source is required.
void BuilderUnit::find_gaps(Assembly& assembly) {
  const auto count = static_cast<std::size_t>(assembly.range.count());
  std::vector<std::uint32_t> missing(count);
  std::vector<bool> incomplete(count);
  std::vector<bool> someone_says_absent(count);
  for (const auto& run : assembly.missing) {
    const bool absent = run.reason == static_cast<std::uint32_t>(storage::MissingReason::absent);
    const bool late = run.reason == static_cast<std::uint32_t>(storage::MissingReason::deadline);
    const bool required = system_.sources[sources_.find(run.source)].required;
    for (std::size_t i = 0; i < run.count; ++i) {
      const auto at = static_cast<std::size_t>(run.first - assembly.range.first) + i;
      missing[at] += late ? 0 : 1;
      if (absent) someone_says_absent[at] = true;
      if (required) incomplete[at] = true;
    }
  }
  const auto is_gap = [&](EventNumber event) {
    const auto at = static_cast<std::size_t>(event - assembly.range.first);
    return missing[at] == system_.sources.size() && someone_says_absent[at];
  };
  for (EventNumber event = assembly.range.first; event < assembly.range.end; ++event) {
    if (!is_gap(event)) {
      assembly.incomplete +=
          incomplete[static_cast<std::size_t>(event - assembly.range.first)] ? 1U : 0U;
    } else if (!assembly.gaps.empty() && assembly.gaps.back().end == event) {
      ++assembly.gaps.back().end;
    } else {
      assembly.gaps.push_back({event, event + 1});
    }
  }
  if (assembly.gaps.empty()) return;
  const auto runs = std::exchange(assembly.missing, {});
  for (const auto& run : runs) {
    for (EventNumber event = run.first; event < run.first + run.count; ++event) {
      if (is_gap(event)) continue;
      add_missing(assembly, run.source, {event, event + 1},
                  static_cast<storage::MissingReason>(run.reason));
    }
  }
}

void BuilderUnit::submit_decided() {
  while (!decided_.empty()) {
    Assembly& assembly = *decided_.front();
    if (sink_->submit(assembly.batch) == storage::SubmitOutcome::busy) return;
    decided_.pop_front();
  }
}

void BuilderUnit::on_commit(std::uint64_t ticket) {
  const auto found = assemblies_.find(ticket);
  FANIN_ASSERT(found != assemblies_.end() && found->second->decided);
  report(*found->second);
  release(*found->second);
}

// Says what was built; long lists of exceptions go ahead in messages of their own.
void BuilderUnit::report(const Assembly& assembly) {
  std::span missing{assembly.missing};
  std::span bad{assembly.bad};
  std::span gaps{assembly.gaps};
  wire::Built built;
  built.first = assembly.range.first;
  built.events = static_cast<std::uint32_t>(assembly.range.count());
  built.attempt = assembly.attempt;
  built.bytes = assembly.bytes;
  built.incomplete = assembly.incomplete;
  const std::size_t records = control_->room_max() / sizeof(wire::MissingRun) / 3;
  do {
    const auto some_missing = missing.first(std::min(missing.size(), records));
    const auto some_bad = bad.first(std::min(bad.size(), records));
    const auto some_gaps = gaps.first(std::min(gaps.size(), records));
    missing = missing.subspan(some_missing.size());
    bad = bad.subspan(some_bad.size());
    gaps = gaps.subspan(some_gaps.size());
    built.missing_runs = static_cast<std::uint32_t>(some_missing.size());
    built.bad = static_cast<std::uint32_t>(some_bad.size());
    built.gaps = static_cast<std::uint32_t>(some_gaps.size());
    built.more = missing.empty() && bad.empty() && gaps.empty() ? 0 : 1;
    control_->send(built, some_missing, some_bad, some_gaps);
  } while (built.more != 0);
}

// Time that stands still while this node or its storage has no buffer: a slow disk makes no event
// incomplete.
Duration BuilderUnit::fair_clock() {
  const Time now = environment_.loop->now();
  const bool stalled = !decided_.empty() || options_.receive_pool->available() == 0;
  if (stalled && stalled_since_ == never) stalled_since_ = now;
  if (!stalled && stalled_since_ != never) {
    stalled_ += now - stalled_since_;
    stalled_since_ = never;
  }
  return (stalled_since_ == never ? now : stalled_since_).time_since_epoch() - stalled_;
}

void BuilderUnit::check_deadlines() {
  const Duration now = fair_clock();
  while (!due_.empty()) {
    const auto [due, first, attempt] = due_.front();
    const auto found = assemblies_.find(first);
    const bool open =
        found != assemblies_.end() && found->second->attempt == attempt && !found->second->decided;
    if (open && due > now) break;
    due_.pop_front();
    if (!open) continue;
    Assembly& assembly = *found->second;
    if (!assembly.assigned) { // late parts of a batch decided long ago, or of no batch at all
      counters_.late += assembly.batch.pieces.size();
      release(assembly);
      continue;
    }
    for (std::size_t source = 0; source < system_.sources.size(); ++source) {
      give_up_source(assembly, source, storage::MissingReason::deadline);
    }
    decide(assembly);
  }
  if (due_.empty()) {
    deadline_tick_.cancel();
  } else if (!deadline_tick_.active()) {
    const Duration wait = due_.front().due - now;
    deadline_tick_.start(*environment_.loop,
                         environment_.loop->now() +
                             std::max<Duration>(wait, std::chrono::microseconds{50}));
  }
}

bool BuilderUnit::poll() {
  std::erase_if(old_sinks_, [this](const auto& sink) {
    if (!sink->finished()) return false;
    environment_.loop->remove(*sink);
    return true;
  });
  if (incarnation_ != 0) {
    submit_decided();
    check_deadlines();
    for (auto& readout : readouts_) {
      if (!readout.requests) continue;
      readout.requests.flush();
      if (readout.requests.failed()) readout.requests.link().close(true);
    }
    if (failure_) {
      end(std::unexpected(*failure_));
      return false;
    }
    if (finishing_ && sink_->finished()) {
      send_status(true);
      control_->flush();
      end({});
      return false;
    }
  }
  if (control_) control_->flush();
  return false;
}

} // namespace fanin::builder
