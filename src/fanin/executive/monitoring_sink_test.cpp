#include "fanin/executive/monitoring_sink.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/builder/filtering/prescale.hpp"
#include "fanin/memory/heap_page.hpp"
#include "fanin/storage/testing/memory_sink.hpp"
#include "fanin/wire/super_fragment.hpp"

namespace fanin::executive {
namespace {

using storage::BuiltBatch;
using storage::SubmitOutcome;
using ::testing::ElementsAre;

struct Shown final : EventOutput {
  [[nodiscard]] bool wanted() const override { return somebody; }
  void publish(RunNumber, const storage::BuiltEvent& event) override {
    numbers.push_back(event.number);
  }
  bool somebody = true;
  std::vector<EventNumber> numbers;
};

// Takes what it is told to.
class Inner final : public storage::EventSink {
public:
  Inner(bool& takes, std::string& heard) : takes_(takes), heard_(heard) {}
  SubmitOutcome submit(BuiltBatch& batch) override {
    if (!takes_) return SubmitOutcome::busy;
    batch = {};
    return SubmitOutcome::accepted;
  }
  void run_began(std::int64_t /*unix_ns*/) override { heard_ += "began "; }
  void run_ended() override { heard_ += "ended "; }
  void finish() override {}
  [[nodiscard]] bool finished() const override { return true; }
  [[nodiscard]] std::uint64_t bytes_written() const override { return 0; }
  bool poll() override { return false; }

private:
  bool& takes_;
  std::string& heard_;
};

struct Monitoring : ::testing::Test {
  void start(const Sampling& sampling) {
    sink = std::make_unique<MonitoringSink>(
        std::make_unique<Inner>(takes, heard), shown, loop, sampling,
        storage::EventSources{.sources = {{.id = 7, .name = "seven", .readout_unit = {}}},
                              .merged = {},
                              .slice = {}});
  }
  // Fragments of 4 bytes.
  static BuiltBatch batch(EventRange range) {
    const auto count = range.count();
    std::vector<wire::FragmentEntry> entries(count, {.size_and_flags = 4, .crc32c = 0});
    BuiltBatch made;
    made.ticket = range.first;
    made.range = range;
    made.pieces.push_back({.source = 7,
                           .range = range,
                           .table = memory::HeapPage::copy(std::as_bytes(std::span{entries})),
                           .payload = memory::HeapPage::copy(std::vector<std::byte>(4 * count))});
    return made;
  }
  SubmitOutcome submit(EventRange range, std::vector<std::uint32_t> streams = {}) {
    BuiltBatch made = batch(range);
    made.streams = std::move(streams);
    return sink->submit(made);
  }

  VirtualClock clock;
  net::Loop loop{clock};
  Shown shown;
  bool takes = true;
  std::string heard; // by the sink behind
  std::unique_ptr<MonitoringSink> sink;
};

TEST_F(Monitoring, shows_one_event_in_so_many_by_run_and_number) {
  start({.run = 3, .every = 10});
  std::vector<EventNumber> expected;
  for (EventNumber event = 0; event < 1000; ++event) {
    if (builder::prescale_keeps(3, event, storage::streams_max + 1, 10)) expected.push_back(event);
  }
  for (EventNumber event = 0; event < 1000; event += 50)
    EXPECT_EQ(submit({event, event + 50}), SubmitOutcome::accepted);
  EXPECT_EQ(shown.numbers, expected);
  EXPECT_GT(expected.size(), 60U);
  EXPECT_LT(expected.size(), 150U);
}

TEST_F(Monitoring, shows_nothing_where_nobody_looks) {
  start({.every = 1});
  shown.somebody = false;
  EXPECT_EQ(submit({0, 50}), SubmitOutcome::accepted);
  EXPECT_TRUE(shown.numbers.empty());
}

TEST_F(Monitoring, shows_a_batch_once_however_often_it_is_offered) {
  start({.every = 1});
  takes = false;
  EXPECT_EQ(submit({0, 2}), SubmitOutcome::busy);
  EXPECT_EQ(submit({0, 2}), SubmitOutcome::busy);
  takes = true;
  EXPECT_EQ(submit({0, 2}), SubmitOutcome::accepted);
  EXPECT_EQ(submit({2, 3}), SubmitOutcome::accepted);
  EXPECT_THAT(shown.numbers, ElementsAre(0, 1, 2));
}

TEST_F(Monitoring, the_sink_behind_hears_of_the_begin_and_the_end_of_the_run) {
  start({.every = 1});
  sink->run_began(0);
  EXPECT_EQ(heard, "began ");
  sink->run_ended();
  EXPECT_EQ(heard, "began ended ");
}

TEST_F(Monitoring, shows_no_more_than_its_rate_and_not_always_the_same_place) {
  start({.every = 1, .rate_hz = 10});
  std::vector<EventNumber> places;
  for (EventNumber event = 0; event < 100'000; event += 100) { // 1,000 batches in 10 s
    const std::size_t before = shown.numbers.size();
    EXPECT_EQ(submit({event, event + 100}), SubmitOutcome::accepted);
    if (shown.numbers.size() > before) places.push_back(shown.numbers.back() % 100);
    clock.advance(std::chrono::milliseconds{10});
    loop.turn();
  }
  EXPECT_EQ(shown.numbers.size(), 100U);
  std::ranges::sort(places);
  places.erase(std::ranges::unique(places).begin(), places.end());
  EXPECT_GT(places.size(), 20U);
}

TEST_F(Monitoring, shows_what_filters_have_accepted) {
  start({.every = 1});
  BuiltBatch made = batch({0, 3});
  made.streams = {1, 0, 2};
  made.pieces.front() = batch({0, 1}).pieces.front(); // of the others nothing is written
  EXPECT_EQ(sink->submit(made), SubmitOutcome::accepted);
  EXPECT_THAT(shown.numbers, ElementsAre(0, 2));
}

TEST(PublishedEvent, is_a_super_fragment) {
  const std::vector<std::byte> payload(5, std::byte{9});
  const std::vector<storage::EventFragment> fragments{
      {.source = 2, .crc32c = 11, .flags = storage::event_truncated, .payload = payload},
      {.source = 9, .crc32c = 12, .flags = 0, .payload = {}}};
  const std::vector<storage::MissingRow> missing{{.event = 4, .source = 3, .reason = 2}};
  const storage::BuiltEvent event{.number = 4,
                                  .flags = storage::event_incomplete | storage::event_truncated,
                                  .fragments = fragments,
                                  .missing = missing};
  ASSERT_EQ(event_size(event), wire::super_head_size(3) + 5);
  std::vector<std::byte> bytes(event_size(event));
  write_event(6, event, bytes.data());
  const wire::SuperHead head(bytes, bytes.size(), 3);
  ASSERT_TRUE(head.good());
  EXPECT_EQ(head.header().event, 4U);
  EXPECT_EQ(head.header().run, 6U);
  EXPECT_EQ(head.header().flags, wire::super_incomplete);
  EXPECT_EQ(head.entry(0).source, 2U);
  EXPECT_EQ(head.entry(0).entry, (wire::FragmentEntry{5 | wire::fragment_truncated, 11}));
  EXPECT_EQ(head.entry(1).source, 3U);
  EXPECT_EQ(head.entry(1).entry, (wire::FragmentEntry{wire::fragment_absent, 2}));
  EXPECT_EQ(head.entry(2).source, 9U);
  EXPECT_EQ(head.entry(2).entry, (wire::FragmentEntry{0, 12}));
  EXPECT_EQ(bytes.back(), std::byte{9});
}

} // namespace
} // namespace fanin::executive
