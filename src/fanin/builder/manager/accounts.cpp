#include "fanin/builder/manager/accounts.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "fanin/base/assert.hpp"
#include "fanin/source/fragment_queue.hpp"

namespace fanin::builder {

namespace {
constexpr std::size_t incomplete_listed = 1000;
constexpr std::size_t gaps_listed = 1000;
constexpr std::uint64_t latency_samples = 64; // per batch at most

// Joins a run of numbers to its neighbours in `list`, which is in the order of group(run) and
// numbers(run); where it has none, it is added if there are fewer than `most`.
template <class Run, class Group, class Numbers>
void add_run(std::vector<Run>& list, const Run& run, std::size_t most, Group group,
             Numbers numbers) {
  const auto joins = [&](auto at, EventNumber end) {
    return at != list.end() && group(*at) == group(run) && std::invoke(numbers, *at).first <= end;
  };
  const EventRange added = std::invoke(numbers, run);
  const auto at =
      std::ranges::lower_bound(list, std::pair{group(run), added.first}, {}, [&](const Run& one) {
        return std::pair{group(one), std::invoke(numbers, one).end};
      });
  if (!joins(at, added.end)) {
    if (list.size() < most) list.insert(at, run);
    return;
  }
  EventRange& whole = std::invoke(numbers, *at);
  whole.first = std::min(whole.first, added.first);
  whole.end = std::max(whole.end, added.end);
  const auto next = std::next(at);
  if (!joins(next, whole.end)) return;
  whole.end = std::max(whole.end, std::invoke(numbers, *next).end);
  list.erase(next);
}
} // namespace

SourceLedger& SourceLedger::operator+=(const SourceLedger& other) {
  read += other.read;
  built += other.built;
  late += other.late;
  dropped += other.dropped;
  lost += other.lost;
  return *this;
}

std::map<std::string, std::uint64_t> SourceResult::dropped_by_reason() const {
  std::map<std::string, std::uint64_t> reasons;
  for (std::size_t i = 0; i < dropped.size(); ++i) {
    const auto reason = static_cast<wire::DropReason>(i);
    if (dropped[i] != 0 && !wire::counts_as_late(reason)) reasons[wire::name(reason)] = dropped[i];
  }
  if (not_fitting != 0) reasons["not_fitting"] = not_fitting;
  return reasons;
}

Accounts::Accounts(const System& system, const SourceIndex& sources)
    : system_(system),
      sources_(sources),
      readouts_(system.readout_units.size()),
      builders_(system.builder_units.size()),
      missing_(system.sources.size()),
      in_doubt_(system.sources.size()) {
  for (const std::string& slice : system.slices) summary_.slices.push_back({.name = slice});
}

void Accounts::readout_up(NodeId node) {
  const auto [first, last] = system_.sources_of(node);
  Readout& readout = readouts_[node];
  readout.ledgers.emplace_back(last - first);
  readout.dropped.emplace_back(last - first, std::vector<std::uint64_t>(wire::drop_reasons));
  readout.counters = {};
}

void Accounts::read(NodeId node, std::uint64_t fragments) {
  for (SourceLedger& ledger : readouts_[node].ledgers.back()) ledger.read += fragments;
}

void Accounts::absent(NodeId node, std::size_t local, std::uint64_t fragments) {
  SourceLedger& ledger = readouts_[node].ledgers.back()[local];
  FANIN_ASSERT(fragments <= ledger.read);
  ledger.read -= fragments;
}

void Accounts::take_back(NodeId node) {
  for (SourceLedger& ledger : readouts_[node].ledgers.back()) ledger.read = 0;
}

bool Accounts::count_dropped(NodeId node, std::span<const wire::SourceCounters> sources) {
  auto& dropped = readouts_[node].dropped.back();
  if (sources.size() > dropped.size()) return false;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    std::ranges::copy(sources[i].dropped, dropped[i].begin());
  }
  return true;
}

bool Accounts::add_file(NodeId builder, const std::string& name) {
  auto& known = builders_[builder].files;
  if (std::ranges::find(known, name) != known.end()) return false;
  known.push_back(name);
  summary_.files.push_back(name);
  return true;
}

void Accounts::fail(std::string why) {
  if (summary_.error.empty()) summary_.error = std::move(why);
}

void Accounts::gap(EventRange gap) {
  summary_.gaps += gap.count();
  const auto all_alike = [](const EventRange&) { return 0; };
  add_run(summary_.gap_list, gap, gaps_listed, all_alike, std::identity{});
}

void Accounts::built(const Batch& batch, const wire::Built& built,
                     std::span<const Incarnation> members, Time now, const Trigger& trigger) {
  last_commit_ = now;
  for (const auto& one : batch.gaps) {
    if (one.first >= batch.range.first) gap({one.first, one.end}); // before it: known already
  }
  const std::uint64_t events = wire::events_of(batch.range, batch.gaps);
  count_fragments(batch, events, members);
  list_incomplete(batch);
  std::vector<EventNumber> bad;
  for (const auto& fragment : batch.bad) {
    const std::size_t source = sources_.find(fragment.source);
    if ((fragment.flags & wire::fragment_in_doubt) != 0 && source != System::npos)
      ++in_doubt_[source];
    if (fragment.flags != wire::fragment_in_doubt) bad.push_back(fragment.event);
  }
  std::ranges::sort(bad);
  const auto repeated = std::ranges::unique(bad);
  summary_.events_bad += bad.size() - repeated.size();
  summary_.events_built += events;
  summary_.events_incomplete += built.incomplete;
  summary_.events_rejected += built.rejected;
  summary_.events_undecided += built.undecided;
  summary_.events_undelivered += built.undelivered;
  summary_.bytes_built += built.bytes;
  if (!summary_.slices.empty()) {
    SliceResult& slice =
        summary_.slices[batch.range.first / system_.batch_events % summary_.slices.size()];
    slice.events += events;
    slice.undelivered += built.undelivered;
  }
  builders_[batch.builder].events += events;
  if (trigger.enabled()) {
    const std::uint64_t step = (batch.range.count() + latency_samples - 1) / latency_samples;
    for (EventNumber event = batch.range.first; event < batch.range.end; event += step) {
      summary_.latency.add(now - trigger.time_of(event), std::min(step, batch.range.end - event));
    }
  }
}

void Accounts::list_incomplete(const Batch& batch) {
  for (const auto& run : batch.missing) {
    const bool within = run.lacks_member(); // a required one
    if (!within && !system_.sources[sources_.find(run.source)].required) continue;
    const storage::MissingFragment missing{{run.first, run.first + run.count},
                                           within ? run.member : run.source,
                                           static_cast<wire::MissingReason>(run.reason)};
    const auto group = [](const auto& one) { return std::pair{one.source, one.reason}; };
    add_run(summary_.incomplete_list, missing, incomplete_listed, group,
            &storage::MissingFragment::events);
  }
}

// What was announced and is missing is lost with its readout unit: it stays unaccounted until the
// end. A super-fragment that does not fit is dropped; one that lacks a member is built.
void Accounts::count_fragments(const Batch& batch, std::uint64_t events,
                               std::span<const Incarnation> members) {
  missing_of_.assign(system_.sources.size(), 0);
  not_fitting_of_.assign(system_.sources.size(), 0);
  for (const auto& run : batch.missing) {
    if (run.lacks_member()) continue;
    const std::size_t source = sources_.find(run.source);
    missing_of_[source] += run.count;
    if (run.does_not_fit()) not_fitting_of_[source] += run.count;
    if (run.reason < wire::missing_reasons) missing_[source][run.reason] += run.count;
  }
  for (std::size_t node = 0; node < readouts_.size(); ++node) {
    if (members[node] == 0) continue;
    std::size_t source = system_.sources_of(static_cast<NodeId>(node)).first;
    for (SourceLedger& ledger : readouts_[node].ledgers[members[node] - 1]) {
      ledger.built += events - std::min(events, missing_of_[source]); // a builder unit may lie
      ledger.dropped += std::min(events, not_fitting_of_[source]);
      ++source;
    }
  }
}

const RunSummary& Accounts::summarise(const RunState& run) {
  summary_.run = system_.run;
  summary_.duration = started_at_ == never ? Duration{0} : last_commit_ - started_at_;
  summary_.fragments = {};
  summary_.sources.clear();
  summary_.balanced = true;
  summary_.open_events = run.announced_end - std::min(run.announced_end, run.first_event);
  summary_.open_events -= std::min(summary_.open_events, summary_.events_built + summary_.gaps);
  for (std::size_t source = 0; source < system_.sources.size(); ++source) {
    summary_.sources.push_back(result_of(source, run));
    summary_.fragments += summary_.sources.back().ledger;
  }
  summarise_nodes(run);
  return summary_;
}

SourceResult Accounts::result_of(std::size_t source, const RunState& run) {
  const SourceInfo& info = system_.sources[source];
  const Readout& readout = readouts_[info.readout_unit];
  const std::size_t local = source - system_.sources_of(info.readout_unit).first;
  const bool finished = run.readouts.presence(info.readout_unit) == Presence::finished;
  SourceResult result{info, {}, std::vector<std::uint64_t>(wire::drop_reasons), missing_[source]};
  result.in_doubt = in_doubt_[source];
  for (std::size_t i = 0; i < readout.ledgers.size(); ++i) {
    SourceLedger ledger = readout.ledgers[i][local];
    const bool may_lose = summary_.forced || i + 1 < readout.ledgers.size() || !finished;
    result.not_fitting += ledger.dropped;
    const std::uint64_t accounted = ledger.built + ledger.late + ledger.dropped;
    if (accounted > ledger.read) {
      summary_.balanced = false;
    } else if (may_lose && run.ended) {
      ledger.lost = ledger.read - accounted;
    } else if (accounted != ledger.read) {
      summary_.balanced = false;
    }
    for (std::size_t reason = 0; reason < result.dropped.size(); ++reason) {
      const std::uint64_t count = readout.dropped[i][local][reason];
      result.dropped[reason] += count;
      ledger.read += count;
      const bool late = wire::counts_as_late(static_cast<wire::DropReason>(reason));
      (late ? ledger.late : ledger.dropped) += count;
    }
    result.ledger += ledger;
  }
  return result;
}

void Accounts::summarise_nodes(const RunState& run) {
  summary_.nodes.clear();
  const auto add = [this](const NodeList& list, NodeId node, const std::string& name,
                          const char* role, std::uint64_t events,
                          const wire::NodeCounters& counters) {
    const Presence presence = list.presence(node);
    summary_.nodes.push_back(
        {.name = name,
         .role = role,
         .incarnations = list.incarnation(node),
         .events = events,
         .bytes = counters.bytes,
         .stored_bytes = counters.stored_bytes,
         .messages = counters.messages,
         .stale = counters.stale,
         .late = counters.late,
         .throttled_us = counters.throttled_us,
         .pages_in_use = counters.pages_in_use,
         .pages = counters.pages,
         .alive = presence == Presence::present || presence == Presence::finished});
  };
  for (std::size_t i = 0; i < readouts_.size(); ++i) {
    add(run.readouts, static_cast<NodeId>(i), system_.readout_units[i], "readout", 0,
        readouts_[i].counters);
  }
  for (std::size_t i = 0; i < builders_.size(); ++i) {
    add(run.builders, static_cast<NodeId>(i), system_.builder_units[i], "builder",
        builders_[i].events, builders_[i].counters);
  }
}

} // namespace fanin::builder
