// Sources whose event numbers are far apart (time stamps, prescaled or gated triggers), with the
// real builder in virtual time: what such a run costs does not depend on the numbers.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "fanin/base/random.hpp"
#include "fanin/builder/testing/make_system.hpp"
#include "virtual/expectations.hpp"
#include "virtual/listed_source.hpp"
#include "virtual/virtual_system.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using fanin::testing::Listed;
using fanin::testing::tail_of_log;
using fanin::testing::VirtualSystem;
using fanin::testing::VirtualSystemOptions;
using testing::make_system;

using List = std::vector<EventNumber>;

// Steps from `least` to `most`, drawn.
List with_steps(std::size_t count, EventNumber least, EventNumber most) {
  Random random{5};
  List numbers;
  EventNumber number = 1'000'000'000'000;
  while (numbers.size() < count) {
    numbers.push_back(number);
    number += least + random.below(most - least + 1);
  }
  return numbers;
}

constexpr EventNumber above_the_window = 100'000;

struct Steps {
  EventNumber least = 1;
  EventNumber most = 1;
};
constexpr Steps dense{};
const std::vector<Steps> sparse{{10, 100},
                                {900, 1100},
                                {1000, 60'000},
                                {above_the_window, 3'000'000},
                                {1ULL << 40, 1ULL << 42}};

class SparseNumbers : public ::testing::TestWithParam<std::size_t> { // readout units
protected:
  // Two sources that send these numbers, one each 10 us.
  VirtualSystem& start(const List& first, const List& second, bool end = true) {
    VirtualSystemOptions options;
    options.system = make_system(GetParam(), 2, 3 - GetParam());
    options.source_window = 65536; // 4,096 gaps
    options.make_source = [&](const SourceInfo& info) -> std::unique_ptr<source::Source> {
      Listed listed{info.id == 1 ? first : second, 10us};
      if (end) return std::move(listed).and_ends();
      return std::make_unique<Listed>(std::move(listed));
    };
    system_.emplace(std::move(options));
    system_->start_all();
    return *system_;
  }
  void expect_end() {
    ASSERT_TRUE(system_->run_until_ended(60s))
        << tail_of_log(*system_) << system_->manager().waiting_for();
    EXPECT_TRUE(system_->summary().balanced) << tail_of_log(*system_);
  }
  [[nodiscard]] std::uint64_t built(SourceId source) {
    return system_->summary().sources[source - 1].ledger.built;
  }
  void TearDown() override {
    if (system_) system_->destroy_nodes();
  }
  std::optional<VirtualSystem> system_;
};

TEST_P(SparseNumbers, cost_the_time_of_dense_ones) {
  constexpr std::size_t events = 3000;
  const auto time_of = [&](const Steps& steps) {
    const List numbers = with_steps(events, steps.least, steps.most);
    VirtualSystem& system = start(numbers, numbers);
    const Time begin = system.world().now();
    while (system.summary().events_built < events && system.world().now() - begin < 10s) {
      system.run_for(1ms);
    }
    const Duration time = system.world().now() - begin;
    expect_end();
    EXPECT_EQ(system.summary().fragments.built, 2 * events);
    return time;
  };
  const Duration usual = time_of(dense);
  for (const Steps& steps : sparse) {
    EXPECT_LE(time_of(steps), usual + 10ms) << "steps of " << steps.least << " to " << steps.most;
  }
}

TEST_P(SparseNumbers, lose_nothing_where_fragments_are_missing) {
  for (const Steps& steps : sparse) {
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      Random random{seed};
      const List all = with_steps(2000, steps.least, steps.most);
      const auto some = [&] {
        List numbers{all.begin(), all.begin() + 4}; // else the first steps differ
        for (std::size_t i = 4; i < all.size(); ++i) {
          if (!random.chance(1, 50)) numbers.push_back(all[i]);
        }
        return numbers;
      };
      const List first = some();
      const List second = some();
      start(first, second);
      expect_end();
      SCOPED_TRACE(::testing::Message() << "steps from " << steps.least << ", seed " << seed);
      EXPECT_GE(built(1), first.size() - 1) << tail_of_log(*system_);
      EXPECT_GE(built(2), second.size() - 1);
    }
  }
}

TEST_P(SparseNumbers, end_with_whole_events_when_the_run_is_stopped) {
  for (const Steps& steps : sparse) {
    const List numbers = with_steps(20'000, steps.least, steps.most);
    List slower;
    for (const EventNumber number : numbers) {
      slower.push_back(number);
      slower.push_back(Listed::pause);
    }
    start(numbers, slower, false).run_for(50ms);
    system_->stop();
    expect_end();
    EXPECT_EQ(system_->summary().events_incomplete, 0U) << steps.least;
    EXPECT_GT(built(1), 1000U);
    EXPECT_EQ(system_->summary().fragments.dropped, 0U);
  }
}

TEST_P(SparseNumbers, of_a_dead_source_stop_nobody) {
  for (const Steps& steps : sparse) {
    const List numbers = with_steps(3000, steps.least, steps.most);
    start(numbers, {numbers.begin(), numbers.begin() + 100}, false).run_for(4s);
    EXPECT_GE(built(1), 2990U) << steps.least << tail_of_log(*system_)
                               << system_->manager().waiting_for();
    EXPECT_GE(built(2), 99U);
    system_->stop();
    expect_end();
  }
}

INSTANTIATE_TEST_SUITE_P(Readouts, SparseNumbers, ::testing::Values(1U, 2U), [](const auto& param) {
  return param.param == 1 ? "one_readout_unit" : "two_readout_units";
});

} // namespace
} // namespace fanin::builder
