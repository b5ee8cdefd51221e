// Whole runs in virtual time with everything that goes wrong, seeded. A failing seed is printed and
// replays with FANIN_SEED=<seed>; FANIN_SEEDS is how many are run, from there on. With
// FANIN_TRACES=1 the trace of each is printed: a change that keeps behaviour keeps all of them.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "fanin/builder/testing/make_system.hpp"
#include "virtual/expectations.hpp"
#include "virtual/more_draws.hpp"
#include "virtual/odd_numbers.hpp"
#include "virtual/trouble.hpp"
#include "virtual/virtual_system.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using fanin::testing::delivered;
using fanin::testing::expect_balanced;
using fanin::testing::MoreDraws;
using fanin::testing::OddNumbers;
using fanin::testing::tail_of_log;
using fanin::testing::Trouble;
using fanin::testing::VirtualSystem;
using fanin::testing::VirtualSystemOptions;
using testing::make_system;

std::string incomplete(const RunSummary& summary) {
  std::string all;
  for (const auto& missing : summary.incomplete_list) {
    all += fmt::format("source {} has no {} to {}, reason {}\n", missing.source,
                       missing.events.first, missing.events.end, static_cast<int>(missing.reason));
  }
  return all;
}

VirtualSystemOptions random_options(std::uint64_t seed, Random& random) {
  VirtualSystemOptions options;
  options.seed = seed;
  const std::size_t readouts = 1 + random.below(4);
  const std::size_t builders = 1 + random.below(4);
  options.system = make_system(readouts, builders, 1 + random.below(3));
  options.system.protocol = random.chance(1, 2) ? Protocol::push : Protocol::pull;
  const std::uint32_t batch = 1U << random.below(13);
  options.source_rate_hz = batch < 64 ? 1000 : 10'000; // else seeds of tiny batches take the time
  options.system.trigger_rate_hz = random.chance(1, 2) ? options.source_rate_hz : 0;
  options.system.batch_events = batch;
  options.system.data_page = std::max(32U << 10, batch * 32); // with a table of so many fragments
  options.metadata_page = std::max(4U << 10, batch * 16);
  options.network.strict = random.chance(1, 2);
  options.network.latency_max = Duration{50'000 + random.below(2'000'000)};
  options.source_pages = static_cast<std::uint32_t>(2 + random.below(16));
  options.receive_pages = static_cast<std::uint32_t>(24 + random.below(64));
  options.sink_depth = 1 + random.below(16);
  options.check_bytes = fanin::testing::emulated_bytes;
  options.commit_delay = Duration{random.below(5'000'000)};
  if (random.chance(1, 3)) { // all of them as small as they may be
    options.source_pages = 2;
    options.source_window = 128;
    options.metadata_pages = 0;
    options.receive_pages = static_cast<std::uint32_t>(8 + 2 * options.system.lanes());
    options.sink_depth = 1;
  }
  return options;
}

// Every third seed is of a run with shaping, whose draws change nothing in the other runs.
void draw_shaping(std::uint64_t seed, System& system) {
  if (seed % 3 != 0) return;
  using shaping::Policy;
  constexpr std::array policies{Policy::random, Policy::linear_shift, Policy::tokens,
                                Policy::barrel_shifter};
  Random random{~seed};
  shaping::Shaping& shaping = system.shaping;
  shaping.policy = policies.at(seed / 3 % policies.size());
  const std::uint32_t least = std::max(4096U, system.batch_events * 16 + 256);
  shaping.carrier = std::min(system.data_page / 2, least << random.below(3));
  const std::size_t readouts = system.readout_units.size();
  shaping.tokens = static_cast<std::uint32_t>(1 + random.below(readouts));
  shaping.window = shaping.window_least(2 * readouts) + random.below(shaping.carrier); // two rails
}

// One seed of three is of a run whose storage takes batches in order. The draw changes nothing in
// the other runs.
void draw_order(std::uint64_t seed, System& system) {
  Random random{seed ^ 0x6f72646572U};
  system.in_order = random.chance(1, 3);
  if (system.in_order) system.assignment = AssignmentPolicy::by_number;
}

void expect_granted_within_window(VirtualSystem& system, const System& agreed) {
  for (std::size_t b = 0; agreed.shaping.on() && b < system.builders(); ++b) {
    if (system.builder(b) == nullptr) continue;
    std::uint64_t outstanding = 0; // over all rails
    for (const auto& grants : system.builder(b)->grants()) outstanding += grants.outstanding();
    EXPECT_LE(outstanding, agreed.shaping.window);
  }
}

// A run without odd numbers: what nobody harmed is complete.
void expect_complete(const RunSummary& summary, const Trouble& trouble, bool spare_readouts,
                     const MoreDraws& more) {
  bool any_spared = false;
  for (const auto& source : summary.sources) {
    if (trouble.harmed(source.source.readout_unit)) continue;
    any_spared = true;
    EXPECT_EQ(source.ledger.late + source.ledger.dropped, more.dropped(source.source.id))
        << source.source.name;
    EXPECT_EQ(source.missing, wire::MissingCounts{}) << source.source.name;
  }
  if (spare_readouts) {
    EXPECT_EQ(summary.events_incomplete, 0U);
  }
  if (any_spared) {
    EXPECT_EQ(summary.gaps, 0U);
  }
}

std::uint64_t run_faults(std::uint64_t seed) {
  SCOPED_TRACE(fmt::format("replay with FANIN_SEED={}", seed));
  Random random{seed};
  const bool spare_readouts = random.chance(1, 2);
  VirtualSystemOptions options = random_options(seed, random);
  draw_shaping(seed, options.system);
  draw_order(seed, options.system);
  MoreDraws more{seed, options};
  std::optional<OddNumbers> odd;
  if (seed % 2 == 0) {
    odd.emplace(seed, options, more.on());
    options.make_source = [&odd](const SourceInfo& info) { return odd->make(info); };
  }
  VirtualSystem system{options};
  Trouble trouble{system, options.system, random, spare_readouts};
  trouble.limit_links(more.link_rate());
  system.start_all();
  for (int step = 0; step < 20 && !system.manager().ended(); ++step) {
    system.run_for(Duration{1'000'000 + random.below(200'000'000)});
    if (!odd || !odd->bursts()) {
      trouble.step();
      more.step(trouble);
    }
    expect_granted_within_window(system, options.system);
  }
  trouble.all_up();
  system.run_for(1s);
  system.stop();
  EXPECT_TRUE(system.run_until_ended(600s))
      << tail_of_log(system) << system.manager().waiting_for();
  EXPECT_EQ(system.manager().bytes_reserved(), 0U);
  const RunSummary& summary = system.summary();
  if (spare_readouts) {
    EXPECT_EQ(summary.fragments.lost, 0U);
    EXPECT_EQ(summary.events_lost, 0U);
  }
  EXPECT_EQ(trouble.unexplained(summary), "");
  for (const auto& source : summary.sources) {
    if (trouble.harmed(source.source.readout_unit)) continue;
    EXPECT_EQ(source.ledger.lost, 0U) << source.source.name;
  }
  if (odd) {
    const auto spared = [&](const SourceInfo& info) { return !trouble.harmed(info.readout_unit); };
    EXPECT_EQ(odd->check(system, spared), "");
  } else {
    expect_complete(summary, trouble, spare_readouts, more);
  }
  if (::testing::Test::HasFailure())
    fmt::print("{}\n{}", more.text(), incomplete(summary) + tail_of_log(system));
  const std::uint64_t trace = system.world().trace_hash() ^ delivered(system);
  expect_balanced(system);
  if (std::getenv("FANIN_TRACES") != nullptr) fmt::print("trace {} {}\n", seed, trace);
  return trace;
}

TEST(Faults, random_deaths_freezes_and_lost_connections_keep_the_ledger_balanced) {
  const char* seed = std::getenv("FANIN_SEED");
  const char* seeds = std::getenv("FANIN_SEEDS");
  const std::uint64_t first = seed != nullptr ? std::strtoull(seed, nullptr, 0) : 1;
  const std::uint64_t count = seeds != nullptr  ? std::strtoull(seeds, nullptr, 0)
                              : seed != nullptr ? 1
                                                : 10;
  for (std::uint64_t i = 0; i < count && !HasFailure(); ++i) (void)run_faults(first + i);
}

TEST(Faults, the_same_seed_gives_the_same_trace_everywhere) {
  EXPECT_EQ(run_faults(4711), 17'752'543'730'638'439'401U);
  EXPECT_EQ(run_faults(4712), 7'380'482'675'385'718'730U);
}

} // namespace
} // namespace fanin::builder
