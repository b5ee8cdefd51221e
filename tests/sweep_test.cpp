#include "fanin/simulation/sweep.hpp"

#include <new>

#include <gtest/gtest.h>

// Threads: ThreadSanitizer runs this executable (tests/threads_test.py).
namespace fanin::simulation {
namespace {

std::vector<std::string> values(const std::string& sweep) {
  std::vector<std::string> all;
  const auto points = points_of({sweep});
  if (!points) return {points.error().text};
  for (const Point& point : *points) all.push_back(point.at(0).second);
  return all;
}

TEST(Sweep, lists_have_values_and_ranges) {
  EXPECT_EQ(values("a.b=1,2,8"), (std::vector<std::string>{"1", "2", "8"}));
  EXPECT_EQ(values("a=1..3,128"), (std::vector<std::string>{"1", "2", "3", "128"}));
  EXPECT_EQ(values("a=64B,1KiB"), (std::vector<std::string>{"64B", "1KiB"}));
  for (const char* wrong : {"a", "=1", "a=", "a=1,,2", "a=3..1", "a=x..2", "a=1..99999999999"})
    EXPECT_NE(values(wrong).at(0).find("--sweep"), std::string::npos) << wrong;
}

TEST(Sweep, a_range_may_end_at_the_largest_number) {
  EXPECT_EQ(values("a=18446744073709551614..18446744073709551615"),
            (std::vector<std::string>{"18446744073709551614", "18446744073709551615"}));
}

TEST(Sweep, several_give_all_combinations) {
  const auto points = points_of({"a=1,2", "b=x,y"});
  ASSERT_TRUE(points.has_value());
  ASSERT_EQ(points->size(), 4U);
  EXPECT_EQ((*points)[1], (Point{{"a", "1"}, {"b", "y"}}));
  EXPECT_EQ(points_of({})->size(), 1U);
}

TEST(Sweep, results_come_in_the_order_of_the_points) {
  const auto points = points_of({"a=1..20"});
  const auto simulate = [](const Point& at, const Watch&) -> Result<Outcome> {
    Outcome outcome;
    outcome.messages = std::stoull(at[0].second);
    return outcome;
  };
  std::vector<std::uint64_t> seen;
  SweepObserver observer;
  observer.on_progress = [](const SweepProgress&) {};
  observer.on_result = [&](const SweepResult& result) { seen.push_back(result.outcome->messages); };
  EXPECT_EQ(run_sweep(*points, simulate, observer).size(), 20U);
  ASSERT_EQ(seen.size(), 20U);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(seen[i], i + 1);
}

TEST(Sweep, a_point_that_fails_ends_no_other) {
  const auto points = points_of({"a=1..4"});
  const auto simulate = [](const Point& at, const Watch&) -> Result<Outcome> {
    if (at[0].second == "2") throw std::bad_alloc();
    return Outcome{};
  };
  SweepObserver observer;
  observer.on_progress = [](const SweepProgress&) {};
  observer.on_result = [](const SweepResult&) {};
  const auto results = run_sweep(*points, simulate, observer);
  ASSERT_EQ(results.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(results[i].outcome.has_value(), i != 1);
  EXPECT_NE(results[1].outcome.error().text.find("bad_alloc"), std::string::npos);
}

TEST(Sweep, each_key_is_given_once) {
  EXPECT_NE(points_of({"a=1", "a=2"}).error().text.find("once"), std::string::npos);
}

} // namespace
} // namespace fanin::simulation
