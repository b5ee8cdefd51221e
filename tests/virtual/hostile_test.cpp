// Nodes that say what no good node says, and nodes that come at the wrong time.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/random.hpp"
#include "fanin/builder/testing/fake_node.hpp"
#include "fanin/builder/testing/make_system.hpp"
#include "virtual/virtual_system.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using fanin::testing::VirtualSystem;
using fanin::testing::VirtualSystemOptions;
using testing::FakeNode;
using testing::make_system;

wire::Hello hello_of(const System& system, wire::Role role, NodeId node) {
  wire::Hello hello;
  hello.role = role;
  hello.node = node;
  hello.system_digest = system.digest();
  hello.capacity = hello.metadata = 1U << 20;
  return hello;
}

// Two readout units and two builder units; the second of each kind is left to the test.
class Hostile : public ::testing::Test {
protected:
  Hostile() {
    options_.system = make_system(2, 2);
    options_.source_rate_hz = 5000;
  }
  void start() {
    system_.emplace(options_);
    system_->start_event_manager();
    system_->start_readout(0);
    system_->start_builder(0);
    fake_.emplace(system_->world(), "fake");
    fake_->connect("sim://evm");
    system_->run_for(5ms);
  }
  void say_hello(wire::Role role) {
    const bool readout = role == wire::Role::readout_unit;
    fake_->say_hello(hello_of(options_.system, role, 1), readout ? "ru1\n" : "bu1\nsim://fake");
    system_->run_for(5ms);
    EXPECT_TRUE(fake_->heard(wire::MessageType::welcome));
    if (readout) fake_->say(wire::Ready{1});
  }
  void expect_cut_off() {
    system_->run_for(5ms);
    EXPECT_TRUE(fake_->closed());
  }
  void TearDown() override {
    if (system_) system_->destroy_nodes();
  }

  VirtualSystemOptions options_;
  std::optional<VirtualSystem> system_;
  std::optional<FakeNode> fake_;
};

TEST_F(Hostile, a_hello_full_of_name_is_refused_and_fit_for_a_log) {
  start();
  const std::size_t most = (16U << 10) / 2 - sizeof(message::FrameHeader) - sizeof(wire::Hello);
  fake_->say_hello(hello_of(options_.system, wire::Role::readout_unit, 1),
                   "\x1b[31m" + std::string(most - 5, 'n'));
  system_->run_for(5ms);
  EXPECT_TRUE(fake_->heard(wire::MessageType::refuse));
  for (const auto& line : system_->log()) {
    EXPECT_EQ(line.find('\x1b'), std::string::npos);
    EXPECT_LT(line.size(), 500U);
  }
}

TEST_F(Hostile, peers_that_never_say_who_they_are_take_nothing_that_good_ones_need) {
  options_.system = make_system(1, 1);
  system_.emplace(options_);
  system_->start_event_manager();
  std::vector<std::unique_ptr<FakeNode>> silent;
  for (int i = 0; i < 200; ++i) { // more than the event manager has control pages
    silent.push_back(std::make_unique<FakeNode>(system_->world(), fmt::format("silent{}", i)));
    silent.back()->connect("sim://evm");
  }
  system_->run_for(1s); // some looks at who is alive
  system_->start_readout(0);
  system_->start_builder(0);
  system_->run_for(1s);
  EXPECT_GT(system_->summary().events_built, 1000U);
  EXPECT_EQ(system_->summary().events_incomplete, 0U);
  for (const auto& line : system_->log())
    EXPECT_EQ(line.find("is gone"), std::string::npos) << line;
}

TEST_F(Hostile, a_builder_unit_without_an_address_is_refused) {
  start();
  fake_->say_hello(hello_of(options_.system, wire::Role::builder_unit, 1), "bu1\n://");
  system_->run_for(5ms);
  EXPECT_TRUE(fake_->heard(wire::MessageType::refuse));
  EXPECT_EQ(system_->ended_nodes(), 0U);
}

TEST_F(Hostile, absent_ranges_beyond_the_range_or_overlapping_are_cut_off) {
  using Runs = std::vector<wire::AbsentRange>;
  const SourceId own = 2;
  for (const Runs& runs : {Runs{{own, 1, 20}}, Runs{{own, 4, 0}, {own, 1, 3}}, Runs{{own, 11, 0}},
                           Runs{{own, 1, 0}, {1, 1, 0}}}) {
    start();
    say_hello(wire::Role::readout_unit);
    wire::Announce announce{.first = 0, .end = 10};
    announce.absent_ranges = static_cast<std::uint32_t>(runs.size());
    fake_->say(announce, runs);
    expect_cut_off();
    system_->destroy_nodes();
    fake_.reset();
  }
}

TEST_F(Hostile, event_numbers_at_the_end_of_all_numbers_are_cut_off) {
  start();
  say_hello(wire::Role::readout_unit);
  fake_->say(wire::Announce{.first = ~EventNumber{0} - 3, .end = ~EventNumber{0}});
  expect_cut_off();
}

TEST_F(Hostile, events_that_were_not_triggered_are_cut_off) {
  options_.system.trigger_rate_hz = 500;
  start();
  say_hello(wire::Role::readout_unit);
  fake_->say(wire::Announce{});
  fake_->say(wire::Announce{.end = 1U << 30, .nothing = 1});
  expect_cut_off();
  system_->stop();
  EXPECT_TRUE(system_->run_until_ended(60s));
}

TEST_F(Hostile, nothing_up_to_the_last_number_costs_a_good_node_nothing) {
  start();
  say_hello(wire::Role::readout_unit);
  fake_->say(wire::Announce{});
  fake_->say(wire::Announce{.end = event_number_end, .nothing = 1});
  system_->run_for(100ms);
  fake_->close();
  system_->run_for(100ms);
  system_->stop();
  EXPECT_TRUE(system_->run_until_ended(60s));
  EXPECT_TRUE(system_->summary().nodes[0].alive);
  EXPECT_EQ(system_->summary().nodes[0].incarnations, 1U);
  EXPECT_TRUE(system_->summary().balanced);
}

// The run would end there, and go on for ever.
TEST_F(Hostile, a_source_beyond_all_numbers_does_not_set_the_end_of_the_run) {
  for (const EventNumber furthest : {event_number_end, event_number_end + 1, ~EventNumber{0}}) {
    start();
    say_hello(wire::Role::readout_unit);
    fake_->say(wire::Announce{});
    fake_->say(wire::Announce{.end = 1, .bytes = 1});
    system_->run_for(100ms);
    system_->stop();
    system_->run_for(5ms);
    fake_->say(wire::Paused{.next_event = furthest});
    system_->run_for(5ms);
    EXPECT_EQ(fake_->closed(), furthest != event_number_end);
    fake_->close();
    EXPECT_TRUE(system_->run_until_ended(60s)) << furthest;
    EXPECT_TRUE(system_->summary().nodes[0].alive);
    EXPECT_EQ(system_->summary().nodes[0].incarnations, 1U);
    EXPECT_EQ(system_->summary().sources[0].ledger.lost, 0U);
    system_->destroy_nodes();
    fake_.reset();
  }
}

TEST_F(Hostile, finished_is_not_believed_before_it_is_asked_for) {
  start();
  say_hello(wire::Role::builder_unit);
  fake_->say(wire::Finished{});
  expect_cut_off();
}

TEST_F(Hostile, a_builder_unit_that_is_told_to_finish_before_its_welcome_lives) {
  options_.system = make_system(1, 1);
  system_.emplace(options_);
  fake_.emplace(system_->manager_node());
  fake_->listen("sim://evm");
  system_->start_builder(0);
  system_->start_readout(0);
  system_->run_for(5ms);
  EXPECT_TRUE(fake_->heard(wire::MessageType::hello));
  fake_->say(wire::Finish{});
  system_->run_for(1s);
  EXPECT_EQ(system_->ended_nodes(), 0U);
}

TEST_F(Hostile, an_event_manager_that_hangs_up_at_once_is_asked_less_and_less_and_given_up) {
  options_.system = make_system(1, 1);
  system_.emplace(options_);
  fake_.emplace(system_->manager_node());
  fake_->listen("sim://evm");
  system_->start_builder(0);
  int connections = 0;
  for (int i = 0; i < 20'000 && system_->ended_nodes() == 0; ++i) {
    system_->run_for(1ms);
    if (!fake_->connected()) continue;
    ++connections;
    fake_->close();
  }
  EXPECT_EQ(system_->ended_nodes(), 1U); // after give_up_after
  EXPECT_LT(connections, 40);
  EXPECT_LT(system_->log().size(), 10U);
}

// As one that is frozen: its connections stay.
TEST_F(Hostile, an_event_manager_that_says_nothing_any_more_is_given_up) {
  options_.system = make_system(1, 1);
  system_.emplace(options_);
  fake_.emplace(system_->manager_node());
  fake_->listen("sim://evm");
  system_->start_readout(0);
  system_->run_for(5ms);
  fake_->say(wire::Welcome{.run = 1, .incarnation = 1});
  system_->run_for(69s);
  EXPECT_EQ(system_->ended_nodes(), 0U);
  EXPECT_FALSE(fake_->closed());
  system_->run_for(80s); // it can be reached again, and does not say welcome
  EXPECT_EQ(system_->ended_nodes(), 1U);
}

TEST_F(Hostile, an_event_manager_that_only_acknowledges_is_not_given_up) {
  options_.system = make_system(1, 1);
  system_.emplace(options_);
  fake_.emplace(system_->manager_node());
  fake_->listen("sim://evm");
  system_->start_readout(0);
  system_->run_for(5ms);
  fake_->say(wire::Welcome{.run = 1, .incarnation = 1});
  for (int i = 0; i < 5; ++i) {
    system_->run_for(50s);
    const auto pages = fake_->all<wire::Numbered>();
    ASSERT_FALSE(pages.empty());
    fake_->say(wire::Acknowledge{pages.back().number});
  }
  EXPECT_EQ(system_->ended_nodes(), 0U);
}

// Plays readout unit 1 towards builder unit 0.
class HostileData : public Hostile {
protected:
  void SetUp() override {
    start();
    say_hello(wire::Role::readout_unit);
    data_.emplace(system_->world(), "fake data");
    data_->connect("sim://bu0");
    system_->run_for(5ms);
    auto hello = hello_of(options_.system, wire::Role::data, 1);
    hello.run = 1;
    hello.incarnation = hello.peer_incarnation = 1;
    data_->say_hello(hello, "");
    system_->run_for(5ms);
    ASSERT_FALSE(data_->closed());
  }
  static wire::DataBlockHeader header(std::uint32_t offset, std::uint32_t size) {
    wire::DataBlockHeader header;
    header.run = 1;
    header.batch_events = 8;
    header.source = 2;
    header.entries = 1;
    header.payload_offset = offset;
    header.payload_size = size;
    header.readout_unit = 1;
    header.readout_incarnation = header.builder_incarnation = 1;
    return header;
  }
  // With blocks of batches that nobody has assigned, of builder unit 0.
  void take_all_pages(std::uint32_t payload, const std::vector<wire::FragmentEntry>& table) {
    const auto& counters = system_->builder(0)->counters();
    for (std::uint64_t batch = 0; system_->builder(0)->counters().pages_in_use < counters.pages;
         ++batch) {
      ASSERT_LT(batch, 4000U);
      auto part = header(0, payload);
      part.batch_events = 64;
      part.batch_first = part.first_event = (1U << 20) + batch * 64;
      part.entries = static_cast<std::uint32_t>(table.size());
      data_->send_block(part, table);
      system_->run_for(20us);
    }
    fake_->close();
    system_->run_for(1s);
    const std::uint64_t built = system_->summary().events_built;
    system_->run_for(1s);
    EXPECT_GT(system_->summary().events_built, built + 1000);
    for (const auto& line : system_->log())
      EXPECT_EQ(line.find("readout unit 'ru0' is gone"), std::string::npos) << line;
    EXPECT_TRUE(std::ranges::any_of(system_->log(), [](const std::string& line) {
      return line.ends_with("most of the data are from readout unit 'ru1'");
    }));
  }
  void say_that_it_lives() {
    fake_->say(wire::Status{});
    if (const auto pages = fake_->all<wire::Numbered>(); !pages.empty())
      fake_->say(wire::Acknowledge{pages.back().number});
  }
  void expect_only_the_liar_is_given_up() {
    EXPECT_TRUE(std::ranges::any_of(system_->log(), [](const std::string& line) {
      return line.contains("readout unit 'ru1' is gone (no builder unit gets data from it)");
    }));
    EXPECT_GT(system_->summary().events_built, 1000U);
    for (const auto& line : system_->log())
      EXPECT_FALSE(line.contains("readout unit 'ru0' is gone")) << line;
  }
  std::optional<FakeNode> data_;
};

TEST_F(HostileData, pieces_of_one_fragment_that_disagree_are_cut_off) {
  data_->send_block(header(0, 500), {{1000, 0}});
  system_->run_for(5ms);
  EXPECT_FALSE(data_->closed());
  data_->send_block(header(500, 100), {{600, 0}});
  system_->run_for(5ms);
  EXPECT_TRUE(data_->closed());
}

TEST_F(HostileData, a_part_without_a_checksum_is_cut_off_where_there_should_be_one) {
  data_->send_block(header(0, 8), {{8, 0}}, false);
  system_->run_for(5ms);
  EXPECT_TRUE(data_->closed());
}

// The same, with two sources: it may have two lanes.
class HostileLanes : public HostileData {
protected:
  HostileLanes() { options_.system = make_system(2, 2, 2); }
  // Says hello over a further connection.
  FakeNode& say(std::uint32_t connection, std::uint8_t lane, std::uint8_t lanes,
                std::uint8_t rail) {
    FakeNode& node = *others_.emplace_back(
        std::make_unique<FakeNode>(system_->world(), fmt::format("fake lane {}", others_.size())));
    node.connect("sim://bu0");
    system_->run_for(5ms);
    auto hello = hello_of(options_.system, wire::Role::data, 1);
    hello.run = 1;
    hello.incarnation = hello.peer_incarnation = 1;
    hello.connection = connection;
    hello.lane = lane;
    hello.lanes = lanes;
    hello.rail = rail;
    node.say_hello(hello, "");
    system_->run_for(5ms);
    return node;
  }
  std::vector<std::unique_ptr<FakeNode>> others_;
};

TEST_F(HostileLanes, lanes_that_do_not_fit_together_are_cut_off) {
  EXPECT_TRUE(say(1, 0, 0, 0).closed());
  EXPECT_TRUE(say(1, 1, 1, 0).closed());
  EXPECT_TRUE(say(1, 0, 3, 0).closed()); // more than it has sources, and there are rails
  EXPECT_TRUE(say(1, 0, 1, 2).closed());
  EXPECT_TRUE(say(0, 0, 2, 1).closed()); // there is one lane already, of one
  EXPECT_FALSE(data_->closed());
  FakeNode& first = say(1, 0, 2, 1); // a new connection takes its place
  EXPECT_TRUE(data_->closed());
  EXPECT_TRUE(say(0, 0, 1, 0).closed()); // and this one came before it
  EXPECT_TRUE(say(1, 1, 2, 1).closed()); // two lanes over one rail
  FakeNode& second = say(1, 1, 2, 0);
  EXPECT_FALSE(first.closed());
  EXPECT_FALSE(second.closed());
  EXPECT_TRUE(say(1, 1, 2, 0).closed() || second.closed()); // one of them
}

TEST_F(HostileLanes, a_part_of_a_source_over_the_wrong_lane_is_cut_off) {
  FakeNode& first = say(1, 0, 2, 0);
  FakeNode& second = say(1, 1, 2, 1);
  auto part = header(0, 8);
  part.source = 3; // the first one of the readout unit
  first.send_block(part, {{8, 0}});
  system_->run_for(5ms);
  EXPECT_FALSE(first.closed());
  second.send_block(part, {{8, 0}});
  system_->run_for(5ms);
  EXPECT_TRUE(second.closed());
}

TEST_F(HostileData, an_early_block_of_a_batch_that_is_cut_otherwise_costs_no_connection) {
  data_->send_block(header(0, 8), {{8, 0}}); // of events 0 to 8
  fake_->say(wire::Announce{.first = 0, .end = 0});
  fake_->say(wire::Announce{.first = 0, .end = 64, .bytes = 64});
  system_->run_for(500ms);
  for (const auto& node : system_->summary().nodes) EXPECT_LE(node.incarnations, 1U) << node.name;
}

TEST_F(HostileData, early_blocks_of_batches_without_end_are_bounded) {
  for (std::uint64_t batch = 0; batch < 6000; ++batch) {
    auto part = header(0, 8);
    part.batch_first = part.first_event = batch * 64;
    data_->send_block(part, {{8, 0}});
    system_->run_for(20us);
  }
  system_->run_for(5ms);
  EXPECT_FALSE(data_->closed());
  EXPECT_LE(system_->summary().nodes[2].incarnations, 1U);
}

TEST_F(HostileData, blocks_of_batches_that_were_not_assigned_do_not_keep_all_pages) {
  take_all_pages(12'000, {{12'000, 0}});
}

TEST_F(HostileData, tables_of_batches_that_were_not_assigned_do_not_keep_all_pages) {
  take_all_pages(0, std::vector(64, wire::FragmentEntry::make_absent({})));
}

// Its connection comes and goes, and something good comes over each, but nothing that it owes.
TEST_F(HostileData, who_sends_invalid_blocks_again_and_again_is_given_up) {
  fake_->say(wire::Announce{.first = 0, .end = 0});
  fake_->say(wire::Announce{.first = 0, .end = 64, .bytes = 64});
  auto hello = hello_of(options_.system, wire::Role::data, 1);
  hello.run = hello.incarnation = hello.peer_incarnation = 1;
  auto early = header(0, 8);
  early.batch_first = early.first_event = 1U << 20;
  auto invalid = early;
  invalid.payload_size = 9;
  for (int i = 0; i < 600; ++i) {
    data_->connect("sim://bu0");
    system_->run_for(5ms);
    data_->say_hello(hello, "");
    system_->run_for(5ms);
    data_->send_block(early, {{8, 0}});
    data_->send_block(invalid, {{8, 0}});
    system_->run_for(10ms);
    ASSERT_TRUE(data_->closed());
    say_that_it_lives();
  }
  expect_only_the_liar_is_given_up();
}

// It is never silent, and all that it sends is valid.
TEST_F(HostileData, who_sends_only_what_it_does_not_owe_is_given_up) {
  fake_->say(wire::Announce{.first = 0, .end = 0});
  fake_->say(wire::Announce{.first = 0, .end = 64, .bytes = 64});
  for (std::uint64_t batch = 0; batch < 2000; ++batch) {
    auto part = header(0, 8);
    part.batch_first = part.first_event = (1U << 20) + batch * 64;
    data_->send_block(part, {{8, 0}});
    system_->run_for(10ms);
    say_that_it_lives();
  }
  expect_only_the_liar_is_given_up();
}

TEST_F(HostileData, an_incarnation_that_does_not_exist_does_not_keep_the_real_one_out) {
  FakeNode liar{system_->world(), "liar"};
  liar.connect("sim://bu0");
  system_->run_for(5ms);
  auto hello = hello_of(options_.system, wire::Role::data, 0);
  hello.run = hello.peer_incarnation = 1;
  hello.incarnation = std::numeric_limits<Incarnation>::max();
  liar.say_hello(hello, "");
  system_->run_for(5ms);
  liar.close();
  fake_->close();
  system_->run_for(1s);
  const std::uint64_t built = system_->summary().events_built;
  system_->run_for(1s);
  EXPECT_GT(system_->summary().events_built, built + 1000);
  EXPECT_EQ(system_->summary().nodes[0].incarnations, 1U);
}

// One that goes after its hello, and one that stays and says nothing.
TEST_F(HostileData, a_connection_that_does_not_exist_does_not_keep_the_real_one_out) {
  fake_->close();
  for (const bool stays : {false, true}) {
    FakeNode liar{system_->world(), fmt::format("liar {}", stays)};
    liar.connect("sim://bu0");
    system_->run_for(5ms);
    auto hello = hello_of(options_.system, wire::Role::data, 0);
    hello.run = hello.peer_incarnation = hello.incarnation = 1;
    hello.connection = std::numeric_limits<std::uint32_t>::max();
    liar.say_hello(hello, "");
    system_->run_for(5ms);
    if (!stays) liar.close();
    system_->run_for(1s);
    const std::uint64_t built = system_->summary().events_built;
    system_->run_for(1s);
    EXPECT_GT(system_->summary().events_built, built + 1000) << stays;
    EXPECT_EQ(system_->summary().nodes[0].incarnations, 1U);
  }
}

// The same, with shaping: what comes is granted first.
class HostileShaped : public HostileData {
protected:
  HostileShaped() {
    options_.system.shaping = {.policy = shaping::Policy::linear_shift, .carrier = 4096};
    options_.system.shaping.window = 8ULL * 4096; // two rails
  }
  void send_more_than_was_granted() {
    const auto grants = data_->all<wire::Grant>();
    ASSERT_EQ(grants.size(), 1U);
    EXPECT_EQ(grants.front().bytes, 8192U);
    EXPECT_EQ(grants.front().readout_incarnation, 1U);
    EXPECT_EQ(grants.front().connection, 0U); // as its hello said
    system_->builder_node(0).freeze(); // so that all come at once, with no grant between
    for (std::uint32_t i = 0; i < 3; ++i) {
      auto part = header(0, 4096 - 72);
      part.first_event = i;
      data_->send_block(part, {{4096 - 72, 0}});
    }
    system_->run_for(5ms);
    system_->builder_node(0).thaw();
    system_->run_for(5ms);
    EXPECT_TRUE(data_->closed());
    EXPECT_EQ(system_->builder(0)->grants()[0].account(1).granted, 0U);
  }
};

// Messages come into receives that were posted before.
class StrictHostileShaped : public HostileShaped {
protected:
  StrictHostileShaped() { options_.network.strict = true; }
};

TEST_F(StrictHostileShaped, more_data_than_was_granted_are_cut_off) {
  send_more_than_was_granted();
}

TEST_F(HostileShaped, more_data_than_was_granted_are_cut_off) { send_more_than_was_granted(); }

TEST_F(HostileShaped, a_message_larger_than_a_carrier_is_not_taken) {
  data_->send_block(header(0, 4096), {{4096, 0}});
  system_->run_for(5ms);
  EXPECT_EQ(system_->builder(0)->grants()[0].account(1).received, 0U);
}

// Plays builder unit 1 towards readout unit 0.
class HostileGrants : public Hostile {
protected:
  HostileGrants() {
    options_.system.shaping = {.policy = shaping::Policy::random, .carrier = 4096};
    options_.system.shaping.window = 8ULL * 4096; // two rails
  }
  void SetUp() override {
    start();
    listener_.emplace(system_->world(), "fakebu");
    listener_->listen("sim://fakebu");
    fake_->say_hello(hello_of(options_.system, wire::Role::builder_unit, 1), "bu1\nsim://fakebu");
    system_->run_for(5ms);
    ASSERT_TRUE(listener_->heard(wire::MessageType::hello));
    const auto hello = listener_->all<wire::Hello>().front();
    grant_ = {.bytes = 8192,
              .readout_incarnation = hello.incarnation,
              .builder_incarnation = hello.peer_incarnation,
              .connection = hello.connection};
  }
  [[nodiscard]] std::uint64_t granted() {
    return system_->readout(0)->schedules()[0].credit(1).granted;
  }
  std::optional<FakeNode> listener_;
  wire::Grant grant_;
};

TEST_F(HostileGrants, a_grant_within_the_window_counts_and_one_beyond_it_is_cut_off) {
  listener_->say(grant_);
  system_->run_for(1ms);
  EXPECT_EQ(granted(), 8192U);
  ++grant_.bytes;
  listener_->say(grant_);
  system_->run_for(1ms);
  EXPECT_TRUE(listener_->closed());
}

TEST_F(HostileGrants, a_grant_of_another_connection_is_stale) {
  for (const auto field : {&wire::Grant::readout_incarnation, &wire::Grant::builder_incarnation,
                           &wire::Grant::connection}) {
    wire::Grant stale = grant_;
    ++(stale.*field);
    listener_->say(stale);
  }
  system_->run_for(1ms);
  EXPECT_FALSE(listener_->closed());
  EXPECT_EQ(granted(), 0U);
}

TEST_F(HostileGrants, anything_else_over_a_data_connection_is_cut_off) {
  listener_->say(wire::Assign{.events = 1});
  system_->run_for(1ms);
  EXPECT_TRUE(listener_->closed());
}

// Plays builder unit 1, which asks readout unit 0 for events.
class HostileRequests : public Hostile {
protected:
  HostileRequests() {
    options_.system.protocol = Protocol::pull;
    options_.system.latency = 10ms; // batches of many events
  }
  void SetUp() override {
    start();
    system_->start_readout(1);
    listener_.emplace(system_->world(), "fakebu");
    listener_->listen("sim://fakebu");
    fake_->say_hello(hello_of(options_.system, wire::Role::builder_unit, 1), "bu1\nsim://fakebu");
    system_->run_for(100ms);
    ASSERT_GT(system_->summary().events_built, 0U);
    for (const auto& hello : listener_->all<wire::Hello>()) {
      fake_->say(wire::Reached{.readout_unit = hello.node,
                               .yes = 1,
                               .incarnation = hello.incarnation,
                               .connection = hello.connection});
    }
    listener_->turn_to(wire::Role::request);
    system_->run_for(100ms);
    ASSERT_TRUE(fake_->heard(wire::MessageType::assign));
  }
  // Of the latest batch that the event manager has assigned to it.
  [[nodiscard]] wire::Assign request() const { return fake_->all<wire::Assign>().back(); }
  // No builder unit knows the key.
  [[nodiscard]] wire::Assign sealed(wire::Assign assign) const {
    const std::uint64_t key = splitmix64(1); // of the event manager's session
    EXPECT_EQ(request().seal, wire::seal_of(request(), key));
    assign.seal = wire::seal_of(assign, key);
    return assign;
  }
  std::optional<FakeNode> listener_;
};

TEST_F(HostileRequests, a_request_for_events_that_were_not_announced_costs_none) {
  wire::Assign far = request();
  far.first = 1U << 20;
  listener_->say(sealed(far));
  system_->run_for(1ms);
  EXPECT_TRUE(listener_->closed());
  fake_->close();
  system_->run_for(1s);
  EXPECT_GT(system_->summary().events_built, 1000U);
  EXPECT_EQ(system_->summary().events_incomplete, 0U);
  EXPECT_EQ(system_->summary().fragments.late, 0U);
}

// What is cut for it is cut for good.
TEST_F(HostileRequests, a_request_that_the_event_manager_has_not_made_is_cut_off) {
  const auto ends = [&](auto change, bool seal = false) {
    wire::Assign assign = request();
    change(assign);
    listener_->say(seal ? sealed(assign) : assign);
    system_->run_for(10ms);
    const bool closed = listener_->closed();
    system_->destroy_nodes();
    listener_.reset();
    fake_.reset();
    SetUp();
    return closed;
  };
  EXPECT_FALSE(ends([](wire::Assign&) {}));
  EXPECT_TRUE(ends([](wire::Assign& assign) { assign.builder = 0; }, true));
  EXPECT_TRUE(ends([](wire::Assign& assign) { ++assign.builder_incarnation; }, true));
  const auto across = [this](wire::Assign& assign) {
    assign.events = options_.system.batch_events;
    assign.first = assign.first / assign.events * assign.events - 1;
  };
  EXPECT_TRUE(ends(across, true)); // the end of a batch
  EXPECT_TRUE(ends([](wire::Assign& assign) { ++assign.first; }));
  EXPECT_TRUE(ends([](wire::Assign& assign) { --assign.events; }));
  EXPECT_TRUE(ends([](wire::Assign& assign) { ++assign.attempt; }));
  EXPECT_TRUE(ends([](wire::Assign& assign) { ++assign.epoch; }));
  EXPECT_TRUE(ends([](wire::Assign& assign) { ++assign.seal; }));
}

TEST_F(HostileData, a_grant_without_shaping_is_cut_off) {
  FakeNode listener{system_->world(), "fakebu"};
  listener.listen("sim://fakebu");
  FakeNode control{system_->world(), "fake control"};
  control.connect("sim://evm");
  system_->run_for(5ms);
  control.say_hello(hello_of(options_.system, wire::Role::builder_unit, 1), "bu1\nsim://fakebu");
  system_->run_for(5ms);
  ASSERT_TRUE(listener.heard(wire::MessageType::hello));
  const auto hello = listener.all<wire::Hello>().front();
  listener.say(wire::Grant{.bytes = 1,
                           .readout_incarnation = hello.incarnation,
                           .builder_incarnation = hello.peer_incarnation,
                           .connection = hello.connection});
  system_->run_for(1ms);
  EXPECT_TRUE(listener.closed());
}

TEST_F(Hostile, a_node_whose_name_is_still_taken_waits_until_it_is_free) {
  start();
  say_hello(wire::Role::builder_unit); // the earlier process, not dead yet
  system_->start_readout(1);
  system_->start_builder(1);
  system_->run_for(2s);
  EXPECT_EQ(system_->ended_nodes(), 0U);
  fake_->close();
  system_->run_for(1s);
  EXPECT_GT(system_->store(1).events.size(), 100U);
  system_->stop();
  EXPECT_TRUE(system_->run_until_ended(60s));
  EXPECT_TRUE(system_->summary().balanced);
}

TEST_F(Hostile, two_nodes_with_one_name_end_the_later_one) {
  start();
  say_hello(wire::Role::readout_unit);
  system_->start_readout(1);
  for (int i = 0; i < 12; ++i) { // the fake must show that it lives
    system_->run_for(1s);
    fake_->say(wire::Announce{});
  }
  EXPECT_EQ(system_->ended_nodes(), 1U);
}

TEST_F(Hostile, a_stop_before_the_start_ends_the_nodes_that_are_here) {
  start();
  system_->stop();
  EXPECT_TRUE(system_->run_until_ended(10s));
  system_->run_for(1s);
  EXPECT_EQ(system_->ended_nodes(), 2U);
}

} // namespace
} // namespace fanin::builder
