#include "fanin/builder/building/commit_reporter.hpp"

#include <gtest/gtest.h>

#include <string>

#include <fmt/format.h>

#include "fanin/builder/testing/conversation.hpp"
#include "fanin/builder/testing/scripted_sink.hpp"

namespace fanin::builder {
namespace {

class Commits : public ::testing::Test {
protected:
  static Assembly batch(EventNumber first, AssemblyState state = AssemblyState::decided) {
    Assembly made;
    made.range = {first, first + 64};
    made.attempt = 2;
    made.state = CheckedState{state};
    return made;
  }
  static Assembly open_batch(EventNumber first) { return batch(first, AssemblyState::assigned); }
  std::vector<Assembly*> report() { return commits_.report(evm_.client(), status_, sink_); }
  // The kind and the first event of each message.
  std::string said() {
    std::string text;
    evm_.client().flush();
    evm_.network().for_each_said(0, [&](wire::MessageType type, wire::MessageReader& reader) {
      const auto add = [&](const char* what, auto message) {
        EXPECT_TRUE(reader.read(message));
        text += fmt::format("{}{} ", what, message.first);
      };
      switch (type) {
      case wire::MessageType::received: return add("received", wire::Received{});
      case wire::MessageType::hand_back: return add("back", wire::HandBack{});
      case wire::MessageType::built: return add("built", wire::Built{});
      case wire::MessageType::new_file: text += "file "; return;
      default: return;
      }
    });
    return text;
  }
  using Batches = std::vector<Assembly*>;

  testing::Conversation evm_;
  testing::Disk disk_;
  testing::ScriptedSink sink_{disk_};
  StatusReporter status_;
  CommitReporter commits_;
};

TEST_F(Commits, of_a_batch_all_is_said_that_the_event_manager_counts) {
  Assembly one = batch(128);
  one.bytes = 1000;
  one.incomplete = 1;
  one.rejected = 2;
  one.undecided = 3;
  one.undelivered = 4;
  commits_.received(one);
  commits_.set_aside(one);
  commits_.committed(one);
  EXPECT_EQ(report(), Batches{&one});
  EXPECT_TRUE(commits_.done());
  EXPECT_EQ(report(), Batches{}); // once
  const auto received = evm_.all<wire::Received>();
  ASSERT_EQ(received.size(), 2U);
  EXPECT_EQ(received[0].attempt, 2U);
  EXPECT_EQ(received[0].set_aside, 0U);
  EXPECT_EQ(received[1].set_aside, 1U);
  const wire::Built built = evm_.all<wire::Built>().at(0);
  EXPECT_EQ(built.range(), one.range);
  EXPECT_EQ(built.attempt, 2U);
  EXPECT_EQ(built.bytes, 1000U);
  EXPECT_EQ(built.incomplete, 1U);
  EXPECT_EQ(built.rejected, 2U);
  EXPECT_EQ(built.undecided, 3U);
  EXPECT_EQ(built.undelivered, 4U);
  EXPECT_EQ(built.more, 0U);
}

TEST_F(Commits, a_batch_that_is_handed_back_blames_a_readout_unit_or_none) {
  commits_.handed_back(open_batch(0), NodeId{0});
  commits_.handed_back(open_batch(64), NodeId{5});
  commits_.handed_back(open_batch(128), {});
  EXPECT_EQ(report(), Batches{});
  const auto back = evm_.all<wire::HandBack>();
  ASSERT_EQ(back.size(), 3U);
  EXPECT_EQ(back[0].blames, 1U);
  EXPECT_EQ(back[1].blames, 1U);
  EXPECT_EQ(back[1].readout_unit, 5U);
  EXPECT_EQ(back[1].attempt, 2U);
  EXPECT_EQ(back[2].blames, 0U);
}

TEST_F(Commits, a_new_file_is_named_before_what_is_in_it) {
  Assembly one = batch(0);
  Assembly two = batch(64);
  disk_.files = {"a"};
  commits_.committed(one);
  EXPECT_EQ(report(), Batches{&one});
  commits_.committed(two);
  EXPECT_EQ(report(), Batches{&two});
  EXPECT_EQ(said(), "file built0 built64 ");
}

TEST_F(Commits, what_has_no_room_is_said_later_in_order) {
  Assembly one = batch(0);
  Assembly two = batch(64);
  evm_.fill();
  disk_.files = {"a"};
  for (const Assembly* each : {&one, &two}) commits_.received(*each);
  commits_.handed_back(open_batch(128), {});
  commits_.committed(one);
  commits_.committed(two);
  EXPECT_EQ(report(), Batches{});
  EXPECT_FALSE(commits_.done());
  EXPECT_EQ(said(), "");
  evm_.acknowledge();
  EXPECT_EQ(report(), (Batches{&one, &two}));
  EXPECT_TRUE(commits_.done());
  EXPECT_EQ(said(), "back128 received0 received64 file built0 built64 ");
}

TEST_F(Commits, all_is_done_when_nothing_of_any_kind_is_left_to_say) {
  Assembly one = batch(0);
  EXPECT_TRUE(commits_.done());
  commits_.received(one);
  EXPECT_FALSE(commits_.done());
  (void)report();
  EXPECT_TRUE(commits_.done());
  commits_.handed_back(open_batch(64), {});
  EXPECT_FALSE(commits_.done());
}

TEST_F(Commits, nothing_is_said_of_an_incarnation_that_is_over) {
  Assembly one = batch(0);
  commits_.received(one);
  commits_.handed_back(open_batch(64), {});
  commits_.committed(one);
  commits_.clear();
  EXPECT_TRUE(commits_.done());
  EXPECT_EQ(report(), Batches{});
  EXPECT_EQ(said(), "");
}

// The event manager reads one message, then another one. Each exception comes once, and in order.
TEST_F(Commits, many_exceptions_are_said_in_several_messages_as_there_is_room) {
  for (const auto& [missing, bad] : {std::pair{1000U, 3U}, {2U, 1000U}, {700U, 500U}, {0U, 0U}}) {
    SCOPED_TRACE(fmt::format("{} missing, {} bad", missing, bad));
    testing::Conversation evm;
    Assembly one = batch(0);
    Assembly two = batch(64);
    for (std::uint32_t i = 0; i < missing; ++i) one.missing.push_back({.source = i});
    for (std::uint32_t i = 0; i < bad; ++i) one.bad.push_back({.source = i});
    commits_.committed(one);
    commits_.committed(two);
    std::vector<Assembly*> reported;
    for (int i = 0; i < 100 && !commits_.done(); ++i) {
      for (Assembly* each : commits_.report(evm.client(), status_, sink_)) reported.push_back(each);
      evm.acknowledge();
    }
    EXPECT_EQ(reported, (Batches{&one, &two}));
    std::uint32_t missing_said = 0;
    std::uint32_t bad_said = 0;
    std::string ends;
    evm.network().for_each_said(0, [&](wire::MessageType type, wire::MessageReader& reader) {
      wire::Built built;
      if (type != wire::MessageType::built) return;
      ASSERT_TRUE(reader.read(built));
      for (const auto& each : reader.records<wire::MissingRange>(built.missing_ranges))
        EXPECT_EQ(each.source, missing_said++);
      for (const auto& each : reader.records<wire::BadFragment>(built.bad))
        EXPECT_EQ(each.source, bad_said++);
      EXPECT_TRUE(reader.ok());
      if (built.more == 0) ends += fmt::format("{}:{},{} ", built.first, missing_said, bad_said);
    });
    EXPECT_EQ(ends, fmt::format("0:{0},{1} 64:{0},{1} ", missing, bad));
  }
}

} // namespace
} // namespace fanin::builder
