// The conservation ledger: what became of every fragment, per source and incarnation of its readout
// unit. Computed from announcements and commits, never from a dead process's counters.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fanin/base/histogram.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/storage/event_sink.hpp"

namespace fanin::builder {

struct SourceLedger {
  std::uint64_t read = 0; // announced, or dropped before
  std::uint64_t built = 0; // in a committed event, complete or not
  std::uint64_t late = 0; // came after its event was decided
  std::uint64_t dropped = 0; // with a reason, before it was announced; or not fitting
  std::uint64_t lost = 0; // announced by a readout unit that died, or cut off by a forced stop

  SourceLedger& operator+=(const SourceLedger& other);
  [[nodiscard]] bool balanced() const { return read == built + late + dropped + lost; }
};

struct SourceResult {
  SourceInfo source;
  SourceLedger ledger;
  std::vector<std::uint64_t> dropped; // by wire::DropReason
  wire::MissingCounts missing{}; // built events without a fragment of it
  std::uint64_t in_doubt = 0; // of those built: its counter began again in mid-run
  // Super-fragments that builder units dropped: of another event, of other sources, or damaged.
  std::uint64_t not_fitting = 0;

  // What the ledger counts as dropped, by the name of the reason.
  [[nodiscard]] std::map<std::string, std::uint64_t> dropped_by_reason() const;
};

struct NodeResult {
  std::string name;
  std::string role; // "readout" or "builder"
  Incarnation incarnations = 0; // how often it started
  std::uint64_t events = 0; // builder unit: built
  std::uint64_t bytes = 0; // sent, or received
  std::uint64_t stored_bytes = 0;
  std::uint64_t messages = 0;
  std::uint64_t stale = 0;
  std::uint64_t late = 0;
  std::uint64_t throttled_us = 0;
  std::uint32_t pages_in_use = 0;
  std::uint32_t pages = 0;
  bool alive = false; // here, or was until it had finished
};

// What the first of two stages has built for a slice.
struct SliceResult {
  std::string name;
  std::uint64_t events = 0;
  std::uint64_t undelivered = 0; // of them
};

// The outcome of a run; also its state while it goes on.
struct RunSummary {
  RunNumber run = 0;
  Duration duration{}; // from the start of reading to the last commit
  std::uint64_t events_built = 0; // incomplete ones included
  std::uint64_t events_incomplete = 0;
  std::uint64_t events_rejected = 0; // of those built, by the filter
  std::uint64_t events_undecided = 0; // of those built, by any filter unit
  std::uint64_t events_undelivered = 0; // of those built: their slice did not get them
  std::uint64_t events_lost = 0; // announced or triggered, and not built when the run was cut off
  std::uint64_t events_bad = 0; // with a damaged fragment
  std::uint64_t bytes_built = 0; // payload
  std::uint64_t gaps = 0; // numbers that no source had
  std::vector<EventRange> gap_list; // the first ones
  // The first ones of required sources, by source, reason and number; neighbours are one.
  std::vector<storage::MissingFragment> incomplete_list;
  SourceLedger fragments; // sums over all sources
  std::vector<SourceResult> sources;
  std::vector<NodeResult> nodes;
  std::vector<SliceResult> slices; // of the first of two stages
  std::vector<std::string> files;
  Histogram latency; // from trigger to commit; empty without a trigger source
  std::uint64_t open_events = 0; // being built now
  bool balanced = false;
  bool forced = false; // stopped at once
  std::string error; // empty: ended in good order
};

} // namespace fanin::builder
