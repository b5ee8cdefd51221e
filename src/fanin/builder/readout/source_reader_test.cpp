#include "fanin/builder/readout/source_reader.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "fanin/builder/testing/scripted_source.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using source::ReadResult;
using source::ReadState;

constexpr Time reader_begin{1s};

class Reader : public ::testing::Test {
protected:
  Reader() { start(0); }
  void start(EventNumber first) {
    const wire::Welcome welcome{.first_event = first, .limit = event_number_end, .joining = 1};
    started_ = reader_.start(welcome, reader_begin).has_value();
  }
  void read(ReadResult result, EventNumber writes = 0, Time now = reader_begin) {
    script_.result = result;
    script_.writes = writes;
    reader_.read(now);
  }
  ReadoutInput input() {
    return {.source = std::make_unique<testing::ScriptedSource>(script_),
            .pool = pool_.get(),
            .queue = {.source = 1, .window = 64, .fragment_max = 1024}};
  }

  testing::Script script_;
  std::unique_ptr<memory::PagePool> pool_ =
      memory::PagePool::make(
          {.page_size = 4096, .pages = 3, .arena = {.huge_pages = memory::HugePages::off}})
          .value();
  SourceReader reader_{input(), 8ms};
  bool started_ = false;
};

TEST_F(Reader, source_is_due_at_the_start_and_then_when_it_says_so) {
  EXPECT_TRUE(started_);
  EXPECT_TRUE(reader_.due(reader_begin, false));
  read({ReadState::waiting, reader_begin + 20ms});
  EXPECT_FALSE(reader_.due(reader_begin + 19ms, false));
  EXPECT_TRUE(reader_.due(reader_begin + 20ms, false));
  EXPECT_EQ(reader_.next_read(reader_begin), reader_begin + 20ms);
}

TEST_F(Reader, source_that_pauses_is_read_like_one_that_waits) {
  read({ReadState::paused, reader_begin + 20ms}, 1);
  EXPECT_TRUE(reader_.paused());
  EXPECT_FALSE(reader_.busy());
  EXPECT_FALSE(reader_.done());
  EXPECT_FALSE(reader_.due(reader_begin + 19ms, false));
  EXPECT_EQ(reader_.next_read(reader_begin), reader_begin + 20ms);
  read({ReadState::waiting, never}, 1, reader_begin + 20ms);
  EXPECT_FALSE(reader_.paused());
}

TEST_F(Reader, source_that_has_more_is_due_at_once) {
  read({ReadState::more}, 1);
  EXPECT_TRUE(reader_.has_more());
  EXPECT_TRUE(reader_.due(reader_begin, false));
  EXPECT_EQ(reader_.next_read(reader_begin), never);
}

TEST_F(Reader, source_that_wakes_is_due_once_and_behind_its_pause) {
  read({ReadState::waiting, never}, 1);
  const Time pause_end = reader_.next_read(reader_begin + 1us);
  EXPECT_EQ(pause_end, never);
  read({ReadState::waiting, never}, 1, reader_begin + 1us);
  script_.wake();
  EXPECT_FALSE(reader_.due(reader_begin + 1us, false));
  const Time due = reader_.next_read(reader_begin + 1us);
  EXPECT_LE(due, reader_begin + 8ms);
  EXPECT_TRUE(reader_.due(due, false));
  read({ReadState::waiting, never}, 0, due);
  EXPECT_FALSE(reader_.due(due + 1s, false));
}

TEST_F(Reader, source_that_gives_little_is_not_read_for_a_while_and_does_not_wake_the_loop) {
  script_.descriptor = 5;
  EXPECT_EQ(reader_.descriptor(reader_begin), 5);
  read({ReadState::waiting, never}, 1, reader_begin + 1us);
  const Time pause_end = reader_.next_read(reader_begin + 1us);
  EXPECT_GT(pause_end, reader_begin + 1us);
  EXPECT_LE(pause_end, reader_begin + 8ms);
  EXPECT_EQ(reader_.descriptor(pause_end - 1ns), -1);
  EXPECT_FALSE(reader_.due(pause_end - 1ns, false));
  EXPECT_EQ(reader_.descriptor(pause_end), 5);
  EXPECT_TRUE(reader_.due(pause_end, false));
}

// How often the loop of a readout unit turns in a second if the source is readable all the time.
class ReadableReader : public Reader {
protected:
  ReadableReader() { script_.descriptor = 5; }
  int turns() {
    int count = 0;
    for (Time now = reader_begin; now < reader_begin + 1s && count < 10'000; ++count) {
      if (reader_.done()) return count + (reader_.descriptor(now) < 0 ? 0 : 10'000);
      if (reader_.due(now, false)) reader_.read(now);
      const Time next = reader_.descriptor(now) < 0 ? reader_.next_read(now) : now;
      now = std::max(next, now + 10us);
    }
    return count;
  }
};

TEST_F(ReadableReader, source_that_is_not_read_does_not_wake_the_loop) {
  EXPECT_GE(turns(), 1000) << "it is read";
  for (const ReadState state : {ReadState::finished, ReadState::failed}) {
    start(0);
    read({.state = state});
    EXPECT_LE(turns(), 1);
  }
  script_.starts = false;
  start(0);
  EXPECT_LE(turns(), 1) << "it could not start";
}

TEST_F(ReadableReader, source_that_waits_for_room_does_not_wake_the_loop) {
  read({ReadState::waiting, never}, 100);
  ASSERT_TRUE(reader_.queue().throttled());
  EXPECT_LE(turns(), 300);
  script_.on_demand = true;
  start(0);
  read({ReadState::waiting, never}, 10);
  reader_.measure_lead(500);
  ASSERT_TRUE(reader_.far_ahead());
  EXPECT_EQ(reader_.descriptor(reader_begin + 1s), -1);
}

TEST_F(ReadableReader, source_whose_next_number_is_not_wanted_yet_does_not_wake_the_loop) {
  reader_.queue().numbers().set_limit(8);
  read({ReadState::waiting, never}, 100);
  ASSERT_EQ(reader_.queue().next_event(), 8U);
  EXPECT_LE(turns(), 300);
  reader_.queue().numbers().set_limit(9);
  EXPECT_EQ(reader_.descriptor(reader_begin + 2s), 5);
}

TEST_F(ReadableReader, source_that_is_ready_does_not_wake_the_loop_while_others_are_not) {
  SourceReader early{input(), 8ms};
  script_.ready = false;
  EXPECT_FALSE(early.ready(reader_begin));
  EXPECT_EQ(early.descriptor(reader_begin), 5);
  script_.ready = true;
  EXPECT_TRUE(early.ready(reader_begin));
  EXPECT_EQ(early.descriptor(reader_begin), -1);
  script_.ready = false; // its sender has gone
  EXPECT_FALSE(early.ready(reader_begin));
  EXPECT_EQ(early.descriptor(reader_begin), 5);
  script_.ready = true;
  EXPECT_TRUE(early.ready(reader_begin));
  early.all_are_ready();
  EXPECT_EQ(early.descriptor(reader_begin), 5);
  ASSERT_TRUE(early.start({.limit = event_number_end}, reader_begin));
  EXPECT_EQ(early.descriptor(reader_begin), 5);
}

TEST_F(Reader, source_that_is_held_back_is_due_when_something_was_given_back) {
  read({ReadState::waiting, never}, 100);
  ASSERT_TRUE(reader_.queue().throttled()); // pages and window are used up
  EXPECT_TRUE(reader_.held_back());
  EXPECT_FALSE(reader_.due(reader_begin + 1s, false));
  EXPECT_TRUE(reader_.due(reader_begin + 1s, true));
  reader_.queue().release_until(reader_.queue().next_event()); // its pages come home
  EXPECT_TRUE(reader_.due(reader_begin + 1s, false));
}

TEST_F(Reader, source_on_demand_is_read_in_strides) {
  reader_.measure_lead(1000);
  EXPECT_FALSE(reader_.far_ahead());
  script_.on_demand = true;
  read({ReadState::more}, 10); // 1000 B
  reader_.measure_lead(1000);
  EXPECT_TRUE(reader_.far_ahead());
  EXPECT_TRUE(reader_.held_back());
  reader_.queue().release_until(4); // 600 B are left
  reader_.measure_lead(1000);
  EXPECT_TRUE(reader_.far_ahead());
  reader_.queue().release_until(5);
  reader_.measure_lead(1000);
  EXPECT_FALSE(reader_.far_ahead());
}

TEST_F(Reader, source_is_busy_while_it_gives_more_than_is_read_at_once) {
  read({ReadState::more}, 1);
  EXPECT_TRUE(reader_.busy());
  read({ReadState::more}); // nothing was taken
  EXPECT_FALSE(reader_.busy());
  read({ReadState::more}, 1);
  read({ReadState::waiting, never});
  EXPECT_FALSE(reader_.busy());
}

TEST_F(Reader, source_is_not_busy_while_all_that_it_gives_is_dropped) {
  EventNumber falling = 1U << 20U;
  const auto give = [&](std::uint32_t size) {
    script_.size = size;
    script_.numbers = {falling--};
    read({ReadState::more});
  };
  give(1000); // is held: it may be right
  for (const std::uint32_t size : {100U, 300U, 200U, 900U}) {
    give(size);
    EXPECT_FALSE(reader_.busy()) << size;
  }
  EXPECT_EQ(reader_.queue().numbers().dropped(wire::DropReason::number_jump), 4U);
  script_.size = 1024;
  read({ReadState::more}, 1);
  EXPECT_TRUE(reader_.busy());
}

TEST_F(Reader, source_is_not_busy_while_all_that_it_gives_is_late) {
  read({ReadState::more}, 1);
  ASSERT_TRUE(reader_.queue().give_up_until(1'000'000));
  read({ReadState::more}, 3);
  EXPECT_EQ(reader_.queue().numbers().dropped(wire::DropReason::late), 3U);
  EXPECT_FALSE(reader_.busy());
}

TEST_F(Reader, source_is_done_at_its_end_and_when_it_fails) {
  EXPECT_FALSE(reader_.done());
  read({ReadState::finished});
  EXPECT_TRUE(reader_.done());
  EXPECT_FALSE(reader_.failed());
  read({ReadState::failed, never, Error{ErrorKind::not_found, "unplugged"}});
  EXPECT_TRUE(reader_.done());
  EXPECT_TRUE(reader_.failed());
  EXPECT_EQ(reader_.error().text, "unplugged");
}

TEST_F(Reader, source_that_cannot_start_has_failed_until_it_starts_again) {
  script_.starts = false;
  start(0);
  EXPECT_FALSE(started_);
  EXPECT_TRUE(reader_.failed());
  EXPECT_EQ(reader_.error().text, "no device");
  script_.starts = true;
  start(7);
  EXPECT_TRUE(started_);
  EXPECT_FALSE(reader_.done());
  EXPECT_EQ(reader_.queue().next_event(), 7U);
}

TEST_F(Reader, counts_pages_and_what_was_dropped_in_this_incarnation) {
  const auto oversize = static_cast<std::size_t>(wire::DropReason::oversize);
  wire::NodeCounters node{.pages_in_use = 10, .pages = 20};
  wire::SourceCounters own;
  script_.size = 2000; // too large
  read({ReadState::more}, 3);
  reader_.count(node, own);
  EXPECT_EQ(own.dropped[oversize], 3U);
  start(0);
  read({ReadState::more}, 1);
  script_.size = 100;
  read({ReadState::more}, 1);
  reader_.count(node, own);
  EXPECT_EQ(own.dropped[oversize], 1U);
  EXPECT_EQ(node.pages, 26U);
  EXPECT_EQ(node.pages_in_use, 11U);
}

} // namespace
} // namespace fanin::builder
