// A whole event builder in virtual time, for tests: the production event manager, readout and
// builder units, each on a node of a VirtualWorld, with emulated sources and memory for disks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fanin/builder/builder_unit.hpp"
#include "fanin/builder/event_manager.hpp"
#include "fanin/builder/readout_unit.hpp"
#include "fanin/net/virtual_world.hpp"
#include "fanin/source/emulator.hpp"
#include "fanin/storage/memory_sink.hpp"

namespace fanin::builder::testing {

struct VirtualSystemOptions {
  System system;
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
  bool keep_bytes = false;
  bool failure_ends_run = false; // of storage
  std::size_t without_file = System::npos; // the builder unit that cannot make its file
  std::function<std::unique_ptr<source::Source>(const SourceInfo&)> make_source; // else emulators
  std::function<void(const SourceInfo&, source::FragmentQueueOptions&)> queue; // changes them
};

// `readouts` x `builders` with `sources` on each readout unit, ids from 1 on.
[[nodiscard]] System make_system(std::size_t readouts, std::size_t builders,
                                 std::size_t sources = 1);

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
    event_manager_->process_died(readouts_[readout]->session);
  }
  void kill_builder(std::size_t index);
  void kill_event_manager();

  // Until the event manager has ended, or virtual time is up: false.
  bool run_until_ended(Duration limit);
  void run_for(Duration time);
  void stop() { event_manager_->stop(); }

  [[nodiscard]] net::VirtualWorld& world() { return world_; }
  [[nodiscard]] net::VirtualNode& readout_node(std::size_t index) {
    return *readouts_[index]->node;
  }
  [[nodiscard]] net::VirtualNode& builder_node(std::size_t index) {
    return *builders_[index]->node;
  }
  [[nodiscard]] net::VirtualNode& manager_node() { return *manager_.node; }
  [[nodiscard]] EventManager& manager() { return *event_manager_; }
  [[nodiscard]] storage::MemorySink* sink(std::size_t builder) { return builders_[builder]->sink; }
  [[nodiscard]] const RunSummary& summary() { return event_manager_->summary(); }
  [[nodiscard]] const storage::MemoryStore& store(std::size_t builder) const {
    return builders_[builder]->store;
  }
  // Null: it is not there.
  [[nodiscard]] ReadoutUnit* readout(std::size_t index) { return readouts_[index]->unit.get(); }
  [[nodiscard]] BuilderUnit* builder(std::size_t index) { return builders_[index]->unit.get(); }
  [[nodiscard]] std::size_t readouts() const { return readouts_.size(); }
  [[nodiscard]] std::size_t builders() const { return builders_.size(); }
  [[nodiscard]] std::size_t ended_nodes() const { return ended_; }
  [[nodiscard]] const std::vector<std::string>& log() const { return log_; }

  // Every event's authoritative copy.
  void for_each_stored(const std::function<void(const storage::StoredEvent&)>& look) const;
  // Each event once among the authoritative rows (the winner of the event manager's record), every
  // fragment of it there with the emulator's bytes, and nothing the ledger does not know of.
  // Returns what is wrong, empty if nothing.
  [[nodiscard]] std::string check_stored();
  // Empty if every page of every node is home (call after the applications have ended).
  [[nodiscard]] std::string check_pools();
  void destroy_applications();

private:
  struct Node {
    net::VirtualNode* node = nullptr;
    std::unique_ptr<memory::PagePool> control_pool;
    net::TransportSet transports;
    std::uint64_t session = 0; // of its process
  };
  struct ReadoutNode : Node {
    std::vector<std::unique_ptr<memory::PagePool>> source_pools;
    std::unique_ptr<memory::PagePool> metadata_pool;
    std::unique_ptr<ReadoutUnit> unit;
  };
  struct BuilderNode : Node {
    std::unique_ptr<memory::PagePool> receive_pool;
    storage::MemoryStore store;
    storage::MemorySink* sink = nullptr;
    std::unique_ptr<BuilderUnit> unit;
  };
  class Recorder;

  NodeEnvironment environment(Node& node);
  [[nodiscard]] std::uint32_t posted_pages() const;
  void make_node(Node& node, const std::string& name);

  VirtualSystemOptions options_;
  std::vector<std::string> log_;
  std::size_t ended_ = 0;
  std::uint64_t sessions_ = 0;
  std::unique_ptr<Recorder> recorder_;
  Node manager_;
  std::vector<std::unique_ptr<ReadoutNode>> readouts_;
  std::vector<std::unique_ptr<BuilderNode>> builders_;
  net::VirtualWorld world_; // after the pools: its messages hold pages of theirs
  std::unique_ptr<EventManager> event_manager_;
};

} // namespace fanin::builder::testing
