// Two stages over byte streams in virtual time: groups build, and forward what they have built to
// slices. Nodes die, connections are cut, hosts and paths stand still.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "fanin/builder/testing/make_system.hpp"
#include "virtual/expectations.hpp"
#include "virtual/virtual_system.hpp"

namespace fanin::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t incomplete_listed = 1000; // ranges, in a ledger

// Each group has the numbers from 0 on. Readout units of slices are the nodes where it listens.
class TwoStages {
public:
  // `spared`: nothing happens that may cost an event.
  TwoStages(std::uint64_t seed, bool spared)
      : random_(seed),
        spared_(spared),
        world_(std::make_unique<net::VirtualWorld>(seed, network())) {
    block_ = 8U << random_.below(4);
    // Up to 10 s. With a short one events are late, and built without a group.
    if (!spared_ && random_.chance(3, 4))
      deadline_ = std::min<Duration>(10s, 50ms * (std::uint64_t{1} << random_.below(9)));
    // Or events are lost for a slice that stays away.
    if (!spared_ && random_.chance(1, 2))
      give_up_ = Duration{200'000'000 + random_.below(1'800'000'000)};
    events_ = 1000 + random_.below(3000);
    group_builders_ = 1 + random_.below(2);
    const std::size_t groups = 1 + random_.below(2);
    slices_wanted_ = group_builders_ * (1 + random_.below(2));
    for (std::size_t g = 0; g < groups; ++g) add_group(g, 1 + random_.below(2));
    for (std::size_t s = 0; s < slices_wanted_; ++s) add_slice(s, random_.chance(1, 2));
  }
  ~TwoStages() {
    for (const auto& system : all()) system->destroy_nodes();
    world_.reset(); // before the pools whose pages its messages hold
  }
  TwoStages(const TwoStages&) = delete;
  TwoStages& operator=(const TwoStages&) = delete;

  void run() {
    for (VirtualSystem* const system : all()) system->start_all();
    for (int step = 0; step < 12; ++step) {
      run_for(Duration{1'000'000 + random_.below(100'000'000)});
      trouble();
    }
    all_up();
    for (const auto& group : groups_) end(*group);
    for (const auto& slice : slices_) {
      slice->stop();
      end(*slice);
    }
  }

  // What both ledgers say, and what is stored.
  void check() {
    for (VirtualSystem* const system : all()) EXPECT_TRUE(system->summary().balanced) << log();
    for (const auto& slice : slices_) {
      EXPECT_EQ(slice->check_slice(), "") << log();
      check_slice(*slice);
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) check_group(g);
    for (VirtualSystem* const system : all()) system->destroy_nodes();
    run_world(1s);
    for (VirtualSystem* const system : all()) EXPECT_EQ(system->check_pools(), "");
  }
  [[nodiscard]] std::uint64_t trace() const { return world_->trace_hash(); }

private:
  static constexpr SourceId merged_of(std::size_t group) {
    return static_cast<SourceId>(0x1000 + group);
  }
  static constexpr SourceId merged_with(SourceId member) { return merged_of(member / 0x100 - 1); }
  static std::string listens_at(std::size_t slice) {
    return fmt::format("tcp://s{}ru0:7500", slice);
  }

  net::VirtualNetworkOptions network() {
    return {.latency_max = Duration{50'000 + random_.below(1'000'000)},
            .stream_buffer = 4096U << random_.below(6)};
  }

  [[nodiscard]] builder::System make_stage(const std::string& name, std::size_t readouts,
                                           std::size_t builders) {
    builder::System system = builder::testing::make_system(readouts, builders);
    for (std::string& unit : system.readout_units) unit = name + unit;
    for (std::string& unit : system.builder_units) unit = name + unit;
    system.event_deadline = deadline_;
    system.drain = 60s;
    return system;
  }

  void add_group(std::size_t number, std::size_t readouts) {
    VirtualSystemOptions options;
    options.system = make_stage(fmt::format("g{}", number), readouts, group_builders_);
    SourceId id = static_cast<SourceId>(0x100 * (number + 1));
    for (auto& source : options.system.sources) {
      source.id = id++;
      source.name = fmt::format("{:#x}", source.id);
      members_[number].push_back({.id = source.id, .name = source.name});
    }
    options.system.batch_events = block_;
    options.system.in_order = true;
    options.system.assignment = builder::AssignmentPolicy::by_number;
    options.event_manager = fmt::format("g{}evm", number);
    options.source_rate_hz = 500;
    options.source_events = events_;
    options.forward = {.urls = {}, .source = merged_of(number), .give_up = give_up_};
    for (std::size_t s = 0; s < slices_wanted_; ++s) {
      options.forward.urls.push_back(net::Url::parse(listens_at(s)).value());
    }
    options.world = world_.get();
    groups_.push_back(std::make_unique<VirtualSystem>(std::move(options)));
  }

  // All its sources on one readout unit, at one address.
  void add_slice(std::size_t number, bool two_builders) {
    VirtualSystemOptions options;
    options.system = make_stage(fmt::format("s{}", number), 1, two_builders ? 2 : 1);
    options.system.sources.clear();
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const SourceId id = merged_of(g);
      options.system.sources.push_back(
          {.id = id, .name = fmt::format("{:#x}", id), .required = true, .merged = members_[g]});
      options.listen[id] = listens_at(number);
    }
    options.system.slice = {.number = static_cast<std::uint32_t>(number),
                            .of = static_cast<std::uint32_t>(slices_wanted_),
                            .block = block_};
    options.system.batch_events = block_;
    options.event_manager = fmt::format("s{}evm", number);
    options.check_bytes = emulated_bytes;
    options.fragment_max = 32U << 10;
    options.source_page = 64U << 10;
    options.world = world_.get();
    slices_.push_back(std::make_unique<VirtualSystem>(std::move(options)));
  }

  [[nodiscard]] std::vector<VirtualSystem*> all() const {
    std::vector<VirtualSystem*> systems;
    for (const auto& group : groups_) systems.push_back(group.get());
    for (const auto& slice : slices_) systems.push_back(slice.get());
    return systems;
  }
  void run_world(Duration time) { world_->run_until(world_->now() + time); }
  void run_for(Duration time) {
    run_world(time);
    for (VirtualSystem* const system : all()) system->run_for(Duration{0});
  }
  void end(VirtualSystem& system) {
    const Time limit = world_->now() + 300s;
    while (!system.manager().ended() && world_->now() < limit) run_for(10ms);
    ASSERT_TRUE(system.manager().ended()) << system.manager().waiting_for() << log();
  }

  // --- what happens ------------------------------------------------------------------------------

  void trouble() {
    VirtualSystem& group = *groups_[random_.below(groups_.size())];
    VirtualSystem& slice = *slices_[random_.below(slices_.size())];
    net::VirtualNode& sends = group.builder_node(random_.below(group.builders()));
    net::VirtualNode& takes = slice.readout_node(0);
    switch (random_.below(10)) {
    case 0:
    case 1: sends.disconnect(takes); break;
    case 2: stand_still(takes); break;
    case 3: stand_still(sends); break;
    case 4: break_path(sends, takes); break;
    case 5: break_path(takes, sends); break;
    case 6:
      takes.limit_rate(20'000 + random_.below(200'000));
      run_for(Duration{random_.below(1'000'000'000)});
      takes.limit_rate(0);
      break;
    case 7: kill_or_start(group, random_.below(group.builders())); break;
    case 8: kill_or_start(slice, random_.below(slice.builders())); break;
    default:
      if (!spared_) kill_readout(random_.chance(1, 2) ? group : slice);
    }
  }
  // Less than dead_after.
  void stand_still(net::VirtualNode& node) {
    if (!node.alive()) return;
    node.freeze();
    run_for(Duration{random_.below(1'000'000'000)});
    node.thaw();
    run_for(500ms); // two silences are not one long one
  }
  void break_path(net::VirtualNode& from, net::VirtualNode& to) {
    from.break_path(to);
    run_for(Duration{random_.below(1'500'000'000)});
    from.repair_path(to);
  }
  void kill_or_start(VirtualSystem& system, std::size_t index) {
    if (system.builder(index) != nullptr) {
      system.kill_builder(index);
    } else {
      system.start_builder(index);
    }
  }
  void kill_readout(VirtualSystem& system) {
    const std::size_t index = random_.below(system.readouts());
    if (system.readout(index) == nullptr) return system.start_readout(index);
    system.kill_readout(index);
  }
  void all_up() {
    for (VirtualSystem* const system : all()) {
      if (system->manager().ended()) continue;
      for (std::size_t b = 0; b < system->builders(); ++b) {
        if (system->builder(b) == nullptr) system->start_builder(b);
      }
      for (std::size_t r = 0; r < system->readouts(); ++r) {
        if (system->readout(r) == nullptr) system->start_readout(r);
      }
    }
  }

  // --- what is left ------------------------------------------------------------------------------

  // Each event has each source of each group once: a fragment, or the reason why there is none.
  void check_slice(VirtualSystem& slice) {
    const builder::RunSummary& summary = slice.summary();
    std::set<SourceId> all_sources;
    for (const auto& [group, members] : members_) {
      for (const auto& member : members) all_sources.insert(member.id);
    }
    // The first ones are in the ledger by their numbers; a whole super-fragment by its own source.
    std::set<std::pair<SourceId, EventNumber>> named;
    for (const auto& run : summary.incomplete_list) {
      for (EventNumber event = run.events.first; event < run.events.end; ++event)
        named.emplace(run.source, slice.slice().detector_number(event));
    }
    const bool all_named = summary.incomplete_list.size() < incomplete_listed;
    std::uint64_t incomplete = 0;
    std::uint64_t stored = 0;
    slice.for_each_stored([&](const storage::StoredEvent& event) {
      ++stored;
      std::multiset<SourceId> sources;
      for (const auto& fragment : event.fragments) {
        sources.insert(fragment.source);
        stored_[event.row.event].insert(fragment.source);
      }
      for (const auto& missing : event.missing) {
        sources.insert(missing.source);
        missing_[event.row.event][missing.source] =
            static_cast<wire::MissingReason>(missing.reason);
        EXPECT_TRUE(!all_named || named.contains({missing.source, event.row.event}) ||
                    named.contains({merged_with(missing.source), event.row.event}))
            << event.row.event << log();
      }
      EXPECT_TRUE(std::ranges::equal(sources, all_sources)) << event.row.event << log();
      if ((event.row.flags & storage::event_incomplete) != 0) ++incomplete;
    });
    EXPECT_EQ(stored, summary.events_built) << log();
    EXPECT_EQ(incomplete, summary.events_incomplete) << log();
    if (!spared_) return;
    EXPECT_EQ(incomplete, 0U) << log();
  }

  // What it has forwarded is in the files of the slices, or somebody has counted it as lost.
  void check_group(std::size_t g) {
    const builder::RunSummary& summary = groups_[g]->summary();
    std::set<EventNumber> built;
    std::map<EventNumber, std::set<std::set<SourceId>>> had; // by an event: in all attempts
    std::uint64_t undelivered = 0;
    std::set<EventNumber> lacking;
    for (const Forwarded& batch : groups_[g]->forwarded()) {
      std::uint64_t absent = 0;
      for (const auto& [event, sources] : batch.has) {
        had[event].insert(sources);
        if (!batch.committed) continue;
        built.insert(event);
        if (!of_group(g, stored_, event).empty()) continue;
        lacking.insert(event);
        if (!was_late_or_lost(g, event)) ++absent;
      }
      if (!batch.committed) continue;
      undelivered += batch.undelivered;
      EXPECT_LE(absent, batch.undelivered) << "group " << g << ", events " << batch.range.first
                                           << " to " << batch.range.end << log();
    }
    // In files is nothing else than what it had.
    std::uint64_t in_files = 0;
    for (const auto& [event, sources] : stored_) {
      const std::set<SourceId> of_it = of_group(g, stored_, event);
      if (of_it.empty()) continue;
      ++in_files;
      EXPECT_TRUE(had[event].contains(of_it)) << "group " << g << ", event " << event << log();
    }
    check_counts(g, in_files, lacking.size(), undelivered);
    if (!spared_) return;
    EXPECT_EQ(built.size(), events_) << log();
    EXPECT_EQ(in_files, events_) << log();
    EXPECT_EQ(summary.events_built, events_) << log();
    EXPECT_EQ(summary.events_incomplete, 0U) << log();
    EXPECT_EQ(summary.events_undelivered, 0U) << log();
  }
  [[nodiscard]] std::set<SourceId> of_group(std::size_t g,
                                            const std::map<EventNumber, std::set<SourceId>>& events,
                                            EventNumber event) const {
    std::set<SourceId> found;
    const auto at = events.find(event);
    if (at == events.end()) return found;
    for (const auto& member : members_.at(g)) {
      if (at->second.contains(member.id)) found.insert(member.id);
    }
    return found;
  }
  // As the file of the slice says: it had it, or did not wait for it.
  [[nodiscard]] bool was_late_or_lost(std::size_t g, EventNumber event) const {
    const auto at = missing_.find(event);
    return at != missing_.end() &&
           at->second.at(members_.at(g).front().id) != wire::MissingReason::absent;
  }
  // What a group has delivered is in the ledgers of the slices.
  void check_counts(std::size_t g, std::uint64_t in_files, std::uint64_t lacking,
                    std::uint64_t undelivered) {
    const builder::RunSummary& summary = groups_[g]->summary();
    builder::SourceLedger ledger;
    std::uint64_t missing = 0;
    for (const auto& slice : slices_) {
      for (const auto& source : slice->summary().sources) {
        if (source.source.id != merged_of(g)) continue;
        ledger += source.ledger;
        for (const std::uint64_t count : source.missing) missing += count;
      }
    }
    const std::uint64_t delivered = summary.events_built - summary.events_undelivered;
    EXPECT_GE(ledger.read + missing, delivered) << log();
    EXPECT_GE(undelivered, summary.events_undelivered) << log();
    EXPECT_LE(lacking, undelivered + ledger.late + ledger.dropped + ledger.lost + missing) << log();
    EXPECT_LE(in_files, ledger.built) << log(); // of some there is a head and no fragment
    if (!spared_) return;
    EXPECT_EQ(ledger.read, delivered) << log();
  }
  [[nodiscard]] std::string log() const {
    std::string text;
    for (VirtualSystem* const system : all()) text += tail_of_log(*system) + "\n";
    return text;
  }

  Random random_;
  bool spared_;
  std::unique_ptr<net::VirtualWorld> world_;
  Duration deadline_ = 10s;
  Duration give_up_ = 20s;
  std::uint32_t block_ = 0;
  std::uint64_t events_ = 0;
  std::size_t group_builders_ = 0;
  std::size_t slices_wanted_ = 0;
  std::map<std::size_t, std::vector<storage::SourceInfo>> members_;
  std::map<EventNumber, std::set<SourceId>> stored_; // by all slices: of which sources
  std::map<EventNumber, std::map<SourceId, wire::MissingReason>> missing_; // likewise, and why
  std::vector<std::unique_ptr<VirtualSystem>> groups_;
  std::vector<std::unique_ptr<VirtualSystem>> slices_;
};

std::uint64_t run_stages(std::uint64_t seed) {
  SCOPED_TRACE(fmt::format("replay with FANIN_SEED={}", seed));
  TwoStages stages(seed, seed % 2 == 0);
  stages.run();
  if (::testing::Test::HasFatalFailure()) return 0;
  const std::uint64_t trace = stages.trace();
  stages.check();
  return trace;
}

TEST(TwoStages, deaths_cuts_and_stalls_keep_both_ledgers_balanced_and_each_event_stored_or_named) {
  const char* seed = std::getenv("FANIN_SEED");
  const char* seeds = std::getenv("FANIN_SEEDS");
  const std::uint64_t first = seed != nullptr ? std::strtoull(seed, nullptr, 0) : 1;
  const std::uint64_t count = seeds != nullptr  ? std::strtoull(seeds, nullptr, 0)
                              : seed != nullptr ? 1
                                                : 6;
  for (std::uint64_t i = 0; i < count && !HasFailure(); ++i) (void)run_stages(first + i);
}

TEST(TwoStages, the_same_seed_gives_the_same_trace) { EXPECT_EQ(run_stages(17), run_stages(17)); }

} // namespace
} // namespace fanin::testing
