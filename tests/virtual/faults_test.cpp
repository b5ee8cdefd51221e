// Starvation, deadlock, deaths, lost connections, silence: in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "fanin/builder/testing/fake_node.hpp"
#include "fanin/builder/testing/make_system.hpp"
#include "virtual/expectations.hpp"
#include "virtual/virtual_system.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using fanin::testing::delivered;
using fanin::testing::end_without_loss;
using fanin::testing::expect_balanced;
using fanin::testing::expect_nothing_lost;
using fanin::testing::tail_of_log;
using fanin::testing::triggered;
using fanin::testing::VirtualSystem;
using fanin::testing::VirtualSystemOptions;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::make_system;
using ::testing::Not;

int logged(const VirtualSystem& system, std::string_view what) {
  return static_cast<int>(std::ranges::count_if(
      system.log(), [&](const std::string& line) { return line.find(what) != std::string::npos; }));
}

// Nothing was done to any node for which it is given up.
void expect_all_kept(VirtualSystem& system) {
  ASSERT_NO_FATAL_FAILURE(end_without_loss(system));
  for (const auto& node : system.summary().nodes) EXPECT_EQ(node.incarnations, 1U) << node.name;
  EXPECT_EQ(system.summary().fragments.late, 0U);
  expect_balanced(system);
}

TEST(Backpressure, smallest_pools_make_progress) {
  auto options = triggered(3, 2, 50'000);
  options.source_pages = 2;
  options.source_window = 128;
  options.metadata_pages = 2;
  options.receive_pages = 16;
  options.sink_depth = 1;
  options.system.events_max = 3000;
  VirtualSystem system{options};
  system.start_all();
  ASSERT_TRUE(system.run_until_ended(60s)) << tail_of_log(system);
  EXPECT_EQ(system.summary().events_built, 3000U);
  EXPECT_EQ(system.summary().events_incomplete, 0U);
  expect_balanced(system);
}

TEST(Backpressure, a_source_that_we_read_no_further_is_not_silent) {
  for (const double trigger_hz : {0.0, 100'000.0}) {
    VirtualSystemOptions options;
    options.system = make_system(2, 1);
    options.system.read_ahead = 128U << 10;
    options.system.trigger_rate_hz = trigger_hz;
    options.commit_delay = 300ms; // longer than the event deadline
    options.sink_depth = 1;
    options.fragment_max = 32U << 10;
    options.make_source = [](const SourceInfo& info) {
      return std::make_unique<source::Emulator>(source::EmulatorOptions{
          .source = info.id, .size = source::FixedSize{info.id == 1 ? 16U : 10'000U}});
    };
    VirtualSystem system{options};
    system.start_all();
    system.run_for(10s);
    system.sink(0)->set_commit_delay(1ms);
    system.stop();
    ASSERT_TRUE(system.run_until_ended(600s))
        << tail_of_log(system) << system.manager().waiting_for();
    EXPECT_GT(system.summary().events_built, 100U);
    EXPECT_EQ(system.summary().events_incomplete, 0U) << tail_of_log(system);
    expect_balanced(system);
  }
}

// Has all its events at once. It could tell a sender what is announced when it is read next.
class Acknowledging final : public source::Source {
public:
  struct Waits {
    VirtualSystem* system = nullptr;
    EventNumber announced = 0;
    std::optional<Time> since; // until it is read
    Duration longest{};
  };
  Acknowledging(Waits& waits, EventNumber count) : waits_(waits), count_(count) {}
  Result<> start(EventNumber, Time) override { return {}; }
  void announced(EventNumber end) override {
    waits_.announced = end;
    if (!waits_.since) waits_.since = waits_.system->world().now();
  }
  source::ReadResult read(source::FragmentQueue& queue, Time now) override {
    if (waits_.since) waits_.longest = std::max(waits_.longest, now - *waits_.since);
    waits_.since.reset();
    const std::array<std::byte, 8> payload{};
    while (next_ < count_ && queue.write(next_, payload) != source::WriteOutcome::full) ++next_;
    return {};
  }

private:
  Waits& waits_;
  EventNumber next_ = 0;
  EventNumber count_;
};

// The event manager and the builder unit are played. Returns how long a cut was not acknowledged.
Duration longest_wait(std::uint64_t seed) {
  constexpr std::uint32_t batch = 256; // a page has the metadata of one
  Acknowledging::Waits waits;
  VirtualSystemOptions options;
  options.seed = seed;
  options.system = make_system(1, 1);
  options.system.rails = 1;
  options.system.batch_events = batch;
  options.metadata_pages = 2;
  options.make_source = [&](const SourceInfo&) {
    return std::make_unique<Acknowledging>(waits, 16 * batch);
  };
  VirtualSystem system{options};
  waits.system = &system;
  {
    testing::FakeNode manager(system.manager_node());
    testing::FakeNode builder(system.builder_node(0));
    manager.listen("sim://evm");
    builder.listen("sim://bu0");
    system.start_readout(0);
    system.run_for(5ms);
    constexpr std::string_view url = "sim://bu0";
    manager.say(wire::Welcome{.run = 7, .incarnation = 1, .limit = 16 * batch});
    manager.say(wire::BuilderUp{.incarnation = 1, .text_size = url.size()}, url);
    system.run_for(5ms);
    EXPECT_TRUE(manager.heard(wire::MessageType::announce));
    system.readout_node(0).break_path(system.builder_node(0)); // what is sent keeps its pages
    for (std::uint32_t i = 0; i < 12; ++i) {
      wire::Assign assign{.first = i * batch, .events = batch, .builder_incarnation = 1};
      assign.seal = wire::seal_of(assign, 0);
      manager.say(assign);
    }
    system.run_for(5ms);
    manager.say(wire::Clear{.first = 0, .end = batch});
    system.run_for(500ms);
    const EventNumber cut = waits.announced;
    EXPECT_LT(cut, 12 * batch) << "none waits";
    waits.longest = {};
    system.readout_node(0).repair_path(system.builder_node(0));
    system.run_for(1s);
    EXPECT_EQ(waits.announced, cut + batch);
    EXPECT_FALSE(waits.since);
  }
  system.destroy_nodes();
  return waits.longest;
}

// Other pages that come home wake the readout unit as well, at another time with each seed.
TEST(Backpressure, what_has_waited_for_a_page_is_acknowledged_in_the_next_turn) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) EXPECT_LE(longest_wait(seed), 1us) << seed;
}

// Gives every second event, odd or even ones, as fast as it may.
class EverySecond final : public source::Source {
public:
  EverySecond(SourceId id, EventNumber count) : next_(id % 2), count_(count) {}
  Result<> start(EventNumber first, Time) override {
    next_ = std::max(next_, first | (next_ & 1));
    return {};
  }
  source::ReadResult read(source::FragmentQueue& queue, Time) override {
    const std::array<std::byte, 8> payload{};
    for (int i = 0; i < 2000; ++i, next_ += 2) {
      if (next_ >= count_) return {source::ReadState::finished};
      if (queue.write(next_, payload) == source::WriteOutcome::full) return {};
    }
    return {source::ReadState::more};
  }

private:
  EventNumber next_;
  EventNumber count_;
};

TEST(Backpressure, numbers_that_no_source_has_are_not_lost_with_the_events_between) {
  VirtualSystemOptions options;
  options.system = make_system(1, 1);
  options.commit_delay = 60s; // nothing is built
  options.make_source = [](const SourceInfo&) { return std::make_unique<EverySecond>(2, 1000); };
  VirtualSystem system{options};
  system.start_all();
  system.run_for(2s);
  ASSERT_EQ(system.summary().events_built, 0U);
  system.manager().stop_now("by the test");
  EXPECT_EQ(system.summary().events_lost, system.summary().fragments.lost);
  EXPECT_GT(system.summary().events_lost, 0U);
}

TEST(Silence, a_triggered_event_that_no_source_has_is_an_event_and_no_gap) {
  auto options = triggered(2, 2, 10'000);
  options.system.events_max = 300;
  options.make_source = [](const SourceInfo&) { return std::make_unique<EverySecond>(2, 1000); };
  VirtualSystem system{options};
  system.start_all();
  ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
  EXPECT_EQ(system.summary().events_built, 300U);
  EXPECT_EQ(system.summary().events_incomplete, 150U);
  EXPECT_EQ(system.summary().gaps, 0U);
  expect_balanced(system);
}

TEST(Backpressure, exceptions_without_end_cost_nobody_the_connection_to_the_event_manager) {
  VirtualSystemOptions options;
  options.system = make_system(1, 2, 8);
  options.network.latency_max = 2ms; // the event manager takes its time
  options.make_source = [](const SourceInfo& info) {
    return std::make_unique<EverySecond>(info.id, 100'000);
  };
  VirtualSystem system{options};
  system.start_all();
  ASSERT_TRUE(system.run_until_ended(600s)) << tail_of_log(system);
  for (const auto& node : system.summary().nodes) EXPECT_EQ(node.incarnations, 1U) << node.name;
  EXPECT_EQ(system.summary().events_built, 100'000U);
  EXPECT_EQ(system.summary().fragments.built, 400'000U);
  expect_balanced(system);
}

TEST(Backpressure, batches_of_one_event_cost_nobody_the_connection_to_the_event_manager) {
  for (const auto protocol : {Protocol::push, Protocol::pull}) {
    VirtualSystemOptions options;
    options.system = make_system(2, 2);
    options.system.protocol = protocol;
    options.system.batch_events = 1;
    options.network.latency_max = 2ms;
    options.source_rate_hz = 0; // as fast as they may
    options.source_events = 20'000;
    options.size = source::FixedSize{8};
    options.receive_pages = 4096;
    options.source_pages = 64;
    options.source_window = 16384;
    VirtualSystem system{options};
    system.start_all();
    ASSERT_TRUE(system.run_until_ended(600s)) << tail_of_log(system);
    for (const auto& node : system.summary().nodes) EXPECT_EQ(node.incarnations, 1U) << node.name;
    EXPECT_EQ(system.summary().events_built, 20'000U) << tail_of_log(system);
    EXPECT_EQ(system.summary().events_incomplete, 0U);
    expect_balanced(system);
  }
}

TEST(Control, a_connection_that_is_lost_for_a_moment_costs_a_readout_unit_nothing) {
  for (const auto protocol : {Protocol::push, Protocol::pull}) {
    auto options = triggered(2, 2, 20'000);
    options.system.protocol = protocol;
    VirtualSystem system{options};
    system.start_all();
    for (int i = 0; i < 20; ++i) {
      system.run_for(Duration{50ms} + i * 1ms);
      system.readout_node(static_cast<std::size_t>(i) % 2).disconnect(system.manager_node());
    }
    system.run_for(500ms);
    system.stop();
    ASSERT_TRUE(system.run_until_ended(60s)) << tail_of_log(system);
    for (const std::size_t i : {0U, 1U}) {
      EXPECT_EQ(system.summary().nodes[i].incarnations, 1U) << tail_of_log(system);
    }
    EXPECT_EQ(system.summary().events_incomplete, 0U);
    EXPECT_EQ(system.summary().fragments.lost, 0U);
    EXPECT_GT(system.summary().events_built, 20'000U);
    expect_balanced(system);
  }
}

TEST(Control, a_connection_that_is_lost_before_the_welcome_came_costs_nothing) {
  for (int i = 0; i < 40; ++i) {
    auto options = triggered(2, 2, 20'000);
    options.network.latency_max = 1ms;
    VirtualSystem system{options};
    system.start_all();
    system.run_for(i * 100us);
    system.readout_node(1).disconnect(system.manager_node());
    system.run_for(100ms);
    system.stop();
    ASSERT_TRUE(system.run_until_ended(60s)) << tail_of_log(system);
    EXPECT_EQ(system.summary().nodes[1].incarnations, 1U) << tail_of_log(system);
    EXPECT_EQ(system.summary().events_incomplete, 0U);
    expect_balanced(system);
  }
}

TEST(Control, another_process_ends_the_wait_for_one_that_has_lost_its_connection) {
  auto options = triggered(2, 1, 10'000);
  options.system.grace = 1500ms;
  VirtualSystem system{options};
  system.start_all();
  system.run_for(100ms);
  system.kill_readout(1);
  system.run_for(100ms);
  const auto before = system.summary().events_built;
  system.start_readout(1);
  system.run_for(300ms);
  EXPECT_GT(system.summary().events_built, before + 1000U) << tail_of_log(system);
  system.stop();
  ASSERT_TRUE(system.run_until_ended(60s)) << tail_of_log(system);
  expect_balanced(system);
}

TEST(Control, a_death_that_was_seen_ends_the_wait_at_once) {
  for (const Duration after : {Duration{0}, Duration{200ms}}) { // the loss is noticed, or is not
    auto options = triggered(2, 1, 10'000);
    options.system.grace = 1500ms;
    VirtualSystem system{options};
    system.start_all();
    system.run_for(100ms);
    system.kill_readout(1);
    system.run_for(after);
    const auto before = system.summary().events_built;
    system.tell_of_death(1);
    system.run_for(300ms);
    EXPECT_GT(system.summary().events_built, before + 2000U) << tail_of_log(system);
    system.start_readout(1);
    system.run_for(100ms);
    system.tell_of_death(0); // nobody has died, but the next loss of its connection is its end
    system.run_for(300ms);
    system.readout_node(0).disconnect(system.manager_node());
    system.run_for(300ms);
    system.stop();
    ASSERT_TRUE(system.run_until_ended(60s)) << tail_of_log(system);
    for (const std::size_t i : {0U, 1U}) EXPECT_EQ(system.summary().nodes[i].incarnations, 2U);
    expect_balanced(system);
  }
}

// All of it on one host that is paused again and again; the event manager runs first.
TEST(Silence, a_busy_host_makes_nobody_silent) {
  auto options = triggered(2, 2, 1); // they have little to say
  options.system.dead_after = 400ms;
  options.system.grace = 100ms;
  VirtualSystem system{options};
  system.start_all();
  const auto for_all = [&](const auto& what) {
    for (const std::size_t i : {0U, 1U}) {
      what(system.readout_node(i));
      what(system.builder_node(i));
    }
  };
  for (int i = 0; i < 100; ++i) {
    system.run_for(Duration{20ms} + i * 7ms);
    system.manager_node().freeze();
    for_all([](net::VirtualNode& node) { node.freeze(); });
    system.run_for(190ms); // less than half of dead_after
    system.manager_node().thaw();
    system.run_for(5ms);
    for_all([](net::VirtualNode& node) { node.thaw(); });
  }
  expect_all_kept(system);
}

TEST(Backpressure, events_that_nobody_can_build_cost_the_event_manager_nothing) {
  for (const double trigger_hz : {0.0, 1000.0}) {
    for (const bool reachable : {false, true}) {
      auto options = triggered(2, 2, trigger_hz);
      options.source_rate_hz = 1000;
      options.system.dead_after = 60s;
      options.system.trigger_window = 2000;
      VirtualSystem system{options};
      system.start_all();
      system.run_for(50ms);
      for (const std::size_t i : {0U, 1U}) {
        if (reachable) {
          system.sink(i)->stall(true);
        } else {
          for (const std::size_t r : {0U, 1U})
            system.readout_node(r).break_path(system.builder_node(i));
        }
      }
      system.run_for(8s); // until all that can be read is
      const auto looks = system.manager().batches_examined();
      const auto turns = system.world().run_until(system.world().now() + 10s);
      // A status of each node every 250 ms, the event manager's own looks, and their answers.
      EXPECT_LT(system.manager().batches_examined() - looks, 300U);
      EXPECT_LT(turns, 6000U);
      for (const std::size_t i : {0U, 1U}) {
        if (reachable) {
          system.sink(i)->stall(false);
        } else {
          for (const std::size_t r : {0U, 1U})
            system.readout_node(r).repair_path(system.builder_node(i));
        }
      }
      expect_all_kept(system);
    }
  }
}

TEST(Backpressure, metadata_of_tiny_fragments_is_shared_fairly_too) {
  auto options = triggered(2, 3, 100'000);
  options.size = source::FixedSize{4};
  options.source_window = 65536;
  options.system.trigger_window = 1'000'000;
  options.metadata_pages = 0; // what is needed, no more
  VirtualSystem system{options};
  system.start_all();
  system.run_for(20ms);
  system.sink(1)->stall(true); // holds what it was given
  system.run_for(1s);
  const auto before = system.summary().events_built;
  EXPECT_GT(before, 50'000U);
  system.kill_builder(0); // its batches need pages anew
  system.run_for(1s);
  EXPECT_GT(system.summary().events_built, before + 20'000U);
  system.sink(1)->stall(false);
  expect_nothing_lost(system);
}

TEST(Backpressure, a_builder_unit_that_was_frozen_for_a_while_makes_no_event_incomplete) {
  for (const double trigger_hz : {0.0, 20'000.0}) {
    auto options = triggered(2, 2, trigger_hz);
    options.source_rate_hz = 20'000;
    VirtualSystem system{options};
    system.start_all();
    for (int i = 0; i < 5; ++i) {
      system.run_for(Duration{30ms} + i * 1ms);
      system.builder_node(1).freeze();
      system.run_for(options.system.event_deadline + 10ms + i * 200ms);
      system.builder_node(1).thaw();
    }
    system.run_for(500ms);
    system.stop();
    ASSERT_TRUE(system.run_until_ended(60s)) << tail_of_log(system);
    EXPECT_EQ(system.summary().events_incomplete, 0U) << tail_of_log(system);
    EXPECT_EQ(system.summary().nodes[3].incarnations, 1U);
    expect_balanced(system);
  }
}

TEST(Backpressure, a_disk_that_stands_still_makes_no_event_incomplete) {
  VirtualSystem system{triggered(2, 2, 20'000)};
  system.start_all();
  system.run_for(50ms);
  system.sink(0)->stall(true);
  system.sink(1)->stall(true);
  system.run_for(5s); // many times the event deadline
  const auto built = system.summary().events_built;
  system.run_for(100ms);
  EXPECT_EQ(system.summary().events_built, built);
  system.sink(0)->stall(false);
  system.sink(1)->stall(false);
  system.run_for(500ms);
  system.stop();
  ASSERT_TRUE(system.run_until_ended(60s)) << tail_of_log(system);
  EXPECT_GT(system.summary().events_built, built);
  EXPECT_EQ(system.summary().events_incomplete, 0U);
  expect_balanced(system);
}

TEST(Faults, without_its_storage_a_builder_unit_leaves_and_the_others_go_on) {
  VirtualSystem system{triggered(2, 2, 20'000)};
  system.start_all();
  system.run_for(50ms);
  system.sink(0)->report_failure({ErrorKind::exhausted, "disk full: /data"}, true);
  system.run_for(500ms);
  EXPECT_TRUE(system.manager().running());
  system.stop();
  ASSERT_TRUE(system.run_until_ended(60s)) << tail_of_log(system);
  EXPECT_EQ(system.summary().events_incomplete, 0U);
  EXPECT_EQ(system.summary().error, "");
  expect_balanced(system);
}

TEST(Faults, storage_that_fails_ends_the_run_where_that_is_set) {
  auto options = triggered(2, 2, 20'000);
  options.failure_ends_run = true;
  VirtualSystem system{options};
  system.start_all();
  system.run_for(50ms);
  system.sink(0)->report_failure({ErrorKind::exhausted, "disk full: /data"}, true);
  ASSERT_TRUE(system.run_until_ended(1s)) << tail_of_log(system); // the other builds what is left
  EXPECT_EQ(system.summary().error, "builder unit 'bu0': disk full: /data");
  EXPECT_FALSE(system.summary().forced);
  EXPECT_EQ(system.summary().events_lost, 0U);
  EXPECT_EQ(system.summary().events_incomplete, 0U);
  expect_balanced(system);
}

TEST(Faults, a_builder_unit_that_cannot_make_its_file_says_why) {
  auto options = triggered(2, 2, 20'000);
  options.without_file = 1;
  VirtualSystem system{options};
  system.start_all();
  system.run_for(100ms);
  EXPECT_THAT(system.log(), Contains(HasSubstr("builder unit 'bu1' is gone (no inode is left)")));
  system.stop();
  ASSERT_TRUE(system.run_until_ended(10s)) << tail_of_log(system);
  EXPECT_EQ(system.summary().error, "");
  options.failure_ends_run = true;
  VirtualSystem strict{options};
  strict.start_all();
  ASSERT_TRUE(strict.run_until_ended(10s)) << tail_of_log(strict);
  EXPECT_EQ(strict.summary().error, "builder unit 'bu1': no inode is left");
}

TEST(Faults, what_the_loss_of_a_readout_unit_means_depends_on_the_phase_of_the_run) {
  const auto lost = [](std::string_view then) {
    return Contains(ContainsRegex(fmt::format("'ru1' is gone .*: the run {}", then)));
  };
  VirtualSystem waiting{triggered(3, 1, 1000)};
  waiting.start_event_manager();
  waiting.start_readout(1);
  waiting.run_for(100ms);
  waiting.kill_readout(1);
  waiting.run_for(100ms);
  EXPECT_THAT(waiting.log(), lost("cannot begin without it"));
  waiting.start_readout(1);
  waiting.run_for(2s); // no more than three lines of a node in one
  waiting.stop();
  waiting.kill_readout(1); // before it has said that it is finished
  waiting.run_for(5s);
  EXPECT_THAT(waiting.log(), lost("is ending"));
  VirtualSystem running{triggered(3, 1, 1000)};
  running.start_all();
  running.run_for(100ms);
  running.kill_readout(1);
  running.run_for(100ms);
  EXPECT_THAT(running.log(), lost("goes on, its sources are missing until it comes back"));
}

TEST(Faults, nobody_is_said_to_build_where_nobody_is_left) {
  VirtualSystem system{triggered(1, 2, 20'000)};
  system.start_all();
  system.run_for(100ms);
  for (const std::size_t builder : {0U, 1U}) {
    system.sink(builder)->set_commit_delay(10s); // it has something to build when it dies
    system.run_for(100ms);
  }
  for (const std::size_t builder : {0U, 1U}) {
    system.kill_builder(builder);
    system.run_for(10ms);
  }
  EXPECT_THAT(system.log(), Contains(ContainsRegex("'bu0' is gone .*: others build its [1-9]")));
  EXPECT_THAT(system.log(), Contains(ContainsRegex(
                                "'bu1' is gone .*: its [1-9][0-9]* events wait for a builder")));
}

// It would end before one of them is here, which has to tell its slices that nothing comes.
TEST(Faults, a_run_whose_events_are_dealt_by_number_begins_when_all_builder_units_are_here) {
  auto options = triggered(1, 2, 20'000);
  options.system.assignment = AssignmentPolicy::by_number;
  options.system.events_max = 1;
  VirtualSystem system{options};
  system.start_event_manager();
  system.start_readout(0);
  system.start_builder(0);
  EXPECT_FALSE(system.run_until_ended(1s));
  system.start_builder(1);
  ASSERT_TRUE(system.run_until_ended(10s)) << tail_of_log(system);
  EXPECT_TRUE(system.outcome_of_builder(1));
  expect_balanced(system);
}

TEST(Faults, nobody_is_said_to_build_events_that_are_dealt_by_number) {
  auto options = triggered(1, 2, 20'000);
  options.system.assignment = AssignmentPolicy::by_number;
  VirtualSystem system{options};
  system.start_all();
  system.run_for(100ms);
  system.sink(0)->set_commit_delay(10s);
  system.run_for(100ms);
  system.kill_builder(0);
  system.run_for(10ms);
  EXPECT_THAT(system.log(), Contains(ContainsRegex(
                                "'bu0' is gone .*: its [1-9][0-9]* events wait until it comes")));
}

TEST(Faults, a_run_ends_at_once_where_no_storage_is_left) {
  auto options = triggered(2, 2, 20'000);
  options.failure_ends_run = true;
  VirtualSystem system{options};
  system.start_all();
  system.run_for(50ms);
  for (const std::size_t builder : {0U, 1U}) {
    system.sink(builder)->stall(true);
    system.sink(builder)->report_failure({ErrorKind::exhausted, "disk full: /data"}, true);
  }
  ASSERT_TRUE(system.run_until_ended(1s)) << tail_of_log(system);
  EXPECT_TRUE(system.summary().forced);
  EXPECT_GT(system.summary().events_lost, 0U);
  expect_balanced(system);
}

TEST(Backpressure, a_slow_builder_unit_does_not_stop_the_others) {
  auto options = triggered(2, 3, 20'000);
  VirtualSystem system{options};
  system.start_all();
  system.run_for(20ms);
  system.sink(1)->set_commit_delay(500ms);
  system.run_for(1s);
  EXPECT_GT(system.summary().events_built, 15'000U) << tail_of_log(system);
  expect_nothing_lost(system);
}

TEST(Backpressure, a_frozen_builder_unit_holds_up_nobody_who_asks_for_his_own_batches) {
  VirtualSystemOptions options;
  options.system = make_system(2, 3);
  options.system.protocol = Protocol::pull;
  options.system.read_ahead = 256U << 10;
  options.source_rate_hz = 20'000;
  options.source_window = 1024;
  options.source_pages = 64;
  VirtualSystem system{options};
  system.start_all();
  system.run_for(20ms);
  system.builder_node(1).freeze();
  system.run_for(1s); // half of the time until it is given up
  EXPECT_GT(system.summary().events_built, 12'000U) << tail_of_log(system);
  system.builder_node(1).thaw();
  system.run_for(100ms);
  expect_nothing_lost(system);
}

TEST(Backpressure, a_frozen_builder_unit_does_not_stop_the_others_and_loses_nothing) {
  VirtualSystem system{triggered(2, 3, 20'000)};
  system.start_all();
  system.run_for(20ms);
  system.builder_node(1).freeze();
  system.run_for(1s);
  const auto before = system.summary().events_built;
  EXPECT_GT(before, 10'000U);
  system.run_for(3s); // long enough to be given up
  system.builder_node(1).thaw();
  system.run_for(1s);
  expect_nothing_lost(system);
}

TEST(Silence, a_readout_unit_that_was_frozen_for_a_while_is_not_cut_off) {
  VirtualSystem system{triggered(2, 2, 100'000)};
  system.start_all();
  system.run_for(50ms);
  system.readout_node(1).freeze();
  system.run_for(1500ms); // thousands of triggers, and less than dead_after
  system.readout_node(1).thaw();
  system.run_for(500ms);
  system.stop();
  ASSERT_TRUE(system.run_until_ended(60s)) << tail_of_log(system);
  EXPECT_EQ(system.summary().nodes[1].incarnations, 1U) << tail_of_log(system);
  expect_balanced(system);
}

// Its data come over a network: when its host was paused, they are there a moment after it.
class RemoteSource final : public source::Source {
public:
  explicit RemoteSource(SourceId id)
      : emulator_({.source = id, .size = source::FixedSize{100}, .rate_hz = 5000}) {}
  Result<> start(EventNumber first, Time now) override {
    last_read_ = now;
    return emulator_.start(first, now);
  }
  source::ReadResult read(source::FragmentQueue& queue, Time now) override {
    if (now - last_read_ > 100ms) data_from_ = now + 5ms;
    last_read_ = now;
    if (now < data_from_) return {source::ReadState::waiting, data_from_};
    return emulator_.read(queue, now);
  }

private:
  source::Emulator emulator_;
  Time last_read_{};
  Time data_from_{};
};

TEST(Silence, a_pause_of_the_host_of_a_readout_unit_makes_no_event_incomplete) {
  VirtualSystemOptions options;
  options.system = make_system(2, 2, 2);
  options.make_source = [](const SourceInfo& info) -> std::unique_ptr<source::Source> {
    if (info.id == 4) return std::make_unique<RemoteSource>(info.id);
    return std::make_unique<source::Emulator>(source::EmulatorOptions{
        .source = info.id, .size = source::FixedSize{100}, .rate_hz = 5000});
  };
  VirtualSystem system{options};
  system.start_all();
  for (int i = 0; i < 10; ++i) {
    system.run_for(Duration{50ms} + i * 7ms);
    system.readout_node(1).freeze();
    system.run_for(Duration{300ms} + i * 100ms);
    system.readout_node(1).thaw();
  }
  system.run_for(500ms);
  system.stop();
  ASSERT_TRUE(system.run_until_ended(60s)) << tail_of_log(system);
  EXPECT_EQ(system.summary().events_incomplete, 0U) << tail_of_log(system);
  EXPECT_GT(system.summary().events_built, 20'000U);
  expect_balanced(system);
}

TEST(BrokenPaths, a_builder_unit_that_no_data_reach_costs_no_event) {
  for (const auto protocol : {Protocol::push, Protocol::pull}) {
    for (const bool strict : {false, true}) {
      for (const bool from_the_start : {false, true}) {
        auto options = triggered(2, 2, 10'000);
        options.system.protocol = protocol;
        options.network.strict = strict;
        VirtualSystem system{options};
        if (!from_the_start) {
          system.start_all();
          system.run_for(50ms);
        }
        system.readout_node(0).break_path(system.builder_node(1));
        system.readout_node(1).break_path(system.builder_node(1));
        if (from_the_start) system.start_all();
        system.run_for(1500ms);
        EXPECT_GT(system.summary().events_built, 10'000U) << tail_of_log(system);
        expect_all_kept(system);
      }
    }
  }
}

TEST(BrokenPaths, a_dead_rail_is_left_for_the_next_one) {
  for (const auto protocol : {Protocol::push, Protocol::pull}) {
    auto options = triggered(2, 2, 10'000);
    options.system.protocol = protocol;
    VirtualSystem system{options};
    system.start_all();
    system.run_for(50ms);
    for (const std::size_t r : {0U, 1U}) {
      for (const std::size_t b : {0U, 1U}) {
        system.readout_node(r).break_path(system.builder_node(b), 1);
        system.builder_node(b).break_path(system.readout_node(r), 1);
      }
    }
    system.run_for(1500ms);
    const auto before = system.summary().nodes[3].events;
    system.run_for(500ms);
    EXPECT_GT(system.summary().nodes[3].events, before + 1000U) << tail_of_log(system);
    expect_all_kept(system);
  }
}

// Of two sources each has a rail. Without one of them both travel over the other one, until it is
// back.
TEST(BrokenPaths, sources_of_a_dead_rail_move_to_the_others_and_back) {
  for (const auto protocol : {Protocol::push, Protocol::pull}) {
    for (const bool strict : {false, true}) {
      for (const int ways : {1, 2, 3}) {
        auto options = triggered(2, 2, 2000, 2);
        options.system.protocol = protocol;
        options.network.strict = strict;
        VirtualSystem system{options};
        system.start_all();
        system.run_for(50ms);
        const auto each_path = [&](auto use) {
          for (const std::size_t r : {0U, 1U}) {
            for (const std::size_t b : {0U, 1U}) {
              if ((ways & 1) != 0) use(system.readout_node(r), system.builder_node(b));
              if ((ways & 2) != 0) use(system.builder_node(b), system.readout_node(r));
            }
          }
        };
        each_path([](auto& from, auto& to) { from.break_path(to, 2); });
        system.run_for(3s);
        each_path([](auto& from, auto& to) { from.repair_path(to, 2); });
        const auto before = system.summary().events_built;
        system.run_for(500ms);
        EXPECT_GT(system.summary().events_built, before + 900U) << tail_of_log(system);
        system.run_for(6s); // longer than dead_after
        const int noticed = (ways & 1) != 0 ? 2 : logged(system, "sim://bu0:2 is closed");
        EXPECT_EQ(logged(system, "sim://bu0:2 is closed, continuing over sim://bu0:1"), noticed)
            << ways << tail_of_log(system);
        EXPECT_EQ(logged(system, "sim://bu0:2 is back"), noticed) << tail_of_log(system);
        expect_all_kept(system);
      }
    }
  }
}

// Longer than dead_after, in either direction.
TEST(BrokenPaths, a_dead_rail_of_control_is_left_for_the_next_one) {
  for (const bool strict : {false, true}) {
    for (const int ways : {1, 2, 3}) {
      auto options = triggered(2, 2, 2000);
      options.network.strict = strict;
      options.control_rails = 2;
      VirtualSystem system{options};
      system.start_all();
      system.run_for(50ms);
      for (const std::size_t i : {0U, 1U}) {
        for (net::VirtualNode* node : {&system.readout_node(i), &system.builder_node(i)}) {
          if ((ways & 1) != 0) node->break_path(system.manager_node(), 1);
          if ((ways & 2) != 0) system.manager_node().break_path(*node, 1);
        }
      }
      system.run_for(5s);
      const auto before = system.summary().events_built;
      system.run_for(500ms);
      EXPECT_GT(system.summary().events_built, before + 700) << tail_of_log(system);
      ASSERT_NO_FATAL_FAILURE(end_without_loss(system));
      for (const std::size_t i : {0U, 1U}) {
        EXPECT_EQ(system.summary().nodes[i].incarnations, 1U) << tail_of_log(system);
        EXPECT_LE(system.summary().nodes[2 + i].incarnations, 2U) << tail_of_log(system);
      }
      expect_balanced(system);
    }
  }
}

TEST(BrokenPaths, an_event_manager_that_stands_still_costs_nothing_over_several_rails) {
  auto options = triggered(2, 2, 10'000);
  options.control_rails = 2;
  VirtualSystem system{options};
  system.start_all();
  for (const Duration time : {Duration{800ms}, Duration{1200ms}, Duration{6s}}) {
    system.run_for(700ms);
    system.manager_node().freeze();
    system.run_for(time);
    system.manager_node().thaw();
  }
  system.run_for(700ms);
  EXPECT_GT(system.summary().events_built, 3000U) << tail_of_log(system);
  expect_all_kept(system);
}

TEST(BrokenPaths, a_rail_of_control_that_was_never_there_costs_nothing) {
  auto options = triggered(2, 2, 10'000);
  options.control_rails = 3;
  VirtualSystem system{options};
  for (const std::uint16_t rail : {std::uint16_t{1}, std::uint16_t{2}}) {
    for (const std::size_t i : {0U, 1U}) {
      system.readout_node(i).break_path(system.manager_node(), rail);
      system.builder_node(i).break_path(system.manager_node(), rail);
    }
  }
  system.start_all();
  system.run_for(6s);
  EXPECT_GT(system.summary().events_built, 3000U) << tail_of_log(system);
  for (const auto& node : system.summary().nodes) EXPECT_EQ(node.incarnations, 1U) << node.name;
  expect_all_kept(system);
}

TEST(BrokenPaths, blocks_that_come_long_before_their_assignment_are_built) {
  VirtualSystem system{triggered(2, 2, 10'000)};
  system.start_all();
  for (int i = 0; i < 6; ++i) {
    system.run_for(100ms);
    system.manager_node().break_path(system.builder_node(1)); // control comes late
    system.run_for(Duration{100ms} + i * 150ms);
    system.manager_node().repair_path(system.builder_node(1));
  }
  system.run_for(500ms);
  expect_all_kept(system);
}

TEST(BrokenPaths, a_readout_unit_that_reaches_nobody_is_given_up_by_name) {
  VirtualSystem system{triggered(2, 2, 5000)};
  system.start_all();
  system.run_for(50ms);
  for (const std::size_t b : {0U, 1U}) {
    system.readout_node(1).break_path(system.builder_node(b));
  }
  system.run_for(1500ms); // less than dead_after
  EXPECT_EQ(system.summary().events_incomplete, 0U);
  EXPECT_NE(system.manager().waiting_for().find("readout unit 'ru1' to reach builder unit 'bu0'"),
            std::string::npos)
      << system.manager().waiting_for();
  system.run_for(3s);
  EXPECT_GT(system.summary().events_built, 15'000U) << tail_of_log(system);
  EXPECT_GT(system.summary().events_incomplete, 10'000U);
  system.stop();
  ASSERT_TRUE(system.run_until_ended(60s)) << tail_of_log(system);
  EXPECT_EQ(system.summary().sources[0].ledger.lost, 0U);
  expect_balanced(system);
}

TEST(BrokenPaths, a_frozen_builder_unit_gives_no_readout_unit_up) {
  VirtualSystem system{triggered(2, 1, 5000)};
  system.start_all();
  system.run_for(50ms);
  system.readout_node(1).break_path(system.builder_node(0));
  system.run_for(1s);
  system.builder_node(0).freeze();
  system.readout_node(1).repair_path(system.builder_node(0));
  system.run_for(1900ms); // less than dead_after
  system.builder_node(0).thaw();
  system.run_for(1s);
  EXPECT_GT(system.summary().events_built, 10'000U) << tail_of_log(system);
  expect_all_kept(system);
}

// A message takes three deadlines, and in the second half batches wait long for their turn.
TEST(SlowLinks, cost_no_data_however_long_a_message_takes) {
  for (const auto protocol : {Protocol::push, Protocol::pull}) {
    for (const std::size_t readouts : {1U, 24U}) {
      for (const double rate_hz : {2.0, 8.0}) {
        SCOPED_TRACE(std::to_string(readouts) + " readout units, " + std::to_string(rate_hz) +
                     " Hz");
        auto options = triggered(readouts, 2, rate_hz);
        options.system.protocol = protocol;
        options.system.event_deadline = 200ms;
        options.size = source::FixedSize{8000};
        VirtualSystem system{options};
        for (const std::size_t b : {0U, 1U}) system.builder_node(b).limit_rate(13'500);
        system.start_all();
        system.run_for(10s);
        EXPECT_GT(system.summary().events_built, 10U) << tail_of_log(system);
        system.stop();
        ASSERT_TRUE(system.run_until_ended(300s)) << tail_of_log(system);
        EXPECT_EQ(system.summary().events_incomplete, 0U) << tail_of_log(system);
        for (const auto& node : system.summary().nodes) EXPECT_EQ(node.late, 0U); // none sent twice
        EXPECT_THAT(system.log(), Not(Contains(HasSubstr("given back"))));
        expect_balanced(system);
      }
    }
  }
}

TEST(Silence, a_frozen_readout_unit_is_given_up_and_joins_again) {
  VirtualSystem system{triggered(3, 2, 5000)};
  system.start_all();
  system.run_for(50ms);
  system.readout_node(2).freeze();
  system.run_for(4s);
  EXPECT_GT(system.summary().events_incomplete, 15'000U) << tail_of_log(system);
  system.readout_node(2).thaw();
  system.run_for(1s);
  const auto incomplete = system.summary().events_incomplete;
  system.run_for(500ms);
  EXPECT_EQ(system.summary().events_incomplete, incomplete) << tail_of_log(system);
  system.stop();
  ASSERT_TRUE(system.run_until_ended(60s)) << tail_of_log(system);
  expect_balanced(system);
}

// Gives every event below `silent_from`, then nothing until `again_from`, then the rest.
class HoleSource final : public source::Source {
public:
  HoleSource(SourceId id, EventNumber silent_from, EventNumber again_from, bool mute = false)
      : emulator_({.source = id, .size = source::FixedSize{100}, .rate_hz = 10'000}),
        silent_from_(silent_from),
        again_from_(again_from),
        mute_(mute) {}
  Result<> start(EventNumber first, Time now) override { return emulator_.start(first, now); }
  source::ReadResult read(source::FragmentQueue& queue, Time now) override {
    const bool silent = mute_ || (queue.numbered() && queue.next_event() >= silent_from_ &&
                                  queue.next_event() < again_from_);
    if (silent) return {source::ReadState::waiting, now + 10ms};
    return emulator_.read(queue, now);
  }

private:
  source::Emulator emulator_;
  EventNumber silent_from_;
  EventNumber again_from_;
  bool mute_; // from the beginning
};

TEST(Silence, a_source_that_is_silent_is_missing_after_the_deadline) {
  for (const std::size_t per_unit : {1U, 2U}) { // silent within a unit, and the unit as a whole
    VirtualSystemOptions options;
    options.system = make_system(3, 2, per_unit);
    options.source_events = 0;
    options.make_source = [](const SourceInfo& info) -> std::unique_ptr<source::Source> {
      if (info.id == 2) return std::make_unique<HoleSource>(info.id, 500, ~EventNumber{0});
      return std::make_unique<source::Emulator>(source::EmulatorOptions{
          .source = info.id, .size = source::FixedSize{100}, .rate_hz = 10'000});
    };
    VirtualSystem system{options};
    system.start_all();
    system.run_for(2s);
    EXPECT_GT(system.summary().events_incomplete, 1000U) << tail_of_log(system);
    EXPECT_GT(system.summary().events_built, 5000U);
    system.stop();
    ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
    EXPECT_EQ(system.summary().sources[1].ledger.built + system.summary().sources[1].ledger.late,
              500U);
    expect_balanced(system);
  }
}

TEST(Silence, what_others_have_is_built_when_one_dies_that_never_said_anything) {
  VirtualSystemOptions options;
  options.system = make_system(2, 1);
  options.system.event_deadline = 10s;
  options.make_source = [](const SourceInfo& info) -> std::unique_ptr<source::Source> {
    if (info.id == 2) return std::make_unique<HoleSource>(info.id, 0, ~EventNumber{0}, true);
    return std::make_unique<source::Emulator>(source::EmulatorOptions{
        .source = info.id, .size = source::FixedSize{100}, .event_count = 500});
  };
  VirtualSystem system{options};
  system.start_all();
  system.run_for(1s);
  EXPECT_EQ(system.summary().events_built, 0U);
  system.kill_readout(1);
  ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
  EXPECT_EQ(system.summary().events_built, 500U);
  expect_balanced(system);
}

// Gives every number twice.
class Stutterer final : public source::Source {
public:
  explicit Stutterer(std::uint64_t& repeated) : repeated_(repeated) {}
  Result<> start(EventNumber first, Time) override {
    next_ = first;
    return {};
  }
  source::ReadResult read(source::FragmentQueue& queue, Time now) override {
    const std::array<std::byte, 8> payload{};
    if (queue.write(next_, payload) == source::WriteOutcome::ok) {
      if (queue.write(next_, payload) == source::WriteOutcome::rejected) ++repeated_;
      ++next_;
    }
    return {source::ReadState::waiting, now + 1ms};
  }

private:
  std::uint64_t& repeated_;
  EventNumber next_ = 0;
};

TEST(Silence, what_was_dropped_is_counted_once_over_all_incarnations) {
  std::uint64_t repeated = 0;
  VirtualSystemOptions options;
  options.system = make_system(1, 1);
  options.make_source = [&](const SourceInfo&) { return std::make_unique<Stutterer>(repeated); };
  VirtualSystem system{options};
  system.start_all();
  for (int i = 0; i < 3; ++i) {
    system.run_for(1s);
    system.readout_node(0).disconnect(system.manager_node());
  }
  system.run_for(1s);
  system.stop();
  ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
  EXPECT_GT(repeated, 3000U);
  // The first number is held: its repetition drops it, and is held in its place.
  EXPECT_LE(system.summary().fragments.dropped, repeated + 4);
  EXPECT_GT(system.summary().fragments.dropped, repeated / 2); // all but since the last status
  expect_balanced(system);
}

TEST(Lost, files_and_ledger_agree_on_what_a_dead_readout_unit_had) {
  for (const bool comes_back : {false, true}) {
    VirtualSystemOptions options;
    options.system = make_system(2, 2);
    options.commit_delay = 20ms;
    options.make_source = [](const SourceInfo& info) -> std::unique_ptr<source::Source> {
      if (info.id == 2) return std::make_unique<EverySecond>(info.id, 1'000'000);
      return std::make_unique<source::Emulator>(source::EmulatorOptions{
          .source = info.id, .size = source::FixedSize{100}, .rate_hz = 50'000});
    };
    VirtualSystem system{options};
    system.start_all();
    system.run_for(200ms);
    system.kill_readout(1);
    system.run_for(100ms);
    if (comes_back) system.start_readout(1);
    system.run_for(200ms);
    system.stop();
    ASSERT_TRUE(system.run_until_ended(60s)) << tail_of_log(system);
    std::uint64_t lost = 0;
    std::uint64_t unread = 0;
    system.for_each_stored([&](const storage::StoredEvent& event) {
      for (const auto& row : event.missing) {
        const auto reason = static_cast<wire::MissingReason>(row.reason);
        EXPECT_EQ(row.source, 2U);
        if (reason == wire::MissingReason::unread) { // even or odd
          ++unread;
          continue;
        }
        if (reason == wire::MissingReason::lost) ++lost;
        const bool odd = event.row.event % 2 != 0; // before it died, it had none of those
        EXPECT_FALSE(odd && reason == wire::MissingReason::lost) << event.row.event;
        EXPECT_FALSE(!odd && reason == wire::MissingReason::absent && !comes_back)
            << event.row.event;
      }
    });
    EXPECT_GT(lost, 0U);
    EXPECT_GT(unread, 500U);
    EXPECT_EQ(lost, system.summary().sources[1].ledger.lost) << tail_of_log(system);
    EXPECT_EQ(system.summary().gaps, 0U);
    expect_balanced(system);
  }
}

TEST(Silence, an_optional_source_that_is_absent_leaves_events_complete) {
  VirtualSystemOptions options;
  options.system = make_system(2, 1);
  options.system.sources[1].required = false;
  options.make_source = [](const SourceInfo& info) -> std::unique_ptr<source::Source> {
    return std::make_unique<source::Emulator>(
        source::EmulatorOptions{.source = info.id,
                                .size = source::FixedSize{100},
                                .rate_hz = 10'000,
                                .event_count = info.id == 2 ? 100U : 1000U});
  };
  VirtualSystem system{options};
  system.start_all();
  ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
  EXPECT_EQ(system.summary().events_built, 1000U);
  EXPECT_EQ(system.summary().events_incomplete, 0U);
  EXPECT_EQ(system.summary().fragments.built, 1100U);
}

TEST(End, when_the_event_manager_dies_all_nodes_stop) {
  VirtualSystem system{triggered(2, 2, 5000)};
  system.start_all();
  system.run_for(100ms);
  system.kill_event_manager();
  system.run_for(30s);
  EXPECT_EQ(system.ended_nodes(), 4U) << tail_of_log(system);
}

// Readout units are held back from a moment after one status to a moment before or after another.
TEST(End, sources_are_not_slow_where_builder_units_hold_them_back) {
  for (const Duration stalled : {100ms, 235ms, 480ms, 600ms}) {
    auto options = triggered(2, 1, 0);
    options.source_rate_hz = 10'000;
    options.system.events_max = 12'000; // the last one is known, so that it drains from the start
    options.system.drain = 2s;
    VirtualSystem system{options};
    system.start_all();
    system.run_for(260ms);
    system.sink(0)->stall(true);
    system.run_for(stalled);
    system.sink(0)->stall(false);
    ASSERT_TRUE(system.run_until_ended(30s)) << tail_of_log(system);
    EXPECT_EQ(system.summary().events_built, 12'000U);
    EXPECT_EQ(system.summary().events_incomplete, 0U) << tail_of_log(system);
  }
}

// For longer than run.drain. Space that comes at the last moment is used.
TEST(End, a_disk_that_was_full_for_long_before_the_end_holds_it_up_no_longer) {
  for (const bool space : {false, true}) {
    const auto options = triggered(2, 2, 20'000);
    VirtualSystem system{options};
    system.start_all();
    system.run_for(50ms);
    for (const std::size_t i : {0U, 1U}) system.sink(i)->stall(true);
    system.run_for(options.system.drain + 1s);
    EXPECT_TRUE(system.manager().running());
    system.stop();
    system.run_for(1s);
    for (const std::size_t i : {0U, 1U}) system.sink(i)->stall(!space);
    ASSERT_TRUE(system.run_until_ended(10s)) << tail_of_log(system);
    const RunSummary& summary = system.summary();
    EXPECT_EQ(summary.forced, !space) << tail_of_log(system);
    EXPECT_EQ(summary.events_lost == 0, space);
    EXPECT_EQ(summary.error.find("to store event") == std::string::npos, space) << summary.error;
    EXPECT_TRUE(summary.balanced);
  }
}

TEST(End, a_forced_stop_says_what_is_lost) {
  VirtualSystem system{triggered(2, 2, 20'000)};
  system.start_all();
  system.run_for(100ms);
  system.sink(0)->stall(true);
  system.run_for(100ms);
  system.manager().stop_now("twice");
  const RunSummary& summary = system.summary();
  EXPECT_TRUE(summary.balanced);
  EXPECT_GT(summary.events_lost, 0U);
  EXPECT_GT(summary.fragments.lost, 0U);
  EXPECT_EQ(summary.fragments.read, summary.fragments.built + summary.fragments.lost);
}

TEST(Scale, a_thousand_nodes_in_one_thread) {
  auto options = triggered(512, 511, 2000);
  options.system.events_max = 20;
  options.source_pages = 2;
  options.source_window = 256;
  options.receive_pages = 1200;
  options.size = source::FixedSize{64};
  options.fragment_max = 2048; // else an event of 512 of the largest needs more pages
  options.system.event_deadline = 2s;
  VirtualSystem system{options};
  system.start_all();
  ASSERT_TRUE(system.run_until_ended(60s)) << tail_of_log(system);
  EXPECT_EQ(system.summary().events_built, 20U);
  EXPECT_EQ(system.summary().events_incomplete, 0U);
  EXPECT_EQ(delivered(system), 3'161'044'705'786'318'447U);
}

} // namespace
} // namespace fanin::builder
