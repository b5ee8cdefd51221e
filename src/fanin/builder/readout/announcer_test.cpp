#include "fanin/builder/readout/announcer.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;

constexpr Time announce_begin{1s};

// Keeps what it is told, as long as it has room.
class ListedAnnouncements final : public Announcer::Out {
public:
  [[nodiscard]] bool roomy(std::size_t absent_bytes) override {
    return room_ > 0 && absent_bytes <= room_max_;
  }
  [[nodiscard]] std::size_t room_max() const override { return room_max_; }
  void send(const wire::Announce& message, std::span<const wire::AbsentRange> absent) override {
    --room_;
    messages.push_back(message);
    absents.insert(absents.end(), absent.begin(), absent.end());
  }
  void set_room(int messages_left) { room_ = messages_left; }
  void set_room_max(std::size_t bytes) { room_max_ = bytes; }
  [[nodiscard]] std::vector<std::pair<EventNumber, EventNumber>> ranges() const {
    std::vector<std::pair<EventNumber, EventNumber>> all;
    for (const auto& message : messages) all.emplace_back(message.first, message.end);
    return all;
  }

  std::vector<wire::Announce> messages;
  std::vector<wire::AbsentRange> absents;

private:
  int room_ = 1000;
  std::size_t room_max_ = 4096;
};

using Ranges = std::vector<std::pair<EventNumber, EventNumber>>;

// One source of a readout unit, batches of 16 events, fragments of 100 B. No latency is allowed
// for.
class AnnouncerTest : public ::testing::Test {
protected:
  AnnouncerTest() {
    system_.readout_units = {"ru0"};
    system_.builder_units = {"bu0"};
    system_.sources = {{1, "s1", 0, true}};
    system_.batch_events = 16;
    system_.latency = Duration{0};
    system_.batch_delay = 200us;
    queue_.start(0);
  }
  void write(EventNumber first, EventNumber end) {
    const std::array<std::byte, 100> payload{};
    for (EventNumber event = first; event < end; ++event) {
      ASSERT_EQ(queue_.write(event, payload), source::WriteOutcome::ok);
    }
  }
  void begin() {
    announcer_.begin(0, false, false, out_);
    out_.messages.clear();
  }
  [[nodiscard]] Announcer::Turn turn(Duration after = {}) const {
    return {.end = queue_.next_event(), .limit = event_number_end, .now = announce_begin + after};
  }
  [[nodiscard]] Announcer::Turn idle_turn() const {
    auto idle = turn();
    idle.idle = true;
    return idle;
  }

  System system_;
  std::unique_ptr<memory::PagePool> pool_ =
      memory::PagePool::make(
          {.page_size = 4096, .pages = 64, .arena = {.huge_pages = memory::HugePages::off}})
          .value();
  source::FragmentQueue queue_{{.source = 1, .window = 1024, .fragment_max = 4096}, *pool_};
  std::array<source::FragmentQueue*, 1> queues_{&queue_};
  Announcer announcer_{system_, queues_};
  ListedAnnouncements out_;
};

using AnnouncerDeathTest = AnnouncerTest;

TEST_F(AnnouncerTest, says_where_it_begins) {
  EXPECT_FALSE(announcer_.begun());
  announcer_.begin(48, false, false, out_);
  EXPECT_TRUE(announcer_.begun());
  EXPECT_EQ(announcer_.announced(), 48U);
  EXPECT_EQ(out_.ranges(), (Ranges{{48, 48}}));
}

TEST_F(AnnouncerTest, begins_further_on_until_a_source_that_was_given_up_sends_something) {
  system_.events_max = 100;
  ASSERT_TRUE(queue_.give_up_until(1));
  announcer_.begin(1, true, false, out_);
  ASSERT_TRUE(queue_.give_up_until(150));
  out_.set_room(0);
  announcer_.announce(idle_turn(), out_);
  out_.set_room(1000);
  announcer_.announce(idle_turn(), out_);
  write(150, 160);
  announcer_.announce(idle_turn(), out_);
  EXPECT_EQ(out_.ranges(), (Ranges{{1, 1}, {150, 150}, {150, 150}}));
  EXPECT_EQ(out_.messages[0].silent, 1U);
  EXPECT_EQ(out_.messages[1].silent, 1U);
  EXPECT_EQ(out_.messages[2].silent, 0U);
  out_.messages.clear();
  announcer_.announce(idle_turn(), out_); // it waits for the limit
  EXPECT_EQ(out_.ranges(), Ranges{});
  auto limited = idle_turn();
  limited.limit = 250;
  announcer_.announce(limited, out_);
  EXPECT_EQ(out_.ranges(), (Ranges{{150, 160}}));
}

// With run.events it announces no event before the first one of all is known.
TEST_F(AnnouncerTest, says_when_it_has_more_than_may_be_left_over) {
  for (const std::uint64_t events_max : {0U, 100U}) {
    system_.events_max = events_max;
    announcer_.reset();
    out_.messages.clear();
    announcer_.begin(0, false, true, out_);
    auto few = idle_turn();
    few.few = true;
    announcer_.announce(few, out_);
    announcer_.announce(idle_turn(), out_);
    announcer_.announce(idle_turn(), out_);
    EXPECT_EQ(out_.ranges(), (Ranges{{0, 0}, {0, 0}}));
    EXPECT_EQ(out_.messages.front().few, 1U);
    EXPECT_EQ(out_.messages.back().few, 0U);
  }
}

TEST_F(AnnouncerTest, announces_no_event_if_no_source_sends_anything) {
  ASSERT_TRUE(queue_.give_up_until(1));
  announcer_.begin(1, true, false, out_);
  ASSERT_TRUE(queue_.give_up_until(20));
  auto last = idle_turn();
  last.limit = 20;
  last.final = true;
  announcer_.announce(last, out_);
  EXPECT_EQ(out_.ranges(), (Ranges{{1, 1}, {20, 20}, {20, 20}}));
  EXPECT_TRUE(announcer_.ended());
}

TEST_F(AnnouncerTest, announces_at_once_where_nothing_more_can_be_read_and_never_across_batches) {
  begin();
  write(0, 40);
  announcer_.announce(idle_turn(), out_);
  EXPECT_EQ(out_.ranges(), (Ranges{{0, 16}, {16, 32}, {32, 40}}));
  EXPECT_EQ(out_.messages[0].bytes, 1600U);
  EXPECT_EQ(announcer_.due(), never);
  announcer_.announce(idle_turn(), out_); // nothing is new
  EXPECT_EQ(out_.messages.size(), 3U);
}

TEST_F(AnnouncerTest, waits_for_more_while_there_is_more_to_read) {
  begin();
  write(0, 10);
  announcer_.announce(turn(), out_);
  EXPECT_TRUE(out_.messages.empty());
  EXPECT_EQ(announcer_.due(), announce_begin + 200us);
  announcer_.announce(turn(199us), out_);
  EXPECT_TRUE(out_.messages.empty());
  announcer_.announce(turn(200us), out_);
  EXPECT_EQ(out_.ranges(), (Ranges{{0, 10}}));
}

TEST_F(AnnouncerTest, gathers_fragments_for_three_quarters_of_the_latency) {
  system_.latency = 40ms;
  begin();
  write(0, 10);
  announcer_.announce(idle_turn(), out_);
  EXPECT_TRUE(out_.messages.empty());
  EXPECT_EQ(announcer_.due(), announce_begin + 30ms);
  write(10, 20);
  announcer_.announce(idle_turn(), out_); // the batch that is full
  EXPECT_EQ(out_.ranges(), (Ranges{{0, 16}}));
  announcer_.announce(turn(), out_);
  EXPECT_EQ(announcer_.due(), announce_begin + 30ms);
  announcer_.announce(turn(30ms), out_);
  EXPECT_EQ(out_.ranges(), (Ranges{{0, 16}, {16, 20}}));
}

TEST_F(AnnouncerTest, does_not_gather_while_a_source_waits_for_room) {
  system_.latency = 40ms;
  begin();
  write(0, 10);
  auto held_up = turn();
  held_up.held_up = true;
  announcer_.announce(held_up, out_);
  EXPECT_EQ(announcer_.due(), announce_begin + 200us);
}

TEST_F(AnnouncerTest, does_not_wait_where_nothing_more_is_wanted_yet) {
  system_.latency = 40ms;
  begin();
  write(0, 10);
  auto all = turn();
  all.limit = 10;
  announcer_.announce(all, out_);
  EXPECT_EQ(out_.ranges(), (Ranges{{0, 10}}));
}

TEST_F(AnnouncerTest, says_what_is_absent_and_why) {
  begin();
  write(0, 2);
  ASSERT_TRUE(queue_.skip_to(5));
  write(5, 6);
  ASSERT_EQ(queue_.begin(6, 5000), source::WriteOutcome::rejected); // too large
  write(7, 8);
  announcer_.announce(idle_turn(), out_);
  EXPECT_EQ(out_.ranges(), (Ranges{{0, 8}}));
  ASSERT_EQ(out_.absents.size(), 2U);
  EXPECT_EQ(out_.messages[0].absent_ranges, 2U);
  EXPECT_EQ(out_.absents[0].range(), (EventRange{2, 5}));
  EXPECT_FALSE(out_.absents[0].dropped());
  EXPECT_EQ(out_.absents[1].range(), (EventRange{6, 7}));
  EXPECT_TRUE(out_.absents[1].dropped());
}

TEST_F(AnnouncerTest, announces_batches_of_which_nothing_was_sent_in_one_message) {
  begin();
  write(0, 1);
  ASSERT_TRUE(queue_.skip_to(800));
  write(800, 801);
  announcer_.announce(idle_turn(), out_);
  EXPECT_EQ(out_.ranges(), (Ranges{{0, 16}, {16, 800}, {800, 801}}));
  EXPECT_EQ(out_.messages[0].nothing, 0U);
  EXPECT_EQ(out_.messages[1].nothing, 1U);
  EXPECT_EQ(out_.messages[1].bytes, 0U);
}

TEST_F(AnnouncerTest, says_when_all_sources_were_given_up) {
  begin();
  write(0, 1);
  auto silent = idle_turn();
  silent.silent = true;
  announcer_.announce(silent, out_);
  EXPECT_EQ(out_.messages[0].silent, 1U);
}

TEST_F(AnnouncerTest, makes_pieces_where_there_are_more_bytes_than_a_batch_may_have) {
  system_.batch_size = 500;
  begin();
  write(0, 16);
  announcer_.announce(idle_turn(), out_);
  EXPECT_EQ(out_.ranges(), (Ranges{{0, 4}, {4, 7}, {7, 11}, {11, 16}}));
  for (const auto& message : out_.messages) EXPECT_LE(message.bytes, 500U);
}

TEST_F(AnnouncerTest, makes_pieces_where_more_may_be_absent_than_a_message_has_room_for) {
  begin();
  out_.set_room_max(4 * sizeof(wire::AbsentRange));
  for (EventNumber event = 0; event < 16; event += 2) {
    ASSERT_TRUE(queue_.skip_to(event + 1));
    write(event + 1, event + 2);
  }
  announcer_.announce(idle_turn(), out_);
  EXPECT_EQ(out_.ranges(), (Ranges{{0, 4}, {4, 8}, {8, 12}, {12, 16}}));
  EXPECT_EQ(out_.absents.size(), 8U);
}

TEST_F(AnnouncerTest, continues_where_it_stopped_for_want_of_room) {
  begin();
  write(0, 40);
  out_.set_room(1);
  announcer_.announce(idle_turn(), out_);
  EXPECT_EQ(announcer_.announced(), 16U);
  out_.set_room(10);
  announcer_.announce(idle_turn(), out_);
  EXPECT_EQ(out_.ranges(), (Ranges{{0, 16}, {16, 32}, {32, 40}}));
}

TEST_F(AnnouncerTest, says_once_that_nothing_will_follow) {
  begin();
  write(0, 4);
  auto last = turn();
  last.final = true;
  out_.set_room(1);
  announcer_.announce(last, out_);
  EXPECT_FALSE(announcer_.ended()); // there was no room for it
  out_.set_room(10);
  announcer_.announce(last, out_);
  EXPECT_TRUE(announcer_.ended());
  EXPECT_EQ(out_.ranges(), (Ranges{{0, 4}, {4, 4}}));
  EXPECT_EQ(out_.messages[1].final, 1U);
  announcer_.reset();
  EXPECT_FALSE(announcer_.begun());
  EXPECT_EQ(announcer_.announced(), 0U);
}

TEST_F(AnnouncerDeathTest, announces_only_between_beginning_and_end) {
  EXPECT_DEATH(announcer_.announce(turn(), out_), "begun");
  begin();
  EXPECT_DEATH(announcer_.begin(0, false, false, out_), "may not follow.*Announcer::State");
}

} // namespace
} // namespace fanin::builder
