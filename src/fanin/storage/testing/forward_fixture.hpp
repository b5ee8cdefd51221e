// For tests: a sink that forwards to two slices, which are the sources of a second stage.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fanin/source/receive_source.hpp"
#include "fanin/source/testing/queue_fixture.hpp"
#include "fanin/source/testing/receive_bench.hpp"
#include "fanin/storage/forward_sink.hpp"
#include "fanin/storage/testing/batch_maker.hpp"
#include "fanin/storage/testing/seeds.hpp"

namespace fanin::storage::testing {

constexpr SourceId merged = 0x500;

// A slice: its source with a queue.
struct Slice {
  explicit Slice(const std::string& url = "tcp://127.0.0.1:0", bool joined = true)
      : fixture({.source = merged, .window = 1024}, {.page_size = 65536, .pages = 64}),
        source(source::ReceiveSource::make({.source = merged,
                                            .port = source::testing::new_port(url.c_str()),
                                            .wait_for_sender = true})
                   .value()),
        in_run(joined) {
    if (joined) {
      EXPECT_TRUE(source->start(0, Time{}));
    }
  }
  // The run has gone on to `first` without it.
  void join(EventNumber first) {
    fixture.queue.start(first);
    EXPECT_TRUE(source->start(first, Time{}));
    in_run = true;
  }
  void read() {
    if (in_run) {
      last = source->read(fixture.queue, Time{}).state;
    } else {
      (void)source->ready(Time{});
    }
  }
  [[nodiscard]] bool has(EventNumber event) const {
    const source::FragmentQueue& queue = fixture.queue;
    return queue.numbered() && event >= queue.first_event() && event < queue.next_event() &&
           !queue.entry(event).absent();
  }
  // Nothing below `end` will come. A step may wait for the other sources to confirm it.
  [[nodiscard]] bool knows(EventNumber end) const {
    const source::FragmentQueue& queue = fixture.queue;
    return (queue.numbered() && queue.next_event() == end) || queue.numbers().held() == end - 1;
  }
  source::testing::QueueFixture fixture;
  std::unique_ptr<source::ReceiveSource> source;
  bool in_run;
  source::ReadState last{};
};

class Forward : public ::testing::Test {
public:
  ~Forward() override {
    if (sink_) loop_.remove(*sink_);
  }

protected:
  // Two slices, blocks of 4 events.
  void make(const std::vector<std::string>& urls, std::function<bool()> superseded = {}) {
    ForwardSinkOptions options{
        .builder = builder_,
        .builders = builders_,
        .source = merged,
        .block = 4,
        .run = 3,
        .sender = 77,
        .first = first_,
        .give_up = std::chrono::seconds{10},
        .sources = make_sources(2),
        .depth = 3,
        .superseded = std::move(superseded),
        .log = [this](LogLevel, std::string_view text) { log_ += std::string(text) + "\n"; }};
    for (const auto& url : urls) {
      options.slices.push_back(net::Url::parse(url).value());
    }
    if (sink_) loop_.remove(*sink_);
    sink_ = ForwardSink::make(loop_, streams_, std::move(options)).value();
    sink_->on_commit([this](const Committed& committed) {
      committed_.push_back(committed.ticket);
      undelivered_ += committed.undelivered;
    });
    loop_.add(*sink_);
    if (run_begins_) sink_->run_began(0);
  }
  // Of four numbers; behind the first `events` no source has one.
  SubmitOutcome submit(EventNumber first, EventNumber events = 4) {
    BuiltBatch batch = maker_.make(first, {first, first + events});
    batch.range.end = first + 4;
    if (events < 4) batch.gaps.push_back({first + events, batch.range.end});
    return sink_->submit(batch);
  }
  // Turns the loop until `done` is true.
  template <class Done>
  void until(Done done) {
    const MonotonicClock real;
    for (const Time end = real.now() + std::chrono::seconds{60}; !done();) {
      ASSERT_LT(real.now(), end) << log_ << committed_.size();
      turn(std::chrono::milliseconds{1});
      sched_yield();
    }
  }
  void until_left_has_read(EventNumber end) {
    const auto& queue = left_->fixture.queue;
    until([&] { return queue.numbered() && queue.next_event() == end; });
  }
  // To the left slice, which announces it.
  void deliver_first_batch() {
    ASSERT_EQ(submit(0), SubmitOutcome::accepted);
    until_left_has_read(4);
    left_->source->announced(4);
    until([&] { return committed_.size() == 1; });
  }
  [[nodiscard]] std::string last_line() const {
    if (log_.empty()) return {};
    const std::size_t before = log_.rfind('\n', log_.size() - 2);
    return log_.substr(before == std::string::npos ? 0 : before + 1);
  }
  // The resolver of the loop goes with the test, the sink asks it.
  void end_of_names() {
    loop_.remove(*sink_);
    sink_.reset();
    loop_.set_resolver(nullptr);
  }
  void turn(Duration step) {
    (void)loop_.turn();
    for (Slice* slice : {left_ ? &*left_ : nullptr, right_ ? &*right_ : nullptr}) {
      if (slice != nullptr && slices_read_) slice->read();
    }
    clock_.advance(step);
  }

  VirtualClock clock_;
  net::Loop loop_{clock_};
  struct FixtureStreams final : net::TcpStreams {
    explicit FixtureStreams(const bool& unanswered) : unanswered_(unanswered) {}
    bool is_unanswered(int) const override { return unanswered_; }
    const bool& unanswered_;
  };
  FixtureStreams streams_{unanswered_};
  BatchMaker maker_{make_sources(2)};
  std::optional<Slice> left_;
  std::optional<Slice> right_;
  bool run_begins_ = true;
  bool first_ = true; // nothing of this run was sent before
  std::size_t builder_ = 0; // of builders_
  std::size_t builders_ = 1;
  std::unique_ptr<ForwardSink> sink_;
  std::vector<std::uint64_t> committed_;
  std::uint64_t undelivered_ = 0;
  std::string log_;
  bool unanswered_ = false; // what the kernel says of all connections
  bool slices_read_ = true;
};

} // namespace fanin::storage::testing
