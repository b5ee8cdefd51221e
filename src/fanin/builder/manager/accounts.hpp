// The accounts of a run: the conservation ledger for each source and incarnation of its readout
// unit, what nodes have counted, and which events were built, are incomplete or are gaps.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/builder/ledger.hpp"
#include "fanin/builder/manager/batch_table.hpp"
#include "fanin/builder/manager/membership.hpp"
#include "fanin/builder/manager/trigger.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/wire/control.hpp"

namespace fanin::builder {

// Knows no connection. Sources of a readout unit are counted from 0 (`local`), in the order of
// System::sources_of().
class Accounts {
public:
  // Both must outlive it.
  Accounts(const System& system, const SourceIndex& sources);

  // A new incarnation.
  void readout_up(NodeId node);
  void builder_up(NodeId node) { builders_[node].files.clear(); }
  // Each source of this readout unit has announced so many further numbers.
  void read(NodeId node, std::uint64_t fragments);
  // So many of the numbers in read() have no fragment of this source.
  void absent(NodeId node, std::size_t local, std::uint64_t fragments);
  // What its incarnation has announced until now is taken back.
  void take_back(NodeId node);

  // A batch was built, with these readout units. `events`: without gaps.
  void built(const Batch& batch, const wire::Built& built, std::span<const Incarnation> members,
             Time now, const Trigger& trigger);
  // No source has these numbers.
  void gap(EventRange range);
  // Events that exist and will not be built.
  void lose(std::uint64_t events) { summary_.events_lost += events; }

  void count(NodeId readout, const wire::NodeCounters& counters) {
    readouts_[readout].counters = counters;
  }
  // False: there are more than it has sources.
  [[nodiscard]] bool count_dropped(NodeId readout, std::span<const wire::SourceCounters> sources);
  void count_builder(NodeId builder, const wire::NodeCounters& counters) {
    builders_[builder].counters = counters;
  }
  // A file of a builder unit. False: it is known.
  [[nodiscard]] bool add_file(NodeId builder, const std::string& name);

  // The run began, at the time at which sources were told to read.
  void begin(Time now) { started_at_ = last_commit_ = now; }
  // It ends at once; what is not built is lost.
  void force() { summary_.forced = true; }
  // Why it does not end in good order; only the first reason is kept.
  void fail(std::string why);
  [[nodiscard]] bool failed() const { return !summary_.error.empty(); }
  [[nodiscard]] const std::string& error() const { return summary_.error; }
  [[nodiscard]] bool forced() const { return summary_.forced; }

  struct RunState {
    EventNumber first_event = 0;
    EventNumber announced_end = 0; // events below exist, if they are no gaps
    bool ended = false;
    const NodeList& readouts;
    const NodeList& builders;
  };
  // As of now.
  [[nodiscard]] const RunSummary& summarise(const RunState& run);

private:
  struct Readout {
    std::vector<std::vector<SourceLedger>> ledgers; // by incarnation - 1, then source
    std::vector<std::vector<std::vector<std::uint64_t>>> dropped; // likewise, then reason
    wire::NodeCounters counters;
  };
  struct Builder {
    std::uint64_t events = 0; // built
    std::vector<std::string> files; // of the current incarnation
    wire::NodeCounters counters;
  };

  void count_fragments(const Batch& batch, std::uint64_t events,
                       std::span<const Incarnation> members);
  void list_incomplete(const Batch& batch);
  [[nodiscard]] SourceResult result_of(std::size_t source, const RunState& run);
  void summarise_nodes(const RunState& run);

  const System& system_;
  const SourceIndex& sources_;
  std::vector<Readout> readouts_;
  std::vector<Builder> builders_;
  std::vector<std::uint64_t> missing_of_; // by source, of one batch; reused
  std::vector<std::uint64_t> not_fitting_of_; // likewise
  std::vector<wire::MissingCounts> missing_; // by source, of all that was built
  std::vector<std::uint64_t> in_doubt_; // likewise
  Time started_at_ = never;
  Time last_commit_{};
  RunSummary summary_;
};

} // namespace fanin::builder
