// Readout and builder units that consist of schedules and grants alone, with messages that take
// their time, in random order across connections: what holds for every policy.
#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/random.hpp"
#include "fanin/builder/shaping/grants.hpp"
#include "fanin/builder/shaping/schedule.hpp"
#include "fanin/builder/shaping/testing/test_name.hpp"

namespace fanin::builder::shaping {
namespace {

using namespace std::chrono_literals;

class Traffic {
public:
  Traffic(Policy policy, std::uint64_t seed)
      : random_(seed), readouts_(1 + random_.below(7)), builders_(1 + random_.below(7)) {
    shaping_ = {.policy = policy, .carrier = 1000};
    shaping_.tokens = static_cast<std::uint32_t>(1 + random_.below(readouts_));
    shaping_.window = shaping_.window_least(readouts_) + random_.below(10'000);
    for (std::size_t r = 0; r < readouts_; ++r) {
      schedules_.emplace_back(shaping_, readouts_, builders_, static_cast<NodeId>(r), seed + r);
    }
    for (std::size_t b = 0; b < builders_; ++b) grants_.emplace_back(shaping_, readouts_, false);
    frozen_.resize(builders_);
    pairs_.resize(readouts_ * builders_);
    for (std::size_t r = 0; r < readouts_; ++r) {
      for (std::size_t b = 0; b < builders_; ++b) connect(r, b);
    }
  }

  // Blocks without end for random pairs, and random troubles.
  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      now_ += Duration{random_.below(20'000)};
      const std::size_t r = random_.below(readouts_);
      const std::size_t b = random_.below(builders_);
      if (random_.chance(1, 3)) add_blocks(r, b);
      if (random_.chance(1, 500)) connect(r, b);
      if (random_.chance(1, 300)) frozen_[b] = !frozen_[b];
      if (random_.chance(1, 50)) schedules_[r].set_full(static_cast<NodeId>(b), true);
      if (random_.chance(1, 20)) schedules_[r].set_full(static_cast<NodeId>(b), false);
      send(r);
      deliver(r, b);
      grant(b);
      check(b);
    }
  }
  // Without troubles everything arrives.
  void run_until_idle() {
    frozen_.assign(builders_, false);
    for (int i = 0; i < 100'000 && left() > 0; ++i) {
      now_ += 100us;
      for (std::size_t r = 0; r < readouts_; ++r) {
        for (std::size_t b = 0; b < builders_; ++b) {
          schedules_[r].set_full(static_cast<NodeId>(b), false);
        }
        send(r);
      }
      for (std::size_t b = 0; b < builders_; ++b) {
        for (std::size_t r = 0; r < readouts_; ++r) deliver(r, b);
        grant(b);
        check(b);
      }
    }
    EXPECT_EQ(left(), 0U);
    for (std::size_t r = 0; r < readouts_; ++r) {
      for (std::size_t b = 0; b < builders_; ++b) {
        const auto sent = schedules_[r].credit(static_cast<NodeId>(b));
        const auto got = grants_[b].account(static_cast<NodeId>(r));
        EXPECT_EQ(sent.sent, got.received);
        EXPECT_EQ(sent.granted, got.granted); // every grant is home
      }
    }
    EXPECT_LE(grants_sent_, carriers_ + connections_);
    EXPECT_GT(carriers_, 100U);
  }

private:
  struct Message {
    std::uint64_t bytes = 0;
    bool fills = false; // its carrier
  };
  struct Pair {
    std::deque<std::uint64_t> blocks; // to be sent
    std::deque<Message> data;         // under way
    std::deque<std::uint64_t> grants; // likewise
  };
  Pair& pair(std::size_t r, std::size_t b) { return pairs_[r * builders_ + b]; }

  void connect(std::size_t r, std::size_t b) {
    Pair& lost = pair(r, b);
    // What was under way is sent again.
    for (; !lost.data.empty(); lost.data.pop_back()) {
      lost.blocks.push_front(lost.data.back().bytes);
    }
    lost.grants.clear();
    schedules_[r].opened(static_cast<NodeId>(b));
    grants_[b].opened(static_cast<NodeId>(r));
    set_waiting(r, b);
    ++connections_;
  }
  void set_waiting(std::size_t r, std::size_t b) {
    const auto& blocks = pair(r, b).blocks;
    schedules_[r].set_waiting(static_cast<NodeId>(b), blocks.empty() ? 0 : blocks.front());
  }
  void add_blocks(std::size_t r, std::size_t b) {
    for (std::uint64_t i = random_.below(5); i > 0; --i) {
      pair(r, b).blocks.push_back(random_.chance(1, 2) ? 1000 : 1 + random_.below(1000));
    }
    set_waiting(r, b);
  }
  void send(std::size_t r) {
    Schedule& schedule = schedules_[r];
    while (const auto node = schedule.next(now_)) {
      Pair& to = pair(r, *node);
      std::uint64_t room = shaping_.carrier;
      ASSERT_FALSE(to.blocks.empty());
      ASSERT_LE(to.blocks.front(), schedule.room(*node));
      while (!to.blocks.empty() && to.blocks.front() <= std::min(room, schedule.room(*node))) {
        const std::uint64_t block = to.blocks.front();
        room -= block;
        to.data.push_back({block, room == 0});
        to.blocks.pop_front();
        schedule.sent(*node, block, room == 0);
      }
      set_waiting(r, *node);
      schedule.carried(*node, now_);
      ++carriers_;
    }
  }
  void deliver(std::size_t r, std::size_t b) {
    Pair& p = pair(r, b);
    for (std::uint64_t i = random_.below(4); i > 0 && !p.grants.empty(); --i) {
      EXPECT_TRUE(schedules_[r].granted(static_cast<NodeId>(b), p.grants.front()));
      p.grants.pop_front();
    }
    for (std::uint64_t i = random_.below(4); i > 0 && !p.data.empty() && !frozen_[b]; --i) {
      EXPECT_TRUE(grants_[b].received(static_cast<NodeId>(r), p.data.front().bytes));
      if (p.data.front().fills) grants_[b].carrier_filled(static_cast<NodeId>(r));
      p.data.pop_front();
    }
  }
  void grant(std::size_t b) {
    if (frozen_[b]) return;
    grants_[b].update(now_, [&](NodeId r) { return !pair(r, b).blocks.empty(); });
    while (!grants_[b].unsent().empty()) {
      const NodeId r = grants_[b].unsent().front();
      pair(r, b).grants.push_back(grants_[b].take(r));
      ++grants_sent_;
    }
  }
  void check(std::size_t b) { EXPECT_LE(grants_[b].outstanding(), shaping_.window); }
  [[nodiscard]] std::size_t left() const {
    std::size_t sum = 0;
    for (const Pair& p : pairs_) sum += p.blocks.size() + p.data.size() + p.grants.size();
    return sum;
  }

  Random random_;
  std::size_t readouts_;
  std::size_t builders_;
  Shaping shaping_;
  Time now_{};
  std::vector<Schedule> schedules_;
  std::vector<Grants> grants_;
  std::vector<bool> frozen_;
  std::vector<Pair> pairs_;
  std::uint64_t carriers_ = 0;
  std::uint64_t grants_sent_ = 0;
  std::uint64_t connections_ = 0;
};

class Policies : public ::testing::TestWithParam<Policy> {};

INSTANTIATE_TEST_SUITE_P(All, Policies,
                         ::testing::Values(Policy::random, Policy::linear_shift, Policy::tokens,
                                           Policy::barrel_shifter),
                         [](const auto& policy) { return testing::test_name(policy.param); });

TEST_P(Policies, all_blocks_arrive_within_the_window_and_every_grant_is_home) {
  for (std::uint64_t seed = 1; seed <= 30 && !HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Traffic traffic{GetParam(), seed};
    traffic.run(4000);
    traffic.run_until_idle();
  }
}

} // namespace
} // namespace fanin::builder::shaping
