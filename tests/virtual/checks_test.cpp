// Every check of what a builder unit and an event manager are told: what it lets through, and what
// it stops. The other side is played by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fanin/base/log_limiter.hpp"
#include "fanin/builder/testing/fake_node.hpp"
#include "fanin/builder/testing/make_system.hpp"
#include "fanin/wire/checksum.hpp"
#include "virtual/virtual_system.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using fanin::testing::VirtualSystem;
using fanin::testing::VirtualSystemOptions;
using ::testing::Contains;
using testing::FakeNode;
using ::testing::HasSubstr;
using testing::make_system;

// A part's payload is zeros: their CRC32C.
std::uint32_t crc_of(std::uint32_t size) { return wire::crc32c(std::vector<std::byte>(size)); }

// Builder unit 0 of a system with one builder unit and two readout units, of one source each. The
// event manager and readout unit 0 are played; readout unit 1 takes no part.
class BuilderChecks : public ::testing::Test {
protected:
  BuilderChecks() { options_.system = make_system(2, 1); }

  void start() {
    system_.emplace(options_);
    manager_.emplace(system_->manager_node());
    manager_->listen("sim://evm");
    system_->start_builder(0);
    run();
    manager_->say(wire::Welcome{.run = 7, .incarnation = 3});
    manager_->say(wire::Members{.epoch = 1, .count = 2}, std::vector<Incarnation>{5, 0});
    run();
    data_ = connect(data_hello());
  }
  void run() { system_->run_for(5ms); }
  std::unique_ptr<FakeNode> connect(const wire::Hello& hello) {
    auto node =
        std::make_unique<FakeNode>(system_->world(), "fake " + std::to_string(++connections_));
    node->connect("sim://bu0");
    run();
    node->say_hello(hello, "");
    run();
    return node;
  }
  [[nodiscard]] wire::Hello data_hello(Incarnation incarnation = 5) const {
    wire::Hello hello;
    hello.role = wire::Role::data;
    hello.node = 0;
    hello.system_digest = options_.system.digest();
    hello.run = 7;
    hello.incarnation = incarnation;
    hello.peer_incarnation = 3;
    return hello;
  }
  // Of the whole batch: events 8 to 11.
  static wire::DataBlockHeader header(std::uint32_t entries, std::uint32_t size) {
    wire::DataBlockHeader header;
    header.run = 7;
    header.batch_first = header.first_event = 8;
    header.batch_events = 4;
    header.source = 1;
    header.entries = entries;
    header.payload_size = size;
    header.readout_unit = 0;
    header.readout_incarnation = 5;
    header.builder_incarnation = 3;
    return header;
  }
  static std::vector<wire::FragmentEntry> good_table() {
    return {{10, crc_of(10)}, {0, crc_of(0)}, {20, crc_of(20)}, {30, crc_of(30)}};
  }
  static wire::Assign assignment() {
    wire::Assign assign;
    assign.first = 8;
    assign.events = 4;
    assign.builder_incarnation = 3;
    assign.epoch = 1;
    return assign;
  }
  void say(const wire::DataBlockHeader& header, const std::vector<wire::FragmentEntry>& table) {
    data_->send_block(header, table, options_.system.integrity);
    run();
  }
  // What is said of the batch once it is stored.
  wire::Built build(const std::vector<wire::FragmentEntry>& table) {
    start();
    manager_->say(assignment());
    std::uint32_t size = 0;
    for (const auto& entry : table) size += entry.size();
    say(header(4, size), table);
    run();
    const auto built = manager_->all<wire::Built>();
    EXPECT_EQ(built.size(), 1U);
    return built.empty() ? wire::Built{} : built.front();
  }
  [[nodiscard]] std::uint32_t flags_of(EventNumber event) const {
    for (const auto& stored : system_->store(0).events) {
      if (stored.row.event == event) return stored.row.flags;
    }
    ADD_FAILURE() << "event " << event << " is not stored";
    return 0;
  }
  [[nodiscard]] const wire::NodeCounters& counters() {
    const auto deadline = manager_->all<wire::Status>().size() + 1;
    while (manager_->all<wire::Status>().size() < deadline) system_->run_for(100ms);
    return counters_ = manager_->all<wire::Status>().back().counters;
  }
  void TearDown() override {
    if (system_) system_->destroy_nodes();
  }

  // Whoever sends this loses its connection.
  void expect_cut_off(const std::string& why, const std::function<void()>& said) {
    start();
    said();
    EXPECT_TRUE(data_->closed()) << why;
    EXPECT_THAT(system_->log(), Contains(HasSubstr(why)));
    TearDown();
    reset();
  }
  // This is left out and counted, and the connection stays.
  void expect_stale(const std::string& what, const std::function<void()>& said) {
    SCOPED_TRACE(what);
    start();
    said();
    EXPECT_FALSE(data_->closed());
    EXPECT_EQ(counters().stale, 1U);
    TearDown();
    reset();
  }
  void reset() {
    data_.reset();
    manager_.reset();
    system_.reset();
  }

  VirtualSystemOptions options_;
  std::optional<VirtualSystem> system_;
  std::optional<FakeNode> manager_;
  std::unique_ptr<FakeNode> data_;
  wire::NodeCounters counters_;
  int connections_ = 0;
};

// Its reason is human-readable.
TEST_F(BuilderChecks, comes_too_late_if_the_kind_of_the_refusal_says_so) {
  for (const auto kind : {wire::RefusalKind::run_ending, wire::RefusalKind::for_good}) {
    const bool ending = kind == wire::RefusalKind::run_ending;
    const std::string_view reason = ending ? "not today" : "the run is ending";
    system_.emplace(options_);
    manager_.emplace(system_->manager_node());
    manager_->listen("sim://evm");
    system_->start_builder(0);
    run();
    manager_->say(wire::Refuse{static_cast<std::uint32_t>(reason.size()), kind}, reason);
    run();
    EXPECT_EQ(system_->ended_nodes(), 1U);
    EXPECT_EQ(system_->outcome_of_builder(0).has_value(), ending);
    TearDown();
    reset();
  }
}

TEST_F(BuilderChecks, finds_a_bad_checksum) {
  auto table = good_table();
  table[2].crc32c ^= 1;
  const auto built = build(table);
  EXPECT_EQ(built.bad, 1U);
  EXPECT_EQ(flags_of(8), storage::event_incomplete); // readout unit 1 takes no part
  EXPECT_EQ(flags_of(9), storage::event_incomplete);
  EXPECT_EQ(flags_of(10), storage::event_incomplete | storage::event_bad_checksum);
  EXPECT_EQ(flags_of(11), storage::event_incomplete);
  EXPECT_THAT(system_->log(),
              Contains(HasSubstr("1 damaged fragment in events 8 to 11, the first of source 0x1")));
}

// As after the death of a host, which closes nothing.
TEST_F(BuilderChecks, says_that_a_readout_unit_is_here_again_whose_earlier_connection_is_open) {
  start();
  const auto again = connect(data_hello(6));
  const auto reached = manager_->all<wire::Reached>();
  ASSERT_EQ(reached.size(), 2U);
  EXPECT_EQ(reached.back().yes, 1U);
  EXPECT_EQ(reached.back().incarnation, 6U);
  EXPECT_TRUE(data_->closed());
}

TEST_F(BuilderChecks, an_earlier_incarnation_that_wakes_takes_no_connection_of_a_later_one) {
  for (const auto role : {wire::Role::data, wire::Role::request}) {
    start();
    manager_->say(wire::Members{.epoch = 2, .count = 2}, std::vector<Incarnation>{6, 0});
    auto later = connect(data_hello(6));
    auto hello = data_hello();
    hello.role = role;
    hello.connection = 9;
    EXPECT_TRUE(connect(hello)->closed());
    EXPECT_FALSE(later->closed());
    EXPECT_EQ(counters().stale, 1U);
    later.reset();
    TearDown();
    reset();
  }
}

TEST_F(BuilderChecks, says_of_a_few_damaged_batches_in_a_second_that_they_are) {
  start();
  auto table = good_table();
  table[2].crc32c ^= 1;
  for (EventNumber first = 8; first < 8 + 4 * 20; first += 4) {
    auto assign = assignment();
    assign.first = first;
    manager_->say(assign);
    auto block = header(4, 60);
    block.batch_first = block.first_event = first;
    say(block, table);
  }
  EXPECT_EQ(manager_->all<wire::Built>().size(), 20U);
  const auto is_of_damage = [](const std::string& line) {
    return line.find("damaged fragment") != std::string::npos;
  };
  EXPECT_EQ(std::ranges::count_if(system_->log(), is_of_damage),
            static_cast<std::ptrdiff_t>(LogLimiter::lines_max));
}

TEST_F(BuilderChecks, finds_nothing_wrong_with_good_checksums) {
  const auto built = build(good_table());
  EXPECT_EQ(built.bad, 0U);
  EXPECT_EQ(built.bytes, 60U);
  EXPECT_EQ(built.incomplete, 4U);
}

TEST_F(BuilderChecks, without_integrity_no_checksum_is_looked_at) {
  options_.system.integrity = false;
  const auto built = build({{10, 0}, {20, 1}, {30, 2}, {40, 3}});
  EXPECT_EQ(built.bad, 0U);
  EXPECT_EQ(flags_of(10), storage::event_incomplete);
}

TEST_F(BuilderChecks, keeps_the_flags_of_the_readout_unit) {
  auto table = good_table();
  table[0].size_and_flags |= wire::fragment_bad_number;
  table[1].size_and_flags |= wire::fragment_absent;
  table[2].size_and_flags |= wire::fragment_truncated;
  const auto built = build(table);
  EXPECT_EQ(built.bad, 2U);
  EXPECT_EQ(flags_of(8), storage::event_incomplete | storage::event_bad_number);
  EXPECT_EQ(flags_of(10), storage::event_incomplete | storage::event_truncated);
}

TEST_F(BuilderChecks, finds_a_bad_checksum_of_a_fragment_in_several_parts) {
  for (const bool good : {true, false}) {
    SCOPED_TRACE(good);
    start();
    auto assign = assignment();
    assign.events = 1;
    manager_->say(assign);
    const std::vector<wire::FragmentEntry> entry{{1000, crc_of(1000) ^ (good ? 0U : 1U)}};
    auto part = header(1, 600);
    part.batch_events = 1;
    say(part, entry);
    EXPECT_TRUE(manager_->all<wire::Built>().empty());
    part.payload_offset = 600;
    part.payload_size = 400;
    say(part, entry);
    ASSERT_EQ(manager_->all<wire::Built>().size(), 1U);
    EXPECT_EQ(manager_->all<wire::Built>().front().bad, good ? 0U : 1U);
    TearDown();
    reset();
  }
}

TEST_F(BuilderChecks, without_integrity_no_checksum_of_several_parts_is_looked_at) {
  options_.system.integrity = false;
  start();
  auto assign = assignment();
  assign.events = 1;
  manager_->say(assign);
  auto part = header(1, 600);
  part.batch_events = 1;
  say(part, {{1000, 17}});
  part.payload_offset = 600;
  part.payload_size = 400;
  say(part, {{1000, 17}});
  ASSERT_EQ(manager_->all<wire::Built>().size(), 1U);
  EXPECT_EQ(manager_->all<wire::Built>().front().bad, 0U);
}

TEST_F(BuilderChecks, hellos_that_it_does_not_take_are_cut_off) {
  start();
  const auto closed = [&](const std::function<void(wire::Hello&)>& change) {
    auto hello = data_hello();
    change(hello);
    return connect(hello)->closed();
  };
  EXPECT_FALSE(closed([](wire::Hello&) {}));
  EXPECT_FALSE(closed([](wire::Hello& hello) { hello.role = wire::Role::request; }));
  EXPECT_TRUE(closed([](wire::Hello& hello) { ++hello.version; }));
  EXPECT_TRUE(closed([](wire::Hello& hello) { --hello.version; }));
  EXPECT_TRUE(closed([](wire::Hello& hello) { hello.node = 2; }));
  EXPECT_TRUE(closed([](wire::Hello& hello) { hello.role = wire::Role::readout_unit; }));
  EXPECT_EQ(counters().stale, 0U);
  EXPECT_TRUE(closed([](wire::Hello& hello) { ++hello.run; }));
  EXPECT_TRUE(closed([](wire::Hello& hello) { ++hello.peer_incarnation; }));
  EXPECT_TRUE(closed([](wire::Hello& hello) { ++hello.system_digest; }));
  EXPECT_EQ(counters().stale, 3U);
}

TEST_F(BuilderChecks, the_reason_for_cutting_off_a_hello_is_the_right_one) {
  start();
  const auto expect = [&](const std::string& why, const std::function<void(wire::Hello&)>& change) {
    auto hello = data_hello();
    change(hello);
    connect(hello);
    EXPECT_THAT(system_->log(), Contains(HasSubstr(why)));
    system_->run_for(1s); // a few lines in a second
  };
  expect("speaks version 99", [](wire::Hello& hello) { hello.version = 99; });
  expect("names readout unit 2, which does not exist", [](wire::Hello& hello) { hello.node = 2; });
  expect("one for an event manager",
         [](wire::Hello& hello) { hello.role = wire::Role::builder_unit; });
}

// Also of one who repeats the hello of a readout unit that takes part.
TEST_F(BuilderChecks, peers_that_are_cut_off_cause_only_a_few_lines_in_a_second) {
  start();
  const auto cut_off = [this] {
    return std::ranges::count_if(system_->log(), [](const std::string& line) {
      return line.find("connection closed") != std::string::npos;
    });
  };
  for (int i = 0; i < 10; ++i) {
    const auto peer = connect(data_hello());
    peer->say(wire::Clear{0, 1});
    run();
    EXPECT_TRUE(peer->closed());
  }
  EXPECT_EQ(cut_off(), 3);
}

TEST_F(BuilderChecks, what_comes_before_a_hello_is_cut_off) {
  start();
  FakeNode node(system_->world(), "rude");
  node.connect("sim://bu0");
  run();
  node.say(wire::Horizon{});
  run();
  EXPECT_TRUE(node.closed());
}

// A good hello in all but its type.
struct Disguised : wire::Hello {
  static constexpr wire::MessageType type = wire::MessageType::status;
};

TEST_F(BuilderChecks, only_a_hello_is_a_hello) {
  start();
  FakeNode node(system_->world(), "disguised");
  node.connect("sim://bu0");
  run();
  node.say(Disguised{data_hello()});
  run();
  EXPECT_TRUE(node.closed());
}

TEST_F(BuilderChecks, nothing_is_taken_before_the_welcome) {
  const auto wait = [&] {
    reset();
    system_.emplace(options_);
    manager_.emplace(system_->manager_node());
    manager_->listen("sim://evm");
    system_->start_builder(0);
    run();
  };
  const auto nonsense = Contains(HasSubstr("it sent an invalid message"));
  wait();
  manager_->say(wire::Members{.epoch = 1, .count = 2}, std::vector<Incarnation>{5, 0});
  run();
  EXPECT_THAT(system_->log(), nonsense);
  TearDown();
  wait();
  auto assign = assignment();
  assign.builder_incarnation = 0;
  assign.epoch = 0;
  manager_->say(assign);
  run();
  EXPECT_THAT(system_->log(), nonsense);
  TearDown();
  wait();
  auto hello = data_hello();
  hello.run = 0;
  hello.peer_incarnation = 0;
  EXPECT_TRUE(connect(hello)->closed());
}

TEST_F(BuilderChecks, early_data_of_an_attempt_that_was_given_up_do_not_count) {
  start();
  say(header(2, 10), {{10, crc_of(10)}, {0, 0}});
  auto assign = assignment();
  ++assign.attempt;
  manager_->say(assign);
  run();
  EXPECT_TRUE(manager_->all<wire::Built>().empty());
  auto part = header(4, 60);
  ++part.attempt;
  say(part, good_table());
  ASSERT_EQ(manager_->all<wire::Built>().size(), 1U);
  EXPECT_EQ(manager_->all<wire::Built>().front().bytes, 60U);
  EXPECT_EQ(manager_->all<wire::Built>().front().attempt, 1U);
}

TEST_F(BuilderChecks, who_says_nothing_is_cut_off_after_a_while) {
  options_.system.dead_after = 1s;
  start();
  FakeNode node(system_->world(), "silent");
  node.connect("sim://bu0");
  system_->run_for(900ms);
  EXPECT_FALSE(node.closed());
  system_->run_for(200ms);
  EXPECT_TRUE(node.closed());
}

TEST_F(BuilderChecks, parts_that_no_good_readout_unit_sends_are_cut_off) {
  const auto wrong = [&](const std::string& why,
                         const std::function<void(wire::DataBlockHeader&)>& change) {
    expect_cut_off(why, [&] {
      auto part = header(4, 60);
      change(part);
      say(part, good_table());
    });
  };
  wrong("which is not its own", [](wire::DataBlockHeader& part) { part.source = 2; });
  wrong("which is not its own", [](wire::DataBlockHeader& part) { part.source = 99; });
  wrong("which is not its own", [](wire::DataBlockHeader& part) { part.readout_unit = 1; });
  wrong("which is not its own", [this](wire::DataBlockHeader& part) {
    part.batch_first = 0;
    part.batch_events = options_.system.batch_events + 1;
  });
  wrong("wrong magic", [](wire::DataBlockHeader& part) { ++part.magic; });
  wrong("left out a part", [](wire::DataBlockHeader& part) { // event 9 is not the next
    ++part.first_event;
    part.batch_events = 5;
  });
  expect_cut_off("left out a part", [&] { // of the middle of a fragment
    auto part = header(1, 400);
    part.payload_offset = 600;
    say(part, {{1000, 0}});
  });
  expect_cut_off("without a checksum", [&] {
    data_->send_block(header(4, 60), good_table(), false);
    run();
  });
}

TEST_F(BuilderChecks, the_largest_batch_is_taken) {
  start();
  auto part = header(4, 60);
  part.batch_events = options_.system.batch_events;
  part.batch_first = 0;
  part.first_event = 0;
  say(part, good_table());
  EXPECT_FALSE(data_->closed());
}

TEST_F(BuilderChecks, parts_of_another_time_are_left_out) {
  const auto stale = [&](const std::string& what,
                         const std::function<void(wire::DataBlockHeader&)>& change) {
    expect_stale(what, [&] {
      manager_->say(assignment());
      auto part = header(4, 60);
      change(part);
      say(part, good_table());
      EXPECT_TRUE(manager_->all<wire::Built>().empty());
    });
  };
  stale("run", [](wire::DataBlockHeader& part) { ++part.run; });
  stale("builder's incarnation", [](wire::DataBlockHeader& part) { ++part.builder_incarnation; });
  stale("readout's incarnation", [](wire::DataBlockHeader& part) { ++part.readout_incarnation; });
  stale("attempt", [](wire::DataBlockHeader& part) { ++part.attempt; });
  stale("batch", [](wire::DataBlockHeader& part) { ++part.batch_events; });
  expect_stale("said twice", [&] {
    say(header(2, 10), {{10, crc_of(10)}, {0, 0}});
    say(header(2, 10), {{10, crc_of(10)}, {0, 0}});
  });
  expect_stale("a piece said twice", [&] {
    say(header(1, 600), {{1000, 0}});
    say(header(1, 600), {{1000, 0}});
  });
}

TEST_F(BuilderChecks, parts_of_a_batch_that_was_decided_are_late) {
  build(good_table());
  say(header(4, 60), good_table());
  EXPECT_FALSE(data_->closed());
  EXPECT_EQ(counters().late, 1U);
  EXPECT_EQ(counters().stale, 0U);
}

TEST_F(BuilderChecks, a_batch_may_come_before_its_assignment) {
  start();
  say(header(4, 60), good_table());
  EXPECT_TRUE(manager_->all<wire::Built>().empty());
  manager_->say(assignment());
  run();
  EXPECT_EQ(manager_->all<wire::Built>().size(), 1U);
}

// Batches that nobody has assigned: so many are kept, and those beyond are handed back at once.
TEST_F(BuilderChecks, early_batches_are_kept_up_to_a_number) {
  constexpr std::uint32_t kept = 4096;
  constexpr EventNumber first = 8;
  start();
  const auto say_early = [&](std::uint32_t number) {
    auto part = header(1, 0);
    part.batch_first = part.first_event = first + EventNumber{number} * 4;
    data_->send_block(part, {{0, 0}}, options_.system.integrity);
    if (number % 16 == 0) run();
  };
  for (std::uint32_t i = 0; i < kept; ++i) say_early(i);
  EXPECT_EQ(counters().late, 0U);
  say_early(kept);
  EXPECT_EQ(counters().late, 1U);
  say_early(kept); // it is known now
  EXPECT_EQ(counters().late, 2U);
  EXPECT_FALSE(data_->closed());
  auto assign = assignment();
  manager_->say(assign);
  run();
  EXPECT_TRUE(manager_->all<wire::HandBack>().empty());
  assign.first += EventNumber{kept} * 4;
  manager_->say(assign);
  run();
  ASSERT_EQ(manager_->all<wire::HandBack>().size(), 1U);
  EXPECT_EQ(manager_->all<wire::HandBack>().front().first, assign.first);
  say_early(kept + 1); // there is room again, for one
  say_early(kept + 2);
  EXPECT_EQ(counters().late, 3U);
}

TEST_F(BuilderChecks, what_no_good_event_manager_says_ends_the_connection_to_it) {
  const auto wrong = [&](const std::string& what, const std::function<void()>& said) {
    SCOPED_TRACE(what);
    start();
    said();
    run();
    EXPECT_THAT(system_->log(), Contains(HasSubstr("it sent an invalid message")));
    TearDown();
    reset();
  };
  const auto wrong_assignment = [&](const std::string& what,
                                    const std::function<void(wire::Assign&)>& change) {
    wrong(what, [&] {
      auto assign = assignment();
      change(assign);
      manager_->say(assign);
    });
  };
  wrong_assignment("incarnation", [](wire::Assign& assign) { ++assign.builder_incarnation; });
  wrong_assignment("no events", [](wire::Assign& assign) { assign.events = 0; });
  wrong_assignment("too many events", [this](wire::Assign& assign) {
    assign.events = options_.system.batch_events + 1;
  });
  wrong_assignment("beyond all numbers", [](wire::Assign& assign) { assign.first = ~0ULL - 2; });
  wrong_assignment("members to come", [](wire::Assign& assign) { ++assign.epoch; });
  const auto wrong_second = [&](const std::string& what,
                                const std::function<void(wire::Assign&)>& change) {
    wrong_assignment(what, [&](wire::Assign& assign) {
      manager_->say(assign);
      change(assign);
    });
  };
  wrong_second("twice", [](wire::Assign&) {});
  wrong_second("another attempt", [](wire::Assign& assign) { ++assign.attempt; });
  wrong_second("another range", [](wire::Assign& assign) { ++assign.events; });
  const std::vector<Incarnation> two{5, 0};
  wrong("too few members",
        [&] { manager_->say(wire::Members{.epoch = 2, .count = 1}, std::vector<Incarnation>{5}); });
  wrong("members of before", [&] { manager_->say(wire::Members{.epoch = 1, .count = 2}, two); });
  options_.network.latency_max = options_.network.latency_min; // before it could have ended
  wrong("finish twice", [&] {
    manager_->say(wire::Finish{});
    manager_->say(wire::Finish{});
  });
  wrong("not for a builder unit", [&] { manager_->say(wire::Horizon{}); });
}

TEST_F(BuilderChecks, the_largest_assignment_is_taken) {
  start();
  auto assign = assignment();
  assign.first = 0;
  assign.events = options_.system.batch_events;
  manager_->say(assign);
  run();
  EXPECT_FALSE(manager_->closed());
}

// An event manager, and a node played by hand that comes with a hello of its own.
class ManagerChecks : public ::testing::Test {
protected:
  ManagerChecks() { options_.system = make_system(2, 2); }

  void start() {
    node_.reset();
    if (system_) system_->destroy_nodes();
    system_.emplace(options_);
    system_->start_event_manager();
    node_.emplace(system_->world(), "node");
    node_->connect("sim://evm");
    run();
  }
  void run() { system_->run_for(5ms); }
  [[nodiscard]] wire::Hello hello_of(wire::Role role) const {
    wire::Hello hello;
    hello.role = role;
    hello.node = 1;
    hello.system_digest = options_.system.digest();
    hello.capacity = hello.metadata = 1U << 20;
    return hello;
  }
  // The reason for which a hello is refused; empty: it is welcome.
  std::string refusal(wire::Role role, const std::string& text,
                      const std::function<void(wire::Hello&)>& change = {}) {
    start();
    auto hello = hello_of(role);
    if (change) change(hello);
    node_->say_hello(hello, text);
    run();
    EXPECT_NE(node_->heard(wire::MessageType::refuse), node_->heard(wire::MessageType::welcome));
    if (node_->heard(wire::MessageType::welcome)) return {};
    for (const auto& line : system_->log()) {
      if (const auto at = line.find("refused: "); at != std::string::npos) return line.substr(at);
    }
    return "refused without a reason";
  }
  void TearDown() override {
    if (system_) system_->destroy_nodes();
  }

  VirtualSystemOptions options_;
  std::optional<VirtualSystem> system_;
  std::optional<FakeNode> node_;
  int count_ = 0;
  std::uint64_t sessions_ = 0;
};

TEST_F(ManagerChecks, refuses_another_version_of_the_protocol) {
  for (const int step : {-1, 1}) {
    EXPECT_THAT(refusal(wire::Role::readout_unit, "ru1\n",
                        [step](wire::Hello& hello) {
                          hello.version = static_cast<std::uint16_t>(hello.version + step);
                        }),
                HasSubstr("version"));
  }
  EXPECT_EQ(refusal(wire::Role::readout_unit, "ru1\n"), "");
  EXPECT_EQ(refusal(wire::Role::builder_unit, "bu1\nsim://node"), "");
}

TEST_F(ManagerChecks, refuses_nodes_that_it_does_not_know) {
  const auto unknown = HasSubstr("knows no node");
  EXPECT_THAT(refusal(wire::Role::readout_unit, "ru0\n"), unknown);
  EXPECT_THAT(refusal(wire::Role::builder_unit, "ru1\nsim://node"), unknown);
  EXPECT_THAT(refusal(wire::Role::readout_unit, "bu1\n"), unknown);
  EXPECT_THAT(refusal(wire::Role::data, "bu1\nsim://node"), unknown);
  EXPECT_THAT(
      refusal(wire::Role::readout_unit, "ru1\n", [](wire::Hello& hello) { hello.node = 2; }),
      unknown);
  EXPECT_THAT(
      refusal(wire::Role::readout_unit, "ru1\n", [](wire::Hello& hello) { ++hello.system_digest; }),
      HasSubstr("another configuration"));
  EXPECT_THAT(refusal(wire::Role::builder_unit, "bu1\n"), HasSubstr("no data address"));
}

// While the run drains a builder unit is welcome: it may be the only one left. Nobody else is.
TEST_F(ManagerChecks, refuses_a_readout_unit_once_the_run_is_ending) {
  const auto come = [this](FakeNode& node, wire::Role role, NodeId number, std::string text) {
    node.connect("sim://evm");
    run();
    auto hello = hello_of(role);
    hello.node = number;
    hello.session = ++sessions_;
    node.say_hello(hello, text);
    run();
    if (role == wire::Role::readout_unit) node.say(wire::Ready{1});
    run();
  };
  using enum wire::Role;
  start();
  FakeNode readout(system_->world(), "readout");
  FakeNode gone(system_->world(), "gone");
  FakeNode builder(system_->world(), "builder");
  come(readout, readout_unit, 0, "ru0\n");
  come(gone, readout_unit, 1, "ru1\n");
  come(builder, builder_unit, 0, "bu0\nsim://builder");
  for (FakeNode* const node : {&readout, &gone})
    node->say(wire::Announce{.first = 0, .end = 64, .bytes = 64});
  run();
  system_->stop(); // the builder unit never builds what it was assigned
  run();
  gone.close();
  run();
  FakeNode late(system_->world(), "late");
  come(late, readout_unit, 1, "ru1\n");
  ASSERT_TRUE(late.heard(wire::MessageType::refuse));
  EXPECT_EQ(late.all<wire::Refuse>().front().kind, wire::RefusalKind::run_ending);
  EXPECT_THAT(system_->log(), Contains(HasSubstr("the run is ending")));
  FakeNode helper(system_->world(), "helper");
  come(helper, builder_unit, 1, "bu1\nsim://helper");
  EXPECT_TRUE(helper.heard(wire::MessageType::welcome));
}

// It comes with the hello of a node that is not there, again and again.
TEST_F(ManagerChecks, a_node_that_comes_and_goes_causes_only_a_few_lines_in_a_second) {
  start();
  const auto lines = [this] {
    return std::ranges::count_if(system_->log(), [](const std::string& line) {
      return line.find(" unit '") != std::string::npos;
    });
  };
  for (const auto& [role, text] : {std::pair{wire::Role::readout_unit, "ru1\n"},
                                   std::pair{wire::Role::builder_unit, "bu1\nsim://node"}}) {
    const auto before = lines();
    for (int i = 0; i < 20; ++i) {
      FakeNode node(system_->world(), "node " + std::to_string(++count_));
      node.connect("sim://evm");
      run();
      auto hello = hello_of(role);
      hello.session = ++sessions_;
      node.say_hello(hello, text);
      run();
      EXPECT_TRUE(node.heard(wire::MessageType::welcome));
      node.close();
      run();
    }
    EXPECT_EQ(lines(), before + 3 + 3);
  }
}

// Who comes with the session of a readout unit that is here goes on where that was; with another
// one it is another process, and waits while the first one lives.
TEST_F(ManagerChecks, a_session_is_one_process) {
  start();
  auto hello = hello_of(wire::Role::readout_unit);
  hello.session = 7;
  node_->say_hello(hello, "ru1\n");
  run();
  ASSERT_EQ(node_->all<wire::Welcome>().size(), 1U);
  node_->say(wire::Announce{});
  run();
  const auto again = [&](const std::function<void(wire::Hello&)>& change) {
    auto fresh = std::make_unique<FakeNode>(system_->world(), "again " + std::to_string(++count_));
    fresh->connect("sim://evm");
    run();
    auto other = hello;
    other.resumes = 1;
    change(other);
    fresh->say_hello(other, "ru1\n");
    run();
    return fresh;
  };
  const auto another = again([](wire::Hello& other) { other.session = 8; });
  EXPECT_TRUE(another->heard(wire::MessageType::refuse));
  EXPECT_FALSE(node_->closed());
  const auto same = again([](wire::Hello&) {});
  EXPECT_TRUE(same->heard(wire::MessageType::resumed));
  EXPECT_FALSE(same->heard(wire::MessageType::welcome));
  EXPECT_TRUE(node_->closed());
  // It begins anew: of another incarnation, or with pages that nobody sent.
  EXPECT_EQ(again([](wire::Hello& other) { other.resumes = 9; })->all<wire::Welcome>().size(), 1U);
  const auto lying = again([](wire::Hello& other) {
    other.resumes = 2;
    other.received = 1000;
  });
  ASSERT_EQ(lying->all<wire::Welcome>().size(), 1U);
  EXPECT_EQ(lying->all<wire::Welcome>().front().incarnation, 3U);
}

TEST_F(ManagerChecks, only_a_whole_hello_is_a_hello) {
  start();
  auto hello = hello_of(wire::Role::readout_unit);
  hello.text_size = 4;
  node_->say(Disguised{hello}, std::string_view{"ru1\n"});
  run();
  EXPECT_TRUE(node_->closed());
  EXPECT_FALSE(node_->heard(wire::MessageType::welcome));
  start();
  hello.text_size = 1000; // and there is none
  node_->say(hello);
  run();
  EXPECT_TRUE(node_->closed());
  EXPECT_FALSE(node_->heard(wire::MessageType::refuse));
}

// What a builder unit says that it has built: of a batch that is its own, and within it.
class BuiltChecks : public ManagerChecks {
protected:
  // The batch that was assigned to it.
  wire::Assign assigned() {
    for (auto& readout : readouts_) readout.reset(); // of the world before
    start();
    for (const NodeId node : {NodeId{0}, NodeId{1}}) {
      auto& readout = readouts_[node];
      readout = std::make_unique<FakeNode>(system_->world(), "readout " + std::to_string(node));
      introduce(*readout, wire::Role::readout_unit, node, node == 0 ? "ru0\n" : "ru1\n");
    }
    introduce(*node_, wire::Role::builder_unit, 1, "bu1\nsim://node");
    for (const NodeId node : {NodeId{0}, NodeId{1}})
      node_->say(wire::Reached{.readout_unit = node, .yes = 1, .incarnation = 1});
    for (auto& readout : readouts_)
      readout->say(wire::Announce{.first = 0, .end = options_.system.batch_events, .bytes = 64});
    run();
    const auto all = node_->all<wire::Assign>();
    EXPECT_EQ(all.size(), 1U);
    return all.empty() ? wire::Assign{} : all.front();
  }
  void introduce(FakeNode& node, wire::Role role, NodeId number, const std::string& text) {
    if (!node.connected()) node.connect("sim://evm");
    run();
    auto hello = hello_of(role);
    hello.node = number;
    hello.session = ++sessions_;
    node.say_hello(hello, text);
    run();
    if (role == wire::Role::readout_unit) node.say(wire::Ready{1});
    run();
  }
  static wire::Built built_of(const wire::Assign& assign) {
    wire::Built built;
    built.first = assign.first;
    built.events = assign.events;
    built.attempt = assign.attempt;
    return built;
  }
  // Whether the batch counts as built.
  bool counts(const std::function<void(wire::Built&)>& change) {
    auto built = built_of(assigned());
    change(built);
    node_->say(built);
    run();
    EXPECT_FALSE(node_->closed());
    return readouts_[0]->heard(wire::MessageType::clear);
  }
  // Whether it lost its connection for that.
  bool ends(const std::function<void(wire::MissingRange&)>& change) {
    const auto assign = assigned();
    auto built = built_of(assign);
    built.missing_ranges = 1;
    wire::MissingRange missing{.source = 1, .count = 1, .first = assign.first};
    change(missing);
    node_->say(built, std::vector{missing});
    run();
    EXPECT_NE(node_->closed(), readouts_[0]->heard(wire::MessageType::clear));
    return node_->closed();
  }
  void TearDown() override {
    for (auto& readout : readouts_) readout.reset();
    ManagerChecks::TearDown();
  }
  std::array<std::unique_ptr<FakeNode>, 2> readouts_;
};

TEST_F(BuiltChecks, only_its_own_batch_as_it_was_assigned_counts) {
  EXPECT_TRUE(counts([](wire::Built&) {}));
  EXPECT_FALSE(counts([](wire::Built& built) { ++built.first; }));
  EXPECT_FALSE(counts([](wire::Built& built) { --built.events; }));
  EXPECT_FALSE(counts([](wire::Built& built) { ++built.attempt; }));
  EXPECT_FALSE(counts([](wire::Built& built) { built.more = 1; }));
  const auto built = built_of(assigned());
  FakeNode other(system_->world(), "other");
  introduce(other, wire::Role::builder_unit, 0, "bu0\nsim://other");
  other.say(built);
  run();
  EXPECT_FALSE(readouts_[0]->heard(wire::MessageType::clear));
  node_->say(built);
  run();
  EXPECT_TRUE(readouts_[0]->heard(wire::MessageType::clear));
}

TEST_F(BuiltChecks, missing_fragments_are_of_the_batch_and_of_a_source_that_there_is) {
  const std::uint32_t events = options_.system.batch_events;
  EXPECT_FALSE(ends([](wire::MissingRange&) {}));
  EXPECT_FALSE(ends([&](wire::MissingRange& run) { run.count = events; }));
  EXPECT_FALSE(ends([&](wire::MissingRange& run) { run.first += events - 1; }));
  EXPECT_TRUE(ends([&](wire::MissingRange& run) { run.count = events + 1; }));
  EXPECT_TRUE(ends([&](wire::MissingRange& run) { run.first += events; }));
  EXPECT_TRUE(ends([&](wire::MissingRange& run) { run.first += events + 1; }));
  EXPECT_TRUE(ends([](wire::MissingRange& run) { run.first = ~0ULL; }));
  EXPECT_TRUE(ends([](wire::MissingRange& run) { run.source = 99; }));
  const auto assign = assigned();
  auto built = built_of(assign);
  built.missing_ranges = 1; // and there is none
  node_->say(built);
  run();
  EXPECT_TRUE(node_->closed());
}

// Not all of its body is there.
template <wire::MessageType kind>
struct Short {
  static constexpr wire::MessageType type = kind;
  std::uint64_t body = 0;
};

TEST_F(ManagerChecks, messages_that_are_not_of_their_sender_end_its_connection) {
  const auto ends = [&](wire::Role role, const auto& message, const auto&... more) {
    EXPECT_EQ(refusal(role, role == wire::Role::readout_unit ? "ru1\n" : "bu1\nsim://node"), "");
    node_->say(message, more...);
    run();
    return node_->closed();
  };
  using enum wire::Role;
  EXPECT_TRUE(ends(builder_unit, wire::Announce{}));
  EXPECT_FALSE(ends(readout_unit, wire::Announce{}));
  EXPECT_TRUE(ends(builder_unit, wire::Paused{}));
  EXPECT_FALSE(ends(readout_unit, wire::Paused{}));
  EXPECT_TRUE(ends(readout_unit, wire::Received{}));
  EXPECT_FALSE(ends(builder_unit, wire::Received{}));
  EXPECT_TRUE(ends(readout_unit, wire::Built{}));
  EXPECT_FALSE(ends(builder_unit, wire::Built{}));
  EXPECT_TRUE(ends(readout_unit, wire::Failed{}));
  EXPECT_FALSE(ends(builder_unit, wire::Status{}));
  EXPECT_FALSE(ends(readout_unit, wire::Status{}));
  EXPECT_TRUE(ends(readout_unit, wire::Finished{}));
  EXPECT_TRUE(ends(readout_unit, wire::Horizon{}));
  EXPECT_TRUE(ends(readout_unit, wire::Hello{}));
  EXPECT_TRUE(ends(builder_unit, wire::Held{}));
  EXPECT_FALSE(ends(readout_unit, wire::Held{}));
  EXPECT_TRUE(ends(builder_unit, wire::Uncut{}));
  EXPECT_TRUE(ends(readout_unit, wire::HandBack{}));
  EXPECT_FALSE(ends(builder_unit, wire::HandBack{.readout_unit = 1, .blames = 1}));
  EXPECT_TRUE(ends(builder_unit, wire::HandBack{.readout_unit = 2, .blames = 1})); // there are two
  EXPECT_FALSE(ends(builder_unit, wire::HandBack{.readout_unit = 2})); // it blames nobody
  EXPECT_TRUE(ends(readout_unit, wire::Reached{}));
  EXPECT_FALSE(ends(builder_unit, wire::Reached{.readout_unit = 1}));
  EXPECT_TRUE(ends(builder_unit, wire::Reached{.readout_unit = 2})); // there are two
  EXPECT_TRUE(ends(builder_unit, wire::Failed{.text_size = 1000})); // and there is none
  EXPECT_TRUE(ends(readout_unit, wire::NewFile{}));
  EXPECT_FALSE(ends(builder_unit, wire::NewFile{}));
  EXPECT_TRUE(ends(builder_unit, wire::NewFile{.text_size = 1000})); // and there is none
  EXPECT_TRUE(ends(readout_unit, Short<wire::MessageType::announce>{}));
  EXPECT_TRUE(ends(readout_unit, Short<wire::MessageType::held>{}));
  EXPECT_TRUE(ends(builder_unit, Short<wire::MessageType::received>{}));
  EXPECT_TRUE(ends(builder_unit, Short<wire::MessageType::reached>{}));
  EXPECT_TRUE(ends(builder_unit, Short<wire::MessageType::hand_back>{}));
  // Counters of more sources than it has.
  wire::Status counters;
  counters.counters.sources = 1;
  EXPECT_FALSE(ends(readout_unit, counters, std::vector<wire::SourceCounters>(1)));
  counters.counters.sources = 2;
  EXPECT_TRUE(ends(readout_unit, counters, std::vector<wire::SourceCounters>(2)));
}

} // namespace
} // namespace fanin::builder
