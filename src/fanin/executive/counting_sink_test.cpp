#include "fanin/executive/counting_sink.hpp"

#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "fanin/base/clock.hpp"

namespace fanin::executive {
namespace {

using storage::BuiltBatch;
using storage::SubmitOutcome;

class SinkBelow final : public storage::EventSink {
public:
  SubmitOutcome submit(BuiltBatch& batch) override {
    if (commits_at_once) commit(batch.ticket);
    return outcome;
  }
  void finish() override {}
  [[nodiscard]] bool finished() const override { return true; }
  [[nodiscard]] std::uint64_t bytes_written() const override { return 0; }
  bool poll() override { return false; }
  void commit(std::uint64_t ticket) { commit_({.ticket = ticket}); }

  SubmitOutcome outcome = SubmitOutcome::accepted;
  bool commits_at_once = false;
};

class CountingSinkTest : public ::testing::Test {
protected:
  CountingSinkTest() {
    auto inner = std::make_unique<SinkBelow>();
    inner_ = inner.get();
    sink_ = std::make_unique<CountingSink>(std::move(inner), 3, loop_, log_, nullptr);
    sink_->on_commit([this](const storage::Committed&) { ++committed_; });
  }

  // Ten events of three sources.
  void submit(std::uint64_t ticket) {
    BuiltBatch batch;
    batch.ticket = ticket;
    batch.range = {10 * ticket, 10 * ticket + 10};
    (void)sink_->submit(batch);
  }

  VirtualClock clock_;
  net::Loop loop_{clock_};
  SinkLog log_;
  SinkBelow* inner_ = nullptr;
  std::unique_ptr<CountingSink> sink_;
  int committed_ = 0;
};

TEST_F(CountingSinkTest, what_a_full_disk_keeps_out_is_not_counted) {
  submit(1);
  submit(2);
  submit(3);
  EXPECT_EQ(log_.events, 0U);
  inner_->commit(2);
  EXPECT_EQ(log_.events, 10U);
  EXPECT_EQ(log_.fragments, 30U);
  EXPECT_EQ(log_.waiting, 2U);
  EXPECT_EQ(committed_, 1);
  sink_.reset();
  EXPECT_EQ(log_.waiting, 0U);
  EXPECT_EQ(log_.events, 10U);
}

TEST_F(CountingSinkTest, a_batch_that_is_refused_does_not_wait) {
  inner_->outcome = SubmitOutcome::busy;
  submit(1);
  EXPECT_EQ(log_.waiting, 0U);
  inner_->outcome = SubmitOutcome::accepted;
  submit(1);
  inner_->commit(1);
  EXPECT_EQ(log_.events, 10U);
  EXPECT_EQ(log_.waiting, 0U);
}

TEST_F(CountingSinkTest, a_batch_may_be_committed_at_once) {
  inner_->commits_at_once = true;
  submit(1);
  EXPECT_EQ(log_.events, 10U);
  EXPECT_EQ(log_.waiting, 0U);
}

} // namespace
} // namespace fanin::executive
