// What became of every fragment.
#include "fanin/builder/event_manager.hpp"

#include <algorithm>
#include <numeric>

#include "fanin/builder/printable.hpp"
#include "fanin/source/fragment_queue.hpp"
#include "fanin/storage/event_sink.hpp"

namespace fanin::builder {

namespace {
constexpr std::size_t incomplete_listed = 1000;
constexpr std::uint64_t latency_samples = 64; // per batch at most
} // namespace

SourceLedger& SourceLedger::operator+=(const SourceLedger& other) {
  read += other.read;
  built += other.built;
  late += other.late;
  dropped += other.dropped;
  lost += other.lost;
  return *this;
}

bool EventManager::on_counters(Peer& peer, const wire::NodeCounters& counters,
                               wire::MessageReader& reader) {
  const auto sources = reader.records<wire::SourceCounters>(counters.sources);
  const auto text = reader.text(counters.text_size);
  if (!reader.ok()) return false;
  if (peer.role == wire::Role::readout_unit) {
    Readout& readout = readouts_[peer.node];
    readout.counters = counters;
    readout.waits_for = printable(text);
    readout.held_back = counters.held_back != 0;
    if (readout.held_back) readout.announced_at = fair_; // it would have more
    auto& dropped = readout.dropped.back();
    if (sources.size() > dropped.size()) return false;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      std::ranges::copy(sources[i].dropped, dropped[i].begin());
    }
    return true;
  }
  Builder& builder = builders_[peer.node];
  builder.counters = counters;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string_view::npos) break;
    const std::string file{text.substr(at, end - at)};
    at = end + 1;
    if (std::ranges::find(builder.files, file) != builder.files.end()) continue;
    builder.files.push_back(file);
    summary_.files.push_back(file);
    if (options_.recorder != nullptr) {
      options_.recorder->file(peer.node, builder.incarnation, file);
    }
  }
  return true;
}

bool EventManager::on_built(Builder& builder, NodeId node, wire::MessageReader& reader) {
  wire::Built built;
  if (!reader.read(built)) return false;
  const auto missing = reader.records<wire::MissingRun>(built.missing_runs);
  const auto bad = reader.records<wire::BadFragment>(built.bad);
  if (!reader.ok()) return false;
  const auto found = batches_.find(built.first);
  if (found == batches_.end()) return true; // of an attempt that was given up
  Batch& batch = found->second;
  if (batch.range != built.range() || batch.attempt != built.attempt || batch.builder != node ||
      batch.builder_incarnation != builder.incarnation) {
    return true;
  }
  const auto inside = [&](EventNumber first, std::uint64_t count) {
    return first >= batch.range.first && first <= batch.range.end &&
           count <= batch.range.end - first;
  };
  for (const auto& run : missing) {
    if (!inside(run.first, run.count) || sources_.find(run.source) == System::npos) return false;
  }
  batch.missing.insert(batch.missing.end(), missing.begin(), missing.end());
  batch.bad.insert(batch.bad.end(), bad.begin(), bad.end());
  if (built.more != 0) return true;

  account(batch, built);
  if (batch.attempt > 0 && options_.recorder != nullptr) {
    options_.recorder->winner(batch.range, batch.attempt, node, builder.incarnation);
  }
  builder.events += batch.range.count();
  for (const auto& gap : batch.gaps) {
    if (gap.first >= batch.range.first) builder.events -= gap.end - gap.first;
  }
  release(builder, batch);
  tell_readouts(wire::Clear{batch.range.first, batch.range.end});
  leave_epoch(batch.epoch);
  batches_.erase(found);
  return true;
}

void EventManager::account(const Batch& batch, const wire::Built& built) {
  const Time now = environment_.loop->now();
  last_commit_ = now;
  std::uint64_t gap_events = 0;
  for (const auto& gap : batch.gaps) {
    if (gap.first < batch.range.first) continue; // before it: known already
    gap_events += gap.end - gap.first;
    add_gap({gap.first, gap.end});
  }
  account_sources(batch, batch.range.count() - gap_events);
  for (const auto& run : batch.missing) {
    const SourceInfo& source = system_.sources[sources_.find(run.source)];
    if (!source.required || summary_.incomplete_list.size() >= incomplete_listed) continue;
    summary_.incomplete_list.push_back({{run.first, run.first + run.count},
                                        run.source,
                                        static_cast<storage::MissingReason>(run.reason)});
  }
  std::vector<EventNumber> bad;
  for (const auto& fragment : batch.bad) bad.push_back(fragment.event);
  std::ranges::sort(bad);
  const auto repeated = std::ranges::unique(bad);
  summary_.events_bad += bad.size() - repeated.size();
  summary_.events_built += batch.range.count() - gap_events;
  summary_.events_incomplete += built.incomplete;
  summary_.bytes_built += built.bytes;
  if (system_.trigger_rate_hz > 0) {
    const std::uint64_t step = (batch.range.count() + latency_samples - 1) / latency_samples;
    for (EventNumber event = batch.range.first; event < batch.range.end; event += step) {
      summary_.latency.add(now - trigger_time(event), std::min(step, batch.range.end - event));
    }
  }
}

// What was announced and is missing is lost with its readout unit: it stays unaccounted until the
// end.
void EventManager::account_sources(const Batch& batch, std::uint64_t events) {
  missing_of_.assign(system_.sources.size(), 0);
  const auto& members = members_.at(batch.epoch).readouts;
  for (const auto& run : batch.missing) {
    const std::size_t source = sources_.find(run.source);
    missing_of_[source] += run.count;
    if (run.reason < storage::missing_reasons) missing_[source][run.reason] += run.count;
  }
  std::size_t source = 0;
  for (std::size_t node = 0; node < readouts_.size(); ++node) {
    const std::size_t count = readouts_[node].sources;
    if (members[node] != 0) {
      if (members[node] == readouts_[node].incarnation) readouts_[node].failing_since = never;
      auto& ledger = readouts_[node].ledgers[members[node] - 1];
      for (std::size_t i = 0; i < count; ++i) ledger[i].built += events - missing_of_[source + i];
    }
    source += count;
  }
}

// Events below are built.
EventNumber EventManager::decided() const {
  return batches_.empty() ? frontier_ : batches_.begin()->first;
}

// One batch less was assigned with the members of that time.
void EventManager::leave_epoch(std::uint64_t epoch) {
  --members_.at(epoch).batches;
  while (members_.begin()->first < epoch_ && members_.begin()->second.batches == 0) {
    members_.erase(members_.begin());
  }
}

const RunSummary& EventManager::summary() {
  summary_.run = system_.run;
  summary_.duration = started_at_ == never ? Duration{0} : last_commit_ - started_at_;
  summary_.fragments = {};
  summary_.sources.clear();
  summary_.balanced = true;
  summary_.open_events = horizon_ - std::min(horizon_, first_event_);
  summary_.open_events -= std::min(summary_.open_events, summary_.events_built + summary_.gaps);
  for (std::size_t source = 0; source < system_.sources.size(); ++source) {
    const SourceInfo& info = system_.sources[source];
    const Readout& readout = readouts_[info.readout_unit];
    const std::size_t local = source - system_.sources_of(info.readout_unit).first;
    SourceResult result{
        info, {}, std::vector<std::uint64_t>(source::drop_reasons), missing_[source]};
    for (std::size_t i = 0; i < readout.ledgers.size(); ++i) {
      SourceLedger ledger = readout.ledgers[i][local];
      const bool may_lose = summary_.forced || i + 1 < readout.ledgers.size() || !readout.finished;
      const std::uint64_t accounted = ledger.built + ledger.late;
      if (accounted > ledger.read) {
        summary_.balanced = false;
      } else if (may_lose && ended()) {
        ledger.lost = ledger.read - accounted;
      } else if (accounted != ledger.read) {
        summary_.balanced = false;
      }
      for (std::size_t reason = 0; reason < result.dropped.size(); ++reason) {
        const std::uint64_t count = readout.dropped[i][local][reason];
        result.dropped[reason] += count;
        ledger.read += count;
        const bool late = reason == static_cast<std::size_t>(source::DropReason::late);
        (late ? ledger.late : ledger.dropped) += count;
      }
      result.ledger += ledger;
    }
    summary_.fragments += result.ledger;
    summary_.sources.push_back(std::move(result));
  }
  summarise_nodes();
  return summary_;
}

void EventManager::summarise_nodes() {
  summary_.nodes.clear();
  const auto add = [this](const auto& node, const std::string& name, const char* role,
                          std::uint64_t events) {
    const wire::NodeCounters& counters = node.counters;
    summary_.nodes.push_back({.name = name,
                              .role = role,
                              .incarnations = node.starts,
                              .events = events,
                              .bytes = counters.bytes,
                              .stored_bytes = counters.stored_bytes,
                              .messages = counters.messages,
                              .stale = counters.stale,
                              .late = counters.late,
                              .throttled_us = counters.throttled_us,
                              .pages_in_use = counters.pages_in_use,
                              .pages = counters.pages,
                              .alive = node.peer != nullptr || node.finished});
  };
  for (std::size_t i = 0; i < readouts_.size(); ++i) {
    add(readouts_[i], system_.readout_units[i], "readout", 0);
  }
  for (std::size_t i = 0; i < builders_.size(); ++i) {
    add(builders_[i], system_.builder_units[i], "builder", builders_[i].events);
  }
}

void EventManager::end() {
  state_ = State::ended;
  trigger_tick_.cancel();
  alive_tick_.cancel();
  laggard_tick_.cancel();
  for (const auto& [first, batch] : batches_) summary_.events_lost += batch.range.count();
  if (horizon_ > frontier_ && frontier_known_) {
    const EventRange rest{frontier_, horizon_};
    summary_.events_lost += system_.trigger_rate_hz > 0 ? rest.count() : count_present(rest);
  }
  const RunSummary& result = summary();
  if (options_.recorder != nullptr) options_.recorder->summary(result);
  if (summary_.forced) {
    for (auto& readout : readouts_) {
      if (readout.peer) readout.peer->link.close(true);
    }
    for (auto& builder : builders_) {
      if (builder.peer) builder.peer->link.close(true);
    }
  }
  options_.on_end(result);
}

} // namespace fanin::builder
