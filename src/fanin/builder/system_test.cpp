#include "fanin/builder/system.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "fanin/builder/testing/make_system.hpp"

namespace fanin::builder {
namespace {

TEST(System, the_digest_says_what_all_nodes_must_agree_on) {
  const std::vector<std::function<void(System&)>> changes{
      [](System&) {},
      [](System& system) { system.readout_units.front() += "x"; },
      [](System& system) { system.builder_units.front() += "x"; },
      [](System& system) { ++system.sources.back().id; },
      [](System& system) { system.sources.back().name += "x"; },
      [](System& system) { --system.sources.back().readout_unit; },
      [](System& system) { system.sources.back().required = false; },
      [](System& system) { system.sources.back().numbering += "x"; },
      [](System& system) { system.sources.back().merged = {{.id = 7, .name = "seven"}}; },
      [](System& system) { system.protocol = Protocol::pull; },
      [](System& system) { system.integrity = false; },
      [](System& system) { system.batch_events *= 2; },
      [](System& system) { system.batch_size *= 2; },
      [](System& system) { system.data_page *= 2; },
      [](System& system) { system.shaping.policy = shaping::Policy::tokens; },
      [](System& system) { system.shaping.carrier *= 2; },
      [](System& system) { system.shaping.window *= 2; },
      [](System& system) { system.shaping.tokens *= 2; },
      [](System& system) { ++system.rails; },
      [](System& system) { system.batch_delay *= 2; },
      [](System& system) { system.latency += std::chrono::milliseconds{1}; },
      [](System& system) { system.event_deadline *= 2; },
      [](System& system) { system.trigger_rate_hz = 1000; },
      [](System& system) { system.event_window *= 2; },
      [](System& system) { system.slice.number = 1; },
      [](System& system) { system.slice.of = 3; },
      [](System& system) { system.slice.block *= 2; },
      [](System& system) { system.in_order = true; },
      [](System& system) { system.streams.push_back({.name = "physics"}); },
  };
  std::set<std::uint64_t> digests;
  for (const auto& change : changes) {
    System system = testing::make_system(2, 2);
    change(system);
    digests.insert(system.digest());
  }
  EXPECT_EQ(digests.size(), changes.size());
}

TEST(System, the_digest_leaves_out_what_one_node_decides) {
  const System system = testing::make_system(2, 2);
  System other = system;
  ++other.run;
  other.assignment = AssignmentPolicy::least_loaded;
  other.drain *= 2;
  other.dead_after *= 2;
  EXPECT_EQ(other.digest(), system.digest());
}

} // namespace
} // namespace fanin::builder
