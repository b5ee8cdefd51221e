#include "fanin/executive/watched_source.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/memory/page_pool.hpp"

namespace fanin::executive {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::StartsWith;

VirtualClock clock_of_loop;
net::Loop loop{clock_of_loop};

// Writes one fragment in each read.
struct OneByOne final : source::Source {
  EventNumber event = 0;
  std::uint32_t size = 0;
  Result<> start(EventNumber, Time) override { return {}; }
  source::ReadResult read(source::FragmentQueue& queue, Time) override {
    const std::array<std::byte, 64> bytes{};
    EXPECT_NE(queue.write(event, std::span{bytes}.first(size)), source::WriteOutcome::full);
    return {};
  }
};

TEST(WatchedSource, is_prepared_as_the_source_is) {
  struct Unprepared final : source::Source {
    Result<> prepare() override { return fail(ErrorKind::not_found, "no such host"); }
    Result<> start(EventNumber, Time) override { return {}; }
    source::ReadResult read(source::FragmentQueue&, Time) override { return {}; }
  };
  WatchedSource watched(std::make_unique<Unprepared>(), "left", loop,
                        [](LogLevel, std::string_view) {});
  EXPECT_EQ(watched.prepare().error().text, "no such host");
}

TEST(WatchedSource, a_source_wakes_who_reads_it) {
  struct Waking final : source::Source {
    explicit Waking(std::function<void()>& kept) : wake(kept) {}
    void set_wake(std::function<void()> given) override { wake = std::move(given); }
    Result<> start(EventNumber, Time) override { return {}; }
    source::ReadResult read(source::FragmentQueue&, Time) override { return {}; }
    std::function<void()>& wake;
  };
  std::function<void()> wake;
  WatchedSource watched(std::make_unique<Waking>(wake), "left", loop,
                        [](LogLevel, std::string_view) {});
  int woken = 0;
  watched.set_wake([&] { ++woken; });
  wake();
  EXPECT_EQ(woken, 1);
}

// Throws whatever is asked of it.
struct Throwing final : source::Source {
  Result<> prepare() override { throw std::runtime_error("no device"); }
  Result<> start(EventNumber, Time) override { throw std::runtime_error("no device"); }
  bool ready(Time) override { throw 7; }
  source::ReadResult read(source::FragmentQueue&, Time) override { throw 7; }
  [[nodiscard]] bool on_demand() const override { throw 7; }
  [[nodiscard]] int descriptor() const override { throw 7; }
  [[nodiscard]] std::string listening_url() const override { throw 7; }
  [[nodiscard]] std::vector<source::SourceCounter> counters() const override { throw 7; }
};

TEST(WatchedSource, makes_what_a_source_throws_its_error) {
  const auto pool = memory::PagePool::make({.page_size = 65536, .pages = 4});
  ASSERT_TRUE(pool) << pool.error().text;
  source::FragmentQueue queue({.source = 0x10, .fragment_max = 32}, **pool);
  std::vector<std::string> lines;
  WatchedSource watched(std::make_unique<Throwing>(), "left", loop,
                        [&lines](LogLevel, auto text) { lines.emplace_back(text); });
  EXPECT_EQ(watched.prepare().error().text, "source left: it threw an exception: no device");
  EXPECT_TRUE(watched.ready(Time{})); // so that start() says what is wrong
  EXPECT_EQ(watched.start(0, Time{}).error().text, "it threw an exception: no device");
  const auto read = watched.read(queue, Time{});
  EXPECT_EQ(read.state, source::ReadState::failed);
  EXPECT_EQ(read.error.text, "it threw an exception that is not a std::exception");
  EXPECT_FALSE(watched.on_demand());
  EXPECT_EQ(watched.descriptor(), -1);
  EXPECT_EQ(watched.listening_url(), "");
  EXPECT_TRUE(watched.counters().empty());
  EXPECT_THAT(lines,
              ElementsAre("source left: it threw an exception that is not a std::exception"));
}

TEST(WatchedSource, names_a_source_that_blocks_and_again_only_if_it_gets_worse_or_after_a_minute) {
  struct Blocking final : source::Source {
    explicit Blocking(Duration& given) : blocks(given) {}
    Result<> start(EventNumber, Time) override {
      clock_of_loop.advance(blocks);
      return {};
    }
    source::ReadResult read(source::FragmentQueue&, Time) override {
      clock_of_loop.advance(blocks);
      return {};
    }
    Duration& blocks;
  };
  const auto pool = memory::PagePool::make({.page_size = 65536, .pages = 4});
  ASSERT_TRUE(pool) << pool.error().text;
  source::FragmentQueue queue({.source = 0x10, .fragment_max = 32}, **pool);
  std::vector<std::string> lines;
  Duration blocks{};
  WatchedSource watched(std::make_unique<Blocking>(blocks), "left", loop,
                        [&lines](LogLevel, auto text) { lines.emplace_back(text); });
  using std::chrono::milliseconds;
  for (const int ms : {999, 1500, 2000, 2999, 3000, 60'000, 70'000}) {
    blocks = milliseconds{ms};
    (void)watched.read(queue, Time{});
  }
  (void)watched.start(0, Time{});
  const auto line = [](const char* function, const char* time) {
    return fmt::format("source left: its {}() has blocked its readout unit for {}; it must return "
                       "at once",
                       function, time);
  };
  EXPECT_THAT(lines, ElementsAre(line("read", "1.5 s"), line("read", "3 s"), line("read", "60 s"),
                                 line("read", "70 s"), line("start", "70 s")));
}

TEST(WatchedSource, says_the_first_drop_of_each_kind_at_once_and_then_one_line_a_second) {
  const auto pool = memory::PagePool::make({.page_size = 65536, .pages = 4});
  ASSERT_TRUE(pool) << pool.error().text;
  source::FragmentQueue queue({.source = 0x10, .fragment_max = 32}, **pool);
  queue.start(6);
  std::vector<std::string> lines;
  auto one_by_one = std::make_unique<OneByOne>();
  OneByOne& inner = *one_by_one;
  WatchedSource watched(std::move(one_by_one), "left", loop,
                        [&lines](LogLevel, std::string_view text) { lines.emplace_back(text); });
  const auto read = [&](EventNumber event, std::uint32_t size, Duration at) {
    inner.event = event;
    inner.size = size;
    (void)watched.read(queue, Time{} + at);
  };
  using std::chrono::milliseconds;
  read(6, 7, milliseconds{0});
  read(7, 8, milliseconds{0});
  read(8, 33, milliseconds{0});
  read(9, 33, milliseconds{1});
  read(6, 8, milliseconds{2}); // of another kind
  read(10, 33, milliseconds{900});
  EXPECT_EQ(lines.size(), 2U);
  read(11, 8, milliseconds{1100}); // good, but there is something left to say
  read(12, 8, milliseconds{3000});
  EXPECT_THAT(
      lines, ElementsAre(
                 "source left (0x10): fragments dropped: oversize (1 so far), the last one with "
                 "number 8, larger than fragment_max (32 B)",
                 "source left (0x10): fragments dropped: number_back (1 so far), the last one with "
                 "number 6, where 10 is the next",
                 "source left (0x10): fragments dropped: oversize (3 so far), the last one with "
                 "number 10, larger than fragment_max (32 B)"));
}

TEST(WatchedSource, names_a_number_that_cannot_be_as_it_was_sent) {
  const auto pool = memory::PagePool::make({.page_size = 65536, .pages = 4});
  ASSERT_TRUE(pool) << pool.error().text;
  for (const EventNumber wrong : {~EventNumber{0}, EventNumber{3}}) {
    source::FragmentQueue queue({.source = 0x10, .fragment_max = 32, .offset = -5}, **pool);
    std::vector<std::string> lines;
    auto inner = std::make_unique<OneByOne>();
    inner->event = wrong;
    WatchedSource watched(std::move(inner), "left", loop,
                          [&lines](LogLevel, auto text) { lines.emplace_back(text); });
    (void)watched.read(queue, Time{});
    EXPECT_THAT(lines,
                ElementsAre(fmt::format("source left (0x10): fragments dropped: number_jump (1 so "
                                        "far), the last one with number {}, before the first event",
                                        wrong)));
  }
}

TEST(WatchedSource, names_the_width_of_a_counter_that_wraps_and_was_not_given) {
  const auto pool = memory::PagePool::make({.page_size = 65536, .pages = 8});
  ASSERT_TRUE(pool) << pool.error().text;
  for (const int bits : {8, 12, 16, 20, 24, 28, 32, 48, 10}) {
    const EventNumber range = EventNumber{1} << bits;
    source::FragmentQueue queue({.source = 0x10, .fragment_max = 32}, **pool);
    queue.start(range - 6);
    std::vector<std::string> lines;
    auto one_by_one = std::make_unique<OneByOne>();
    OneByOne& inner = *one_by_one;
    inner.size = 8;
    WatchedSource watched(std::move(one_by_one), "left", loop,
                          [&lines](LogLevel, auto text) { lines.emplace_back(text); });
    Time now{};
    for (EventNumber event = range - 6; event < range + 30; ++event) {
      inner.event = event % range;
      (void)watched.read(queue, now += std::chrono::milliseconds{1100});
    }
    const std::string remedy = fmt::format("`counter_bits = {}` at this source", bits);
    // That it is stuck, and in doubt.
    const auto named = std::ranges::count_if(lines, [&](const auto& line) {
      return bits == 10 ? line.contains("counter_bits") : line.contains(remedy);
    });
    EXPECT_EQ(named, bits == 10 ? 0 : 2)
        << bits << ": " << fmt::format("{}", fmt::join(lines, "\n"));
  }
}

// Reads fragments of 8 bytes with these numbers.
class Falling {
public:
  Falling() {
    auto one_by_one = std::make_unique<OneByOne>();
    inner_ = one_by_one.get();
    inner_->size = 8;
    watched_.emplace(std::move(one_by_one), "left", loop, [](LogLevel, auto) {});
  }
  void read(EventNumber first, EventNumber end, std::uint32_t size = 8) {
    inner_->size = size;
    for (inner_->event = first; inner_->event < end; ++inner_->event)
      (void)watched_->read(queue_, Time{});
  }
  [[nodiscard]] std::string dropped_last() const { return watched_->dropped_last(); }
  source::FragmentQueue& queue() { return queue_; }

private:
  std::unique_ptr<memory::PagePool> pool_ =
      memory::PagePool::make({.page_size = 65536, .pages = 8}).value();
  source::FragmentQueue queue_{{.source = 0x10, .fragment_max = 32}, *pool_};
  OneByOne* inner_ = nullptr;
  std::optional<WatchedSource> watched_;
};

TEST(WatchedSource, says_at_the_end_that_it_never_passed_its_last_number_again) {
  Falling source;
  source.queue().start(0);
  source.read(0, 300);
  source.read(0, 7, 9);
  EXPECT_EQ(source.dropped_last(), "") << "wrong numbers are few";
  source.read(7, 290, 9);
  EXPECT_EQ(source.dropped_last(),
            "all that it sent last was dropped: none of 290 fragments has a number above 299, the "
            "last one that was accepted; start a new run, with all counters reset together");
  source.read(300, 301, 9); // it has passed it
  EXPECT_EQ(source.dropped_last(), "");
  source.read(200, 300, 9);
  EXPECT_NE(source.dropped_last(), "");
}

TEST(WatchedSource, says_at_the_end_that_a_wrong_number_was_the_last_that_was_accepted) {
  Falling source;
  source.queue().start(0);
  source.read(0, 100);
  source.read(5000, 5002); // they confirm each other
  source.read(100, 104);
  EXPECT_EQ(source.dropped_last(), "");
  source.read(104, 108);
  EXPECT_NE(source.dropped_last(), "");
}

// As a fragment of an earlier run is, and what follows it in a slow run.
TEST(WatchedSource, says_at_the_end_that_more_of_it_was_dropped_than_was_accepted) {
  Falling source;
  source.queue().start(5001);
  source.read(5001, 5003);
  source.read(1, 3);
  EXPECT_EQ(source.dropped_last(), "");
  source.read(3, 4);
  EXPECT_NE(source.dropped_last(), "");
}

TEST(WatchedSource, says_nothing_at_the_end_of_what_was_sent_once_more) {
  Falling source;
  source.queue().start(0);
  source.read(0, 300);
  source.read(0, 300);
  EXPECT_EQ(source.dropped_last(), "");
}

TEST(WatchedSource, knows_whether_its_source_has_said_anything) {
  struct Saying final : source::Source {
    explicit Saying(int& given) : what(given) {}
    Result<> start(EventNumber, Time) override { return {}; }
    source::ReadResult read(source::FragmentQueue& queue, Time) override {
      switch (what) {
      case 1: EXPECT_NE(queue.write(5, {}), source::WriteOutcome::full); break;
      case 2: EXPECT_TRUE(queue.skip_to(5)); break;
      case 3: EXPECT_EQ(queue.write(~EventNumber{0}, {}), source::WriteOutcome::rejected); break;
      case 4: return {.state = source::ReadState::finished};
      case 5: return {.state = source::ReadState::paused};
      default: break;
      }
      return {};
    }
    int& what;
  };
  const auto pool = memory::PagePool::make({.page_size = 65536, .pages = 4});
  ASSERT_TRUE(pool) << pool.error().text;
  for (const EventNumber given_up_until : {EventNumber{0}, EventNumber{100}}) {
    for (int what = 0; what < 6; ++what) {
      source::FragmentQueue queue({.source = 0x10, .fragment_max = 32}, **pool);
      if (given_up_until != 0) {
        EXPECT_TRUE(queue.give_up_until(given_up_until));
      }
      int says = 0;
      WatchedSource watched(std::make_unique<Saying>(says), "left", loop, [](LogLevel, auto) {});
      (void)watched.read(queue, Time{});
      EXPECT_TRUE(watched.said_nothing());
      says = what;
      (void)watched.read(queue, Time{});
      EXPECT_EQ(watched.said_nothing(), what == 0) << what;
    }
  }
}

TEST(WatchedSource, says_at_the_end_that_all_since_its_counter_wrapped_was_dropped) {
  const auto pool = memory::PagePool::make({.page_size = 65536, .pages = 8});
  ASSERT_TRUE(pool) << pool.error().text;
  source::FragmentQueue queue({.source = 0x10, .fragment_max = 32}, **pool);
  queue.start(65530);
  auto one_by_one = std::make_unique<OneByOne>();
  OneByOne& inner = *one_by_one;
  inner.size = 8;
  WatchedSource watched(std::move(one_by_one), "left", loop, [](LogLevel, auto) {});
  const auto read = [&](EventNumber event) {
    inner.event = event;
    (void)watched.read(queue, Time{});
  };
  for (EventNumber event = 65530; event < 65536; ++event) read(event);
  EXPECT_EQ(watched.dropped_last(), "");
  for (EventNumber event = 0; event < 3; ++event) read(event);
  EXPECT_THAT(watched.dropped_last(),
              HasSubstr("all that it sent last was dropped: its counter seems to have 16 bits"));
  for (EventNumber event = 65536; event < 65540; ++event) read(event); // it did not wrap
  EXPECT_EQ(watched.dropped_last(), "");
}

TEST(WatchedSource, says_once_that_a_source_is_dropped_and_that_it_is_in_doubt) {
  const auto pool = memory::PagePool::make({.page_size = 65536, .pages = 4});
  ASSERT_TRUE(pool) << pool.error().text;
  source::FragmentQueue queue({.source = 0x10, .fragment_max = 32}, **pool);
  queue.start(1000);
  std::vector<std::string> lines;
  auto one_by_one = std::make_unique<OneByOne>();
  OneByOne& inner = *one_by_one;
  inner.size = 8;
  WatchedSource watched(std::move(one_by_one), "left", loop,
                        [&lines](LogLevel, std::string_view text) { lines.emplace_back(text); });
  Time now{};
  const auto read = [&](EventNumber event) {
    inner.event = event;
    (void)watched.read(queue, now += std::chrono::milliseconds{100});
  };
  const auto said = [&](std::string_view text) {
    return std::ranges::count_if(lines, [&](const auto& line) { return line.contains(text); });
  };
  const std::string_view stuck = "source left (0x10): its last accepted event number is 101029";
  const std::string_view doubt = "source left (0x10): after number 101029 it sends ";
  for (EventNumber event = 1000; event < 1030; ++event) {
    read(event);
    read(event - 5); // now and then
  }
  for (EventNumber event = 101'000; event < 101'030; ++event) read(event);
  EXPECT_EQ(said(stuck), 0);
  for (EventNumber event = 1030; event < 1130; ++event) read(event); // the jump may be wrong
  EXPECT_EQ(said(stuck), 1);
  EXPECT_EQ(said(doubt), 0);
  inner.size = 9;
  for (EventNumber event = 1000; event < 1100; ++event) read(event);
  EXPECT_EQ(said(doubt), 1);
}

} // namespace
} // namespace fanin::executive
