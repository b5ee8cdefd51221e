#include "fanin/builder/readout/source_group.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "fanin/builder/testing/scripted_source.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using source::ReadState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two sources of one readout unit of two; a window of 1000 numbers and a deadline of 100 ms.
class Group : public ::testing::Test {
protected:
  Group() {
    for (auto& script : scripts_) script.result = {ReadState::waiting, never};
    start();
  }
  static System two_sources() {
    System system;
    system.readout_units = {"ru0", "ru1"};
    system.builder_units = {"bu0"};
    system.sources = {{1, "s1", 0, true}, {2, "s2", 0, true}, {3, "s3", 1, true}};
    system.event_deadline = 100ms;
    system.event_window = 1000;
    system.latency = Duration{0};
    system.read_ahead = 2000;
    return system;
  }
  static std::unique_ptr<memory::PagePool> pages() {
    return memory::PagePool::make(
               {.page_size = 4096, .pages = 16, .arena = {.huge_pages = memory::HugePages::off}})
        .value();
  }
  std::vector<ReadoutInput> inputs() {
    std::vector<ReadoutInput> all;
    for (std::size_t i = 0; i < 2; ++i) {
      all.push_back({.source = std::make_unique<testing::ScriptedSource>(scripts_[i]),
                     .pool = pools_[i].get(),
                     .queue = {.source = static_cast<SourceId>(i + 1),
                               .window = 4096,
                               .fragment_max = 1024,
                               .near = 1000}});
    }
    return all;
  }
  void start() {
    view_ = {.limit = event_number_end};
    group_.reset();
    group_.start({.limit = event_number_end}, view_, now_);
  }
  // Both sources give these numbers, or none of them.
  void give(std::deque<EventNumber> first, std::deque<EventNumber> second) {
    scripts_[0].numbers = std::move(first);
    scripts_[1].numbers = std::move(second);
    group_.retry();
    turn();
  }
  void turn(Duration passed = {}) {
    now_ += passed;
    (void)group_.read(view_, now_);
    if (group_.held()) group_.judge_held(view_, answered_);
    group_.watch(view_, now_);
  }
  // As a readout unit does it: once a quarter of the deadline while somebody has one.
  void pass(Duration time) {
    for (const Time end = now_ + time; now_ < end;) turn(5ms);
  }
  [[nodiscard]] EventNumber next(std::size_t source) const {
    return group_.reader(source).queue().next_event();
  }

  System system_ = two_sources();
  std::array<std::unique_ptr<memory::PagePool>, 2> pools_{pages(), pages()};
  std::array<testing::Script, 2> scripts_;
  std::vector<std::string> logged_;
  SourceGroup group_{system_, inputs(),
                     [this](LogLevel, std::string_view text) { logged_.emplace_back(text); }};
  RunView view_;
  Time now_{1s};
  bool answered_ = false; // the event manager has said what it knows of held numbers
};

TEST_F(Group, announces_nothing_before_all_sources_have_begun) {
  give({0, 1}, {});
  EXPECT_FALSE(group_.to_announce(view_));
  give({}, {0});
  const auto both = group_.to_announce(view_);
  ASSERT_TRUE(both);
  EXPECT_EQ(both->end, 1U);
  EXPECT_FALSE(both->final);
  EXPECT_EQ(group_.first_event(), 0U);
}

TEST_F(Group, announces_nothing_while_sources_begin_too_far_from_each_other) {
  give({0, 1}, {5000, 5001});
  EXPECT_FALSE(group_.to_announce(view_));
  EXPECT_FALSE(group_.to_announce(view_));
  EXPECT_THAT(logged_, ElementsAre(HasSubstr("the run waits for sources s1, which begins at")));
  EXPECT_THAT(group_.waits_for(view_), HasSubstr("s2, at event 5000"));
  view_.last = true; // the run ends
  EXPECT_TRUE(group_.to_announce(view_));
  EXPECT_EQ(group_.waits_for(view_), "");
}

TEST_F(Group, announcement_is_the_last_one_at_the_last_event_and_where_all_sources_have_ended) {
  give({0, 1, 2}, {0, 1, 2});
  view_.announced = 3;
  EXPECT_FALSE(group_.to_announce(view_)->final);
  view_.limit = view_.read_end = 3;
  view_.last = true;
  EXPECT_TRUE(group_.to_announce(view_)->final);
  view_.last = false;
  for (auto& script : scripts_) script.result = {ReadState::finished};
  group_.retry();
  turn();
  EXPECT_TRUE(group_.to_announce(view_)->final);
  view_.paused = true;
  EXPECT_FALSE(group_.to_announce(view_)->final);
}

TEST_F(Group, run_without_any_event_ends) {
  view_.limit = view_.read_end = 0;
  view_.last = true;
  turn();
  const auto none = group_.to_announce(view_);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->end, 0U);
  EXPECT_TRUE(none->final);
}

TEST_F(Group, what_lies_beyond_the_limit_is_not_announced) {
  give({0, 1, 2}, {0, 1, 2});
  view_.announced = 0;
  view_.limit = 2;
  EXPECT_EQ(group_.to_announce(view_)->end, 2U);
}

TEST_F(Group, number_that_both_sources_hold_is_right) {
  give({0, 1}, {0, 1});
  give({9000}, {});
  EXPECT_EQ(group_.held(), 9000U);
  give({}, {9000});
  EXPECT_FALSE(group_.held());
  EXPECT_EQ(next(0), 9001U);
}

TEST_F(Group, number_that_another_readout_unit_holds_is_right) {
  give({0, 1}, {0, 1});
  give({9000}, {});
  group_.confirm(8000);
  EXPECT_EQ(group_.held(), 9000U);
  group_.confirm(9000);
  EXPECT_FALSE(group_.held());
}

TEST_F(Group, last_number_of_all_is_judged_when_the_event_manager_has_said_what_it_knows) {
  give({0, 1}, {0, 1});
  for (auto& script : scripts_) script.result = {ReadState::finished};
  give({9000}, {});
  view_.alone = true;
  turn();
  EXPECT_TRUE(group_.held());
  answered_ = true;
  turn();
  EXPECT_FALSE(group_.held());
}

TEST_F(Group, last_number_of_one_source_waits_for_the_others_for_half_of_the_deadline) {
  for (const bool come : {true, false}) {
    start();
    give({0, 1}, {0, 1});
    scripts_[0].result = {ReadState::finished};
    give({9000}, {});
    answered_ = true;
    pass(system_.event_deadline / 2 - 10ms);
    EXPECT_TRUE(group_.held());
    if (come) give({}, {9000});
    pass(20ms);
    EXPECT_FALSE(group_.held());
    EXPECT_EQ(next(0), come ? 9001U : 2U);
    scripts_[0].result = {};
  }
}

TEST_F(Group, source_at_its_end_holds_nobody_of_its_unit_back) {
  give({0, 1}, {0, 1});
  scripts_[0].result = {ReadState::finished};
  give({}, {9000, 9001});
  turn();
  EXPECT_EQ(next(0), 9002U);
  EXPECT_EQ(group_.to_announce(view_)->end, 9002U);
}

TEST_F(Group, source_that_cannot_start_is_not_waited_for) {
  scripts_[1].starts = false;
  start();
  EXPECT_THAT(logged_, ElementsAre("source s2 cannot start: no device"));
  give({0, 1}, {});
  EXPECT_EQ(next(1), 2U); // absent
  EXPECT_EQ(group_.to_announce(view_)->end, 2U);
}

TEST_F(Group, silent_source_is_given_up_after_the_deadline) {
  group_.allow_reset(source::CounterReset::no); // the run has events
  give({0, 1}, {0});
  EXPECT_LE(group_.next_turn(now_), now_ + 25ms);
  pass(90ms);
  EXPECT_EQ(next(1), 1U);
  pass(20ms);
  EXPECT_EQ(next(1), 2U);
  EXPECT_THAT(logged_, ElementsAre("source s2 is silent: given up until event 2 (event.deadline "
                                   "is 100 ms)"));
  EXPECT_FALSE(group_.all_silent());
}

// Few fragments may be left over from an earlier run, and a source that goes on or ends has more.
TEST_F(Group, nobody_is_given_up_because_of_a_few_fragments_before_the_run_has_an_event) {
  enum class Then : std::uint8_t { waits, goes_on, ends };
  for (const auto other : {ReadState::waiting, ReadState::paused}) {
    for (const auto then : {Then::waits, Then::goes_on, Then::ends}) {
      scripts_[0].result = {other, never};
      scripts_[1].result = {ReadState::waiting, never};
      start();
      give({}, {700, 701});
      pass(500ms);
      EXPECT_FALSE(group_.reader(0).queue().numbered());
      EXPECT_TRUE(group_.have_few(view_));
      EXPECT_FALSE(group_.to_announce(view_));
      EXPECT_THAT(group_.waits_for(view_), HasSubstr("source s1 to begin"));
      if (then == Then::ends) scripts_[1].result = {ReadState::finished};
      if (then == Then::goes_on) {
        give({}, {702, 703, 704, 705, 706, 707});
      } else {
        give({}, {});
      }
      pass(200ms);
      EXPECT_EQ(group_.have_few(view_), then == Then::waits);
      EXPECT_EQ(group_.to_announce(view_).has_value(), then != Then::waits);
    }
  }
}

TEST_F(Group, few_fragments_of_a_run_that_ends_are_announced) {
  give({}, {700, 701});
  view_.last = true;
  view_.limit = view_.read_end = 702;
  pass(200ms);
  EXPECT_FALSE(group_.have_few(view_));
  EXPECT_EQ(group_.to_announce(view_)->end, 702U);
}

TEST_F(Group, a_source_that_begins_above_another_one_may_reset_its_counter_within_the_deadline) {
  const std::deque<EventNumber> many{700, 701, 702, 703, 704, 705, 706, 707};
  for (const auto& left_over : {std::deque<EventNumber>{700, 701}, many}) {
    start();
    give({}, left_over);
    give({1, 2}, {});
    EXPECT_FALSE(group_.to_announce(view_));
    pass(90ms);
    EXPECT_FALSE(group_.to_announce(view_));
    give({}, {1, 2});
    EXPECT_EQ(group_.to_announce(view_)->end, 3U);
    EXPECT_EQ(next(1), 3U);
    start();
    give({}, left_over);
    give({1, 2}, {});
    pass(110ms);
    EXPECT_TRUE(group_.to_announce(view_)) << "the counter is not reset";
  }
}

// The second source waits for its number 1.
class GroupWithFirst : public Group {
protected:
  GroupWithFirst() : with_first_(system_, inputs_with_first(), [](LogLevel, std::string_view) {}) {
    with_first_.start({.limit = event_number_end}, view_, now_);
  }
  std::vector<ReadoutInput> inputs_with_first() {
    auto all = inputs();
    all[1].queue.first = 1;
    return all;
  }
  void give_with_first(std::deque<EventNumber> first, std::deque<EventNumber> second) {
    scripts_[0].numbers = std::move(first);
    scripts_[1].numbers = std::move(second);
    with_first_.retry();
    pass_with_first(0ms);
  }
  void pass_with_first(Duration time) {
    const Time end = now_ + time;
    do {
      (void)with_first_.read(view_, now_);
      if (with_first_.held()) with_first_.judge_held(view_, answered_);
      with_first_.watch(view_, now_);
      now_ += 5ms;
    } while (now_ < end);
  }
  [[nodiscard]] std::uint64_t early() const {
    return with_first_.queues()[1]->numbers().dropped(wire::DropReason::before_first);
  }
  SourceGroup with_first_;
};

TEST_F(GroupWithFirst, number_is_lost_when_others_have_come_to_what_its_source_sends) {
  give_with_first({}, {5, 6, 7, 8, 9, 10, 11, 12, 13});
  EXPECT_FALSE(with_first_.to_announce(view_));
  give_with_first({1, 2, 3, 4}, {});
  EXPECT_FALSE(with_first_.to_announce(view_));
  give_with_first({5, 6, 7, 8}, {});
  pass_with_first(90ms);
  EXPECT_FALSE(with_first_.to_announce(view_));
  pass_with_first(20ms);
  ASSERT_TRUE(with_first_.to_announce(view_));
  EXPECT_EQ(with_first_.to_announce(view_)->end, 9U);
  EXPECT_EQ(early(), 0U);
}

TEST_F(GroupWithFirst, number_is_waited_for_up_to_the_deadline_when_others_have_begun) {
  for (const bool few : {false, true}) {
    view_ = {.limit = event_number_end};
    with_first_.reset();
    with_first_.start({.limit = event_number_end}, view_, now_);
    const std::uint64_t before = early();
    std::deque<EventNumber> sent{500, 501};
    for (EventNumber event = 502; !few && event < 520; ++event) sent.push_back(event);
    const std::uint64_t count = sent.size();
    give_with_first({}, std::move(sent));
    pass_with_first(500ms);
    EXPECT_FALSE(with_first_.to_announce(view_));
    EXPECT_EQ(early(), before);
    give_with_first({1, 2, 3, 4, 5, 6, 7, 8}, {});
    pass_with_first(90ms);
    EXPECT_EQ(early(), before);
    pass_with_first(20ms);
    EXPECT_EQ(early() - before, count);
    give_with_first({}, {600, 601});
    EXPECT_EQ(early() - before, count + 2);
    pass_with_first(200ms); // it is silent
    ASSERT_TRUE(with_first_.to_announce(view_));
    EXPECT_EQ(with_first_.to_announce(view_)->end, 9U);
  }
}

TEST_F(GroupWithFirst, what_came_before_it_is_dropped_when_the_run_is_stopped) {
  give_with_first({}, {500, 501, 502, 503, 504, 505, 506, 507, 508});
  view_.paused = true;
  EXPECT_EQ(with_first_.pause(view_).next_event, 0U);
  EXPECT_EQ(early(), 9U);
}

TEST_F(Group, source_that_pauses_is_waited_for_by_nobody_until_it_gives_something) {
  group_.allow_reset(source::CounterReset::no); // the run has events
  scripts_[1].result = {ReadState::paused, never};
  give({0, 1}, {0});
  EXPECT_EQ(next(1), 2U);
  EXPECT_EQ(group_.to_announce(view_)->end, 2U);
  give({2}, {});
  EXPECT_EQ(next(1), 3U);
  EXPECT_THAT(logged_, ElementsAre("source s2 pauses: events from 1 on are built without it until "
                                   "it sends again"));
  scripts_[1].result = {ReadState::waiting, never};
  give({3}, {3});
  give({4}, {});
  EXPECT_EQ(next(1), 4U);
  EXPECT_EQ(group_.to_announce(view_)->end, 4U);
}

TEST_F(Group, number_that_a_source_holds_is_not_passed_over_while_it_pauses) {
  give({0, 1}, {0, 1});
  scripts_[1].result = {ReadState::paused, never};
  give({2}, {500});
  ASSERT_TRUE(group_.held());
  EXPECT_EQ(next(1), 2U);
  give({500, 501}, {});
  EXPECT_EQ(next(1), 2U);
  scripts_[1].result = {ReadState::waiting, never};
  give({}, {501});
  EXPECT_EQ(next(1), 502U);
  EXPECT_EQ(group_.queues()[1]->numbers().dropped(wire::DropReason::late), 0U);
  EXPECT_FALSE(group_.queues()[1]->entry(500).absent());
}

// Else two wrong numbers in a row would make the next spill of all that pause late.
TEST_F(Group, source_that_pauses_is_not_given_up_where_one_alone_is_more_than_a_window_ahead) {
  give({0, 1}, {0, 1});
  group_.allow_reset(source::CounterReset::no);
  scripts_[1].result = {ReadState::paused, never};
  give({}, {});
  give({50'000, 50'001}, {});
  ASSERT_EQ(next(0), 50'002U);
  pass(50ms);
  scripts_[1].result = {ReadState::waiting, never};
  give({}, {2, 3});
  EXPECT_EQ(next(1), 4U);
  EXPECT_EQ(group_.queues()[1]->numbers().dropped(wire::DropReason::late), 0U);
  scripts_[1].result = {ReadState::paused, never};
  give({50'002, 50'003, 50'004, 50'005, 50'006, 50'007, 50'008, 50'009}, {});
  pass(200ms);
  EXPECT_EQ(next(1), 50'010U)
      << "it is, as one that is silent, when nothing has come for the deadline";
}

TEST_F(Group, sources_that_pause_lose_nothing_when_one_of_them_begins_again_before_the_other) {
  system_.latency = 20ms;
  give({0, 1}, {0, 1});
  group_.allow_reset(source::CounterReset::no);
  for (auto& script : scripts_) script.result = {ReadState::paused, never};
  pass(1s);
  scripts_[0].result = {ReadState::waiting, never};
  give({2, 3}, {});
  EXPECT_EQ(group_.next_turn(now_), now_ + 20ms);
  turn(19ms);
  EXPECT_EQ(next(1), 2U);
  scripts_[1].result = {ReadState::waiting, never};
  give({}, {2, 3});
  EXPECT_EQ(group_.queues()[1]->numbers().dropped(wire::DropReason::late), 0U);
  scripts_[1].result = {ReadState::paused, never};
  give({4}, {});
  turn(20ms);
  EXPECT_EQ(next(1), 5U);
}

TEST_F(Group, sources_that_pause_say_so_where_another_readout_unit_is_ahead) {
  for (auto& script : scripts_) script.result = {ReadState::paused, never};
  give({0}, {0});
  view_.horizon = 10;
  turn();
  EXPECT_TRUE(group_.all_silent());
  EXPECT_EQ(group_.to_announce(view_)->end, 10U);
}

TEST_F(Group, sources_are_silent_where_another_readout_unit_is_ahead) {
  give({0}, {0});
  view_.horizon = 10;
  pass(120ms);
  EXPECT_TRUE(group_.all_silent());
  EXPECT_TRUE(group_.answer_for({0, 10}));
}

TEST_F(Group, source_that_is_quiet_behind_one_that_is_far_ahead_is_passed_over) {
  give({0}, {0});
  std::deque<EventNumber> far;
  for (EventNumber event = 5000; event < 5020; ++event) far.push_back(event);
  give(far, {}); // nobody else is there
  group_.confirm(5000);
  group_.retry();
  for (EventNumber event = 5020; event < 5080; ++event) {
    scripts_[0].numbers.push_back(event);
    group_.retry();
    turn(5ms);
  }
  EXPECT_THAT(logged_,
              ::testing::Contains(HasSubstr("the run waits for source s2, which is at event 1")));
  EXPECT_GT(next(1), 1U); // passed over, and then silent
}

TEST_F(Group, only_source_that_lags_is_slow_while_the_others_are_held_back) {
  scripts_[0].on_demand = true;
  scripts_[0].result = {ReadState::more};
  std::deque<EventNumber> many;
  for (EventNumber event = 0; event < 30; ++event) many.push_back(event);
  give(many, {0}); // 3000 B, of which a source may be 1000 ahead
  turn();
  EXPECT_TRUE(group_.any_far_ahead());
  for (EventNumber event = 1; event < 29; ++event) {
    scripts_[1].numbers = {event};
    group_.retry();
    turn(5ms);
  }
  EXPECT_THAT(group_.waits_for(view_), HasSubstr("source s2, which is slow"));
  EXPECT_THAT(logged_, ElementsAre(HasSubstr("holds all others of the readout unit back")));
}

TEST_F(Group, says_at_a_pause_how_far_its_sources_got) {
  give({0, 1, 2, 3}, {0, 1});
  const auto paused = group_.pause(view_);
  EXPECT_EQ(paused.next_event, 4U);
  EXPECT_EQ(paused.horizon, 4U);
  EXPECT_EQ(paused.span, 4096U);
  give({4}, {2, 3, 4});
  EXPECT_EQ(next(0), 4U); // nothing is read beyond
  EXPECT_EQ(next(1), 4U);
}

TEST_F(Group, counts_pages_and_whether_all_sources_are_held_back) {
  wire::NodeCounters counters;
  give({0}, {0});
  EXPECT_EQ(group_.count(counters, now_).size(), 2U);
  EXPECT_EQ(counters.pages, 32U);
  EXPECT_EQ(counters.pages_in_use, 2U);
  EXPECT_EQ(counters.held_back, 0U);
}

TEST_F(Group, joins_a_run_under_way_where_it_is) {
  view_ = {.limit = event_number_end, .joined_at = 700};
  group_.reset();
  group_.start({.first_event = 700, .limit = event_number_end, .joining = 1}, view_, now_);
  view_.announced = 700;
  EXPECT_EQ(next(0), 700U);
  give({699, 700}, {700});
  EXPECT_EQ(group_.to_announce(view_)->end, 701U);
}

} // namespace
} // namespace fanin::builder
