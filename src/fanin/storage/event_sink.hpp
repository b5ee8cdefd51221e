/// \file
/// The interface to storage: a builder unit submits what it has built, and the sink reports later
/// that it is committed. The builder unit is given the sink, so that tests can use another one. A
/// plug-in's sink implements it, too (sink_registry.hpp, docs/plugins.md).
///
/// ```cpp
/// #include <fanin/executive/plugin.hpp>
///
/// using namespace fanin;
///
/// class NoSink final : public storage::EventSink { // takes all events, and stores nothing
///   storage::SubmitOutcome submit(storage::BuiltBatch& batch) override {
///     tickets_.push_back(batch.ticket);
///     batch.clear();
///     return storage::SubmitOutcome::accepted;
///   }
///   bool poll() override { // in each turn of the loop
///     const auto tickets = std::exchange(tickets_, {});
///     for (const std::uint64_t ticket : tickets) commit_({.ticket = ticket});
///     return !tickets.empty();
///   }
///   bool arm() override { return tickets_.empty(); } // whether the loop may sleep
///   void finish() override { finishing_ = true; }
///   bool finished() const override { return finishing_ && tickets_.empty(); }
///   std::uint64_t bytes_written() const override { return 0; }
///
///   std::vector<std::uint64_t> tickets_;
///   bool finishing_ = false;
/// };
///
/// FANIN_PLUGIN_ABI
///
/// extern "C" void fanin_register(executive::PluginRegistry& registry) {
///   using namespace storage;
///   registry.add_sink("none", [](const source::SourceSettings&) -> Result<SinkMaker> {
///     return [](const SinkRun&) -> Result<std::unique_ptr<EventSink>> {
///       return std::make_unique<NoSink>();
///     };
///   });
/// }
/// ```
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fanin/base/identity.hpp"
#include "fanin/base/result.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/wire/fragment.hpp"
#include "fanin/wire/reasons.hpp"

namespace fanin::storage {

/// Consecutive events of one source: a table of entries and their payloads back to back.
struct SourcePiece {
  SourceId source = 0;
  EventRange range;
  memory::View table; ///< range.count() wire::FragmentEntry, 4-byte aligned
  memory::View payload; ///< what the entries' sizes add up to, except for a fragment that spans
                        ///< pieces: then range is one event, the entry holds the whole size, and
                        ///< the pieces follow each other in order
  std::uint32_t payload_offset = 0; ///< of this piece within its fragment; 0 unless it spans pieces
};

struct MissingFragment {
  EventRange events;
  SourceId source = 0;
  wire::MissingReason reason = wire::MissingReason::absent;
};

/// A damaged fragment; flags of wire::FragmentFlag.
struct BadFragment {
  EventNumber event = 0;
  SourceId source = 0;
  std::uint32_t flags = 0;
};

/// A batch of which every event is decided. There is exactly one for each (range, attempt).
struct BuiltBatch {
  std::uint64_t ticket = 0; ///< given back at commit
  EventRange range;
  Attempt attempt = 0;
  std::int64_t time_unix_ns = 0; ///< of all its events: EventRow::time_unix_ns
  std::vector<SourcePiece> pieces; ///< per source in order of events; sources in any order
  std::vector<MissingFragment> missing; ///< of required and optional sources alike
  std::vector<BadFragment> bad; ///< what the builder unit found; adds to the entries' flags
  /// Numbers that no source has: no event, no row. In the range, or right before it.
  std::vector<EventRange> gaps;
  /// With filter units: for each number in the range, the streams of its event
  /// (EventRow::streams). Then `pieces` have only what is to be written. Empty: there are no filter
  /// units.
  std::vector<std::uint32_t> streams;

  /// Empties the batch and keeps its capacity. The views release their pages.
  void clear() {
    pieces.clear();
    missing.clear();
    bad.clear();
    gaps.clear();
    streams.clear();
  }
};

/// What a sink reports with a commit.
struct Committed {
  std::uint64_t ticket = 0; ///< of the batch
  std::uint32_t rejected = 0; ///< events that the filter rejected
  std::uint32_t undecided = 0; ///< events that no filter unit could decide
  std::uint32_t undelivered = 0; ///< events that their slice did not get
};

enum class SubmitOutcome : std::uint8_t { accepted, busy };

class EventSink : public net::Service {
public:
  using OnCommit = std::function<void(const Committed& committed)>;
  using OnSetAside = std::function<void(std::uint64_t ticket)>;
  using OnFailure = std::function<void(const Error& error, bool fatal)>;

  /// The sink calls both on the loop's thread from poll(); a sink of a plug-in may also call them
  /// from submit(). A failure that is not fatal (disk full with `on_full = "wait"`) is reported
  /// once; the sink retries and stays busy meanwhile. After a fatal failure it gets no more
  /// batches.
  void on_commit(OnCommit callback) { commit_ = std::move(callback); }
  void on_failure(OnFailure callback) { failure_ = std::move(callback); }
  /// Called from poll(), at most once for a batch, before its commit: the batch stays longer than
  /// others, in memory that the sink has for such batches. Other batches need not wait for it.
  void on_set_aside(OnSetAside callback) { set_aside_ = std::move(callback); }

  /// Takes `batch`, which is moved from only if accepted. `busy`: the queue is full; try again
  /// after a commit.
  [[nodiscard]] virtual SubmitOutcome submit(BuiltBatch& batch) = 0;
  /// The run has begun at this time (UTC): all its nodes are there. Called once, before the first
  /// batch; also where the builder unit joins a run that is under way.
  virtual void run_began(std::int64_t /*unix_ns*/) {}
  /// Called before finish() at the end of the run, when all its batches are committed; not where
  /// the builder unit goes on with another sink.
  virtual void run_ended() {}
  /// No batch will follow: writes everything and closes. Then finished() is true.
  virtual void finish() = 0;
  [[nodiscard]] virtual bool finished() const = 0;
  /// Ends at once, without queued batches, as the destructor would. files() is final afterwards. It
  /// may wait for the current write.
  virtual void abandon() {}
  /// Paths of the files with committed events, in order. A new file is listed before its first
  /// commit is reported.
  [[nodiscard]] virtual std::vector<std::string> files() const { return {}; }
  /// The number of files(), without a copy of their names.
  [[nodiscard]] virtual std::size_t file_count() const { return 0; }
  [[nodiscard]] virtual std::uint64_t bytes_written() const = 0;
  /// Human-readable: what has to happen before it can commit what it holds, such as "a filter unit
  /// to start". Empty: that is unknown, or it waits for nothing.
  [[nodiscard]] virtual std::string waits_for() const { return {}; }

protected:
  OnCommit commit_;
  OnFailure failure_;
  OnSetAside set_aside_;
};

} // namespace fanin::storage
