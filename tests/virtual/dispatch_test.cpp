// What the event manager tells its nodes, which are played here message by message.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fanin/builder/testing/fake_node.hpp"
#include "fanin/builder/testing/make_system.hpp"
#include "virtual/expectations.hpp"
#include "virtual/virtual_system.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using fanin::testing::tail_of_log;
using fanin::testing::VirtualSystem;
using fanin::testing::VirtualSystemOptions;
using testing::FakeNode;
using testing::make_system;

// One readout unit. The event manager's pages, which have numbers, are acknowledged on demand.
class Dispatch : public ::testing::Test {
protected:
  explicit Dispatch(std::size_t builders = 1) { options_.system = make_system(1, builders); }

  void start() {
    system_.emplace(options_);
    system_->start_event_manager();
    readout_ = join(wire::Role::readout_unit, 0, "ru0\n");
    readout_->say(wire::Ready{1});
    for (std::size_t i = 0; i < system_->builders(); ++i) {
      const auto node = static_cast<NodeId>(i);
      builders_.push_back(
          join(wire::Role::builder_unit, node, fmt::format("bu{}\nsim://data{}", i, i)));
      builders_.back()->say(reached(true));
    }
    system_->run_for(5ms);
    ASSERT_TRUE(system_->manager().running());
  }
  std::unique_ptr<FakeNode> join(wire::Role role, NodeId node, const std::string& text) {
    auto fake = std::make_unique<FakeNode>(system_->world(), fmt::format("fake{}", ++fakes_));
    fake->connect("sim://evm");
    system_->run_for(5ms);
    wire::Hello hello;
    hello.role = role;
    hello.node = node;
    hello.system_digest = options_.system.digest();
    hello.capacity = role == wire::Role::builder_unit ? capacity_ : 1U << 30;
    hello.metadata = 1U << 30;
    fake->say_hello(hello, text);
    system_->run_for(5ms);
    EXPECT_TRUE(fake->heard(wire::MessageType::welcome));
    return fake;
  }
  static wire::Reached reached(bool yes, std::uint32_t connection = 1) {
    return {.yes = yes ? std::uint16_t{1} : std::uint16_t{0},
            .incarnation = 1,
            .connection = connection};
  }
  // Batch by batch.
  void announce(EventNumber first, EventNumber end) {
    const std::uint32_t step = options_.system.batch_events;
    for (; first < end; first += step) {
      readout_->say(wire::Announce{.first = first, .end = first + step, .bytes = batch_bytes_});
      if (first / step % 16 == 15) system_->run_for(100us);
    }
    system_->run_for(5ms);
  }
  static void acknowledge(FakeNode& node) {
    node.say(wire::Acknowledge{node.all<wire::Numbered>().size()});
  }
  void acknowledge_all() {
    for (int i = 0; i < 300; ++i) {
      acknowledge(*readout_);
      for (const auto& builder : builders_) acknowledge(*builder);
      system_->run_for(1ms);
    }
  }
  std::vector<wire::Assign> assigned(std::size_t builder = 0) const {
    return builders_[builder]->all<wire::Assign>();
  }
  void hand_back(std::size_t builder, bool blames) {
    const wire::Assign last = assigned(builder).back();
    builders_[builder]->say(
        wire::HandBack{.first = last.first, .attempt = last.attempt, .blames = blames ? 1U : 0U});
    system_->run_for(5ms);
  }

  VirtualSystemOptions options_;
  std::uint64_t capacity_ = 1U << 30; // of each builder unit
  std::uint64_t batch_bytes_ = 8; // as they are announced
  std::optional<VirtualSystem> system_;
  std::unique_ptr<FakeNode> readout_;
  std::vector<std::unique_ptr<FakeNode>> builders_;
  int fakes_ = 0;
};

class DispatchToTwo : public Dispatch {
protected:
  DispatchToTwo() : Dispatch(2) {}
};

// Its builder unit acknowledges what it is told, and has room for all of it.
TEST_F(Dispatch, no_batch_is_assigned_of_which_a_readout_unit_cannot_be_told) {
  options_.system.batch_events = 1;
  start();
  announce(0, 5000);
  for (int i = 0; i < 200; ++i) {
    acknowledge(*builders_[0]);
    system_->run_for(1ms);
  }
  const std::size_t told = readout_->all<wire::Assign>().size();
  EXPECT_GT(told, 100U);
  EXPECT_LT(assigned().size(), told + 300); // what fits two control pages
  acknowledge_all();
  EXPECT_EQ(assigned().size(), 5000U) << tail_of_log(*system_);
}

TEST_F(Dispatch, batches_that_are_not_built_are_bounded_by_their_number_too) {
  constexpr std::size_t most = 16'384;
  options_.system.batch_events = 1;
  options_.system.transfer_window = 1U << 30;
  start();
  announce(0, 20'000);
  acknowledge_all();
  EXPECT_EQ(assigned().size(), most);
  builders_[0]->say(wire::Received{.first = 7});
  builders_[0]->say(wire::Built{.first = 7, .events = 1});
  acknowledge_all();
  EXPECT_EQ(assigned().size(), most + 1);
}

// Its capacity is free, but it is not stored.
TEST_F(Dispatch, a_builder_unit_whose_batch_is_set_aside_still_stores) {
  start();
  announce(0, 64);
  EXPECT_FALSE(system_->manager().storing());
  EXPECT_TRUE(system_->manager().waiting_for().contains("builder unit 'bu0' to build event 0"));
  builders_[0]->say(wire::Received{.first = 0});
  system_->run_for(5ms);
  EXPECT_TRUE(system_->manager().storing());
  builders_[0]->say(wire::Received{.first = 0, .set_aside = 1});
  system_->run_for(5ms);
  EXPECT_EQ(system_->manager().bytes_reserved(), 0U);
  EXPECT_TRUE(system_->manager().storing());
  EXPECT_TRUE(system_->manager().waiting_for().contains("builder unit 'bu0' to store event 0"))
      << system_->manager().waiting_for();
  announce(64, 128); // there is an older one
  EXPECT_TRUE(system_->manager().waiting_for().contains("builder unit 'bu0' to store event 0"))
      << system_->manager().waiting_for();
  builders_[0]->say(wire::Built{.first = 0, .events = 64});
  system_->run_for(5ms);
  EXPECT_FALSE(system_->manager().storing());
  EXPECT_TRUE(system_->manager().waiting_for().contains("builder unit 'bu0' to build event 64"))
      << system_->manager().waiting_for();
}

TEST_F(Dispatch, what_filter_units_have_to_decide_is_no_fault_of_storage) {
  start();
  announce(0, 64);
  const auto say_status = [&](std::string_view text) {
    wire::Status status;
    status.counters.waits_for_size = static_cast<std::uint32_t>(text.size());
    builders_[0]->say(status, text);
    system_->run_for(5ms);
  };
  say_status("filter unit 'fu1' to decide events from 3 on"); // of an earlier batch
  EXPECT_TRUE(system_->manager().waiting_for().contains("builder unit 'bu0' to build event 0"));
  builders_[0]->say(wire::Received{.first = 0});
  system_->run_for(5ms);
  EXPECT_TRUE(system_->manager().waiting_for().contains(
      "builder unit 'bu0': filter unit 'fu1' to decide events from 3 on ("))
      << system_->manager().waiting_for();
  say_status(""); // the filter units have decided all
  EXPECT_TRUE(system_->manager().waiting_for().contains("builder unit 'bu0' to store event 0"))
      << system_->manager().waiting_for();
  say_status("filter unit 'fu0' to decide events from 9 on");
  EXPECT_TRUE(system_->manager().waiting_for().contains("filter unit 'fu0' to decide"))
      << system_->manager().waiting_for();
}

// Its storage takes them in order: all others wait for the oldest one, and keep their capacity.
TEST_F(Dispatch, the_oldest_batch_is_assigned_again_however_often_it_is_handed_back) {
  capacity_ = 64U << 10;
  options_.system.batch_size = 4U << 10;
  options_.system.in_order = true;
  batch_bytes_ = 1000;
  start();
  announce(0, 100 * 64);
  acknowledge_all();
  const std::size_t most = assigned().size();
  constexpr std::uint16_t attempts = 20; // far more than what is kept for them
  ASSERT_GT(most, 2U);
  ASSERT_LT(most, 100U) << "it has no room for more";
  for (const wire::Assign& batch : assigned()) {
    if (batch.first != 0) builders_[0]->say(wire::Received{.first = batch.first});
  }
  system_->run_for(5ms);
  for (std::uint16_t attempt = 0; attempt < attempts; ++attempt) {
    ASSERT_EQ(assigned().back().attempt, attempt);
    builders_[0]->say(wire::HandBack{.first = 0, .attempt = attempt});
    acknowledge_all();
    ASSERT_EQ(assigned().size(), most + attempt + 1) << system_->manager().waiting_for();
    ASSERT_EQ(assigned().back().first, 0U);
  }
  for (const wire::Assign& batch : assigned()) {
    const std::uint16_t attempt = batch.first == 0 ? attempts : std::uint16_t{0};
    if (batch.attempt != attempt) continue;
    builders_[0]->say(wire::Received{.first = batch.first, .attempt = attempt});
    builders_[0]->say(wire::Built{.first = batch.first, .events = 64, .attempt = attempt});
  }
  acknowledge_all();
  EXPECT_GT(assigned().size(), most + attempts) << "all capacity is free again";
}

// The policy alone would give it back: it is that builder unit's turn.
TEST_F(DispatchToTwo, a_batch_that_was_handed_back_is_not_tried_there_again) {
  start();
  announce(0, 128);
  ASSERT_EQ(assigned(0).size(), 1U);
  ASSERT_EQ(assigned(1).size(), 1U);
  const std::size_t first = assigned(0)[0].first == 0 ? 0 : 1;
  hand_back(first, false);
  EXPECT_EQ(assigned(first).size(), 1U);
  ASSERT_EQ(assigned(1 - first).size(), 2U);
  EXPECT_EQ(assigned(1 - first)[1].first, 0U);
  EXPECT_EQ(assigned(1 - first)[1].attempt, 1U);
}

TEST_F(Dispatch, a_readout_unit_is_told_of_a_path_that_its_builder_unit_has_lost) {
  start();
  EXPECT_FALSE(readout_->heard(wire::MessageType::reconnect));
  builders_[0]->say(reached(false, 7));
  system_->run_for(5ms);
  const auto told = readout_->all<wire::Reconnect>();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].builder, 0U);
  EXPECT_EQ(told[0].incarnation, 1U);
  EXPECT_EQ(told[0].connection, 7U);
  builders_[0]->say(reached(true, 8)); // nothing to do
  system_->run_for(5ms);
  EXPECT_EQ(readout_->all<wire::Reconnect>().size(), 1U);
}

// It is connected, and nothing of its data comes: each attempt is handed back because of it.
TEST_F(Dispatch, a_readout_unit_of_which_nothing_comes_anywhere_is_given_up) {
  for (const bool once_built : {false, true}) {
    builders_.clear();
    readout_.reset();
    start();
    announce(0, 64);
    bool built = false;
    for (int i = 0; i < 60 && !readout_->closed(); ++i) { // 6 s, of which it may take 2 dead_after
      readout_->say(wire::Status{});
      system_->run_for(100ms);
      if (once_built && !built && i > 30) {
        built = true;
        const wire::Assign last = assigned().back();
        builders_[0]->say(wire::Built{.first = 0, .events = 64, .attempt = last.attempt});
        announce(64, 128);
      }
      hand_back(0, true);
    }
    EXPECT_EQ(readout_->closed(), !once_built) << tail_of_log(*system_);
    system_->destroy_nodes();
  }
}

} // namespace
} // namespace fanin::builder
