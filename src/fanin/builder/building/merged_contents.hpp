// What the super-fragments of a batch lack of required members, and what came damaged to the first
// stage: for the event manager. Files have the same.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
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

  // Those of a batch that is complete: of each source in the order of its events.
  void read(std::span<const storage::SourcePiece> pieces);
  // That lack a required member; some more than once.
  [[nodiscard]] std::span<const EventNumber> incomplete() const { return incomplete_; }
  // What they lack, as far as it can be listed; `within` is set. The member is the source itself
  // where the fragment is no super-fragment.
  [[nodiscard]] std::span<const wire::MissingRange> lacking() const { return lacking_; }
  // By source and event, with the flags of all members.
  [[nodiscard]] std::span<const wire::BadFragment> damaged() const { return damaged_; }

private:
  void read_source(const SourceInfo& source);
  void read_members(const SourceInfo& source, EventNumber event,
                    const std::optional<wire::SuperHead>& head);
  void add_lacking(SourceId source, SourceId member, std::size_t index, EventNumber event,
                   wire::MissingReason reason);

  storage::SuperReader reader_;
  std::vector<const SourceInfo*> sources_; // whose fragments are super-fragments
  std::vector<EventNumber> incomplete_;
  std::vector<wire::MissingRange> lacking_;
  std::vector<wire::BadFragment> damaged_;
  std::vector<const storage::SourcePiece*> pieces_; // of one source
  std::vector<std::size_t> lacking_at_; // by member of one source: its last range in lacking_
};

} // namespace fanin::builder
