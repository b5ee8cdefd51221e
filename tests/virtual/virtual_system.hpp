// A whole event builder in virtual time, for tests: the nodes that a process starts, with pools as
// planned for them, each on a node of a VirtualWorld, with emulated sources and memory for disks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "fanin/executive/builder_node.hpp"
#include "fanin/executive/event_manager_node.hpp"
#include "fanin/executive/readout_node.hpp"
#include "fanin/net/virtual_world.hpp"
#include "fanin/source/emulator.hpp"
#include "fanin/storage/testing/memory_sink.hpp"

namespace fanin::testing {

using MakeSource = std::function<std::unique_ptr<source::Source>(const builder::SourceInfo&)>;
using ChangeQueue = std::function<void(const builder::SourceInfo&, source::FragmentQueueOptions&)>;

// Of a stored fragment of that event, with all its bytes. Afterwards only the first 16 are kept.
using CheckBytes = std::function<bool(const storage::StoredFragment&, EventNumber)>;
[[nodiscard]] bool emulated_bytes(const storage::StoredFragment& fragment, EventNumber event);

struct VirtualSystemOptions {
  builder::System system;
  std::uint64_t seed = 1;
  net::VirtualNetworkOptions network;
  source::SizeDistribution size = source::UniformSize{0, 2000};
  double source_rate_hz = 50'000;      // without a trigger
  std::uint64_t source_events = 0;     // each source ends after so many; 0: never
  std::uint32_t source_page = 16U << 10;
  std::uint32_t source_pages = 16;
  std::uint32_t source_window = 4096;
  std::uint32_t fragment_max = 8U << 10;
  std::uint32_t metadata_page = 4U << 10;
  std::uint32_t metadata_pages = 64; // at least what a readout unit needs
  std::uint32_t receive_pages = 64; // besides those that a strict network has posted
  Duration commit_delay = std::chrono::microseconds{100};
  std::size_t sink_depth = 16;
  CheckBytes check_bytes; // of each stored fragment; empty: they are not looked at
  bool failure_ends_run = false; // of storage
  std::size_t without_file = builder::System::npos; // the builder unit that cannot make its file
  std::size_t control_rails = 1; // of the event manager
  MakeSource make_source; // empty: emulators
  // Two stages in one world: nodes of both have other names.
  net::VirtualWorld* world = nullptr; // null: one of its own. It ends before the systems in it
  std::string event_manager = "evm";
  config::Forward forward; // of the first stage; no slices: what is built is stored
  std::map<SourceId, std::string> listen; // sources that receive, and where
  ChangeQueue queue; // may be empty
};

// With one source on each readout unit, unless there are more, and a trigger.
[[nodiscard]] VirtualSystemOptions triggered(std::size_t readouts, std::size_t builders,
                                             double rate_hz, std::size_t sources = 1);

// A batch that the first of two stages has given to its sink.
struct Forwarded {
  EventRange range;
  std::map<EventNumber, std::set<SourceId>> has; // events of which it has something, and of whom
  std::uint32_t undelivered = 0; // events, said with its commit
  bool committed = false;
};

class VirtualSystem {
public:
  explicit VirtualSystem(VirtualSystemOptions options);
  ~VirtualSystem();

  void start_event_manager();
  void start_readout(std::size_t index);
  void start_builder(std::size_t index);
  void start_all();

  void kill_readout(std::size_t index);
  // As a launcher does: its death is seen, and the event manager told.
  void tell_of_death(std::size_t readout) {
    manager_.node->process_died(readouts_[readout]->session);
  }
  void kill_builder(std::size_t index);
  void kill_event_manager();

  // Until the event manager has ended, or virtual time is up: false.
  bool run_until_ended(Duration limit);
  void run_for(Duration time);
  void stop() { manager_.node->stop(); }

  [[nodiscard]] net::VirtualWorld& world() { return world_; }
  [[nodiscard]] net::VirtualNode& readout_node(std::size_t index) {
    return *readouts_[index]->host;
  }
  [[nodiscard]] net::VirtualNode& builder_node(std::size_t index) {
    return *builders_[index]->host;
  }
  [[nodiscard]] net::VirtualNode& manager_node() { return *manager_.host; }
  [[nodiscard]] std::size_t control_rails() const { return options_.control_rails; }
  [[nodiscard]] builder::EventManager& manager() { return manager_.node->manager(); }
  [[nodiscard]] storage::MemorySink* sink(std::size_t builder);
  // Its sink, which is there, was told that the run has begun.
  [[nodiscard]] bool knows_of_the_begin(std::size_t builder) const;
  [[nodiscard]] const builder::RunSummary& summary() { return manager().summary(); }
  [[nodiscard]] const storage::MemoryStore& store(std::size_t builder) const;
  // Null: it is not there.
  [[nodiscard]] builder::ReadoutUnit* readout(std::size_t index) {
    return readouts_[index]->node ? readouts_[index]->node->unit() : nullptr;
  }
  [[nodiscard]] builder::BuilderUnit* builder(std::size_t index) {
    return builders_[index]->node ? builders_[index]->node->unit() : nullptr;
  }
  [[nodiscard]] const Result<>& outcome_of_builder(std::size_t index) const {
    return builders_[index]->node->outcome();
  }
  [[nodiscard]] std::size_t readouts() const { return readouts_.size(); }
  [[nodiscard]] std::size_t builders() const { return builders_.size(); }
  [[nodiscard]] const wire::Slice& slice() const { return options_.system.slice; }
  [[nodiscard]] const std::vector<Forwarded>& forwarded() const { return forwarded_; }
  // Readout and builder units that are there and have ended.
  [[nodiscard]] std::size_t ended_nodes() const;
  [[nodiscard]] const std::vector<std::string>& log() const { return log_; }

  // Every event's authoritative copy.
  void for_each_stored(const std::function<void(const storage::StoredEvent&)>& look) const;
  // Each event once among the authoritative rows (the winner of the event manager's record), each
  // source in it with a fragment of the right bytes or with the reason why it is missing, and as
  // many of all this, of each reason, and the same gaps as the ledger says. The run has ended in
  // good order. Returns what is wrong, empty if nothing.
  [[nodiscard]] std::string check_stored();
  // Only of what is stored: each event once, in the part of the numbers that is dealt to this
  // slice.
  [[nodiscard]] std::string check_slice() const;
  // Empty if every page of every node is home (call after the nodes were destroyed).
  [[nodiscard]] std::string check_pools();
  void destroy_nodes();

private:
  class Turns;
  class MemoryOutput;
  struct Place { // where a node lives, dies, and comes back
    net::VirtualNode* host = nullptr;
    executive::NodePools pools;
    net::TransportSet transports;
    std::uint64_t session = 0; // of its process
    std::unique_ptr<Turns> turns; // while the node is there
  };
  template <class Node>
  struct PlaceOf : Place {
    std::unique_ptr<Node> node; // null: it is not there
  };

  void make_configuration();
  void make_plugins();
  void make_pools();
  void check_new_bytes();
  [[nodiscard]] std::string check_rows(const storage::StoredEvent& event);
  [[nodiscard]] std::string check_gaps(EventNumber end);
  [[nodiscard]] executive::NodeContext context(Place& place, std::size_t index);
  template <class Node>
  void start(PlaceOf<Node>& place, std::size_t index);
  template <class Node>
  void destroy(PlaceOf<Node>& place);
  [[nodiscard]] std::vector<Place*> places();

  VirtualSystemOptions options_;
  std::vector<std::string> log_;
  std::vector<Forwarded> forwarded_;
  std::uint64_t sessions_ = 0;
  std::vector<std::size_t> bytes_checked_; // events of each builder unit
  std::string wrong_bytes_; // what was wrong, if anything
  config::Configuration configuration_;
  executive::Plugins plugins_;
  std::vector<executive::NodePlan> plans_;
  std::unique_ptr<MemoryOutput> output_;
  std::unique_ptr<executive::RunOutput> forward_; // of the first of two stages
  PlaceOf<executive::EventManagerNode> manager_;
  std::vector<std::unique_ptr<PlaceOf<executive::ReadoutNode>>> readouts_;
  std::vector<std::unique_ptr<PlaceOf<executive::BuilderNode>>> builders_;
  std::unique_ptr<net::VirtualWorld> own_world_; // after the pools: its messages hold their pages
  net::VirtualWorld& world_;
};

} // namespace fanin::testing
