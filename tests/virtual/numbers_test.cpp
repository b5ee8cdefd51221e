// Which numbers are events, case by case, with the real builder in virtual time: sources of one
// readout unit and of several. docs/modules/source.md has the table of cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "fanin/builder/testing/make_system.hpp"
#include "virtual/expectations.hpp"
#include "virtual/listed_source.hpp"
#include "virtual/virtual_system.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using fanin::testing::expect_balanced;
using fanin::testing::Listed;
using fanin::testing::tail_of_log;
using fanin::testing::VirtualSystem;
using fanin::testing::VirtualSystemOptions;
using fanin::testing::with_jump;
using ::testing::HasSubstr;
using testing::make_system;
using ::testing::Not;
using List = std::vector<EventNumber>;

List from_to(EventNumber first, EventNumber end) { return with_jump(0, first, end - first); }

List joined(std::initializer_list<List> parts) {
  List all;
  for (const List& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

List without(List numbers, const List& left_out) {
  std::erase_if(numbers, [&](EventNumber number) {
    return std::ranges::find(left_out, number) != left_out.end();
  });
  return numbers;
}

// What a source sends: its number is its place in the list of all, from 1 on.
struct Sends {
  List numbers;
  Duration step = 100us;
  bool ends = true;
};

// Runs in which two or more sources send lists of numbers, side by side in one readout unit or each
// in its own.
class Numbers : public ::testing::TestWithParam<bool> {
protected:
  Numbers() { options_.system.event_deadline = 200ms; }

  VirtualSystem& start(std::vector<Sends> sources) {
    sources_ = std::move(sources);
    System before = std::move(options_.system);
    const std::size_t count = sources_.size();
    options_.system = GetParam() ? make_system(1, 1, count) : make_system(count, 1, 1);
    options_.system.event_window = before.event_window;
    options_.system.events_max = before.events_max;
    options_.system.trigger_rate_hz = before.trigger_rate_hz;
    options_.make_source = [this](const SourceInfo& info) -> std::unique_ptr<source::Source> {
      const Sends& sends = sources_[info.id - 1];
      Listed listed(sends.numbers, sends.step);
      if (sends.ends) return std::move(listed).and_ends();
      return std::make_unique<Listed>(std::move(listed));
    };
    system_.emplace(options_);
    system_->start_all();
    return *system_;
  }
  // Until all have ended.
  VirtualSystem& run(std::vector<Sends> sources) {
    start(std::move(sources));
    expect_end();
    return *system_;
  }
  // For so long, though their sources may not have ended.
  void run(std::vector<Sends> sources, Duration time) {
    start(std::move(sources)).run_for(time);
    system_->stop();
    expect_end();
  }
  void expect_end() {
    ASSERT_TRUE(system_->run_until_ended(60s)) << log() << system_->manager().waiting_for();
    EXPECT_TRUE(system_->summary().balanced) << log();
    EXPECT_EQ(system_->check_stored(), "") << log();
    inspect();
  }
  [[nodiscard]] std::string log() const { return tail_of_log(*system_); }
  [[nodiscard]] List stored(SourceId source) { return stored_[source]; }
  // Those of them whose number is in doubt.
  [[nodiscard]] List in_doubt(SourceId source) { return in_doubt_[source]; }
  // Why the event lacks the source's fragment, if it is an event.
  [[nodiscard]] std::optional<wire::MissingReason> missing(EventNumber event, SourceId source) {
    const auto found = missing_.find({event, source});
    return found == missing_.end() ? std::nullopt : std::optional{found->second};
  }
  [[nodiscard]] std::uint64_t dropped(SourceId source) {
    return system_->summary().sources[source - 1].ledger.dropped;
  }
  [[nodiscard]] std::vector<storage::GapRow> gap_rows() { return system_->store(0).gaps; }
  void TearDown() override {
    if (system_) system_->destroy_nodes();
  }

  VirtualSystemOptions options_;
  std::vector<Sends> sources_;
  std::optional<VirtualSystem> system_;

private:
  void inspect() {
    stored_.clear();
    in_doubt_.clear();
    missing_.clear();
    system_->for_each_stored([this](const storage::StoredEvent& event) {
      for (const auto& fragment : event.fragments) {
        stored_[fragment.source].push_back(event.row.event);
        if ((fragment.flags & storage::event_in_doubt) != 0)
          in_doubt_[fragment.source].push_back(event.row.event);
      }
      for (const auto& row : event.missing)
        missing_[{row.event, row.source}] = static_cast<wire::MissingReason>(row.reason);
    });
    for (auto& [source, numbers] : stored_) std::ranges::sort(numbers);
    for (auto& [source, numbers] : in_doubt_) std::ranges::sort(numbers);
  }
  std::map<SourceId, List> stored_;
  std::map<SourceId, List> in_doubt_;
  std::map<std::pair<EventNumber, SourceId>, wire::MissingReason> missing_;
};

INSTANTIATE_TEST_SUITE_P(InOneReadoutUnit, Numbers, ::testing::Values(true));
INSTANTIATE_TEST_SUITE_P(InTheirOwn, Numbers, ::testing::Values(false));

TEST_P(Numbers, the_first_fragments_of_all_are_events) {
  for (const EventNumber first : {EventNumber{0}, EventNumber{1000}, EventNumber{1} << 50}) {
    run({{from_to(first, first + 200)}, {from_to(first, first + 200)}});
    for (const SourceId source : {1U, 2U}) EXPECT_EQ(stored(source), from_to(first, first + 200));
  }
}

TEST_P(Numbers, garbage_before_a_counter_is_reset_is_dropped) {
  options_.queue = [](const SourceInfo& info, source::FragmentQueueOptions& queue) {
    if (info.id == 1) queue.first = 0;
  };
  const List sent = joined({from_to(5'000'000, 5'000'003), from_to(0, 500)});
  run({{sent}, {from_to(0, 500)}});
  EXPECT_EQ(stored(1), from_to(0, 500));
  EXPECT_EQ(dropped(1), 3U);
  options_.queue = {};
  run({{sent}, {from_to(0, 500)}}); // the same without `first`: it restarts its numbering
  EXPECT_EQ(stored(1), from_to(0, 500)) << log();
  EXPECT_EQ(stored(2), from_to(0, 500));
  EXPECT_EQ(dropped(1), 3U);
}

// They look like a counter that was reset, which is believed before the run has an event.
TEST_P(Numbers, two_wrong_numbers_that_fall_cost_what_came_before_the_first_event_or_nothing) {
  const List good = from_to(5000, 5500);
  for (const std::size_t at : {3U, 250U}) {
    SCOPED_TRACE(at);
    List sent = good;
    sent[at] = 3;
    sent[at + 1] = 4;
    run({{sent}, {joined({List(20, Listed::pause), good})}}); // the run begins with the second
    const List behind = from_to(5000 + at + 2, 5500);
    const List expected =
        at == 3 ? joined({{3, 4}, behind}) : joined({from_to(5000, 5000 + at), behind});
    EXPECT_EQ(stored(1), expected) << log();
    EXPECT_EQ(stored(2), good);
    EXPECT_EQ(dropped(1), at == 3 ? 3U : 2U);
  }
}

// A front end has a few fragments of the last run in its buffers, and seconds later its counter is
// reset with all others, a little sooner or later.
TEST_P(Numbers, a_few_fragments_left_over_from_an_earlier_run_cost_nothing) {
  const List pause(3000, Listed::pause);
  for (const EventNumber step : {EventNumber{1}, EventNumber{937}, EventNumber{1} << 30}) {
    // One that is behind by more than half of the deadline jumps alone.
    const std::size_t most_later = step > options_.system.event_window ? 50 : 150;
    for (const std::size_t count : {0U, 1U, 2U, 7U}) {
      for (const std::size_t later : {std::size_t{0}, std::size_t{7}, most_later}) {
        SCOPED_TRACE(fmt::format("{} left over, step {}, {} ms later", count, step, later));
        List left_over = from_to(5001, 5001 + count);
        List good = from_to(1, 1001);
        for (List* const list : {&left_over, &good})
          std::ranges::for_each(*list, [step](EventNumber& number) { number *= step; });
        run({{joined({pause, good}), 1ms},
             {joined({left_over, pause, List(later, Listed::pause), good}), 1ms}});
        EXPECT_EQ(stored(1), good) << log();
        EXPECT_EQ(stored(2), good) << log();
        EXPECT_EQ(dropped(2), count) << log();
        EXPECT_EQ(in_doubt(2), List{});
      }
    }
  }
}

// From the top of its range the counter seems to wrap to where the others begin.
TEST_P(Numbers, a_few_fragments_left_over_of_a_narrow_counter_cost_nothing) {
  const List good = from_to(1, 1001);
  for (const bool has_first : {false, true}) {
    options_.queue = [has_first](const SourceInfo&, source::FragmentQueueOptions& queue) {
      queue.counter_bits = 16;
      if (has_first) queue.first = 1;
    };
    for (const EventNumber from : {40'000U, 60'000U, 65'529U}) {
      for (const EventNumber count : {1U, 2U, 7U}) {
        SCOPED_TRACE(fmt::format("{} from {}{}", count, from, has_first ? ", with first" : ""));
        const List pause(50, Listed::pause);
        run({{joined({pause, good}), 1ms},
             {joined({from_to(from, from + count), pause, good}), 1ms}});
        EXPECT_EQ(stored(1), good) << log();
        // Its first numbers may be lost, too, until it is known where the other one begins.
        EXPECT_LE(without(good, stored(2)).size(), has_first ? 0U : 8U) << log();
        EXPECT_EQ(without(stored(2), good), List{}) << log();
      }
    }
  }
}

// Too many for that begin the run if nobody else sends within the deadline; else they are waited
// for like few.
TEST_P(Numbers, many_fragments_left_over_from_an_earlier_run_cost_nothing_within_the_deadline) {
  const List good = from_to(1, 1001);
  for (const std::size_t later : {0U, 7U, 70U}) {
    SCOPED_TRACE(later);
    const List pause(100, Listed::pause);
    run({{joined({pause, good}), 1ms},
         {joined({from_to(5001, 5021), pause, List(later, Listed::pause), good}), 1ms}});
    EXPECT_EQ(stored(1), good) << log();
    EXPECT_EQ(stored(2), good) << log();
    EXPECT_EQ(dropped(2), 20U) << log();
  }
}

TEST_P(Numbers, a_few_fragments_of_one_source_alone_are_built_when_the_run_ends) {
  start({{List{}, 1ms, false}, {from_to(7, 10), 1ms, false}}).run_for(2s);
  EXPECT_THAT(system_->manager().waiting_for(), HasSubstr("may be left over"));
  system_->stop();
  expect_end();
  EXPECT_EQ(stored(2), from_to(7, 10)) << log();
  run({{List{}, 1ms, false}, {from_to(7, 10), 1ms}}, 2s);
  EXPECT_EQ(stored(2), from_to(7, 10)) << log();
  options_.system.events_max = 3;
  run({{List{}, 1ms, false}, {from_to(7, 10), 1ms, false}});
  EXPECT_EQ(stored(2), from_to(7, 10)) << log();
  options_.system.events_max = 1000;
  run({{List{}, 1ms, false}, {from_to(7, 2000), 1ms, false}});
  EXPECT_EQ(stored(2), from_to(7, 1007)) << log();
}

// The counters are reset right after the run was stopped: nobody waits for what would follow.
TEST_P(Numbers, a_few_left_over_fragments_are_all_that_a_run_has_that_is_stopped_before_it_begins) {
  const List slow = from_to(1, 8000);
  for (const std::size_t count : {1U, 2U, 7U}) {
    for (const std::size_t resets_at : {50U, 499U, 505U, 520U}) {
      SCOPED_TRACE(fmt::format("{} left over, reset at {} ms", count, resets_at));
      const List before(resets_at, Listed::pause);
      run({{joined({before, slow}), 1ms, false},
           {joined({from_to(5001, 5001 + count), before, slow}), 1ms, false}},
          500ms);
      const bool begun = resets_at < 490;
      if (begun) {
        EXPECT_GT(stored(1).size(), 300U) << log();
        EXPECT_EQ(stored(1), stored(2)) << log();
      } else {
        EXPECT_LT(stored(1).size(), 10U) << log();
        EXPECT_LT(system_->summary().fragments.read, 200U) << "it ends at once";
      }
    }
  }
}

TEST_P(Numbers, a_source_whose_first_number_is_lost_begins_where_it_is) {
  options_.queue = [](const SourceInfo& info, source::FragmentQueueOptions& queue) {
    if (info.id == 2) queue.first = 1;
  };
  for (const std::size_t later : {0U, 5U, 150U}) { // steps of 1 ms
    SCOPED_TRACE(later);
    const List lost = joined({List(19 + later, Listed::pause), from_to(20, 1001)});
    run({{from_to(1, 1001), 1ms}, {lost, 1ms}});
    EXPECT_EQ(stored(1), from_to(1, 1001)) << log();
    EXPECT_EQ(stored(2), from_to(20, 1001)) << log();
    EXPECT_EQ(dropped(2), 0U);
  }
  // After the others have begun without it.
  run({{from_to(1, 1001), 1ms}, {joined({List(600, Listed::pause), from_to(600, 1001)}), 1ms}});
  EXPECT_GE(stored(2).size(), 390U) << log();
}

TEST_P(Numbers, fragments_left_over_before_the_first_number_are_not_taken) {
  options_.queue = [](const SourceInfo& info, source::FragmentQueueOptions& queue) {
    if (info.id == 2) queue.first = 1;
  };
  const List good = from_to(1, 1001);
  for (const EventNumber first : {EventNumber{20}, EventNumber{5001}, EventNumber{1} << 50}) {
    for (const std::size_t count : {1U, 2U, 20U, 3000U}) {
      for (const std::size_t later : {0U, 7U}) {
        SCOPED_TRACE(fmt::format("{} from {} on, {} ms later", count, first, later));
        const List pause(3000, Listed::pause);
        run({{joined({List(count, Listed::pause), pause, good}), 1ms},
             {joined({from_to(first, first + count), pause, List(later, Listed::pause), good}),
              1ms}});
        EXPECT_EQ(stored(1), good) << log();
        EXPECT_EQ(stored(2), good) << log();
        EXPECT_EQ(dropped(2), count) << log();
      }
    }
  }
  start({{List{}, 1ms, false}, {from_to(20, 22), 1ms, false}}).run_for(1s);
  system_->stop();
  expect_end();
  EXPECT_EQ(stored(2), List{}) << "the run is stopped before";
}

// A front end has fragments of an earlier run in its buffers, which begin the run. Then nothing is
// accepted any more, and it ends.
TEST_P(Numbers, a_run_in_which_nothing_is_accepted_any_more_ends) {
  const List pause(600, Listed::pause);
  const List endless = from_to(1, 4000);
  run({{joined({pause, endless}), 5ms, false},
       {joined({from_to(50'001, 50'021), pause, endless}), 5ms, false}},
      12s);
  EXPECT_THAT(system_->summary().error,
              HasSubstr("nothing that the sources send is accepted any more"));
  EXPECT_THAT(system_->summary().error, HasSubstr("`first`"));
  EXPECT_LT(system_->summary().fragments.read, 2500U) << "within 5 s";
}

// All front ends have the same fragment of an earlier run. The others come in spills, or seldom.
TEST_P(Numbers, such_a_run_ends_however_long_its_sources_pause) {
  const List left_over{5001};
  for (const auto& [together, pause] : {std::pair{100U, 2500U}, std::pair{1U, 2000U}}) {
    SCOPED_TRACE(together);
    List sent = joined({left_over, List(600, Listed::pause)});
    for (EventNumber number = 1; number < 1000; number += together)
      sent = joined({sent, from_to(number, number + together), List(pause, Listed::pause)});
    start({{sent, 1ms, false}, {sent, 1ms, false}});
    expect_end();
    EXPECT_THAT(system_->summary().error,
                HasSubstr("nothing that the sources send is accepted any more"));
    EXPECT_EQ(stored(1), left_over);
  }
}

// The front end of the second one was restarted: its number 300 belongs to a later trigger.
TEST_P(Numbers, a_source_that_counts_again_is_in_doubt_from_there_on) {
  const List both = from_to(0, 300);
  run({{from_to(0, 1500), 5ms},
       {joined({both, List(200, Listed::pause), both, from_to(300, 1000)}), 5ms}});
  EXPECT_EQ(stored(1), from_to(0, 1500)) << log();
  EXPECT_EQ(in_doubt(1), List{});
  EXPECT_EQ(in_doubt(2), without(stored(2), both));
  EXPECT_EQ(dropped(2), 300U);
  EXPECT_EQ(system_->summary().sources[1].in_doubt, in_doubt(2).size());
  EXPECT_EQ(system_->summary().events_bad, 0U);
}

TEST_P(Numbers, what_a_source_sends_once_more_is_dropped_and_nothing_is_in_doubt) {
  List twice;
  for (EventNumber event = 0; event < 500; ++event) twice.insert(twice.end(), {event, event});
  run({{from_to(0, 500)}, {twice}});
  EXPECT_EQ(stored(2), from_to(0, 500));
  EXPECT_EQ(in_doubt(2), List{});
  EXPECT_EQ(dropped(2), 500U);
}

TEST_P(Numbers, a_flipped_bit_costs_its_fragment_only) {
  for (const int bit : {3, 13, 20, 40, 61}) {
    for (const EventNumber at : {0U, 1U, 250U, 499U}) {
      SCOPED_TRACE(fmt::format("bit {} of {}", bit, at));
      List sent = from_to(0, 500);
      sent[at] ^= EventNumber{1} << bit;
      run({{sent}, {from_to(0, 500)}});
      const List good = without(from_to(0, 500), {at});
      // At the end one that is near the others is taken: nothing says that it is wrong.
      EXPECT_EQ(at == 499 ? without(stored(1), {sent[at]}) : stored(1), good) << log();
      EXPECT_EQ(stored(2), from_to(0, 500));
      EXPECT_EQ(dropped(1), stored(1).size() == 500 ? 0U : 1U);
      if (dropped(1) == 1) {
        EXPECT_EQ(missing(at, 1), wire::MissingReason::dropped);
      }
    }
  }
}

// All numbers come far above the first one of a source, required or not.
TEST_P(Numbers, a_stray_first_number_costs_its_fragment_only) {
  const List good = from_to(300'001, 300'501);
  for (const List& second : {good, joined({{0}, good}), joined({{5}, good})}) {
    run({{joined({{5}, good}), 100us, false}, {second, 100us, false}, {good, 100us, false}}, 2s);
    for (const SourceId source : {1U, 2U, 3U}) {
      EXPECT_EQ(without(stored(source), {0, 5}), good) << log();
    }
  }
}

// At 10 Hz a jump by 32,768 is an hour.
TEST_P(Numbers, a_jump_within_the_window_of_a_slow_source_takes_no_time) {
  List jumps = from_to(0, 60);
  jumps[30] += 32'768;
  run({{jumps, 100ms}, {from_to(0, 60), 100ms}});
  EXPECT_EQ(stored(1), without(from_to(0, 60), {30})) << log();
  EXPECT_EQ(stored(2), from_to(0, 60));
}

// Wrong numbers near the others that a far one follows, and such that confirm each other: with a
// trigger none of them waits until it is triggered.
TEST_P(Numbers, a_wrong_number_that_is_not_triggered_yet_holds_nothing_up) {
  options_.system.trigger_rate_hz = 1000;
  constexpr EventNumber far = EventNumber{1} << 40;
  for (const List& wrong : {List{5000, far}, List{5000, far, far / 2}, List{5000, far + 1, 300}}) {
    run({{joined({wrong, from_to(wrong.size(), 1000)}), 1ms, false},
         {from_to(0, 1000), 1ms, false}},
        2s);
    EXPECT_EQ(stored(1), from_to(wrong.size(), 1000)) << log();
    EXPECT_EQ(stored(2), from_to(0, 1000));
    EXPECT_EQ(dropped(1), wrong.size());
  }
  run({{joined({{5000, 5001}, from_to(2, 2000)}), 1ms, false}, {from_to(0, 2000), 1ms, false}}, 3s);
  EXPECT_EQ(stored(1), from_to(2, 2000)) << log();
  EXPECT_EQ(stored(2), from_to(0, 2000));
}

TEST_P(Numbers, a_prescaled_source_keeps_all_it_has) {
  List sparse;
  for (EventNumber i = 0; i < 2000; i += 100) sparse.push_back(i);
  run({{sparse, 10ms}, {from_to(0, 2000)}});
  EXPECT_EQ(stored(1), sparse) << log();
  EXPECT_EQ(stored(2), from_to(0, 2000));
  EXPECT_EQ(dropped(1), 0U);
}

TEST_P(Numbers, a_source_that_is_late_by_many_deadlines_begins_where_the_others_are) {
  const List sent = joined({List(3000, Listed::pause), from_to(3000, 5000)});
  run({{sent, 1ms}, {from_to(0, 5000), 1ms}});
  EXPECT_GE(stored(1).size(), 1990U) << log();
  EXPECT_EQ(stored(2), from_to(0, 5000));
  EXPECT_EQ(missing(100, 1), wire::MissingReason::deadline);
}

TEST_P(Numbers, a_million_that_are_missing_everywhere_cost_nothing) {
  for (const std::size_t later : {0U, 100U}) { // steps of 0.1 ms: at once, and within 10 ms
    const List numbers = with_jump(1000, 1'000'000, 1000);
    List delayed = numbers;
    delayed.insert(delayed.begin() + 1000, later, Listed::pause);
    run({{numbers}, {delayed}});
    for (const SourceId source : {1U, 2U}) {
      EXPECT_EQ(stored(source), numbers) << log();
      EXPECT_EQ(dropped(source), 0U);
    }
    ASSERT_EQ(gap_rows().size(), 1U);
    EXPECT_EQ(gap_rows()[0].first, 1000U);
    EXPECT_EQ(gap_rows()[0].end, 1'001'000U);
  }
}

TEST_P(Numbers, steps_above_the_window_that_are_equal_in_all_sources_are_no_jumps) {
  List numbers;
  for (EventNumber i = 0; i < 200; ++i) numbers.push_back(i * 1'000'000 + i * i % 7);
  for (const std::size_t later : {0U, 1U, 50U}) { // steps
    SCOPED_TRACE(later);
    const List delayed = joined({List(later, Listed::pause), numbers});
    run({{numbers}, {delayed}, {numbers}});
    for (const SourceId source : {1U, 2U, 3U}) {
      EXPECT_EQ(stored(source), numbers) << log();
      EXPECT_EQ(dropped(source), 0U);
    }
  }
}

TEST_P(Numbers, a_constant_offset_is_taken_away) {
  options_.queue = [](const SourceInfo& info, source::FragmentQueueOptions& queue) {
    if (info.id == 1) queue.offset = -1'000'000;
  };
  run({{from_to(1'000'000, 1'000'500)}, {from_to(0, 500)}});
  for (const SourceId source : {1U, 2U}) EXPECT_EQ(stored(source), from_to(0, 500));
  EXPECT_EQ(system_->summary().events_incomplete, 0U);
}

TEST_P(Numbers, a_counter_wraps_with_a_loss_exactly_there) {
  options_.queue = [](const SourceInfo& info, source::FragmentQueueOptions& queue) {
    if (info.id == 1) queue.counter_bits = 16;
  };
  const List good = without(from_to(65'000, 66'500), {65'535, 65'536});
  List narrow = good;
  for (EventNumber& number : narrow) number &= 0xffff;
  run({{narrow}, {from_to(65'000, 66'500)}});
  EXPECT_EQ(stored(1), good) << log();
  EXPECT_EQ(stored(2), from_to(65'000, 66'500));
}

TEST_P(Numbers, a_source_far_slower_than_the_deadline_keeps_all_it_has) {
  run({{{0, 1000, 2000, 3000, 4000}, 1s}, {from_to(0, 4001), 1ms}});
  EXPECT_EQ(stored(1), (List{0, 1000, 2000, 3000, 4000})) << log();
  EXPECT_EQ(stored(2), from_to(0, 4001));
}

TEST_P(Numbers, one_fragment_in_the_whole_run_is_an_event) {
  run({{{7}}, {{}}});
  EXPECT_EQ(stored(1), (List{7})) << log();
  run({{{7}}, {{7}}});
  for (const SourceId source : {1U, 2U}) EXPECT_EQ(stored(source), (List{7})) << log();
}

TEST_P(Numbers, a_number_that_is_held_at_the_end_is_taken_near_the_others) {
  run({{joined({from_to(0, 500), {510}})}, {from_to(0, 511)}});
  EXPECT_EQ(stored(1), joined({from_to(0, 500), {510}})) << log();
  EXPECT_EQ(dropped(1), 0U);
}

TEST_P(Numbers, a_wrong_number_at_the_end_makes_nobody_silent) {
  const List wrong{(EventNumber{1} << 53) + 1000, (EventNumber{1} << 53) + 1001};
  const List dense = from_to(0, 5000);
  run({{.numbers = joined({from_to(0, 1000), wrong}), .ends = false},
       {.numbers = dense, .ends = false},
       {.numbers = dense, .ends = false}},
      300ms);
  EXPECT_THAT(log(), Not(HasSubstr("silent")));
  EXPECT_GE(stored(2).size(), 2900U);
  EXPECT_EQ(stored(2), stored(3));
}

TEST_P(Numbers, a_run_that_is_stopped_waits_for_no_source_that_would_need_hours) {
  const List wrong{30'010, 30'011};
  start({{.numbers = joined({from_to(0, 10), wrong, from_to(12, 40'000)}),
          .step = 100ms,
          .ends = false},
         {.numbers = from_to(0, 40'000), .step = 100ms, .ends = false},
         {.numbers = from_to(0, 40'000), .step = 100ms, .ends = false}})
      .run_for(5s);
  system_->stop();
  ASSERT_TRUE(system_->run_until_ended(5s)) << log() << system_->manager().waiting_for();
  expect_end();
  EXPECT_THAT(log(), HasSubstr("would take"));
  EXPECT_GE(stored(2).size(), 50U);
  EXPECT_EQ(stored(2), stored(3));
}

// The one that is ahead waits for the others with all its pages full, as it does for a slow disk.
TEST_P(Numbers, a_run_that_is_stopped_waits_hours_for_nobody_while_another_is_held_back) {
  options_.source_page = options_.fragment_max = 8192;
  options_.source_pages = 8;
  List ahead = joined({from_to(0, 10), from_to(30'000, 30'100)});
  for (EventNumber& number : ahead) number |= Listed::largest;
  start({{.numbers = ahead, .step = 20ms, .ends = false},
         {.numbers = from_to(0, 40'000), .step = 100ms, .ends = false},
         {.numbers = from_to(0, 40'000), .step = 100ms, .ends = false}})
      .run_for(5s);
  system_->stop();
  ASSERT_TRUE(system_->run_until_ended(5s)) << log() << system_->manager().waiting_for();
  expect_end();
  EXPECT_THAT(log(), HasSubstr("would take"));
  EXPECT_EQ(stored(2), stored(3));
}

TEST_P(Numbers, a_run_that_is_stopped_waits_for_a_source_that_is_there_soon) {
  start({{.numbers = from_to(0, 40'000), .ends = false},
         {.numbers = from_to(0, 40'000), .step = 300us, .ends = false}})
      .run_for(1s);
  system_->stop();
  expect_end();
  EXPECT_EQ(stored(1), stored(2));
}

TEST_P(Numbers, a_held_fragment_of_the_largest_size_needs_no_page_of_the_next) {
  options_.source_page = options_.fragment_max = 8192;
  options_.source_pages = 3;
  List sent = joined({from_to(0, 100), {EventNumber{1} << 40}, from_to(101, 200)});
  for (EventNumber& number : sent) number |= Listed::largest;
  run({{sent}, {from_to(0, 200)}});
  EXPECT_EQ(stored(1), without(from_to(0, 200), {100})) << log();
}

TEST_P(Numbers, a_source_given_up_as_silent_is_missing_for_its_silence) {
  run({{from_to(0, 500), 100us, false}, {from_to(0, 8000), 100us, false}}, 2s);
  EXPECT_EQ(stored(1), from_to(0, 500));
  EXPECT_EQ(missing(499, 1), std::nullopt);
  EXPECT_EQ(missing(500, 1), wire::MissingReason::deadline) << log();
  EXPECT_EQ(missing(6000, 1), wire::MissingReason::deadline);
}

// Its numbers lie five deadlines behind those of the other one.
TEST_P(Numbers, a_source_that_trails_and_is_given_up_comes_back) {
  const List trails = joined(
      {List(1000, Listed::pause), from_to(0, 2000), List(400, Listed::pause), from_to(2000, 5000)});
  run({{trails, 1ms}, {from_to(0, 5000), 1ms}});
  const List back = stored(1);
  EXPECT_EQ(stored(2), from_to(0, 5000));
  EXPECT_GT(back.size(), 2000U) << log();
  EXPECT_EQ(back, joined({from_to(back.front(), 2000),
                          from_to(5000 + 2000 - back.size() - back.front(), 5000)}));
  EXPECT_EQ(missing(back.front() - 1, 1), wire::MissingReason::deadline);
  EXPECT_EQ(system_->summary().sources[0].ledger.late, 5000 - back.size()) << log();
  EXPECT_THAT(log(),
              HasSubstr("source source1 sends event 0, which is late: waiting for it until"));
  EXPECT_THAT(log(), HasSubstr(fmt::format("source source1 is back at event {}", back.front())));
}

TEST_P(Numbers, a_source_that_trails_by_more_than_a_window_is_not_waited_for) {
  options_.system.event_window = 256;
  const List trails = joined({List(1000, Listed::pause), from_to(0, 500)});
  run({{trails, 1ms}, {from_to(0, 3000), 1ms}});
  EXPECT_EQ(stored(1), List{}) << log();
  EXPECT_EQ(stored(2), from_to(0, 3000));
  EXPECT_EQ(system_->summary().sources[0].ledger.late, 500U);
  EXPECT_THAT(log(), HasSubstr("source source1 sends event 0, which is too late"));
}

TEST_P(Numbers, what_is_too_large_is_missing_as_dropped) {
  List sent = from_to(0, 500);
  sent[250] |= Listed::too_large;
  run({{sent}, {from_to(0, 500)}});
  EXPECT_EQ(missing(250, 1), wire::MissingReason::dropped);
  EXPECT_EQ(stored(2), from_to(0, 500));
  EXPECT_EQ(dropped(1), 1U);
}

TEST_P(Numbers, what_every_source_has_dropped_is_an_event_and_no_gap) {
  List large = from_to(0, 500);
  large[250] |= Listed::too_large;
  List flipped = from_to(0, 500);
  flipped[250] ^= EventNumber{1} << 40;
  for (const List& second : {large, flipped}) {
    run({{large}, {second}});
    for (const SourceId source : {1U, 2U})
      EXPECT_EQ(missing(250, source), wire::MissingReason::dropped);
    EXPECT_EQ(system_->summary().gaps, 0U);
    EXPECT_EQ(system_->summary().events_built, 500U);
  }
}

TEST_P(Numbers, each_gap_is_one_row) {
  List sent;
  for (EventNumber gap = 0; gap < 5; ++gap) {
    sent = joined({sent, from_to(gap * 10'000, gap * 10'000 + 300)});
  }
  run({{sent}, {sent}});
  EXPECT_EQ(gap_rows().size(), 4U);
  EXPECT_EQ(system_->summary().gap_list.size(), 4U);
  EXPECT_EQ(system_->summary().gaps, 4 * 9700U);
}

TEST_P(Numbers, a_gap_costs_as_much_as_a_larger_one) {
  std::vector<std::uint64_t> messages;
  std::vector<std::uint64_t> commits;
  for (const EventNumber gap : {EventNumber{64}, EventNumber{64} << 34}) {
    const List sent = with_jump(640, gap, 640);
    run({{sent}, {sent}});
    EXPECT_EQ(stored(1), sent);
    EXPECT_EQ(gap_rows().size(), 1U);
    messages.push_back(system_->summary().nodes.front().messages);
    commits.push_back(system_->store(0).commits);
  }
  EXPECT_NEAR(static_cast<double>(messages[0]), static_cast<double>(messages[1]), 3);
  EXPECT_NEAR(static_cast<double>(commits[0]), static_cast<double>(commits[1]), 3);
}

TEST_P(Numbers, a_dense_source_beside_a_sparse_one_brings_it_all_its_events) {
  options_.system.event_window = 1024;
  run({{{0, 100, 3000, 3900}}, {from_to(0, 4000)}});
  EXPECT_EQ(stored(1), (List{0, 100, 3000, 3900})) << log();
  EXPECT_EQ(stored(2), from_to(0, 4000));
}

TEST_P(Numbers, sources_that_begin_far_apart_wait_and_are_named) {
  start(
      {{from_to(0, 20'000), 100us, false}, {from_to(1'043'926'912, 1'043'946'912), 100us, false}});
  system_->run_for(1s);
  EXPECT_EQ(system_->summary().events_built, 0U);
  for (const std::string number : {"event 0", "1043926912"}) {
    EXPECT_THAT(log(), HasSubstr(number));
    EXPECT_THAT(system_->manager().waiting_for(), HasSubstr(number));
  }
  system_->stop();
  expect_end();
}

// The counters of so many sources leave little of a message for what they wait for.
TEST_P(Numbers, what_many_sources_wait_for_is_cut_to_what_has_room) {
  if (!GetParam()) GTEST_SKIP() << "not applicable: each readout unit has one source";
  options_.receive_pages = 256;
  std::vector<Sends> sources(142, {from_to(0, 1000), 1ms, false});
  sources.back().numbers = from_to(event_number_end - 2000, event_number_end - 1000);
  start(std::move(sources));
  system_->run_for(600ms);
  EXPECT_THAT(system_->manager().waiting_for(), HasSubstr("readout unit 'ru0': sources source"));
  system_->stop();
  expect_end();
}

TEST_P(Numbers, a_source_that_holds_all_others_back_is_named_as_slow) {
  options_.source_window = 256;
  start({{from_to(0, 8000), 10ms, false}, {from_to(0, 8000), 100us, false}});
  system_->run_for(1500ms);
  EXPECT_THAT(log(), HasSubstr("source source1 is slow: at event"));
  EXPECT_THAT(system_->manager().waiting_for(), HasSubstr("source source1, which is slow"));
  EXPECT_THAT(log(), Not(HasSubstr("source2 is slow")));
  system_->stop();
  expect_end();
  EXPECT_EQ(system_->summary().events_incomplete, 0U);
}

TEST_P(Numbers, a_run_of_so_many_events_ends_with_whole_ones) {
  options_.system.events_max = 1000;
  run({{from_to(20, 5000), 100us, false}, {from_to(0, 5000), 100us, false}});
  EXPECT_EQ(stored(1), from_to(20, 1000)) << log();
  EXPECT_EQ(stored(2), from_to(0, 1000));
  EXPECT_EQ(system_->summary().events_incomplete, 20U);
}

TEST_P(Numbers, a_run_of_so_many_events_waits_for_a_source_that_sends_nothing_for_the_deadline) {
  options_.system.events_max = 1000;
  for (const List& few : {List{}, List{0}}) {
    run({{from_to(0, 5000), 100us, false}, {few, 100us, false}});
    EXPECT_EQ(stored(1), from_to(0, 1000)) << log();
    EXPECT_EQ(stored(2), few);
  }
}

TEST_P(Numbers, a_run_of_so_many_events_counts_none_of_those_that_a_jump_leaves_out) {
  options_.system.events_max = 100;
  const List jumps = joined({from_to(0, 10), from_to(1'000'000, 1'000'100)});
  const List wanted = joined({from_to(0, 10), from_to(1'000'000, 1'000'090)});
  for (const bool ends : {false, true}) {
    run({{jumps, 20ms, ends}, {jumps, 20ms, ends}});
    for (const SourceId source : {1U, 2U}) EXPECT_EQ(stored(source), wanted) << log();
    EXPECT_EQ(dropped(1) + dropped(2), 0U);
  }
}

TEST_P(Numbers, a_run_of_so_many_events_ends_at_a_jump_that_has_no_end) {
  options_.system.events_max = 100;
  const List jumps = joined({from_to(0, 10), from_to(1'000'000'000, 1'000'000'100)});
  run({{jumps, 20ms, false}, {jumps, 20ms, false}});
  for (const SourceId source : {1U, 2U}) EXPECT_EQ(stored(source), from_to(0, 10)) << log();
  EXPECT_THAT(log(), HasSubstr("the run ends with fewer than the 100 events of run.events"));
}

// Sources had read more before they heard of the last event, and not announced it yet.
TEST(FarNumbers, a_run_of_so_many_events_has_no_more_of_them_when_it_is_stopped_before) {
  for (Duration stopped = 0us; stopped < 10ms; stopped += 250us) {
    VirtualSystemOptions options;
    options.system = make_system(2, 1);
    options.system.batch_events = 4096;
    options.system.data_page = 128U << 10;
    options.metadata_page = 64U << 10;
    options.system.latency = 100ms;
    options.system.events_max = 100;
    options.network.latency_max = 5ms;
    options.make_source = [](const SourceInfo&) {
      return std::make_unique<Listed>(from_to(0, 2000), 0ms);
    };
    VirtualSystem system{options};
    system.start_all();
    system.run_for(stopped);
    system.stop();
    ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
    EXPECT_LE(system.summary().events_built, 100U);
    expect_balanced(system);
  }
}

TEST(FarNumbers, a_run_of_so_many_events_has_no_more_of_them_when_a_readout_unit_has_none) {
  VirtualSystemOptions options;
  options.system = make_system(2, 1);
  options.system.events_max = 1000;
  options.make_source = [](const SourceInfo& info) {
    return std::make_unique<Listed>(info.id == 1 ? from_to(20, 5000) : List{}, 10us);
  };
  VirtualSystem system{options};
  system.start_all();
  system.run_for(100ms);
  system.stop();
  ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
  EXPECT_EQ(system.summary().events_built, 1000U);
  expect_balanced(system);
}

// The others begin within the deadline after the reset, and have all from there on.
TEST(FarNumbers, a_counter_that_is_reset_before_all_have_begun_costs_what_came_before_it) {
  struct Layout {
    std::size_t readouts = 0;
    std::size_t per_readout = 0;
  };
  for (const auto& [readouts, per_readout] :
       {Layout{1, 4}, Layout{2, 2}, Layout{4, 1}, Layout{2, 1}}) {
    SCOPED_TRACE(fmt::format("{} readout units of {} sources", readouts, per_readout));
    VirtualSystemOptions options;
    options.system = make_system(readouts, 1, per_readout);
    options.system.event_deadline = 200ms;
    options.make_source = [&](const SourceInfo& info) {
      const List all = from_to(0, 1500);
      const List garbage = joined({from_to(5000, 5020), List(80, Listed::pause)});
      if (info.id == 1) return std::make_unique<Listed>(joined({garbage, all}), 1ms);
      const std::size_t begins = info.id == 2 ? 240 : 100; // steps of 1 ms
      return std::make_unique<Listed>(joined({List(begins, Listed::pause), all}), 1ms);
    };
    VirtualSystem system{options};
    system.start_all();
    system.run_for(5s);
    system.stop();
    ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
    EXPECT_EQ(system.summary().events_built, 1500U) << tail_of_log(system);
    EXPECT_LE(system.summary().events_incomplete, 3U) << tail_of_log(system);
    EXPECT_EQ(system.summary().gaps, 0U);
    expect_balanced(system);
  }
}

// Readout units whose sources send nothing were given up where the dead one began.
TEST(FarNumbers, a_run_of_so_many_events_begins_where_a_readout_unit_comes_back) {
  const List first = from_to(0, 150);
  const List later = from_to(150, 2000);
  // What the second source sends: nothing, or from there on, sooner or later than the first one.
  for (const auto& [second, wait] : {std::pair{List{}, 0U}, {later, 100U}, {later, 8000U}}) {
    for (const bool shared : {false, true}) { // beside one that sends nothing
      SCOPED_TRACE(fmt::format("{} fragments after {}, shared: {}", second.size(), wait, shared));
      VirtualSystemOptions options;
      options.system = shared ? make_system(2, 1, 2) : make_system(2, 1);
      options.system.event_deadline = 200ms;
      options.system.events_max = 100;
      int incarnation = 0;
      options.make_source = [&](const SourceInfo& info) {
        const bool sends = !shared || info.id % 2 == 0;
        if (!sends) return std::make_unique<Listed>(List{}, 100us);
        if (info.readout_unit == 1) {
          return std::make_unique<Listed>(joined({List(4000 + wait, Listed::pause), second}),
                                          100us);
        }
        const bool again = incarnation++ > 0;
        return std::make_unique<Listed>(again ? joined({List(1000, Listed::pause), later}) : first,
                                        100us);
      };
      VirtualSystem system{options};
      system.start_all();
      system.run_for(100ms);
      system.kill_readout(0);
      system.run_for(300ms); // the others are given up until event 1
      system.start_readout(0);
      ASSERT_TRUE(system.run_until_ended(20s))
          << tail_of_log(system) << system.manager().waiting_for();
      EXPECT_EQ(system.summary().events_built, 100U) << tail_of_log(system);
      EXPECT_EQ(system.check_stored(), "");
      expect_balanced(system);
    }
  }
}

// One that sends nothing was given up until wrong numbers, and begins right after all others, while
// the run waits for sources that are apart.
TEST(FarNumbers, who_was_given_up_until_wrong_numbers_begins_with_the_others) {
  VirtualSystemOptions options;
  options.system = make_system(2, 1, 2);
  options.system.event_deadline = 200ms;
  for (const SourceId late : {SourceId{2}, SourceId{3}}) { // beside the wrong ones, and alone
    SCOPED_TRACE(late);
    options.make_source = [&](const SourceInfo& info) {
      if (info.id == late || info.id == 4) {
        const std::size_t begins = info.id == 4 ? 340 : 400; // steps of 1 ms
        return std::make_unique<Listed>(
            joined({List(begins, Listed::pause), from_to(begins - 340, 1500)}), 1ms);
      }
      const EventNumber wrong = info.id == 1 ? 20'000 : 1'000'000;
      return std::make_unique<Listed>(
          joined({from_to(wrong, wrong + 300), List(40, Listed::pause), from_to(0, 1500)}), 1ms);
    };
    VirtualSystem system{options};
    system.start_all();
    system.run_for(4s);
    system.stop();
    ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
    EXPECT_EQ(system.summary().gaps, 0U) << tail_of_log(system);
    EXPECT_EQ(system.summary().events_built, 1500U) << tail_of_log(system);
    EXPECT_LE(system.summary().events_incomplete, 62U) << tail_of_log(system);
    expect_balanced(system);
  }
}

// The one that has ended, or pauses, is passed up to where the other one is, which nobody believes.
TEST(FarNumbers, a_source_without_events_beside_one_that_is_apart_makes_nobody_begin_again) {
  for (const int then : {0, 1, 2}) { // what the one without events says
    SCOPED_TRACE(then);
    VirtualSystemOptions options;
    options.system = make_system(2, 1, 2);
    options.system.event_deadline = 200ms;
    options.make_source = [&](const SourceInfo& info) -> std::unique_ptr<source::Source> {
      if (info.id == 1 && then == 1) return Listed{List{}, 1ms}.and_ends();
      if (info.id == 1 && then == 2) return Listed{List{}, 1ms}.and_pauses();
      const EventNumber first = info.id == 2 ? 1'000'000 : 0;
      const List numbers = from_to(first, first + 3000);
      return std::make_unique<Listed>(info.id == 1 ? List{} : numbers, 1ms);
    };
    VirtualSystem system{options};
    system.start_all();
    system.run_for(2s);
    EXPECT_THAT(system.manager().waiting_for(), HasSubstr("event.window"));
    EXPECT_THAT(tail_of_log(system), Not(HasSubstr("restarts its numbering")));
    system.stop();
    ASSERT_TRUE(system.run_until_ended(60s))
        << tail_of_log(system) << system.manager().waiting_for();
    expect_balanced(system);
  }
}

TEST(FarNumbers, a_run_without_an_event_ends_though_a_source_begins_while_it_is_stopped) {
  VirtualSystemOptions options;
  options.system = make_system(2, 1);
  options.make_source = [](const SourceInfo& info) {
    const List begins = joined({List(101, Listed::pause), from_to(0, 100)});
    return std::make_unique<Listed>(info.id == 2 ? begins : List{}, 1ms);
  };
  VirtualSystem system{options};
  system.start_all();
  system.run_for(90ms);
  system.readout_node(0).freeze();
  system.run_for(10ms);
  system.stop();
  system.run_for(100ms); // one has answered, and reads on
  system.readout_node(0).thaw();
  ASSERT_TRUE(system.run_until_ended(5s)) << tail_of_log(system) << system.manager().waiting_for();
  expect_balanced(system);
}

// It comes back far behind where it was given up, and would need longer than run.drain.
TEST(FarNumbers, a_run_that_is_stopped_does_not_wait_for_a_source_that_sends_what_is_late) {
  VirtualSystemOptions options;
  options.system = make_system(2, 1);
  options.system.event_deadline = 200ms;
  options.system.drain = 2s;
  options.make_source = [](const SourceInfo& info) {
    if (info.id == 1) return std::make_unique<Listed>(from_to(0, 20'000), 1ms);
    return std::make_unique<Listed>(joined({List(200, Listed::pause), from_to(0, 20'000)}), 10ms);
  };
  VirtualSystem system{options};
  system.start_all();
  system.run_for(4s);
  system.stop();
  ASSERT_TRUE(system.run_until_ended(3s)) << tail_of_log(system) << system.manager().waiting_for();
  EXPECT_EQ(system.summary().fragments.lost, 0U) << tail_of_log(system);
  EXPECT_GE(system.summary().events_built, 3990U) << tail_of_log(system);
  expect_balanced(system);
}

// It began below the first event, and moved on: what it cuts has to be released all the same.
TEST(FarNumbers, a_readout_unit_that_moved_on_to_the_first_event_gives_its_room_back) {
  for (const bool falls : {false, true}) {
    SCOPED_TRACE(fmt::format("falls: {}", falls));
    VirtualSystemOptions options;
    options.system = make_system(2, 1);
    options.system.event_deadline = 200ms;
    int incarnation = 0;
    options.make_source = [&](const SourceInfo& info) {
      if (info.readout_unit == 1) {
        return std::make_unique<Listed>(joined({List(8000, Listed::pause), from_to(1000, 20'000)}),
                                        100us);
      }
      const bool again = incarnation++ > 0;
      return std::make_unique<Listed>(
          again ? joined({List(1000, Listed::pause), from_to(500, 20'000)}) : from_to(0, 150),
          100us);
    };
    VirtualSystem system{options};
    system.start_all();
    system.run_for(100ms);
    system.kill_readout(0);
    system.run_for(300ms); // the other one is given up
    system.start_readout(0);
    system.run_for(10s);
    const std::string waits = system.manager().waiting_for();
    system.stop();
    EXPECT_TRUE(system.run_until_ended(100s)) << tail_of_log(system) << waits;
    EXPECT_GE(system.summary().events_built, 19'500U) << tail_of_log(system) << waits;
    expect_balanced(system);
  }
}

TEST(FarNumbers, a_run_of_so_many_events_goes_on_when_the_readout_unit_that_began_is_dead) {
  for (const bool stopped : {false, true}) {
    VirtualSystemOptions options;
    options.system = make_system(2, 1);
    options.system.event_deadline = 200ms;
    options.system.events_max = 100;
    options.make_source = [&](const SourceInfo& info) {
      if (info.id == 1) return std::make_unique<Listed>(from_to(0, 150), 100us);
      return std::make_unique<Listed>(joined({List(10'000, Listed::pause), from_to(0, 2000)}),
                                      100us);
    };
    VirtualSystem system{options};
    system.start_all();
    system.run_for(100ms);
    system.kill_readout(0);
    system.tell_of_death(0);
    system.run_for(400ms);
    if (stopped) system.stop();
    ASSERT_TRUE(system.run_until_ended(20s))
        << tail_of_log(system) << system.manager().waiting_for();
    EXPECT_EQ(system.summary().events_built, stopped ? 0U : 100U) << tail_of_log(system);
    expect_balanced(system);
  }
}

TEST(FarNumbers, a_run_that_is_stopped_is_read_up_to_where_a_readout_unit_has_ended) {
  VirtualSystemOptions options;
  options.system = make_system(3, 1);
  options.make_source = [](const SourceInfo& info) -> std::unique_ptr<source::Source> {
    if (info.id == 2) return Listed{from_to(0, 200), 2ms}.and_ends();
    return std::make_unique<Listed>(from_to(0, 400), 10ms);
  };
  VirtualSystem system{options};
  system.start_all();
  system.run_for(800ms);
  system.stop();
  ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
  EXPECT_EQ(system.summary().events_built, 200U);
  EXPECT_EQ(system.summary().events_incomplete, 0U);
  expect_balanced(system);
}

TEST(FarNumbers, a_run_that_is_stopped_is_read_up_to_what_a_dead_readout_unit_had_announced) {
  VirtualSystemOptions options;
  options.system = make_system(2, 1);
  options.make_source = [](const SourceInfo& info) {
    return std::make_unique<Listed>(from_to(0, 1000), info.id == 2 ? 2ms : 4ms);
  };
  VirtualSystem system{options};
  system.start_all();
  system.run_for(400ms);
  system.kill_readout(1);
  system.run_for(50ms);
  system.stop();
  ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
  system.for_each_stored([&](const storage::StoredEvent& event) {
    EXPECT_TRUE(
        std::ranges::any_of(event.fragments, [](const auto& one) { return one.source == 1; }))
        << "event " << event.row.event;
  });
  EXPECT_GT(system.summary().events_built, 180U);
  expect_balanced(system);
}

// Its readout unit knows of the others only what it is told.
TEST(Pauses, a_source_that_pauses_does_not_hold_up_other_readout_units) {
  struct Case {
    EventNumber before = 0;
    bool beside_one_that_has_ended = false;
  };
  for (const auto& [before, beside_one_that_has_ended] :
       {Case{0}, Case{100}, Case{0, true}, Case{100, true}}) {
    VirtualSystemOptions options;
    options.system = make_system(2, 1, 2);
    options.system.event_deadline = 8s;
    options.system.latency = 50ms;
    options.make_source = [&](const SourceInfo& info) -> std::unique_ptr<source::Source> {
      if (info.id > 2) return std::make_unique<Listed>(from_to(0, 10'000), 1ms);
      Listed few{from_to(0, before), 1ms};
      if (info.id == 1 && beside_one_that_has_ended) return std::move(few).and_ends();
      return std::move(few).and_pauses();
    };
    VirtualSystem system{options};
    system.start_all();
    system.run_for(1s); // it is told, and pauses
    for (int i = 0; i < 40; ++i) {
      const std::uint64_t built = system.summary().events_built;
      system.run_for(200ms);
      EXPECT_GT(system.summary().events_built, built) << "since event " << before << ", step " << i;
    }
    EXPECT_GT(system.summary().events_built, 8700U);
    system.stop();
    ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
    expect_balanced(system);
  }
}

TEST(FarNumbers, a_dead_source_stops_nobody_who_goes_on_more_than_a_window_ahead) {
  struct Case {
    std::size_t readouts;
    std::size_t per_unit;
  };
  for (const Case& c : {Case{1, 2}, Case{2, 1}, Case{2, 2}, Case{3, 2}}) {
    const auto dead = static_cast<SourceId>(c.readouts * c.per_unit);
    VirtualSystemOptions options;
    options.system = make_system(c.readouts, 1, c.per_unit);
    options.make_source = [&](const SourceInfo& info) -> std::unique_ptr<source::Source> {
      const bool dies = info.id == dead;
      return std::make_unique<Listed>(with_jump(1000, 1'000'000, dies ? 0 : 10'000));
    };
    VirtualSystem system{options};
    system.start_all();
    system.run_for(270ms); // the jump comes at 100 ms, the deadline is 200 ms
    if (c.readouts > 1) {
      EXPECT_THAT(system.manager().waiting_for(), HasSubstr("event.window"));
    }
    system.run_for(5s);
    EXPECT_EQ(system.summary().sources[0].ledger.built, 11'000U)
        << tail_of_log(system) << system.manager().waiting_for();
    EXPECT_EQ(system.summary().sources[dead - 1].ledger.built, 1000U);
    EXPECT_THAT(tail_of_log(system), HasSubstr("more than event.window"));
    system.stop();
    ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
    expect_balanced(system);
  }
}

// Has always more to read; after 1,000 fragments its counter begins again.
class Restarted final : public source::Source {
public:
  Result<> start(EventNumber, Time) override { return {}; }
  source::ReadResult read(source::FragmentQueue& queue, Time) override {
    for (int i = 0; i < 10; ++i, ++sent_) {
      if (queue.write(sent_ % 1000, std::array<std::byte, 8>{}) == source::WriteOutcome::full)
        return {};
    }
    return {source::ReadState::more};
  }

private:
  EventNumber sent_ = 0;
};

TEST(FarNumbers, a_fast_source_of_which_all_is_dropped_stops_nobody) {
  for (const std::size_t readouts : {1U, 2U}) {
    VirtualSystemOptions options;
    options.system = make_system(readouts, 1, 2 / readouts);
    options.make_source = [](const SourceInfo& info) -> std::unique_ptr<source::Source> {
      if (info.id == 2) return std::make_unique<Restarted>();
      return std::make_unique<Listed>(from_to(0, 3000));
    };
    VirtualSystem system{options};
    system.start_all();
    system.run_for(800ms);
    EXPECT_EQ(system.summary().sources[0].ledger.built, 3000U) << tail_of_log(system);
    system.stop();
    ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
    expect_balanced(system);
  }
}

// The one ahead is held back for longer than the deadline before the other one dies.
TEST(FarNumbers, a_source_that_dies_below_one_that_is_held_back_does_not_stop_it) {
  VirtualSystemOptions options;
  options.system = make_system(2, 1);
  options.source_window = 512;
  options.make_source = [](const SourceInfo& info) -> std::unique_ptr<source::Source> {
    if (info.id == 1) return std::make_unique<Listed>(with_jump(1000, 1'000'000, 5000));
    List numbers = joined({from_to(0, 1000), List(3000, Listed::pause)});
    for (EventNumber event = 1000; event < 1100; ++event) { // 1 s
      numbers.push_back(event);
      numbers.insert(numbers.end(), 99, Listed::pause);
    }
    return std::make_unique<Listed>(std::move(numbers));
  };
  VirtualSystem system{options};
  system.start_all();
  system.run_for(10s);
  EXPECT_EQ(system.summary().sources[0].ledger.built, 6000U)
      << tail_of_log(system) << system.manager().waiting_for();
  system.stop();
  ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
  EXPECT_EQ(system.summary().sources[1].ledger.built, 1100U);
  expect_balanced(system);
}

// Numbers more than a window apart confirm each other by being equal only.
TEST(FarNumbers, a_run_ends_whatever_its_sources_hold_at_their_end) {
  struct Case {
    std::vector<EventNumber> first;
    std::vector<EventNumber> second;
  };
  const std::vector<EventNumber> apart{1'000'000, 2'500'000, 3'900'000, 5'000'000};
  const std::vector<EventNumber> far{1'000'000'000};
  const std::vector<EventNumber> sparse{0, 1000, 2000, 3000, 1'000'000};
  const std::vector<EventNumber> sparser{0, 1000, 2000, 3000, 5'000'000};
  for (const Case& c : {Case{apart, apart}, Case{apart, far}, Case{far, far}, Case{{}, far},
                        Case{sparse, sparse}, Case{sparse, sparser}}) {
    for (const Duration delay : {0us, 50us, 5000us}) {
      VirtualSystemOptions options;
      options.system = make_system(2, 1);
      options.make_source = [&](const SourceInfo& info) {
        return Listed{info.id == 1 ? c.first : c.second, info.id == 1 ? 1ms : 1ms + delay}
            .and_ends();
      };
      VirtualSystem system{options};
      system.start_all();
      ASSERT_TRUE(system.run_until_ended(20s))
          << tail_of_log(system) << system.manager().waiting_for();
      if (c.first == sparse && c.second == sparse && delay == 0us) {
        EXPECT_EQ(system.summary().fragments.dropped, 0U) << tail_of_log(system);
      }
      expect_balanced(system);
    }
  }
}

// All sources have the same numbers, one of them not all; then no fragment is wrong.
TEST(FarNumbers, a_small_step_before_a_jump_of_all_costs_nothing) {
  const List all = joined({from_to(0, 21),
                           {23},
                           from_to(100'023, 100'100),
                           {100'102, 200'000},
                           from_to(300'000, 300'010)});
  for (const List& lost : {List{}, List{23}, List{21}, List{20}, List{19, 20}, List{100'023},
                           List{100'102}, List{200'000}}) {
    for (const std::size_t readouts : {1U, 3U}) {
      for (const Duration step : {0us, 2000us, 20'000us}) {
        VirtualSystemOptions options;
        options.system = make_system(readouts, 1, 3 / readouts);
        options.system.event_deadline = 200ms;
        const List some = without(all, lost);
        options.make_source = [&](const SourceInfo& info) {
          return Listed{info.id == 2 ? some : all, step}.and_ends();
        };
        VirtualSystem system{options};
        system.start_all();
        ASSERT_TRUE(system.run_until_ended(60s))
            << tail_of_log(system) << system.manager().waiting_for();
        const auto& fragments = system.summary().fragments;
        EXPECT_EQ(fragments.built, 2 * all.size() + some.size()) << fmt::format(
            "{} lost, {} dropped, {} readout units, step {} us\n{}", fmt::join(lost, " "),
            fragments.dropped, readouts, step.count() / 1000, tail_of_log(system));
        expect_balanced(system);
      }
    }
  }
}

// Sources end one after the other. What others gave after a jump is theirs.
TEST(FarNumbers, a_source_that_ends_before_a_jump_of_all_others_costs_them_nothing) {
  const List before{5, 6};
  const List few{5, 6, 2'000'005};
  const List many = joined({before, from_to(2'000'005, 2'000'105)});
  struct Case {
    std::size_t readouts;
    std::array<List, 4> sent;
  };
  for (const Case& c : {Case{2, {few, few, before, few}}, Case{2, {before, few, before, few}},
                        Case{1, {few, few, before, few}}, Case{1, {before, before, before, many}},
                        Case{2, {before, before, before, many}}}) {
    for (const Duration step : {100us, 5000us, 300'000us}) {
      VirtualSystemOptions options;
      options.system = make_system(c.readouts, 1, 4 / c.readouts);
      options.system.event_deadline = 200ms;
      options.make_source = [&](const SourceInfo& info) {
        return Listed{c.sent[info.id - 1], step}.and_ends();
      };
      VirtualSystem system{options};
      system.start_all();
      ASSERT_TRUE(system.run_until_ended(60s))
          << tail_of_log(system) << system.manager().waiting_for();
      std::size_t sent = 0;
      for (const List& numbers : c.sent) sent += numbers.size();
      const auto& fragments = system.summary().fragments;
      EXPECT_EQ(fragments.built, sent) << fmt::format("{} of {} dropped, step {} us\n",
                                                      fragments.dropped, sent, step.count() / 1000);
      expect_balanced(system);
    }
  }
}

// It holds all that it may, and nobody waits for its numbers.
TEST(FarNumbers, a_run_is_stopped_where_one_source_is_far_ahead_and_held_back) {
  for (const std::size_t readouts : {1U, 2U}) {
    VirtualSystemOptions options;
    options.system = make_system(readouts, 1, 2 / readouts);
    options.source_window = 512;
    options.make_source = [](const SourceInfo& info) {
      if (info.id == 1) return std::make_unique<Listed>(with_jump(1000, 1'000'000, 5000));
      return std::make_unique<Listed>(from_to(0, 100'000), 1ms);
    };
    VirtualSystem system{options};
    system.start_all();
    system.run_for(2s);
    system.stop();
    ASSERT_TRUE(system.run_until_ended(20s))
        << tail_of_log(system) << system.manager().waiting_for();
    EXPECT_GE(system.summary().sources[1].ledger.built, 1900U);
    expect_balanced(system);
  }
}

// What an ended source has given needs the others' fragments.
TEST(FarNumbers, a_stopped_run_reads_up_to_where_an_ended_source_was) {
  for (const std::size_t readouts : {1U, 2U}) {
    VirtualSystemOptions options;
    options.system = make_system(readouts, 1, 2 / readouts);
    options.make_source = [](const SourceInfo& info) {
      return Listed{from_to(0, info.id == 1 ? 3000 : 100'000), info.id == 1 ? 100us : 1ms}
          .and_ends();
    };
    VirtualSystem system{options};
    system.start_all();
    system.run_for(1s);
    system.stop();
    ASSERT_TRUE(system.run_until_ended(20s))
        << tail_of_log(system) << system.manager().waiting_for();
    EXPECT_EQ(system.summary().events_built, 3000U);
    EXPECT_EQ(system.summary().events_incomplete, 0U) << tail_of_log(system);
    expect_balanced(system);
  }
}

TEST(FarNumbers, two_wrong_numbers_in_a_row_before_a_pause_give_nobody_up) {
  for (const std::size_t readouts : {1U, 2U}) {
    VirtualSystemOptions options;
    options.system = make_system(readouts, 1, 3 - readouts);
    options.make_source = [](const SourceInfo& info) {
      auto numbers = with_jump(1000, 0, 0);
      if (info.id == 1) {
        for (const EventNumber wrong : {5'000'000U, 5'000'001U}) numbers.push_back(wrong);
      } else {
        for (const EventNumber right : {1000U, 1001U}) numbers.push_back(right);
      }
      numbers.insert(numbers.end(), 20'000, Listed::pause); // 2 s
      for (EventNumber i = 1002; i < 3000; ++i) numbers.push_back(i);
      return std::make_unique<Listed>(std::move(numbers));
    };
    VirtualSystem system{options};
    system.start_all();
    system.run_for(5s);
    EXPECT_EQ(system.summary().sources[1].ledger.built, 3000U) << tail_of_log(system);
    EXPECT_EQ(system.summary().sources[1].ledger.late, 0U);
    system.stop();
    ASSERT_TRUE(system.run_until_ended(20s)) << tail_of_log(system);
    expect_balanced(system);
  }
}

} // namespace
} // namespace fanin::builder
