// Rounds: contenders in turns, and what other machines have disturbed does not count.
#include "fanin/bench/measure.hpp"

#include <deque>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fanin::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A host whose time is stolen as it is told, a contender at a time; each counts its runs.
struct Host {
  std::deque<std::uint64_t> stolen; // of 100 ticks, for each run of a contender to come
  ProcessorTime time;
  std::vector<std::string> ran;

  Contender contender(const std::string& name) {
    return {name, [this, name]() -> Result<Sample> {
              ran.push_back(name);
              time.all += 100;
              time.stolen += stolen.empty() ? 0 : stolen.front();
              if (!stolen.empty()) stolen.pop_front();
              Sample sample;
              sample.seconds = 1;
              sample.messages = ran.size();
              return sample;
            }};
  }
  Result<Rounds> run(std::size_t runs) {
    return run_rounds({contender("a"), contender("b")},
                      {.runs = runs, .processor_time = [this] { return time; }}, {});
  }
};

TEST(Rounds, run_the_contenders_in_turns) {
  Host host;
  const auto rounds = host.run(2);
  ASSERT_TRUE(rounds);
  EXPECT_THAT(host.ran, ElementsAre("a", "b", "a", "b"));
  EXPECT_EQ(rounds->all[0].samples.size(), 2U);
  EXPECT_EQ(rounds->dropped, 0U);
  EXPECT_EQ(ratio(rounds->all[1], rounds->all[0], messages_per_s).max, 2.0);
}

TEST(Rounds, in_which_time_was_stolen_are_dropped_whole_and_counted) {
  Host host{.stolen = {5, 5, 0, 6, 1}, .time = {}, .ran = {}};
  const auto rounds = host.run(2);
  ASSERT_TRUE(rounds);
  EXPECT_EQ(rounds->dropped, 1U);
  EXPECT_DOUBLE_EQ(rounds->stolen, 0.05);
  ASSERT_EQ(rounds->all[0].samples.size(), 2U);
  EXPECT_EQ(rounds->all[0].samples[1].messages, 5U); // not the third, whose partner was disturbed
  json::Value object;
  put_rounds(object, *rounds);
  EXPECT_EQ(object.at("runs").natural(), 2U);
  EXPECT_EQ(object.at("runs_dropped").natural(), 1U);
}

TEST(Rounds, on_a_host_whose_time_is_always_stolen_end_with_an_error) {
  Host host{.stolen = std::deque<std::uint64_t>(100, 50), .time = {}, .ran = {}};
  const auto rounds = host.run(3);
  ASSERT_FALSE(rounds);
  EXPECT_EQ(rounds.error().kind, ErrorKind::exhausted);
  EXPECT_THAT(rounds.error().text, HasSubstr("more than 5 % of their time stolen"));
  EXPECT_EQ(host.ran.size(), 8U);
}

// The third run is the fastest, and does not count: nor does the first, which would make "a" last.
TEST(Fastest, setting_is_not_chosen_by_what_was_disturbed) {
  Host host{.stolen = {6, 0, 90, 0}, .time = {}, .ran = {}};
  std::vector<std::string> said;
  const auto slower_each_time = [&](const std::string& name) {
    return Contender{name, [&host, run = host.contender(name).run]() -> Result<Sample> {
                       auto sample = run();
                       sample->messages = host.ran.size() == 3 ? 1000 : 10 - host.ran.size();
                       return sample;
                     }};
  };
  const RoundOptions options{.runs = 2, .processor_time = [&host] { return host.time; }};
  const auto fastest = find_fastest({slower_each_time("a"), slower_each_time("b")}, options,
                                    [&](std::string_view line) { said.emplace_back(line); });
  ASSERT_TRUE(fastest);
  EXPECT_THAT(host.ran, ElementsAre("a", "a", "b", "b"));
  EXPECT_EQ(fastest->index, 0U);
  EXPECT_EQ(fastest->dropped, 2U);
  EXPECT_THAT(said, ElementsAre("dropped: 6.0 % of the time was stolen",
                                "dropped: 90.0 % of the time was stolen"));
}

TEST(Fastest, setting_of_a_host_whose_time_is_always_stolen_is_an_error) {
  Host host{.stolen = std::deque<std::uint64_t>(100, 50), .time = {}, .ran = {}};
  const auto fastest = find_fastest(
      {host.contender("a")}, {.runs = 3, .processor_time = [&host] { return host.time; }}, {});
  ASSERT_FALSE(fastest);
  EXPECT_EQ(fastest.error().kind, ErrorKind::exhausted);
  EXPECT_THAT(fastest.error().text, HasSubstr("4 of 4 probes of a baseline had more than 5 %"));
  EXPECT_EQ(host.ran.size(), 4U);
}

TEST(ProcessorTime, is_read_from_the_kernel) {
  const auto time = processor_time();
  EXPECT_GT(time.all, 0U);
  EXPECT_GE(time.all, time.stolen);
  EXPECT_EQ(share_between(time, time, &ProcessorTime::stolen), 0.0);
}

} // namespace
} // namespace fanin::bench
