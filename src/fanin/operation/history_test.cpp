#include "fanin/operation/history.hpp"

#include <gtest/gtest.h>

namespace fanin::operation {
namespace {

TEST(Histories, have_rates_for_each_second_and_nothing_where_no_run_was) {
  History history;
  history.add_unknown();
  history.begin_run();
  history.add({.events = 100, .incomplete = 2, .bytes = 5000}, 1.0);
  history.add({.events = 300, .incomplete = 2, .bytes = 9000}, 2.0);
  EXPECT_EQ(history.latest().events_hz, 100.0);
  const json::Value shown = history.to_json(10'000);
  EXPECT_EQ(shown.at("begin_ms").natural(), 7000U);
  const auto& rates = shown.at("series").at("event_rate_hz").list();
  ASSERT_EQ(rates.size(), 3U);
  EXPECT_TRUE(rates[0].is_null());
  EXPECT_EQ(rates[1].real(), 100.0);
  EXPECT_EQ(shown.at("series").at("throughput_bytes_per_s").list()[2].real(), 2000.0);
  EXPECT_EQ(shown.at("series").at("incomplete_rate_hz").list()[2].real(), 0.0);
}

TEST(Histories, forget_what_is_older_than_an_hour) {
  History history;
  for (std::size_t i = 0; i < History::seconds_max + 10; ++i) history.add({.events = i}, 1.0);
  EXPECT_EQ(history.to_json(0).at("series").at("event_rate_hz").list().size(),
            History::seconds_max);
}

TEST(Histories, a_count_that_falls_is_another_run_and_no_rate) {
  History history;
  history.add({.events = 500}, 1.0);
  history.add({.events = 10}, 1.0);
  EXPECT_EQ(history.latest().events_hz, 0.0);
}

} // namespace
} // namespace fanin::operation
