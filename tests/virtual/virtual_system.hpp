// A whole event builder in virtual time (simulation/system.hpp), for tests: with small pools,
// emulated sources, memory for disks, and a check of all that is stored.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/executive/run_output.hpp"
#include "fanin/net/virtual_world.hpp"
#include "fanin/simulation/system.hpp"
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

// The world of its own, if it has one: it is made before the nodes.
struct OwnWorld {
  explicit OwnWorld(const VirtualSystemOptions& options)
      : own_world(options.world != nullptr
                      ? nullptr
                      : std::make_unique<net::VirtualWorld>(options.seed, options.network)) {}
  std::unique_ptr<net::VirtualWorld> own_world;
};

class VirtualSystem : private OwnWorld, public simulation::System {
public:
  explicit VirtualSystem(VirtualSystemOptions options);
  ~VirtualSystem();
  VirtualSystem(const VirtualSystem&) = delete;
  VirtualSystem& operator=(const VirtualSystem&) = delete;

  void start_all() {
    const bool started = System::start_all().has_value();
    FANIN_ASSERT(started);
  }
  // Until the event manager has ended, or virtual time is up: false.
  bool run_until_ended(Duration limit);
  void run_for(Duration time);

  [[nodiscard]] std::size_t control_rails() const { return options_.control_rails; }
  [[nodiscard]] storage::MemorySink* sink(std::size_t builder);
  // Its sink, which is there, was told that the run has begun.
  [[nodiscard]] bool knows_of_the_begin(std::size_t builder) const;
  [[nodiscard]] const storage::MemoryStore& store(std::size_t builder) const;
  [[nodiscard]] const wire::Slice& slice() const { return options_.system.slice; }
  [[nodiscard]] const std::vector<Forwarded>& forwarded() const { return forwarded_; }
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

private:
  class MemoryOutput;

  [[nodiscard]] config::Configuration make_configuration() const;
  [[nodiscard]] executive::Plugins make_plugins();
  [[nodiscard]] std::vector<executive::NodePlan>
  make_plans(const config::Configuration& configuration, const executive::Plugins& plugins) const;
  void check_new_bytes();
  [[nodiscard]] std::string check_rows(const storage::StoredEvent& event);
  [[nodiscard]] std::string check_gaps(EventNumber end);

  VirtualSystemOptions options_;
  std::vector<std::string> log_;
  std::vector<Forwarded> forwarded_;
  std::vector<std::size_t> bytes_checked_; // events of each builder unit
  std::string wrong_bytes_; // what was wrong, if anything
  std::unique_ptr<MemoryOutput> output_;
  std::unique_ptr<executive::RunOutput> forward_; // of the first of two stages
};

} // namespace fanin::testing
