// Runs whose sources begin at any time and number, or not at all, and whose readout units die
// before the first event, seeded. A failing seed is printed and replays with FANIN_SEED=<seed>;
// FANIN_SEEDS is how many are run, from there on.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
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
using fanin::testing::expect_balanced;
using fanin::testing::Listed;
using fanin::testing::tail_of_log;
using fanin::testing::VirtualSystem;
using fanin::testing::VirtualSystemOptions;
using testing::make_system;

constexpr std::uint64_t numbers_sent = 4000; // one in a millisecond

// A sender that lives on while its readout unit is dead: what it has meanwhile is not sent.
struct Sender {
  std::uint64_t begins = 0; // ms; numbers_sent: never
  EventNumber first = 0;
  std::uint64_t wrong = 0; // so many numbers before its counter is reset
  enum class End : std::uint8_t { waits, pauses, ends } end = End::waits;

  [[nodiscard]] std::unique_ptr<source::Source> make(std::uint64_t now) const {
    std::vector<EventNumber> numbers;
    for (std::uint64_t at = now; at < numbers_sent; ++at) {
      if (at < begins) {
        const bool sends = wrong > 0 && at + wrong >= begins / 2 && at < begins / 2;
        numbers.push_back(sends ? 20'000 + at : Listed::pause);
      } else {
        numbers.push_back(first + at - begins);
      }
    }
    Listed listed{std::move(numbers), 1ms};
    switch (end) {
    case End::pauses: return std::move(listed).and_pauses();
    case End::ends: return std::move(listed).and_ends();
    case End::waits: break;
    }
    return std::make_unique<Listed>(std::move(listed));
  }
};

Sender random_sender(Random& random, EventNumber first, bool wrong, bool may_end) {
  constexpr std::array<EventNumber, 4> apart{0, 0, 5, 300};
  Sender sender;
  sender.begins = random.chance(1, 4) ? numbers_sent : random.below(800);
  sender.first = first + apart.at(random.below(apart.size()));
  if (wrong && random.chance(1, 3)) sender.wrong = 1 + random.below(30);
  sender.end = static_cast<Sender::End>(random.below(may_end ? 3 : 2));
  return sender;
}

void run_beginning(std::uint64_t seed) {
  SCOPED_TRACE(fmt::format("replay with FANIN_SEED={}", seed));
  Random random{seed};
  constexpr std::array<std::uint64_t, 4> events{0, 1, 100, 1000};
  const std::size_t readouts = 1 + random.below(3);
  VirtualSystemOptions options;
  options.seed = seed;
  options.system = make_system(readouts, 1, 1 + random.below(2));
  options.system.event_deadline = 200ms;
  options.system.latency = random.chance(1, 2) ? 0ms : 20ms;
  options.system.batch_events = 1U << random.below(8);
  options.system.events_max = events.at(random.below(events.size()));
  options.network.latency_max = Duration{50'000 + random.below(2'000'000)};
  const EventNumber first = random.chance(1, 2) ? 0 : random.below(1000);
  const bool kills = random.chance(1, 2);
  const bool wrong = random.chance(1, 3);
  const bool may_end = random.chance(1, 3);
  std::vector<Sender> senders;
  for (std::size_t i = 0; i < options.system.sources.size(); ++i)
    senders.push_back(random_sender(random, first, wrong, may_end));
  std::uint64_t now = 0; // ms
  options.make_source = [&](const SourceInfo& info) { return senders[info.id - 1].make(now); };

  VirtualSystem system{options};
  system.start_all();
  std::vector<bool> up(readouts, true);
  bool killed = false; // numbers may pass meanwhile
  const std::uint64_t stopped = random.chance(1, 2) ? random.below(2000) : numbers_sent + 1000;
  for (std::uint64_t step = 0; now < stopped && !system.manager().ended(); now += step) {
    step = std::min(stopped - now, 1 + random.below(250));
    system.run_for(Duration{static_cast<Duration::rep>(step) * 1'000'000});
    const std::size_t readout = random.below(readouts);
    if (!up[readout]) {
      system.start_readout(readout);
    } else if (kills && now < 1000 && random.chance(1, 2)) {
      system.kill_readout(readout);
      killed = true;
      if (random.chance(1, 2)) system.tell_of_death(readout);
    } else {
      continue;
    }
    up[readout] = !up[readout];
  }
  const bool by_itself = system.manager().ended();
  system.stop();
  ASSERT_TRUE(system.run_until_ended(60s)) << tail_of_log(system) << system.manager().waiting_for();
  const RunSummary& summary = system.summary();
  const std::uint64_t numbers = summary.events_built + summary.gaps;
  if (by_itself && !may_end && !killed) {
    EXPECT_EQ(numbers, options.system.events_max) << tail_of_log(system);
    EXPECT_GT(summary.events_built, 0U) << tail_of_log(system);
  }
  expect_balanced(system);
}

TEST(Beginnings, any_order_of_first_numbers_and_deaths_gives_events_and_a_balanced_ledger) {
  const char* seed = std::getenv("FANIN_SEED");
  const char* seeds = std::getenv("FANIN_SEEDS");
  const std::uint64_t first = seed != nullptr ? std::strtoull(seed, nullptr, 0) : 1;
  const std::uint64_t count = seeds != nullptr  ? std::strtoull(seeds, nullptr, 0)
                              : seed != nullptr ? 1
                                                : 100;
  for (std::uint64_t i = 0; i < count && !HasFailure(); ++i) run_beginning(first + i);
}

} // namespace
} // namespace fanin::builder
