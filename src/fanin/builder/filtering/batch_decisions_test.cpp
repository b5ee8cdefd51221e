#include "fanin/builder/filtering/batch_decisions.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

using State = BatchDecisions::State;

std::vector<wire::FilterDecision> decisions(std::size_t count, std::uint32_t streams = 1) {
  return std::vector<wire::FilterDecision>(count, {.streams = streams});
}

TEST(BatchDecisions, are_complete_when_the_last_event_is_decided) {
  BatchDecisions batch({100, 104});
  batch.begin();
  EXPECT_TRUE(batch.decide(0, decisions(3, 2)));
  EXPECT_EQ(batch.state(), State::in_progress);
  EXPECT_EQ(batch.next(), 3U);
  EXPECT_TRUE(batch.decide(3, decisions(1, 5)));
  EXPECT_EQ(batch.state(), State::decided);
  EXPECT_EQ(std::vector(batch.wanted().begin(), batch.wanted().end()),
            (std::vector<std::uint32_t>{2, 2, 2, 5}));
}

TEST(BatchDecisions, of_events_that_are_not_the_next_ones_are_refused) {
  BatchDecisions batch({0, 4});
  batch.begin();
  EXPECT_FALSE(batch.decide(1, decisions(1)));
  EXPECT_FALSE(batch.decide(0, decisions(5)));
  EXPECT_TRUE(batch.decide(0, decisions(2)));
  EXPECT_FALSE(batch.decide(0, decisions(2)));
  EXPECT_EQ(batch.next(), 2U);
}

TEST(BatchDecisions, after_a_first_death_are_said_one_by_one) {
  BatchDecisions batch({0, 4});
  batch.begin();
  EXPECT_FALSE(batch.report_each());
  EXPECT_FALSE(batch.lose());
  EXPECT_TRUE(batch.report_each());
  EXPECT_EQ(batch.state(), State::waiting);
}

TEST(BatchDecisions, give_an_event_up_that_ended_two_filter_units) {
  BatchDecisions batch({0, 6});
  batch.begin();
  EXPECT_TRUE(batch.decide(0, decisions(1)));
  EXPECT_FALSE(batch.lose()); // of any of 1 to 5
  batch.begin();
  EXPECT_TRUE(batch.decide(1, decisions(2)));
  EXPECT_TRUE(batch.lose()); // of 3, and the first one may have been the same
  EXPECT_EQ(batch.wanted()[3], storage::error_stream);
  EXPECT_EQ(batch.next(), 4U);
  batch.begin();
  EXPECT_FALSE(batch.lose()); // of 4, which no filter unit has had before
  batch.begin();
  EXPECT_TRUE(batch.lose());
  batch.begin();
  EXPECT_TRUE(batch.decide(5, decisions(1)));
  EXPECT_EQ(std::vector(batch.wanted().begin(), batch.wanted().end()),
            (std::vector<std::uint32_t>{1, 1, 1, storage::error_stream, storage::error_stream, 1}));
}

TEST(BatchDecisions, are_complete_when_the_last_event_is_given_up) {
  BatchDecisions batch({7, 8});
  batch.begin();
  EXPECT_FALSE(batch.lose());
  batch.begin();
  EXPECT_TRUE(batch.lose());
  EXPECT_EQ(batch.state(), State::decided);
}

TEST(BatchDecisions, that_a_filter_unit_has_not_begun_with_blame_nothing) {
  BatchDecisions batch({0, 2});
  batch.begin();
  batch.return_untouched();
  EXPECT_FALSE(batch.report_each());
  batch.begin();
  batch.lose();
  batch.begin();
  batch.return_untouched();
  batch.begin();
  EXPECT_TRUE(batch.decide(0, decisions(2)));
  EXPECT_EQ(batch.wanted()[0], 1U);
}

TEST(BatchDecisions, of_what_cannot_be_sent_are_given_up_from_the_next_on) {
  BatchDecisions batch({0, 3});
  batch.begin();
  EXPECT_TRUE(batch.decide(0, decisions(1)));
  batch.give_up_rest();
  EXPECT_EQ(batch.state(), State::decided);
  EXPECT_EQ(std::vector(batch.wanted().begin(), batch.wanted().end()),
            (std::vector<std::uint32_t>{1, storage::error_stream, storage::error_stream}));
}

} // namespace
} // namespace fanin::builder
