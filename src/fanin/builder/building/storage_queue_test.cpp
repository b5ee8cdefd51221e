#include "fanin/builder/building/storage_queue.hpp"

#include <gtest/gtest.h>

#include <string>

#include "fanin/builder/testing/scripted_sink.hpp"

namespace fanin::builder {
namespace {

using testing::Disk;
using testing::ScriptedSink;

class Storing : public ::testing::Test {
protected:
  void begin(Disk& disk) {
    queue_->begin(
        std::make_unique<ScriptedSink>(disk),
        [this](const storage::Committed& one) { committed_.push_back(one.ticket); },
        [this](std::uint64_t ticket) { set_aside_.push_back(ticket); });
  }
  Assembly& assembly(std::uint64_t ticket) {
    Assembly& made = *assemblies_.emplace_back(std::make_unique<Assembly>());
    made.state = CheckedState{AssemblyState::decided};
    made.batch.ticket = ticket;
    return made;
  }
  using Tickets = std::vector<std::uint64_t>;

  VirtualClock clock_;
  net::Loop loop_{clock_};
  Disk first_;
  Disk second_;
  std::vector<std::unique_ptr<Assembly>> assemblies_;
  Tickets committed_;
  Tickets set_aside_;
  std::string logged_;
  std::unique_ptr<StorageQueue> queue_ =
      std::make_unique<StorageQueue>(loop_, [this](LogLevel level, std::string_view text) {
        logged_ += level == LogLevel::error ? "error " : "warning ";
        logged_ += text;
      });
};

TEST_F(Storing, what_storage_does_not_take_waits_in_order) {
  begin(first_);
  first_.room = 1;
  for (std::uint64_t ticket = 1; ticket <= 3; ++ticket) queue_->add(assembly(ticket));
  EXPECT_EQ(first_.taken, Tickets{1});
  EXPECT_TRUE(queue_->held_up());
  first_.room = 1;
  queue_->add(assembly(4)); // does not overtake
  EXPECT_EQ(first_.taken, (Tickets{1, 2}));
  first_.room = 5;
  queue_->submit();
  EXPECT_EQ(first_.taken, (Tickets{1, 2, 3, 4}));
  EXPECT_FALSE(queue_->held_up());
  queue_->submit();
  EXPECT_EQ(first_.taken.size(), 4U);
}

TEST_F(Storing, commits_of_this_incarnation_are_told_and_of_earlier_ones_not) {
  begin(first_);
  first_.to_commit = {1};
  first_.to_set_aside = {2};
  loop_.turn();
  EXPECT_EQ(committed_, Tickets{1});
  EXPECT_EQ(set_aside_, Tickets{2});
  begin(second_);
  EXPECT_TRUE(first_.finishing);
  EXPECT_FALSE(second_.finishing);
  first_.to_commit = {3};
  first_.to_set_aside = {3};
  second_.to_commit = {4};
  loop_.turn();
  EXPECT_EQ(committed_, (Tickets{1, 4}));
  EXPECT_EQ(set_aside_, Tickets{2});
}

TEST_F(Storing, what_waits_when_an_incarnation_ends_is_not_stored) {
  begin(first_);
  queue_->add(assembly(1));
  queue_->end();
  EXPECT_FALSE(queue_->held_up());
  first_.room = 1;
  queue_->submit();
  queue_->end(); // has no effect
  begin(second_);
  second_.room = 1;
  queue_->submit();
  EXPECT_TRUE(first_.taken.empty());
  EXPECT_TRUE(second_.taken.empty());
}

TEST_F(Storing, an_old_sink_stays_until_it_has_written_everything) {
  begin(first_);
  begin(second_);
  loop_.turn();
  EXPECT_EQ(first_.polls, 1);
  queue_->forget_finished();
  EXPECT_FALSE(first_.gone);
  first_.finished = second_.finished = true;
  queue_->forget_finished();
  EXPECT_TRUE(first_.gone);
  EXPECT_FALSE(second_.gone); // in use
  loop_.turn();
  EXPECT_EQ(first_.polls, 1);
  EXPECT_EQ(second_.polls, 2);
}

TEST_F(Storing, only_a_fatal_failure_in_use_ends_storage) {
  begin(first_);
  first_.failure = Error{ErrorKind::exhausted, "full"};
  loop_.turn();
  EXPECT_EQ(logged_, "warning full");
  EXPECT_FALSE(queue_->failure());
  begin(second_);
  first_.failure = Error{ErrorKind::exhausted, "old"};
  first_.fatal = true;
  logged_.clear();
  loop_.turn();
  EXPECT_EQ(logged_, "error old");
  EXPECT_FALSE(queue_->failure());
  second_.failure = Error{ErrorKind::exhausted, "broken"};
  second_.fatal = true;
  loop_.turn();
  ASSERT_TRUE(queue_->failure());
  EXPECT_EQ(queue_->failure()->text, "broken");
}

TEST_F(Storing, files_and_what_is_waited_for_are_those_of_the_oldest_first) {
  EXPECT_TRUE(queue_->files().empty());
  EXPECT_EQ(queue_->waits_for(), "");
  first_.files = {"a", "b"};
  second_.files = {"c"};
  second_.waits_for = "a filter unit";
  begin(first_);
  begin(second_);
  EXPECT_EQ(queue_->files(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(queue_->waits_for(), "a filter unit");
  first_.waits_for = "the disk";
  EXPECT_EQ(queue_->waits_for(), "the disk");
  queue_->end();
  first_.waits_for.clear();
  EXPECT_EQ(queue_->waits_for(), "a filter unit");
  EXPECT_EQ(queue_->files().size(), 3U);
}

TEST_F(Storing, its_end_takes_all_sinks_from_the_loop) {
  begin(first_);
  begin(second_);
  queue_.reset();
  EXPECT_TRUE(first_.gone && second_.gone && second_.finishing);
  loop_.turn();
  EXPECT_EQ(first_.polls + second_.polls, 0);
}

} // namespace
} // namespace fanin::builder
