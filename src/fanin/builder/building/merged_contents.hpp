// What the super-fragments of a batch lack of required members, what came damaged to the first
// stage, and which do not fit: for the event manager. Files have the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <vector>

#include "fanin/builder/system.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/storage/super_reader.hpp"
#include "fanin/wire/control.hpp"

namespace fanin::builder {

class MergedContents {
public:
  // `system` must outlive it.
  explicit MergedContents(const System& system);

  // The builder unit has joined this run.
  void begin(RunNumber run) { reader_ = storage::SuperReader(slice_, run); }
  // Those of a batch that is complete: of each source in the order of its events.
  void read(std::span<const storage::SourcePiece> pieces);
  // That lack a required member; some more than once.
  [[nodiscard]] std::span<const EventNumber> incomplete() const { return incomplete_; }
  // What they lack, as far as it can be listed; `within` is set. The member is the source itself
  // where the fragment does not fit; of these all are listed.
  [[nodiscard]] std::span<const wire::MissingRange> lacking() const { return lacking_; }
  // By source and event, with the flags of all members.
  [[nodiscard]] std::span<const wire::BadFragment> damaged() const { return damaged_; }

  // Fragments of one source that are no super-fragments of their events, its members and the run.
  struct NotFitting {
    SourceId source = 0;
    std::uint64_t count = 0;
    EventNumber first = 0;
    storage::SuperFault fault; // of the first
  };
  [[nodiscard]] std::span<const NotFitting> not_fitting() const { return not_fitting_; }

private:
  void read_source(const SourceInfo& source);
  void read_members(const SourceInfo& source, EventNumber event,
                    const std::expected<wire::SuperHead, storage::SuperFault>& head);
  void add_not_fitting(const SourceInfo& source, EventNumber event,
                       const storage::SuperFault& fault);
  void add_incomplete(EventNumber event);
  void add_lacking(SourceId source, SourceId member, std::size_t index, EventNumber event,
                   wire::MissingReason reason);

  wire::Slice slice_;
  storage::SuperReader reader_;
  std::vector<const SourceInfo*> sources_; // whose fragments are super-fragments
  std::vector<EventNumber> incomplete_;
  std::vector<wire::MissingRange> lacking_;
  std::vector<wire::BadFragment> damaged_;
  std::vector<NotFitting> not_fitting_;
  std::vector<const storage::SourcePiece*> pieces_; // of one source
  std::vector<std::size_t> lacking_at_; // by member of one source: its last range in lacking_
};

// Human-readable: how many, and why the first does not fit.
[[nodiscard]] std::string text_of(const MergedContents::NotFitting& not_fitting,
                                  const System& system);

} // namespace fanin::builder
