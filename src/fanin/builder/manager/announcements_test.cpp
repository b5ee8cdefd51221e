#include "fanin/builder/manager/announcements.hpp"

#include <gtest/gtest.h>

#include <set>

#include <fmt/format.h>

#include "fanin/base/random.hpp"

namespace fanin::builder {
namespace {

using State = Announcements::State;

System system_of(std::size_t readouts, std::size_t per_readout) {
  System system;
  system.batch_events = 16;
  system.event_window = 100;
  for (std::size_t node = 0; node < readouts; ++node) {
    system.readout_units.push_back(fmt::format("ru{}", node));
    for (std::size_t i = 0; i < per_readout; ++i) {
      const auto id = static_cast<SourceId>(1 + node * per_readout + i);
      system.sources.push_back({id, fmt::format("s{}", id), static_cast<NodeId>(node), true});
    }
  }
  system.builder_units.emplace_back("bu0");
  return system;
}

class Announced : public ::testing::Test {
protected:
  bool say(NodeId node, EventNumber first, EventNumber end,
           const std::vector<wire::AbsentRange>& absent = {}, bool final = false) {
    wire::Announce announce{.first = first, .end = end, .bytes = 100 * (end - first)};
    announce.absent_ranges = static_cast<std::uint32_t>(absent.size());
    announce.final = final ? 1 : 0;
    return announced_.add(node, announce, absent, announced_.assigned_end(), {});
  }
  bool say_nothing(NodeId node, EventNumber first, EventNumber end) {
    return announced_.add(node, {.first = first, .end = end, .nothing = 1}, {}, 0, {});
  }
  void join_all() {
    for (NodeId node = 0; node < 2; ++node) announced_.join(node, {});
  }
  // Both have announced so many events from 0 on.
  void begin(EventNumber end) {
    join_all();
    for (NodeId node = 0; node < 2; ++node) {
      for (EventNumber first = 0; first < end; first += 16) {
        EXPECT_TRUE(say(node, first, std::min(end, first + 16)));
      }
    }
    announced_.begin_at_first();
  }
  System system_ = system_of(2, 2); // sources 1 and 2, 3 and 4
  SourceIndex sources_{system_};
  Announcements announced_{system_, sources_};
};

TEST_F(Announced, batches_begin_where_the_first_readout_unit_begins) {
  join_all();
  EXPECT_FALSE(announced_.may_begin(1000));
  EXPECT_TRUE(say(0, 20, 30));
  EXPECT_FALSE(announced_.may_begin(1000));
  EXPECT_TRUE(say(1, 17, 20));
  EXPECT_TRUE(announced_.may_begin(1000));
  announced_.begin_at_first();
  EXPECT_EQ(announced_.first_event(), 17U);
  EXPECT_EQ(announced_.assigned_end(), 17U);
  EXPECT_EQ(announced_.assignable_end(), 20U);
  EXPECT_EQ(announced_.announced_end(), 30U);
}

TEST_F(Announced, only_what_all_have_announced_is_assignable) {
  begin(10);
  EXPECT_EQ(announced_.assignable_end(), 10U);
  announced_.move_to(10);
  EXPECT_TRUE(say(0, 10, 20));
  EXPECT_EQ(announced_.assignable_end(), 10U);
  EXPECT_TRUE(say(1, 10, 14));
  EXPECT_EQ(announced_.assignable_end(), 14U);
  announced_.leave(1);
  EXPECT_EQ(announced_.assignable_end(), 20U);
  announced_.join(1, EventNumber{20});
  EXPECT_EQ(announced_.assignable_end(), 20U);
}

TEST_F(Announced, who_is_at_its_end_is_absent_from_there_on) {
  begin(10);
  EXPECT_TRUE(say(0, 10, 10, {}, true));
  EXPECT_FALSE(announced_.all_ended());
  EXPECT_FALSE(say(0, 10, 11)); // it has ended
  EXPECT_TRUE(say(1, 10, 30 - 14));
  EXPECT_EQ(announced_.assignable_end(), 16U);
  EXPECT_TRUE(say(1, 16, 16, {}, true));
  EXPECT_TRUE(announced_.all_ended());
  EXPECT_EQ(announced_.assignable_end(), 16U);
}

TEST_F(Announced, large_gaps_are_forgotten_where_every_number_is_announced_since) {
  begin(10);
  EventNumber end = 10;
  const auto gap = [&](EventNumber count) {
    EXPECT_TRUE(say_nothing(0, end, end + count));
    end += count;
  };
  const auto dense = [&](EventNumber count) {
    for (; count > 0; --count, ++end) EXPECT_TRUE(say(0, end, end + 1));
  };
  for (int i = 0; i < 5; ++i) {
    gap(1'000'000);
    dense(1);
  }
  EXPECT_EQ(announced_.readout(0).in_a_row, 5U); // only the first one was unusual
  gap(8'000'000);
  EXPECT_EQ(announced_.readout(0).in_a_row, 5U);
  dense(1000);
  gap(1'000'000);
  EXPECT_EQ(announced_.readout(0).in_a_row, 0U);
}

TEST_F(Announced, announcements_that_make_no_sense_change_nothing) {
  begin(10);
  EXPECT_FALSE(say(0, 11, 12));                          // a hole
  EXPECT_FALSE(say(0, 10, 9));                           // backwards
  EXPECT_FALSE(say(0, 10, 27));                          // more than a batch
  EXPECT_FALSE(say(0, 10, 12, {{3, 1, 10}}));            // another's source
  EXPECT_FALSE(say(0, 10, 12, {{1, 3, 10}}));            // beyond the range
  EXPECT_FALSE(say(0, 10, 12, {{1, 2, 10}, {1, 1, 11}})); // overlapping
  EXPECT_FALSE(say(0, 10, 12, {{2, 1, 10}, {1, 1, 10}})); // not in order
  EXPECT_FALSE(
      announced_.add(0, {.first = 10, .end = event_number_end + 1, .nothing = 1}, {}, 0, {}));
  EXPECT_EQ(announced_.readout(0).end, 10U);
  EXPECT_TRUE(say(0, 10, 12, {{1, 1, 10}, {1, 1, 11}, {2, 2, 10}}));
}

TEST_F(Announced, nobody_announces_more_than_sources_can_hold) {
  Announcements few{system_, sources_, 4};
  few.join(0, {});
  for (EventNumber end = 1; end <= 4; ++end)
    EXPECT_TRUE(few.add(0, {.first = end - 1, .end = end}, {}, 0, {})) << end;
  EXPECT_FALSE(few.add(0, {.first = 4, .end = 5}, {}, 0, {}));
  few.begin_at_first();
  few.move_to(1); // some are assigned
  EXPECT_TRUE(few.add(0, {.first = 4, .end = 5}, {}, 0, {}));
}

TEST_F(Announced, no_source_is_absent_in_more_ranges_than_it_can_hold) {
  for (const std::uint8_t nothing : {std::uint8_t{0}, std::uint8_t{1}}) {
    Announcements few{system_, sources_, 4};
    few.join(0, {});
    const auto say = [&](EventNumber first, EventNumber decided) {
      const wire::AbsentRange absent{2, 1, first};
      const std::uint32_t ranges = nothing != 0 ? 0 : 1;
      const bool ok = few.add(
          0, {.first = first, .end = first + 1, .absent_ranges = ranges, .nothing = nothing},
          {&absent, ranges}, decided, {});
      return ok && few.add(0, {.first = first + 1, .end = first + 2}, {}, decided, {});
    };
    for (EventNumber first = 0; first < 8; first += 2) {
      EXPECT_TRUE(say(first, 0)) << first;
      if (!few.begun()) few.begin_at_first();
      few.move_to(first + 2);
    }
    EXPECT_TRUE(say(8, 2)); // what is decided is forgotten
    few.move_to(10);
    EXPECT_FALSE(say(10, 2));
  }
}

TEST_F(Announced, there_is_room_again_when_events_are_decided) {
  Announcements few{system_, sources_, 8};
  few.join(0, {});
  for (EventNumber first = 0; first < 6; first += 2) {
    EXPECT_TRUE(few.has_room(0)) << first;
    const wire::AbsentRange absent{2, 1, first};
    EXPECT_TRUE(
        few.add(0, {.first = first, .end = first + 2, .absent_ranges = 1}, {&absent, 1}, 0, {}));
  }
  EXPECT_FALSE(few.has_room(0)); // three of eight: the rest is for what sources hold
  EXPECT_TRUE(few.has_room(2));
  EXPECT_TRUE(few.has_room(0)); // they are forgotten
}

TEST_F(Announced, readout_units_that_begin_too_far_from_each_other_are_named) {
  join_all();
  EXPECT_TRUE(say(0, 1000, 1010));
  EXPECT_TRUE(say(1, 0, 10));
  const auto apart = announced_.apart();
  ASSERT_TRUE(apart);
  EXPECT_EQ(apart->first, 1U);
  EXPECT_EQ(apart->further, 0U);
  EXPECT_TRUE(say_nothing(1, 10, 900));
  EXPECT_FALSE(announced_.apart());
}

TEST_F(Announced, numbers_can_be_taken_back_before_batches_begin) {
  join_all();
  EXPECT_TRUE(say(0, 1000, 1010));
  EXPECT_TRUE(say(1, 5, 9));
  EXPECT_TRUE(announced_.take_back(0));
  EXPECT_EQ(announced_.announced_end(), 9U);
  EXPECT_EQ(announced_.readout(0).state, State::joined);
  EXPECT_FALSE(announced_.take_back(0)); // there is nothing
  EXPECT_TRUE(say(0, 6, 8));
  announced_.begin_at_first();
  EXPECT_FALSE(announced_.take_back(0)); // too late
  EXPECT_EQ(announced_.next_cut(8).range, (EventRange{5, 8}));
}

TEST_F(Announced, what_a_dead_readout_unit_had_announced_is_lost_and_exists) {
  begin(10);
  EXPECT_TRUE(say(0, 10, 14, {{1, 2, 10}}));
  std::vector<wire::MissingRange> lost;
  announced_.add_fragments(0, {8, 12}, lost);
  EXPECT_EQ(lost.size(), 2U); // source 1: 8 and 9; source 2: 8 to 11
  announced_.leave(0);
  lost.clear();
  announced_.add_lost({8, 20}, lost);
  ASSERT_EQ(lost.size(), 3U);
  EXPECT_EQ(lost[0].first, 8U);
  EXPECT_EQ(lost[0].count, 2U);
  EXPECT_EQ(lost[1].first, 12U);
  EXPECT_EQ(lost[2].count, 6U);
  EXPECT_EQ(announced_.count_present({0, 100}), 14U);
  announced_.move_to(14);
  lost.clear();
  announced_.add_lost({0, 20}, lost);
  EXPECT_TRUE(lost.empty());
}

TEST_F(Announced, what_a_dead_readout_unit_did_not_announce_was_not_read) {
  using Unread = std::pair<EventNumber, std::uint32_t>;
  const auto unread = [&](EventRange range) {
    std::vector<wire::MissingRange> found;
    announced_.add_unread(range, found);
    std::vector<Unread> of_source_1;
    for (const auto& one : found) {
      EXPECT_EQ(one.reason, static_cast<std::uint32_t>(wire::MissingReason::unread));
      if (one.source == 1) of_source_1.emplace_back(one.first, one.count);
    }
    EXPECT_EQ(found.size(), 2 * of_source_1.size()); // of source 2 the same
    return of_source_1;
  };
  begin(10);
  EXPECT_TRUE(say(0, 10, 14));
  EXPECT_TRUE(unread({0, 100}).empty()); // nobody died
  announced_.leave(0);
  EXPECT_EQ(unread({0, 12}), (std::vector<Unread>{}));
  EXPECT_EQ(unread({12, 20}), (std::vector{Unread{14, 6}}));
  announced_.join(0, 18);
  EXPECT_TRUE(say(0, 18, 22));
  EXPECT_EQ(unread({12, 22}), (std::vector{Unread{14, 4}}));
  announced_.leave(0);
  EXPECT_EQ(unread({12, 30}), (std::vector{Unread{14, 4}, Unread{22, 8}}));
  announced_.join(0, 30);
  announced_.move_to(14);
  EXPECT_EQ(unread({14, 30}), (std::vector{Unread{14, 4}, Unread{22, 8}}));
}

TEST_F(Announced, where_a_readout_unit_begins_is_nothing_yet) {
  join_all();
  EXPECT_TRUE(say(0, 5000, 5000));
  EXPECT_EQ(announced_.announced_end(), 0U);
  Announcements alone{system_, sources_};
  alone.join(0, {});
  EXPECT_TRUE(alone.add(0, {.first = 5000, .end = 5000}, {}, 0, {}));
  alone.begin_at_first();
  EXPECT_EQ(alone.announced_end(), 5000U) << "the first event";
  EXPECT_TRUE(say(1, 0, 8));
  EXPECT_EQ(announced_.announced_end(), 8U);
  announced_.begin_at_first();
  EXPECT_TRUE(say(1, 8, 8, {}, true));
  EXPECT_EQ(announced_.assignable_end(), 8U);
  announced_.leave(0);
  announced_.leave(1);
  EXPECT_EQ(announced_.announced_end(), 8U);
}

TEST_F(Announced, one_far_ahead_counts_when_another_follows) {
  const Overtaking nobody{2, 100, std::chrono::seconds{1}, {}};
  begin(10);
  EXPECT_TRUE(say_nothing(0, 10, 5000));
  EXPECT_EQ(announced_.horizon(nobody), 10U);
  EXPECT_EQ(announced_.announced_end(), 5000U);
  EXPECT_TRUE(say_nothing(1, 10, 4950));
  EXPECT_EQ(announced_.horizon(nobody), 5000U);
}

TEST_F(Announced, ranges_that_run_backwards_or_begin_beyond_their_end_are_refused) {
  begin(10);
  EXPECT_FALSE(say_nothing(0, 10, 9));
  EXPECT_FALSE(say(0, 10, 12, {{1, 1, 13}}));
  EXPECT_EQ(announced_.readout(0).end, 10U);
  EXPECT_TRUE(say_nothing(0, 10, event_number_end));
}

TEST_F(Announced, a_number_that_was_sent_and_dropped_is_no_gap) {
  join_all();
  EXPECT_TRUE(say(0, 0, 4, {{1, 2, 1}, {2, 1, 1}, wire::AbsentRange::make(2, 2, 1, true)}));
  EXPECT_TRUE(say_nothing(1, 0, 4));
  EventRange range{0, 4};
  const auto gaps = announced_.gaps_in(range);
  ASSERT_EQ(gaps.size(), 1U);
  EXPECT_EQ(gaps[0].first, 1U);
  EXPECT_EQ(gaps[0].end, 2U);
  EXPECT_EQ(range, (EventRange{0, 4}));
}

TEST_F(Announced, batches_begin_at_numbers_of_those_who_have_some_or_go_on) {
  join_all();
  EXPECT_TRUE(say(0, 5, 5, {}, true)); // it has none, and ends
  EXPECT_TRUE(say(1, 17, 20));
  announced_.begin_at_first();
  EXPECT_EQ(announced_.first_event(), 17U);
  for (const bool has_some : {false, true}) { // and goes on; or ends
    Announcements others{system_, sources_};
    for (NodeId node = 0; node < 2; ++node) others.join(node, {});
    wire::Announce five{.first = 5, .end = has_some ? 8U : 5U};
    five.final = has_some ? 1 : 0;
    EXPECT_TRUE(others.add(0, five, {}, 0, {}));
    EXPECT_TRUE(others.add(1, {.first = 17, .end = 20}, {}, 0, {}));
    others.begin_at_first();
    EXPECT_EQ(others.first_event(), 5U) << has_some;
  }
}

TEST_F(Announced,
       one_that_begins_because_sources_were_given_up_decides_nothing_and_may_begin_again) {
  join_all();
  const auto begins = [&](NodeId node, EventNumber first, bool silent) {
    return announced_.add(node, {.first = first, .end = first, .silent = silent}, {}, 0, {});
  };
  EXPECT_TRUE(begins(0, 1, true));
  EXPECT_TRUE(begins(1, 1'000'000, false));
  EXPECT_FALSE(announced_.apart());
  EXPECT_EQ(announced_.first_announced(), 1'000'000U);
  EXPECT_FALSE(begins(0, 0, false)) << "further on only";
  EXPECT_FALSE(begins(1, 1'000'001, false)) << "it was not given up";
  EXPECT_TRUE(begins(0, 150, false));
  EXPECT_EQ(announced_.first_announced(), 150U);
  EXPECT_FALSE(begins(0, 151, false)) << "once only";
  EXPECT_TRUE(announced_.apart());
  EXPECT_TRUE(say(0, 150, 160));
  EXPECT_EQ(announced_.count_present({0, 1000}), 10U);
}

TEST_F(Announced, one_that_decides_nothing_is_waited_for_until_it_is_where_the_first_one_begins) {
  join_all();
  const auto moves_to = [&](EventNumber first) {
    return announced_.add(0, {.first = first, .end = first, .silent = 1}, {}, 0, {});
  };
  EXPECT_TRUE(moves_to(1));
  EXPECT_TRUE(say(1, 700, 710));
  EXPECT_FALSE(announced_.may_begin(1000));
  EXPECT_TRUE(moves_to(500));
  EXPECT_FALSE(announced_.may_begin(1000));
  EXPECT_TRUE(moves_to(700));
  EXPECT_FALSE(announced_.may_begin(699)) << "numbers fell";
  EXPECT_TRUE(announced_.may_begin(1000));
  announced_.begin_at_first();
  EXPECT_EQ(announced_.first_event(), 700U);
  EXPECT_EQ(announced_.announced_end(), 710U);
  EXPECT_EQ(announced_.assignable_end(), 700U);
  EXPECT_TRUE(moves_to(704));
  EXPECT_EQ(announced_.next_cut(announced_.assignable_end()).range, (EventRange{700, 704}));
  EXPECT_EQ(announced_.count_present({0, 1000}), 10U);
}

TEST_F(Announced, a_few_fragments_do_not_count_before_batches_begin) {
  const Overtaking nobody(2, system_.event_window, 1s, 1s);
  const auto say_few = [&](EventNumber first, bool final) {
    return announced_.add(1, {.first = first, .end = first + 2, .final = final, .few = 1}, {}, 0,
                          {});
  };
  for (const bool final : {false, true}) { // then there will be no more
    join_all();
    EXPECT_TRUE(say_few(20, final));
    EXPECT_EQ(announced_.horizon(nobody), final ? 22U : 0U);
    announced_.leave(0);
    announced_.leave(1);
  }
  join_all();
  EXPECT_TRUE(say_few(20, false));
  EXPECT_TRUE(say(0, 20, 24));
  EXPECT_EQ(announced_.horizon(nobody), 24U);
  announced_.begin_at_first();
  EXPECT_EQ(announced_.horizon(nobody), 24U);
}

TEST_F(Announced, one_that_begins_above_another_one_may_have_what_is_left_over) {
  for (const bool few : {false, true}) {
    join_all();
    EXPECT_TRUE(say(0, 0, 10));
    EXPECT_FALSE(announced_.others_begin_above());
    EXPECT_TRUE(announced_.add(1, {.first = 12, .end = 14, .few = few}, {}, 0, {}));
    EXPECT_EQ(announced_.others_begin_above(), 0U);
    EXPECT_TRUE(say(0, 10, 16));
    EXPECT_EQ(announced_.others_begin_above().has_value(), few) << "the other one is there now";
    EXPECT_TRUE(announced_.take_back(1));
    EXPECT_FALSE(announced_.others_begin_above());
    announced_.leave(0);
    announced_.leave(1);
  }
}

TEST_F(Announced, batches_do_not_begin_while_nobody_decides_where_and_somebody_goes_on) {
  join_all();
  EXPECT_TRUE(announced_.add(0, {.first = 1, .end = 1, .silent = 1}, {}, 0, {}));
  EXPECT_TRUE(say(1, 1, 1, {}, true));
  EXPECT_FALSE(announced_.may_begin(1000));
  EXPECT_TRUE(say(0, 1, 1, {}, true));
  EXPECT_TRUE(announced_.may_begin(1000));
}

TEST_F(Announced, one_that_is_here_and_has_said_nothing_is_waited_for) {
  begin(10);
  announced_.leave(1);
  EXPECT_EQ(announced_.assignable_end(), 10U);
  announced_.join(1, {});
  EXPECT_EQ(announced_.assignable_end(), 0U);
  announced_.leave(1);
  announced_.leave(0);
  EXPECT_EQ(announced_.assignable_end(), 0U) << "nobody is here";
}

TEST(AnnouncementsOfThree, one_holds_all_back_if_all_others_are_held_back_further_on) {
  const System system = system_of(3, 1);
  const SourceIndex sources{system};
  Announcements announced{system, sources};
  const auto say = [&](NodeId node, EventNumber first, EventNumber end, bool final = false) {
    wire::Announce announce{.first = first, .end = end};
    announce.final = final ? 1 : 0;
    EXPECT_TRUE(announced.add(node, announce, {}, 0, {}));
  };
  for (NodeId node = 0; node < 3; ++node) {
    announced.join(node, {});
    say(node, 0, 10);
  }
  EXPECT_FALSE(announced.holds_all_back(0)) << "nobody is held back";
  for (const NodeId node : {NodeId{1}, NodeId{2}}) announced.held_back(node, true, {});
  EXPECT_FALSE(announced.holds_all_back(0)) << "they are no further on";
  for (const NodeId node : {NodeId{1}, NodeId{2}}) say(node, 10, 20);
  EXPECT_TRUE(announced.holds_all_back(0));
  EXPECT_FALSE(announced.holds_all_back(1)) << "it is held back itself";
  announced.held_back(2, false, {});
  EXPECT_FALSE(announced.holds_all_back(0));
  say(2, 20, 20, true); // at its end nothing holds it back
  EXPECT_TRUE(announced.holds_all_back(0));
  announced.leave(2);
  EXPECT_TRUE(announced.holds_all_back(0));
  announced.leave(1);
  EXPECT_FALSE(announced.holds_all_back(0)) << "it is alone";
}

// Any announcements, with any absences and deaths, against sets of numbers.
TEST(AnnouncementsAtRandom, gaps_are_what_no_source_has) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random{seed};
    const System system = system_of(3, 2);
    const SourceIndex sources{system};
    Announcements announced{system, sources};
    std::set<EventNumber> present;
    std::vector<EventNumber> ends(3);
    for (NodeId node = 0; node < 3; ++node) announced.join(node, EventNumber{0});
    announced.begin();
    for (int step = 0; step < 100; ++step) {
      const auto node = static_cast<NodeId>(random.below(3));
      const EventRange range{ends[node], ends[node] + 1 + random.below(16)};
      std::vector<wire::AbsentRange> absent;
      for (SourceId source = 1; source <= 2; ++source) {
        for (EventNumber event = range.first; event < range.end; ++event) {
          const SourceId id = static_cast<SourceId>(2 * node) + source;
          if (random.chance(4, 5)) {
            absent.push_back({id, 1, event});
          } else {
            present.insert(event);
          }
        }
      }
      ends[node] = range.end;
      wire::Announce announce{.first = range.first, .end = range.end};
      announce.absent_ranges = static_cast<std::uint32_t>(absent.size());
      ASSERT_TRUE(announced.add(node, announce, absent, 0, {}));
      if (random.chance(1, 20)) {
        announced.leave(node);
        announced.join(node, ends[node]);
      }
      const EventNumber from = random.below(announced.announced_end());
      const EventNumber end = announced.announced_end();
      const auto next = present.lower_bound(from);
      ASSERT_EQ(announced.present_from(from, end), next == present.end() ? end : *next);
      EventNumber gap = from;
      while (gap < end && present.contains(gap)) ++gap;
      ASSERT_EQ(announced.gap_from(from, end), gap);
      ASSERT_EQ(announced.count_present({0, end}), present.size());
    }
  }
}

} // namespace
} // namespace fanin::builder
