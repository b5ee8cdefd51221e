// When a batch is decided, what is missing in it, and how it gets to storage.
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
  assembly.said = {};
  assembly.open_sources = static_cast<std::uint32_t>(system_.sources.size());
  assembly.progress.assign(system_.sources.size(), Progress{.next = range.first});
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
  progress = {.next = assembly.range.end};
  --assembly.open_sources;
}

// Sources whose readout unit is dead, for good and with nothing left on its connection.
void BuilderUnit::give_up_lost(Assembly& assembly) {
  if (!assembly.assigned || assembly.decided) return;
  for (std::size_t node = 0; node < readouts_.size(); ++node) {
    const Readout& readout = readouts_[node];
    // Of a batch that was assigned without it nothing will come, even if its connection is open.
    const bool as_assigned = readout.member_since <= assembly.epoch;
    const bool drained = readout.connected == 0 || readout.connected == readout.member;
    if (as_assigned ? readout.member != 0 : !drained) continue;
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
  received_.push_back({assembly.range.first, assembly.attempt});
  decided_.push_back(&assembly);
  submit_decided();
}

// Numbers that no source has are gaps, not events, unless a trigger gave them; what is missing for
// the others makes them incomplete if the source is required.
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
    return system_.trigger_rate_hz <= 0 && missing[at] == system_.sources.size() &&
           someone_says_absent[at];
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
  committed_.push_back(found->second);
}

// Storage may be faster than the event manager reads, and lists of exceptions are long: what there
// is no room for is said later.
void BuilderUnit::report_progress() {
  while (!received_.empty() && control_->roomy()) {
    control_->send(received_.front());
    received_.pop_front();
  }
  while (!committed_.empty() && say_files() && report(*committed_.front())) {
    release(*committed_.front());
    committed_.pop_front();
  }
}

// Says what was built, in several messages where there are many exceptions. False: not all of it.
bool BuilderUnit::report(Assembly& assembly) {
  wire::Built built;
  built.first = assembly.range.first;
  built.events = static_cast<std::uint32_t>(assembly.range.count());
  built.attempt = assembly.attempt;
  built.bytes = assembly.bytes;
  built.incomplete = assembly.incomplete;
  const std::size_t records = control_->room_max() / sizeof(wire::MissingRun) / 3;
  const auto some = [records](const auto& list, std::size_t said) {
    return std::span{list}.subspan(said, std::min(list.size() - said, records));
  };
  do {
    Assembly::Said& said = assembly.said;
    const auto missing = some(assembly.missing, said.missing);
    const auto bad = some(assembly.bad, said.bad);
    const auto gaps = some(assembly.gaps, said.gaps);
    if (!control_->roomy(missing.size_bytes() + bad.size_bytes() + gaps.size_bytes())) return false;
    said.missing += missing.size();
    said.bad += bad.size();
    said.gaps += gaps.size();
    built.missing_runs = static_cast<std::uint32_t>(missing.size());
    built.bad = static_cast<std::uint32_t>(bad.size());
    built.gaps = static_cast<std::uint32_t>(gaps.size());
    built.more = said.missing < assembly.missing.size() || said.bad < assembly.bad.size() ||
                         said.gaps < assembly.gaps.size()
                     ? 1
                     : 0;
    control_->send(built, missing, bad, gaps);
  } while (built.more != 0);
  return true;
}

// Time that stands still while this node or its storage has no buffer, and while this node does not
// run (SIGSTOP, a paused host): what has come meanwhile is in its sockets. So neither a slow disk
// nor a pause makes an event incomplete.
Duration BuilderUnit::fair_clock() {
  const Time now = environment_.loop->now();
  if (looked_ != never) {
    const bool slept = now - looked_ > system_.event_deadline / 2; // it wakes more often than that
    if (slept && stalled_since_ == never) stalled_ += now - looked_;
    looked_ = now;
  }
  const bool stalled = !decided_.empty() || options_.receive_pool->available() == 0;
  if (stalled && stalled_since_ == never) stalled_since_ = now;
  if (!stalled && stalled_since_ != never) {
    stalled_ += now - stalled_since_;
    stalled_since_ = never;
  }
  return (stalled_since_ == never ? now : stalled_since_).time_since_epoch() - stalled_;
}

void BuilderUnit::set_deadline(Assembly& assembly) {
  assembly.due = fair_clock() + system_.event_deadline;
  due_.push_back({assembly.due, assembly.range.first, assembly.attempt});
}

void BuilderUnit::check_deadlines() {
  const Duration now = fair_clock();
  while (!due_.empty()) {
    const auto [due, first, attempt] = due_.front();
    const auto found = assemblies_.find(first);
    const bool open = found != assemblies_.end() && found->second->attempt == attempt &&
                      found->second->due == due && !found->second->decided;
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
    looked_ = never;
    return;
  }
  looked_ = environment_.loop->now();
  if (deadline_tick_.active()) return;
  const Duration wait = std::clamp<Duration>(due_.front().due - now, std::chrono::microseconds{50},
                                             system_.event_deadline / 4);
  deadline_tick_.start(*environment_.loop, looked_ + wait);
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
    for (auto& readout : readouts_) send_requests(readout);
    if (!failure_) {
      report_progress();
      finish_if_written();
    } else if (say_failed()) {
      end(std::unexpected(*failure_));
      return false;
    }
  }
  if (control_) control_->flush();
  return false;
}

} // namespace fanin::builder
