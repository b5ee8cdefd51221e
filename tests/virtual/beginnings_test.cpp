// Runs whose sources begin at any time and number, or not at all, and whose readout units die or
// freeze before the first event, seeded. A failing seed is printed and replays with
// FANIN_SEED=<seed>; FANIN_SEEDS is how many are run, from there on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
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

// All times are in ms since the run began.
constexpr std::uint64_t sends_until = 4000;
constexpr std::uint64_t trouble_until = 1000;

// A sender that lives on while its readout unit is dead: what it has meanwhile is not sent.
struct Sender {
  struct Wrong { // numbers of before its counter is reset
    std::uint64_t at = 0;
    std::uint64_t count = 0;
    EventNumber first = 0;
  };
  std::uint64_t begins = 0; // sends_until: never
  EventNumber first = 0;
  EventNumber step = 1;
  std::uint64_t rate = 1; // fragments in a millisecond
  std::vector<Wrong> wrong;
  enum class End : std::uint8_t { waits, pauses, ends } end = End::waits;

  [[nodiscard]] EventNumber number(std::uint64_t place) const { // of a list from the beginning on
    if (place >= begins * rate) return first + (place - begins * rate) * step;
    EventNumber number = Listed::pause;
    for (const Wrong& one : wrong) {
      const std::uint64_t from = one.at * rate;
      if (place >= from && place < from + one.count) number = one.first + place - from;
    }
    return number;
  }
  [[nodiscard]] std::unique_ptr<source::Source> make(std::uint64_t now) const {
    std::vector<EventNumber> numbers;
    for (std::uint64_t place = now * rate; place < sends_until * rate; ++place)
      numbers.push_back(number(place));
    Listed listed{std::move(numbers), 1ms / static_cast<Duration::rep>(rate)};
    switch (end) {
    case End::pauses: return std::move(listed).and_pauses();
    case End::ends: return std::move(listed).and_ends();
    case End::waits: break;
    }
    return std::make_unique<Listed>(std::move(listed));
  }
};

class Beginning {
public:
  explicit Beginning(std::uint64_t seed) : random_(seed) {
    constexpr std::array<std::uint64_t, 5> events{0, 0, 1, 100, 1000};
    const std::size_t readouts = 1 + random_.below(4);
    options_.seed = seed;
    options_.system = make_system(readouts, 1, 1 + random_.below(3));
    options_.system.event_deadline = 200ms;
    options_.system.latency = random_.chance(1, 2) ? 0ms : 20ms;
    options_.system.batch_events = 1U << random_.below(8);
    options_.system.events_max = events.at(random_.below(events.size()));
    options_.system.protocol = random_.chance(1, 2) ? Protocol::push : Protocol::pull;
    if (random_.chance(1, 2)) options_.source_window = 256;
    options_.network.latency_max = Duration{50'000 + random_.below(2'000'000)};
    draw_senders();
    options_.make_source = [this](const SourceInfo& info) {
      return senders_[info.id - 1].make(now_);
    };
    up_.resize(readouts, true);
    frozen_.resize(readouts, false);
  }

  void run() {
    VirtualSystem system{options_};
    system.start_all();
    const bool is_stopped = random_.chance(1, 2);
    const std::uint64_t until = is_stopped ? random_.below(2000) : sends_until + 3000;
    for (std::uint64_t step = 0; now_ < until && !system.manager().ended(); now_ += step) {
      step = std::min(until - now_, 1 + random_.below(250));
      system.run_for(Duration{static_cast<Duration::rep>(step) * 1'000'000});
      make_trouble(system, random_.below(up_.size()));
    }
    const bool by_itself = system.manager().ended();
    const std::string waits = by_itself ? "" : system.manager().waiting_for();
    thaw_all(system);
    system.stop();
    ASSERT_TRUE(system.run_until_ended(90s)) << report(system);
    const RunSummary& summary = system.summary();
    const bool all_up = std::ranges::find(up_, false) == up_.end();
    if (!is_stopped && all_up && !wrong_ && any_begins()) {
      if (options_.system.events_max == 0) {
        EXPECT_GT(summary.events_built, 0U) << report(system) << waits;
      } else {
        EXPECT_TRUE(by_itself) << report(system) << waits;
      }
    }
    const bool dead_end = wrong_ && summary.error.contains("is accepted any more");
    if (by_itself && !dead_end && !may_end_ && !killed_ && !freezes_) {
      EXPECT_GT(summary.events_built, 0U) << report(system);
      EXPECT_EQ(summary.events_built, options_.system.events_max) << report(system);
    }
    if (!killed_) {
      EXPECT_EQ(summary.events_lost, 0U) << report(system);
    }
    expect_balanced(system);
  }

private:
  void draw_senders() {
    constexpr std::array<EventNumber, 4> apart{0, 0, 5, 300};
    kills_ = random_.chance(1, 2);
    freezes_ = random_.chance(1, 4);
    wrong_ = random_.chance(1, 3);
    may_end_ = random_.chance(1, 3);
    const bool sparse = random_.chance(1, 4);
    const std::uint64_t rate = random_.chance(1, 4) ? 10 : 1;
    const EventNumber first = random_.chance(1, 2) ? 0 : random_.below(1000);
    for (std::size_t i = 0; i < options_.system.sources.size(); ++i) {
      Sender sender;
      sender.begins = random_.chance(1, 4) ? sends_until : random_.below(800);
      sender.first = first + apart.at(random_.below(apart.size()));
      sender.rate = rate;
      if (sparse) sender.step = 1 + random_.below(4);
      while (wrong_ && random_.chance(1, 3)) {
        const EventNumber number = random_.chance(1, 2) ? 0 : 20'000;
        sender.wrong.push_back(
            {random_.below(800), 1 + random_.below(40), number + random_.below(3000)});
      }
      sender.end = static_cast<Sender::End>(random_.below(may_end_ ? 3 : 2));
      senders_.push_back(sender);
    }
  }
  [[nodiscard]] bool any_begins() const {
    return std::ranges::any_of(senders_,
                               [](const Sender& sender) { return sender.begins < sends_until; });
  }
  void make_trouble(VirtualSystem& system, std::size_t readout) {
    if (now_ >= trouble_until) thaw_all(system);
    if (freezes_ && now_ < trouble_until && up_[readout] && random_.chance(1, 3)) {
      frozen_[readout] ? system.readout_node(readout).thaw()
                       : system.readout_node(readout).freeze();
      frozen_[readout] = !frozen_[readout];
    } else if (frozen_[readout]) {
      return;
    } else if (!up_[readout]) {
      system.start_readout(readout);
      up_[readout] = true;
    } else if (kills_ && now_ < trouble_until && random_.chance(1, 2)) {
      system.kill_readout(readout);
      if (random_.chance(1, 2)) system.tell_of_death(readout);
      up_[readout] = false;
      killed_ = true; // numbers may pass meanwhile
    }
  }
  void thaw_all(VirtualSystem& system) {
    for (std::size_t i = 0; i < frozen_.size(); ++i) {
      if (frozen_[i]) system.readout_node(i).thaw();
      frozen_[i] = false;
    }
  }
  [[nodiscard]] std::string report(VirtualSystem& system) const {
    std::string text = tail_of_log(system);
    for (const Sender& sender : senders_) {
      text +=
          fmt::format("a sender begins after {} ms at {}, step {}, {}/ms, {} wrong\n",
                      sender.begins, sender.first, sender.step, sender.rate, sender.wrong.size());
    }
    return text;
  }

  Random random_;
  VirtualSystemOptions options_;
  bool kills_ = false;
  bool freezes_ = false;
  bool wrong_ = false;
  bool may_end_ = false;
  std::vector<Sender> senders_; // by source
  std::uint64_t now_ = 0;
  std::vector<bool> up_; // by readout unit
  std::vector<bool> frozen_; // likewise
  bool killed_ = false;
};

// Runs as many seeds as the environment says, up to the first that fails.
template <class Run>
void for_each_seed(const Run& run) {
  const char* seed = std::getenv("FANIN_SEED");
  const char* seeds = std::getenv("FANIN_SEEDS");
  const std::uint64_t first = seed != nullptr ? std::strtoull(seed, nullptr, 0) : 1;
  const std::uint64_t count = seeds != nullptr  ? std::strtoull(seeds, nullptr, 0)
                              : seed != nullptr ? 1
                                                : 100;
  for (std::uint64_t i = first; i < first + count && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(fmt::format("replay with FANIN_SEED={}", i));
    run(i);
  }
}

TEST(Beginnings, random_first_numbers_deaths_and_freezes_give_events_and_a_balanced_ledger) {
  for_each_seed([](std::uint64_t seed) { Beginning(seed).run(); });
}

// Sources that have fragments of an earlier run in their buffers, and whose counters are reset
// later, within a tenth of the deadline of each other.
class LeftOvers {
public:
  explicit LeftOvers(std::uint64_t seed) : random_(seed) {
    const std::size_t readouts = 1 + random_.below(3);
    options_.seed = seed;
    options_.system = make_system(readouts, 1, (readouts == 1 ? 2 : 1) + random_.below(2));
    options_.system.event_deadline = 200ms;
    options_.system.latency = random_.chance(1, 2) ? 0ms : 20ms;
    options_.network.latency_max = Duration{50'000 + random_.below(500'000)};
    constexpr std::array<EventNumber, 4> steps{1, 1, 1000,
                                               1'000'000'000}; // the last are time stamps
    step_ = steps.at(random_.below(steps.size()));
    draw_sources();
    options_.queue = [this](const SourceInfo& info, source::FragmentQueueOptions& queue) {
      if (with_first_[info.id - 1]) queue.first = step_;
    };
    options_.make_source = [this](const SourceInfo& info) {
      return Listed{sent_[info.id - 1], 1ms}.and_ends();
    };
  }

  void run() {
    VirtualSystem system{options_};
    system.start_all();
    ASSERT_TRUE(system.run_until_ended(30s))
        << tail_of_log(system) << system.manager().waiting_for();
    // With steps above the window one that is behind jumps alone, which costs two fragments.
    const std::uint64_t lost = step_ > options_.system.event_window ? 2 : 0;
    std::uint64_t most_lost = 0;
    for (std::size_t i = 0; i < sent_.size(); ++i) {
      const auto& source = system.summary().sources[i];
      EXPECT_GE(source.ledger.built + lost, good) << source.source.name << "\n"
                                                  << tail_of_log(system);
      EXPECT_EQ(source.ledger.built + source.ledger.dropped, good + left_over_[i])
          << source.source.name << "\n"
          << tail_of_log(system);
      EXPECT_EQ(source.in_doubt, 0U);
      most_lost += good - source.ledger.built;
    }
    EXPECT_EQ(system.summary().events_built, good) << tail_of_log(system);
    EXPECT_LE(system.summary().events_incomplete, most_lost) << tail_of_log(system);
    expect_balanced(system);
  }

private:
  static constexpr std::uint64_t good = 500;

  // At least one of them has nothing left over. One with `first` may have any number of fragments,
  // far above or near to the first one.
  void draw_sources() {
    const std::size_t count = options_.system.sources.size();
    const std::size_t clean = random_.below(count);
    const std::uint64_t reset_at = 100 + random_.below(3000);
    for (std::size_t i = 0; i < count; ++i) {
      const bool with_first = random_.chance(1, 2);
      const std::uint64_t few = random_.below(source::enough_in_a_row);
      const std::uint64_t any = random_.below(80);
      const std::uint64_t left_over = i == clean ? 0 : with_first ? any : few;
      constexpr std::array<EventNumber, 4> places{2, 40, 5000, 10'000'000};
      const EventNumber place = places.at(random_.below(places.size())) + random_.below(1000);
      std::vector<EventNumber> sent;
      for (std::uint64_t k = 0; k < left_over; ++k) sent.push_back((place + k) * step_);
      sent.resize(reset_at + random_.below(20), Listed::pause);
      for (std::uint64_t k = 1; k <= good; ++k) sent.push_back(k * step_);
      sent_.push_back(std::move(sent));
      left_over_.push_back(left_over);
      with_first_.push_back(with_first);
    }
  }

  Random random_;
  VirtualSystemOptions options_;
  EventNumber step_ = 1;
  std::vector<std::vector<EventNumber>> sent_; // by source
  std::vector<std::uint64_t> left_over_; // likewise
  std::vector<bool> with_first_; // likewise
};

TEST(Beginnings, random_fragments_left_over_from_an_earlier_run_cost_nothing) {
  for_each_seed([](std::uint64_t seed) { LeftOvers(seed).run(); });
}

// What the sources of a run say of themselves, by source.
struct Readiness {
  bool ready = false;
  bool started = false;
};

class OneFragment final : public source::Source {
public:
  explicit OneFragment(Readiness& state) : state_(state) {}
  bool ready(Time) override { return state_.ready; }
  Result<> start(EventNumber, Time) override {
    EXPECT_TRUE(state_.ready);
    state_.started = true;
    return {};
  }
  source::ReadResult read(source::FragmentQueue& queue, Time) override {
    EXPECT_TRUE(state_.started);
    if (queue.write(0, {}) == source::WriteOutcome::full) return {};
    return {.state = source::ReadState::finished};
  }

private:
  Readiness& state_;
};

class Readying : public ::testing::Test {
protected:
  void start() {
    options_.system = make_system(2, 1);
    options_.make_source = [this](const SourceInfo& info) {
      return std::make_unique<OneFragment>(sources_.at(info.id - 1));
    };
    system_.emplace(options_);
    system_->start_all();
    system_->run_for(1s);
  }
  std::string waits_for() {
    system_->run_for(500ms);
    return system_->manager().running() ? "it runs" : system_->manager().waiting_for();
  }
  void TearDown() override { system_->destroy_nodes(); }

  VirtualSystemOptions options_;
  std::array<Readiness, 2> sources_;
  std::optional<VirtualSystem> system_;
};

TEST_F(Readying, a_run_begins_when_all_sources_are_ready_at_the_same_time) {
  start();
  const std::string first = "readout unit 'ru0': source source1 to be ready";
  const std::string second = "readout unit 'ru1': source source2 to be ready";
  EXPECT_EQ(waits_for(), first + "; " + second);
  sources_[0].ready = true;
  EXPECT_EQ(waits_for(), second);
  sources_[0].ready = false; // its sender has gone, and another one's has come
  sources_[1].ready = true;
  EXPECT_EQ(waits_for(), first);
  system_->kill_readout(1);
  EXPECT_EQ(waits_for(), "readout unit 'ru1' to start; " + first);
  system_->start_readout(1);
  EXPECT_EQ(waits_for(), first);
  sources_[0].ready = true;
  ASSERT_TRUE(system_->run_until_ended(10s)) << tail_of_log(*system_);
  EXPECT_EQ(system_->summary().events_built, 1U);
  EXPECT_EQ(system_->summary().events_incomplete, 0U);
  EXPECT_EQ(system_->manager().waited_for(), "");
}

TEST_F(Readying, a_run_that_does_not_begin_warns_more_and_more_rarely) {
  start();
  system_->run_for(1min);
  std::size_t warnings = 0;
  for (const std::string& line : system_->log()) {
    const bool warns =
        line.contains("the run has not begun after ") && line.contains("source source2");
    warnings += warns ? 1U : 0U;
  }
  EXPECT_EQ(warnings, 4U) << "after 5, 10, 20 and 40 s";
  system_->stop();
  ASSERT_TRUE(system_->run_until_ended(10s));
  EXPECT_THAT(system_->manager().waited_for(), ::testing::HasSubstr("source source1 to be ready"));
}

} // namespace
} // namespace fanin::builder
