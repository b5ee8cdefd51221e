// Gives batches to builder units: cuts the next one where all readout units have announced, assigns
// it to a builder unit that has room for all of it, and takes it back where that one dies or cannot
// complete it, until it is built.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fanin/builder/control/node_outbox.hpp"
#include "fanin/builder/manager/accounts.hpp"
#include "fanin/builder/manager/announcements.hpp"
#include "fanin/builder/manager/batch_table.hpp"
#include "fanin/builder/manager/builder_choice.hpp"
#include "fanin/builder/manager/capacity.hpp"
#include "fanin/builder/manager/data_paths.hpp"
#include "fanin/builder/manager/membership.hpp"

namespace fanin::builder {

// Thread: the event manager's loop.
class Dispatcher {
public:
  // What it works with; all must outlive it.
  struct Parts {
    const System& system;
    const SourceIndex& sources;
    const Trigger& trigger;
    const NodeList& readouts;
    const NodeList& builders;
    Announcements& announced;
    DataPaths& paths;
    Accounts& accounts;
    NodeOutbox& outbox;
    std::uint64_t seal_key = 0; // of assignments, see wire::seal_of()
    std::int64_t unix_ns_at_zero = 0; // as in NodeEnvironment
  };
  explicit Dispatcher(const Parts& parts);

  void readout_up(NodeId node, std::uint64_t memory, std::uint64_t metadata);
  // Call it before Announcements forgets the node: it tells builder units what is lost of their
  // batches.
  void readout_down(NodeId node);
  void builder_up(NodeId node, std::uint64_t capacity);
  // Its batches have to be assigned again; returns the number of their events.
  std::uint64_t builder_down(NodeId node);
  // Something has changed that may let the next batch go.
  void try_again() { no_room_ = false; }

  void run_began(Time now) { began_unix_ns_ = unix_ns(now); }

  // Once a turn: says who takes part from now on, and assigns what can be assigned.
  void publish_members();
  void assign_batches(Time now);

  void on_received(NodeId builder, const wire::Received& received);
  // What builder units say; false: it is invalid.
  struct Decision { // a batch was built
    EventRange batch;
    Attempt attempt = 0;
  };
  [[nodiscard]] bool on_built(NodeId builder, wire::MessageReader& reader, Time now,
                              std::optional<Decision>& decision);
  struct Blame {
    NodeId readout = 0;
  };
  [[nodiscard]] bool on_hand_back(NodeId builder, const wire::HandBack& back,
                                  std::optional<Blame>& blame);
  // Pull: a readout unit is held up by a batch that its builder unit does not ask for.
  void on_uncut(NodeId readout, const wire::Uncut& uncut);

  // Events below are built.
  [[nodiscard]] EventNumber decided() const {
    return batches_.decided(parts_.announced.assigned_end());
  }
  [[nodiscard]] const BatchTable& batches() const { return batches_; }
  [[nodiscard]] const Capacity& capacity() const { return capacity_; }
  [[nodiscard]] std::uint64_t bytes_per_event() const { return bytes_per_event_; }
  // Of all batches so far.
  [[nodiscard]] std::uint64_t events_cut() const { return events_cut_; }
  // From an event to the next one, at least; 1: not known.
  [[nodiscard]] std::uint64_t least_step() const { return least_step_ == 0 ? 1 : least_step_; }
  // How often it has gone through announcements to find the next batch.
  [[nodiscard]] std::uint64_t examined() const { return examined_; }

private:
  [[nodiscard]] bool reassign();
  [[nodiscard]] bool skip_gap(EventNumber end);
  [[nodiscard]] bool assign_next(EventNumber end, Time now);
  [[nodiscard]] std::optional<NodeId> choose(const AssignmentRequest& request,
                                             std::optional<NodeId> handed_back);
  void assign(Batch& batch, const AssignmentRequest& request, NodeId node);
  void take_back(Batch& batch);
  void count_events(const Batch& batch);
  void release(const Batch& batch); // of its builder unit's capacity
  [[nodiscard]] bool has(const wire::MissingRange& run) const;
  // What a builder unit says of a batch; false: it is invalid.
  [[nodiscard]] bool add_exceptions(Batch& batch, std::span<const wire::MissingRange> missing,
                                    std::span<const wire::BadFragment> bad) const;
  void account(Batch& batch, const wire::Built& built, Time now);
  [[nodiscard]] std::int64_t unix_ns(Time now) const {
    return parts_.unix_ns_at_zero + now.time_since_epoch().count();
  }

  Parts parts_;
  Epochs epochs_;
  BatchTable batches_;
  Capacity capacity_;
  BuilderChoice choice_;
  std::vector<bool> lagging_; // pull, by builder unit: readout units are told what they would be
                              // asked for
  std::optional<wire::Gap> skipped_; // right before the next batch, which tells of it
  std::int64_t began_unix_ns_ = 0;
  std::uint64_t merged_; // sources that others merge
  bool members_changed_ = false;
  bool no_room_ = false; // nobody had room for the next batch, and nothing has changed since
  std::uint64_t examined_ = 0;
  std::uint64_t events_cut_ = 0;
  std::uint64_t least_step_ = 0; // 0: not known
  std::optional<EventNumber> last_event_; // of the latest batch
  std::uint64_t bytes_per_event_ = 0; // of the latest batch; 0: none yet
};

} // namespace fanin::builder
