#include "fanin/simulation/sweep.hpp"

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
  observer.on_progress = [](double) {};
  observer.on_result = [&](const SweepResult& result) { seen.push_back(result.outcome.messages); };
  ASSERT_TRUE(run_sweep(*points, simulate, observer).has_value());
  ASSERT_EQ(seen.size(), 20U);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(seen[i], i + 1);
}

TEST(Sweep, a_point_that_fails_ends_the_others) {
  const auto points = points_of({"a=1..4"});
  const auto simulate = [](const Point& at, const Watch& watch) -> Result<Outcome> {
    if (at[0].second == "2") return fail(ErrorKind::refused, "the second");
    while (at[0].second != "1" && watch(0.5)) {
    }
    return Outcome{};
  };
  SweepObserver observer;
  observer.on_progress = [](double) {};
  observer.on_result = [](const SweepResult&) {};
  const auto done = run_sweep(*points, simulate, observer);
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().text, "the second");
}

} // namespace
} // namespace fanin::simulation
