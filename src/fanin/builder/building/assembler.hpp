// Puts the data blocks of batches together: which source has got how far, which fragments are
// missing or damaged, and when a batch is complete. Blocks may come before the event manager's
// word, since nothing is ordered across connections.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/state.hpp"
#include "fanin/builder/building/merged_contents.hpp"
#include "fanin/builder/lane.hpp"
#include "fanin/builder/recently_decided.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/wire/control.hpp"
#include "fanin/wire/data_block.hpp"

namespace fanin::builder {

enum class AssemblyState : std::uint8_t {
  early,    // blocks have come, the event manager's word has not
  assigned, // it waits for blocks
  decided   // nothing is added any more: storage has it, or will
};

[[nodiscard]] constexpr bool may_follow(AssemblyState from, AssemblyState to) {
  switch (to) {
  case AssemblyState::early: return true; // it is used for another batch
  case AssemblyState::assigned: return from == AssemblyState::early;
  case AssemblyState::decided: return from == AssemblyState::assigned;
  }
  return false;
}

// A batch under construction, or waiting for its commit.
struct Assembly {
  struct Progress { // of one source
    EventNumber next = 0;             // events below are answered
    std::uint32_t payload_offset = 0; // of a fragment that comes in several blocks
    std::uint32_t crc32c = 0;
    wire::FragmentEntry entry; // of that fragment, as its first block says
  };
  EventRange range;
  CheckedState<AssemblyState> state = AssemblyState::early;
  Attempt attempt = 0;
  std::uint64_t epoch = 0;
  std::uint64_t seal = 0;          // of the assignment
  std::uint64_t bytes = 0;         // payload
  std::uint32_t open_sources = 0;  // not complete yet
  std::vector<Progress> progress;  // by index of source
  storage::BuiltBatch batch;       // for storage; filled when it is decided
  std::vector<wire::MissingRange> missing;
  std::vector<wire::BadFragment> bad;
  std::vector<wire::Gap> gaps;        // as the event manager says
  std::vector<wire::MissingRange> lost; // likewise
  std::uint32_t incomplete = 0;       // events that lack a required source
  std::uint32_t rejected = 0;         // by the filter, as storage says
  std::uint32_t undecided = 0;        // by any filter unit, likewise
  std::uint32_t undelivered = 0;      // to its slice, likewise
  bool blocks_dropped = false;        // it has to be handed back
  bool heard = false;                 // a block has come since heard_at
  Duration heard_at{};                // or assigned
  Duration assigned_at{};
  std::size_t missing_reported = 0; // to the event manager, of `missing`
  std::size_t bad_reported = 0;     // likewise

  // What the builder unit asks readout units for: its assignment, as the event manager made it.
  [[nodiscard]] wire::Assign request(NodeId builder, Incarnation incarnation) const {
    return {.first = range.first,
            .events = static_cast<std::uint32_t>(range.count()),
            .attempt = attempt,
            .builder = builder,
            .builder_incarnation = incarnation,
            .epoch = epoch,
            .seal = seal};
  }
};

// Knows no connection; times are its owner's deadline clock.
class Assembler {
public:
  using Assemblies = std::pmr::map<EventNumber, Assembly*>; // by first event

  // Both must outlive it.
  Assembler(const System& system, const SourceIndex& sources);

  // The builder unit has joined this run.
  void begin(RunNumber run) { merged_.begin(run); }

  struct Block {
    const wire::DataBlockView& view;
    const memory::View& message; // header, table, and payload if `payload` is empty
    const memory::View& payload;
    std::size_t source = 0; // index of it
  };
  struct Added {
    Assembly* batch = nullptr;    // the block's batch; null: that batch is over
    Assembly* early = nullptr;    // begins with this block: its owner says when (heard_at)
    Assembly* complete = nullptr; // has all of its blocks now, and is assigned
    std::string wrong; // why the block is invalid; empty: it is valid
  };
  [[nodiscard]] Added add(const Block& block);

  struct Assigned {
    bool valid = false; // false: the message is invalid
    // Null: more of the message follows. Its owner says when it was assigned.
    Assembly* assembly = nullptr;
    bool blocks_dropped = false; // it has to be handed back
  };
  [[nodiscard]] Assigned assign(const wire::Assign& assign, std::span<const wire::Gap> gaps,
                                std::span<const wire::MissingRange> lost);
  // Fragments that died with a readout unit. False: it is invalid.
  [[nodiscard]] bool add_lost(std::span<const wire::MissingRange> lost);

  // Sources of this readout unit will answer no more: what has not come is absent.
  void give_up(Assembly& assembly, NodeId readout);
  // Whether blocks of this lane's sources have not come.
  [[nodiscard]] bool owes(const Assembly& assembly, const Lane& lane) const;
  // A readout unit that owes blocks of the batch, over one of these lanes; none: none does.
  [[nodiscard]] std::optional<NodeId> owing(const Assembly& assembly,
                                            std::span<const Lane> lanes) const;
  // Of batches that are assigned: whether it owes any that were assigned until then, and which.
  [[nodiscard]] bool owes(const Lane& lane, Duration assigned_until = Duration::max()) const;
  [[nodiscard]] std::vector<Assembly*> owed_by(const Lane& lane) const;
  // Nothing is added any more; fills `batch`, which has `missing` sorted out.
  void decide(Assembly& assembly);
  // Of the batch that was decided last.
  [[nodiscard]] const MergedContents& merged() const { return merged_; }
  // Forgets it: it is committed, or handed back.
  void release(Assembly& assembly);
  // As release(); blocks that still come of this attempt are late.
  void hand_back(Assembly& assembly);
  // As hand_back(), of one that is not assigned.
  void throw_away(Assembly& assembly);
  void clear();

  [[nodiscard]] Assembly* find(EventNumber first) const;
  [[nodiscard]] const Assemblies& assemblies() const { return assemblies_; }
  // A block of another run or incarnation.
  void count_stale() { ++stale_; }
  [[nodiscard]] std::uint64_t late() const { return late_; }   // blocks
  [[nodiscard]] std::uint64_t stale() const { return stale_; } // likewise

private:
  Assembly& open(EventRange range, Attempt attempt);
  [[nodiscard]] Assembly* find_for(const wire::DataBlockHeader& header);
  [[nodiscard]] Assembly* open_early(const wire::DataBlockHeader& header);
  void flagged(Assembly& assembly, EventNumber event, SourceId source, std::uint32_t flags);
  [[nodiscard]] static std::string wrong_with(const Assembly::Progress& progress,
                                              const wire::DataBlockView& view);
  void keep(Assembly& assembly, const Block& block);
  void add_partial(Assembly& assembly, Assembly::Progress& progress,
                   const wire::DataBlockView& view);
  void check_fragments(Assembly& assembly, const wire::DataBlockView& view);
  static void add_missing(Assembly& assembly, SourceId source, EventRange events,
                          wire::MissingReason reason);
  void give_up_source(Assembly& assembly, std::size_t source);
  [[nodiscard]] std::vector<bool> drop_false_gaps(Assembly& assembly) const;
  void sort_out_missing(Assembly& assembly);
  void report_within(Assembly& assembly) const;

  const System& system_;
  const SourceIndex& sources_;
  MergedContents merged_; // of the batch that is decided, or was last
  std::pmr::unsynchronized_pool_resource memory_; // nodes of the map, reused
  Assemblies assemblies_{&memory_};
  std::vector<std::unique_ptr<Assembly>> all_; // every one ever made
  std::vector<Assembly*> spare_;
  RecentlyDecided recently_decided_;
  std::size_t early_ = 0; // how many are not assigned
  std::uint64_t late_ = 0;
  std::uint64_t stale_ = 0;
};

} // namespace fanin::builder
