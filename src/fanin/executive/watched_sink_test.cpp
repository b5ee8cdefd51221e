#include "fanin/executive/watched_sink.hpp"

#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fanin::executive {
namespace {

using storage::BuiltBatch;
using storage::SubmitOutcome;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Does what a test tells it.
class InnerSink final : public storage::EventSink {
public:
  SubmitOutcome submit(BuiltBatch& batch) override { return on_submit(batch); }
  void run_began(std::int64_t /*unix_ns*/) override { on_run_began(); }
  void run_ended() override { on_run_ended(); }
  void finish() override { ended = true; }
  [[nodiscard]] bool finished() const override { return ended; }
  [[nodiscard]] std::vector<std::string> files() const override { return names; }
  [[nodiscard]] std::size_t file_count() const override { return names.size(); }
  [[nodiscard]] int descriptor() const override { return 5; }
  [[nodiscard]] std::uint64_t bytes_written() const override {
    throw std::runtime_error("bytes_written");
  }
  bool poll() override {
    if (on_poll) on_poll();
    return false;
  }
  void commit(std::uint64_t ticket) { commit_({.ticket = ticket}); }
  void fail(ErrorKind kind, bool fatal) { failure_({kind, "no room"}, fatal); }

  std::function<SubmitOutcome(BuiltBatch&)> on_submit = [](BuiltBatch& batch) {
    batch = {};
    return SubmitOutcome::accepted;
  };
  std::function<void()> on_poll;
  std::function<void()> on_run_began = [] {};
  std::function<void()> on_run_ended = [] {};
  std::vector<std::string> names;
  bool ended = false;
};

struct Watched : ::testing::Test {
  Watched() {
    sink.on_commit([this](const storage::Committed& done) { commits.push_back(done.ticket); });
    sink.on_failure([this](const Error& error, bool fatal) {
      (fatal ? fatal_failures : failures).push_back(error.text);
    });
  }
  SubmitOutcome submit(std::uint64_t ticket) {
    BuiltBatch batch;
    batch.ticket = ticket;
    batch.range = {ticket, ticket + 1};
    batch.pieces.resize(1);
    return sink.submit(batch);
  }
  // The failure, after which the sink is asked for nothing more.
  std::string fatal_failure() {
    EXPECT_FALSE(sink.arm());
    EXPECT_FALSE(sink.finished());
    sink.poll();
    if (fatal_failures.size() != 1) return "there is none";
    inner.on_submit = [](BuiltBatch&) -> SubmitOutcome { throw std::runtime_error("called"); };
    inner.on_poll = [] { throw std::runtime_error("called"); };
    inner.on_run_began = inner.on_run_ended = inner.on_poll;
    sink.run_began(0);
    sink.run_ended();
    EXPECT_EQ(submit(100), SubmitOutcome::busy);
    sink.poll();
    sink.finish();
    EXPECT_TRUE(sink.finished());
    EXPECT_TRUE(sink.arm());
    EXPECT_EQ(sink.descriptor(), -1) << "nobody reads it any more";
    EXPECT_EQ(fatal_failures.size(), 1U);
    return fatal_failures.front();
  }

  std::vector<std::uint64_t> commits;
  std::vector<std::string> failures, fatal_failures, lines;
  std::unique_ptr<InnerSink> made = std::make_unique<InnerSink>();
  InnerSink& inner = *made;
  struct TestClock final : Clock {
    [[nodiscard]] Time now() const override { return time; }
    Time time{};
  } clock;
  WatchedSink sink{std::move(made), "sink \"x\"", clock,
                   [this](LogLevel, std::string_view text) { lines.emplace_back(text); }};
};

TEST_F(Watched, passes_on_what_a_good_sink_does_with_new_files_first) {
  EXPECT_EQ(submit(1), SubmitOutcome::accepted);
  EXPECT_EQ(submit(2), SubmitOutcome::accepted);
  EXPECT_TRUE(sink.arm());
  EXPECT_EQ(sink.descriptor(), 5);
  inner.on_poll = [this] {
    inner.names = {"a"};
    inner.commit(2);
  };
  std::size_t files_at_commit = 0;
  sink.on_commit([&](const storage::Committed& done) {
    files_at_commit = sink.file_count();
    commits.push_back(done.ticket);
  });
  sink.poll();
  EXPECT_THAT(commits, ElementsAre(2));
  EXPECT_EQ(files_at_commit, 1U);
  inner.on_poll = nullptr;
  inner.fail(ErrorKind::exhausted, false);
  EXPECT_FALSE(sink.arm());
  sink.poll();
  EXPECT_THAT(failures, ElementsAre("sink \"x\": no room"));
  inner.fail(ErrorKind::exhausted, false);
  sink.poll();
  EXPECT_EQ(failures.size(), 1U) << "as long as nothing is committed, it is the same";
  inner.commit(1);
  sink.finish();
  EXPECT_FALSE(sink.finished()); // its commit is not said
  sink.poll();
  EXPECT_TRUE(sink.finished());
  EXPECT_THAT(sink.files(), ElementsAre("a"));
}

TEST_F(Watched, is_named_with_the_call_in_which_it_blocks_its_builder_unit) {
  using std::chrono::milliseconds;
  inner.on_submit = [this](BuiltBatch& batch) {
    batch = {};
    clock.time += milliseconds{1500};
    return SubmitOutcome::accepted;
  };
  inner.on_poll = [this] { clock.time += milliseconds{4000}; };
  (void)submit(1);
  (void)submit(2); // within a minute, and no worse
  sink.poll();
  EXPECT_THAT(lines, ElementsAre("sink \"x\": its submit() has blocked its builder unit for 1.5 s; "
                                 "it must return at once",
                                 "sink \"x\": its poll() has blocked its builder unit for 4 s; it "
                                 "must return at once"));
}

TEST_F(Watched, that_commits_while_it_takes_a_batch_is_heard_at_the_next_poll) {
  inner.on_submit = [this](BuiltBatch& batch) {
    inner.commit(std::exchange(batch, {}).ticket);
    return SubmitOutcome::accepted;
  };
  EXPECT_EQ(submit(1), SubmitOutcome::accepted);
  EXPECT_TRUE(commits.empty());
  EXPECT_FALSE(sink.arm());
  sink.poll();
  EXPECT_THAT(commits, ElementsAre(1));
}

TEST_F(Watched, that_is_busy_keeps_nothing) {
  inner.on_submit = [](BuiltBatch&) { return SubmitOutcome::busy; };
  EXPECT_EQ(submit(1), SubmitOutcome::busy);
  EXPECT_TRUE(sink.arm());
  sink.finish();
  EXPECT_TRUE(sink.finished());
}

TEST_F(Watched, that_throws_fails_for_good) {
  inner.on_submit = [this](BuiltBatch& batch) -> SubmitOutcome {
    inner.commit(batch.ticket); // which does not count: the builder unit still has the batch
    throw std::runtime_error("oops");
  };
  EXPECT_EQ(submit(1), SubmitOutcome::busy);
  EXPECT_EQ(fatal_failure(), "sink \"x\": it threw an exception: oops");
  EXPECT_TRUE(commits.empty());
}

TEST_F(Watched, that_throws_in_poll_fails_for_good_and_its_commits_count) {
  EXPECT_EQ(submit(1), SubmitOutcome::accepted);
  inner.on_poll = [this] {
    inner.commit(1);
    throw 1;
  };
  sink.poll();
  EXPECT_THAT(commits, ElementsAre(1));
  EXPECT_THAT(fatal_failures,
              ElementsAre("sink \"x\": it threw an exception that is not a std::exception"));
}

TEST_F(Watched, that_says_against_the_contract_fails_for_good) {
  inner.commit(7);
  EXPECT_THAT(fatal_failure(), HasSubstr("it committed batch 7, which it does not have"));
}

TEST_F(Watched, that_takes_a_batch_and_says_busy_fails_for_good) {
  inner.on_submit = [](BuiltBatch& batch) {
    batch.clear();
    return SubmitOutcome::busy;
  };
  EXPECT_EQ(submit(1), SubmitOutcome::busy);
  EXPECT_THAT(fatal_failure(), HasSubstr("it took batch 1 and said busy"));
}

TEST_F(Watched, that_calls_back_from_another_thread_fails_for_good) {
  EXPECT_EQ(submit(1), SubmitOutcome::accepted);
  std::thread([this] { inner.commit(1); }).join();
  sink.poll();
  EXPECT_TRUE(commits.empty());
  EXPECT_THAT(fatal_failures, ElementsAre(HasSubstr("another thread")));
}

TEST_F(Watched, that_ends_with_batches_fails_for_good) {
  EXPECT_EQ(submit(1), SubmitOutcome::accepted);
  sink.finish();
  EXPECT_FALSE(sink.finished());
  sink.poll();
  EXPECT_THAT(fatal_failures, ElementsAre(HasSubstr("1 batch is not committed")));
  EXPECT_TRUE(sink.finished());
}

TEST_F(Watched, that_names_a_file_with_a_line_break_fails_for_good) {
  inner.names = {"a\nb"};
  sink.poll();
  EXPECT_THAT(fatal_failures, ElementsAre(HasSubstr("line break")));
  EXPECT_EQ(sink.file_count(), 0U);
}

TEST_F(Watched, that_names_a_file_with_a_name_that_fits_into_no_message_fails_for_good) {
  inner.names = {std::string(5000, 'a')};
  sink.poll();
  EXPECT_THAT(fatal_failures, ElementsAre(HasSubstr("more than 4096 bytes")));
  EXPECT_EQ(sink.file_count(), 0U);
}

TEST_F(Watched, that_throws_where_it_is_only_asked_is_logged_once) {
  EXPECT_EQ(sink.bytes_written(), 0U);
  EXPECT_EQ(sink.bytes_written(), 0U);
  EXPECT_THAT(lines, ElementsAre("sink \"x\": it threw an exception: bytes_written"));
}

} // namespace
} // namespace fanin::executive
