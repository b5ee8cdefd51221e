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
  assembly.assigned = assembly.decided = assembly.spoiled = assembly.heard = false;
  ++early_;
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
  if (!assembly.assigned) --early_;
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

void BuilderUnit::give_up_source(Assembly& assembly, std::size_t source) {
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
  add_missing(assembly, system_.sources[source].id, {progress.next, assembly.range.end},
              storage::MissingReason::absent);
  progress = {.next = assembly.range.end};
  --assembly.open_sources;
}

// Sources whose readout unit is dead, for good and with nothing left on its connection. What it had
// is lost, as the event manager has said; of the rest there was nothing.
void BuilderUnit::give_up_lost(Assembly& assembly) {
  if (!assembly.assigned || assembly.decided) return;
  for (std::size_t node = 0; node < readouts_.size(); ++node) {
    const Readout& readout = readouts_[node];
    // Of a batch that was assigned without it nothing will come, even if its connection is open.
    const bool as_assigned = readout.member_since <= assembly.epoch;
    const bool drained = readout.connected == 0 || readout.connected == readout.member;
    if (as_assigned ? readout.member != 0 : !drained) continue;
    const auto [first, last] = system_.sources_of(static_cast<NodeId>(node));
    for (std::size_t source = first; source < last; ++source) give_up_source(assembly, source);
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
  if (!assembly.missing.empty() || !assembly.gaps.empty()) sort_out_missing(assembly);
  if (!assembly.bad.empty()) {
    environment_.log(
        LogLevel::error,
        fmt::format("{} damaged fragments in events {} to {}, the first of source {:#x}",
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

// Of numbers that no source has nothing is missing. What a readout unit had before it died was
// lost, whatever it says when it is here again. What is missing makes events incomplete if the
// source is required.
void BuilderUnit::sort_out_missing(Assembly& assembly) {
  const EventNumber first = assembly.range.first;
  const auto count = static_cast<std::size_t>(assembly.range.count());
  std::vector<std::uint32_t> missing(count);
  std::vector<bool> incomplete(count);
  std::vector<bool> gap(count);
  const auto runs = std::exchange(assembly.missing, {});
  for (const auto& run : runs) {
    for (std::size_t i = 0; i < run.count; ++i) ++missing[run.first - first + i];
  }
  std::erase_if(assembly.gaps, [&](const wire::Gap& one) {
    for (EventNumber event = std::max(one.first, first); event < one.end; ++event) {
      if (missing[event - first] != system_.sources.size()) return true; // somebody is wrong
    }
    for (EventNumber event = std::max(one.first, first); event < one.end; ++event) {
      gap[event - first] = true;
    }
    return false;
  });
  for (const auto& run : runs) {
    const bool required = system_.sources[sources_.find(run.source)].required;
    for (EventNumber event = run.first; event < run.first + run.count; ++event) {
      if (gap[event - first]) continue;
      const bool lost = std::ranges::any_of(assembly.lost, [&](const wire::MissingRun& one) {
        return one.source == run.source && event >= one.first && event - one.first < one.count;
      });
      add_missing(assembly, run.source, {event, event + 1},
                  lost ? storage::MissingReason::lost
                       : static_cast<storage::MissingReason>(run.reason));
      if (required) incomplete[event - first] = true;
    }
  }
  assembly.incomplete = static_cast<std::uint32_t>(std::ranges::count(incomplete, true));
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
  say_reached(); // before what follows from it
  while (!handed_back_.empty() && control_->roomy()) {
    control_->send(handed_back_.front());
    handed_back_.pop_front();
  }
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
    if (!control_->roomy(missing.size_bytes() + bad.size_bytes())) return false;
    said.missing += missing.size();
    said.bad += bad.size();
    built.missing_runs = static_cast<std::uint32_t>(missing.size());
    built.bad = static_cast<std::uint32_t>(bad.size());
    built.more = said.missing < assembly.missing.size() || said.bad < assembly.bad.size() ? 1 : 0;
    control_->send(built, missing, bad);
  } while (built.more != 0);
  return true;
}

// Stands still also while this node or its storage has no buffer: a slow disk is nobody else's
// fault.
Duration BuilderUnit::fair_now() {
  const bool held_up = !decided_.empty() || options_.receive_pool->available() == 0;
  return clock_.look(environment_.loop->now(), held_up);
}

// Looks now and then whether blocks that are owed still come.
void BuilderUnit::watch_paths() {
  if (assemblies_.empty()) {
    path_tick_.cancel();
    clock_.rest();
    return;
  }
  const Duration now = fair_now();
  if (now >= next_check_) {
    next_check_ = now + path_timeout_ / 4;
    check_paths(now);
  }
  if (!path_tick_.active()) {
    path_tick_.start(*environment_.loop, environment_.loop->now() + path_timeout_ / 4);
  }
}

// A readout unit that owes blocks and completes none, of any batch, has no way to this node: what
// it owes is given back, to be built elsewhere. A batch of which nothing comes although others get
// on is given back alone.
void BuilderUnit::check_paths(Duration now) {
  std::vector<bool> silent(readouts_.size());
  for (std::size_t node = 0; node < readouts_.size(); ++node) {
    Readout& readout = readouts_[node];
    if (std::exchange(readout.heard, false)) readout.heard_at = now;
    silent[node] = now - readout.heard_at >= path_timeout_ && readout.member != 0;
  }
  std::vector<bool> dead(readouts_.size());
  std::vector<Assembly*> stuck;
  for (auto& [first, assembly] : assemblies_) {
    if (assembly->decided) continue;
    if (std::exchange(assembly->heard, false)) assembly->heard_at = now;
    if (now - assembly->heard_at >= system_.dead_after + path_timeout_) stuck.push_back(assembly);
    if (!assembly->assigned || now - assembly->assigned_at < path_timeout_) continue;
    for (std::size_t node = 0; node < readouts_.size(); ++node) {
      if (silent[node] && !dead[node]) dead[node] = owes(*assembly, node);
    }
  }
  for (Assembly* assembly : stuck) {
    if (assembly->assigned) {
      hand_back(*assembly, std::nullopt);
    } else {
      throw_away(*assembly); // of no batch, or of one that was decided long ago
    }
  }
  for (std::size_t node = 0; node < readouts_.size(); ++node) {
    if (dead[node]) give_back_path(node);
  }
}

bool BuilderUnit::owes(const Assembly& assembly, std::size_t node) const {
  const auto [first, last] = system_.sources_of(static_cast<NodeId>(node));
  for (std::size_t source = first; source < last; ++source) {
    if (assembly.progress[source].next != assembly.range.end) return true;
  }
  return false;
}

void BuilderUnit::give_back_path(std::size_t node) {
  Readout& readout = readouts_[node];
  std::vector<Assembly*> owed;
  std::uint64_t events = 0;
  for (auto& [first, assembly] : assemblies_) {
    if (!assembly->assigned || assembly->decided || !owes(*assembly, node)) continue;
    owed.push_back(assembly);
    events += assembly->range.count();
  }
  environment_.log(LogLevel::warning,
                   fmt::format("nothing comes from readout unit '{}': {} events are given back, to "
                               "be built elsewhere",
                               system_.readout_units[node], events));
  disconnect(readout);
  readout.requests.link().close(true);
  readout.requests = {};
  readout.requests_to = 0;
  readout.to_request.clear();
  for (Assembly* assembly : owed) hand_back(*assembly, static_cast<NodeId>(node));
}

void BuilderUnit::hand_back(Assembly& assembly, std::optional<NodeId> blamed) {
  handed_back_.push_back(
      {assembly.range.first, assembly.attempt, blamed.value_or(0), blamed ? 1U : 0U});
  recently_decided_.note(assembly.range.first, assembly.attempt);
  release(assembly);
}

// Blocks that came early; if their batch is assigned after all, it is handed back.
void BuilderUnit::throw_away(Assembly& assembly) {
  counters_.late += assembly.batch.pieces.size();
  recently_decided_.note(assembly.range.first, assembly.attempt);
  release(assembly);
}

// Which readout units reach this node, as far as that has changed.
void BuilderUnit::say_reached() {
  for (std::size_t node = 0; node < readouts_.size(); ++node) {
    Readout& readout = readouts_[node];
    const bool yes = readout.connected != 0 && (system_.protocol == Protocol::push ||
                                                readout.requests_to == readout.connected);
    const bool same = yes ? readout.said.yes != 0 && readout.said.connection == readout.connection
                          : readout.said.yes == 0;
    if (same || !control_->roomy()) continue;
    wire::Reached& said = readout.said;
    if (yes) said = {static_cast<NodeId>(node), 1, readout.connected, readout.connection, 0};
    said.yes = yes ? 1 : 0;
    control_->send(said);
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
    watch_paths();
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
