// The barrel shifter's order: slots, what it waits for, and a model of a network whose links it is
// to fill without queues before their ends.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <vector>

#include "fanin/base/random.hpp"
#include "fanin/builder/shaping/orders.hpp"

namespace fanin::builder::shaping {
namespace {

using namespace std::chrono_literals;

constexpr Destination ready_now{.waits = true, .open = true};
constexpr Destination not_granted{.waits = true};
constexpr Destination no_data{};
constexpr Duration first_slot = BarrelShifter::slot_at_first;

Time at(Duration since) { return Time{} + since; }

TEST(BarrelShifter, each_readout_unit_begins_with_another_builder_unit) {
  const std::vector<Destination> to(4, ready_now);
  for (NodeId readout = 0; readout < 4; ++readout) {
    BarrelShifter order{4, 4, readout};
    for (std::size_t i = 0; i < 8; ++i) {
      const auto node = order.next(to, at(0us));
      ASSERT_TRUE(node);
      EXPECT_EQ(*node, (readout + i) % 4);
      order.sent(*node, at(0us));
    }
  }
}

TEST(BarrelShifter, a_slot_without_data_lasts_and_no_empty_carrier_is_sent) {
  BarrelShifter order{4, 4, 0};
  std::vector<Destination> to{ready_now, no_data, no_data, ready_now};
  EXPECT_EQ(order.next(to, at(0us)), NodeId{0});
  order.sent(0, at(0us));
  to[0] = no_data;
  EXPECT_EQ(order.next(to, at(0us)), std::nullopt);
  EXPECT_EQ(order.wake(), at(2 * first_slot));
  EXPECT_EQ(order.next(to, at(2 * first_slot) - 1ns), std::nullopt);
  EXPECT_EQ(order.next(to, at(2 * first_slot)), NodeId{3});
  EXPECT_EQ(order.wake(), never);
}

TEST(BarrelShifter, is_idle_in_slots_beyond_the_last_builder_unit) {
  BarrelShifter order{5, 2, 4}; // it begins with slots 4, 0, 1
  const std::vector<Destination> to{ready_now, ready_now};
  EXPECT_EQ(order.next(to, at(0us)), std::nullopt);
  EXPECT_EQ(order.wake(), at(first_slot));
  Time now = order.wake();
  for (int cycle = 0; cycle < 3; ++cycle) {
    for (const NodeId node : {NodeId{0}, NodeId{1}}) {
      EXPECT_EQ(order.next(to, now), node);
      order.sent(node, now);
    }
    EXPECT_EQ(order.next(to, now), std::nullopt);
    EXPECT_EQ(order.wake(), now + 3 * first_slot);
    now = order.wake();
  }
}

TEST(BarrelShifter, what_comes_after_a_long_rest_is_sent_at_once) {
  BarrelShifter order{8, 8, 0};
  std::vector<Destination> to(8);
  EXPECT_EQ(order.next(to, at(0us)), std::nullopt);
  EXPECT_EQ(order.wake(), never);
  to[5] = ready_now;
  EXPECT_EQ(order.next(to, at(8 * first_slot)), NodeId{5});
}

TEST(BarrelShifter, waits_for_a_grant_for_one_cycle_and_then_until_there_is_one) {
  BarrelShifter order{3, 3, 0};
  std::vector<Destination> to{not_granted, ready_now, no_data};
  EXPECT_EQ(order.next(to, at(0us)), std::nullopt);
  EXPECT_EQ(order.wake(), at(3 * first_slot));
  EXPECT_EQ(order.next(to, at(3 * first_slot)), NodeId{1});
  order.sent(1, at(3 * first_slot));
  EXPECT_EQ(order.next(to, at(9 * first_slot)), NodeId{1}); // 0 is left out
  order.sent(1, at(9 * first_slot));
  to[0] = ready_now;
  EXPECT_EQ(order.next(to, at(10 * first_slot)), NodeId{0});
}

TEST(BarrelShifter, a_grant_within_the_cycle_is_used_at_once) {
  BarrelShifter order{3, 3, 0};
  std::vector<Destination> to{not_granted, ready_now, ready_now};
  EXPECT_EQ(order.next(to, at(0us)), std::nullopt);
  to[0] = ready_now;
  EXPECT_EQ(order.next(to, at(1us)), NodeId{0});
}

TEST(BarrelShifter, a_carrier_that_was_lost_with_its_connection_is_no_measure) {
  BarrelShifter order{2, 2, 0};
  std::vector<Destination> to(2, ready_now);
  EXPECT_EQ(order.next(to, at(0us)), NodeId{0});
  order.sent(0, at(0us));
  to[0].under_way = 1;
  EXPECT_EQ(order.next(to, at(0us)), NodeId{1});
  to[0] = {};
  order.closed(0);
  EXPECT_EQ(order.next(to, at(7'000'000us)), NodeId{1});
  EXPECT_EQ(order.slot(), first_slot);
}

TEST(BarrelShifter, forgets_a_first_carrier_that_was_late_after_a_few) {
  BarrelShifter order{2, 1, 0};
  std::vector<Destination> to(1, ready_now);
  Time now = at(0us);
  for (int carrier = 0; carrier < 5; ++carrier) {
    while (order.next(to, now) != NodeId{0}) now = order.wake();
    order.sent(0, now);
    to[0].under_way = 1;
    EXPECT_EQ(order.next(to, now), std::nullopt);
    now += carrier == 0 ? 8'000us : 100us;
    to[0].under_way = 0;
    (void)order.next(to, now);
  }
  EXPECT_LT(order.slot(), 1'000us);
}

// On links so slow that a builder unit is left out before it can confirm its first carrier.
TEST(BarrelShifter, carriers_that_take_longer_than_a_cycle_of_first_slots_are_measured) {
  BarrelShifter order{3, 2, 0};
  std::vector<Destination> to(2);
  const auto send_one_and_wait = [&](NodeId node, Time now, Duration takes) {
    to[node] = ready_now;
    while (order.next(to, now) != node) now = order.wake();
    order.sent(node, now);
    to[node] = {.waits = true, .under_way = 1};
    (void)order.next(to, now);
    while (order.wake() < now + takes) (void)order.next(to, order.wake());
    to[node] = {};
    (void)order.next(to, now + takes);
    return now + takes;
  };
  const Time confirmed = send_one_and_wait(0, at(0us), 28ms);
  EXPECT_EQ(order.slot(), 28ms);
  (void)send_one_and_wait(1, confirmed + 1s, 28ms); // the rest between them is no measure
  EXPECT_EQ(order.slot(), 28ms);
}

TEST(BarrelShifter, two_carriers_are_under_way_at_most) {
  BarrelShifter order{3, 3, 0};
  std::vector<Destination> to(3, ready_now);
  for (const NodeId node : {NodeId{0}, NodeId{1}}) {
    EXPECT_EQ(order.next(to, at(0us)), node);
    order.sent(node, at(0us));
    to[node].under_way = 1;
  }
  EXPECT_EQ(order.next(to, at(0us)), std::nullopt);
  to[0].under_way = 0;
  EXPECT_EQ(order.next(to, at(50us)), NodeId{2});
  EXPECT_EQ(order.slot(), 50us); // receipt is the clock
}

TEST(BarrelShifter, one_that_confirms_nothing_is_left_out_until_it_does) {
  BarrelShifter order{2, 2, 0};
  std::vector<Destination> to(2, ready_now);
  to[0].under_way = 2;
  EXPECT_EQ(order.next(to, at(0us)), std::nullopt);
  const Time given_up = order.wake();
  EXPECT_EQ(given_up, at(2 * first_slot));
  EXPECT_EQ(order.next(to, given_up), NodeId{1});
  order.sent(1, given_up);
  EXPECT_EQ(order.next(to, given_up + first_slot), NodeId{1}); // not 0, whose turn it is
  to[0].under_way = 0;
  order.sent(1, given_up + first_slot);
  EXPECT_EQ(order.next(to, given_up + first_slot), NodeId{0});
}

TEST(BarrelShifter, one_late_grant_changes_the_length_of_a_slot_little) {
  BarrelShifter order{4, 4, 0};
  std::vector<Destination> to(4, ready_now);
  Time now{};
  for (int i = 0; i < 20; ++i) {
    const auto node = order.next(to, now);
    ASSERT_TRUE(node);
    order.sent(*node, now);
    to[*node].under_way = 1;
    (void)order.next(to, now);
    now += i == 10 ? Duration{1s} : Duration{1ms};
    to[*node].under_way = 0;
  }
  (void)order.next(to, now);
  EXPECT_GE(order.slot(), 1ms);
  EXPECT_LT(order.slot(), 1200us);
}

// Readout units that always have data for every builder unit. Each has a link of the same speed as
// each builder unit has, and the network in between takes its time.
class Network {
public:
  Network(std::size_t readouts, std::size_t builders, Duration latency)
      : readouts_(readouts), builders_(builders), latency_(latency), free_in_(builders) {
    for (std::size_t r = 0; r < readouts; ++r) {
      units_.push_back({.order = {readouts, builders, static_cast<NodeId>(r)},
                        .to = std::vector<Destination>(builders, ready_now)});
      plan(at(Duration{random_.below(1'000'000)}), [this, r] { send(r); });
    }
  }
  void run(Duration time) {
    const Time end = now_ + time;
    while (!plan_.empty() && plan_.begin()->first <= end) {
      auto what = plan_.extract(plan_.begin());
      now_ = what.key();
      what.mapped()();
    }
    now_ = end;
  }
  void run_until_idle() {
    run(200ms);
    since_ = now_;
    delivered_ = 0;
    longest_wait_ = {};
  }
  // Since then: of what the links that limit it can carry.
  [[nodiscard]] double used() const {
    const double most = static_cast<double>(std::min(readouts_, builders_)) *
                        static_cast<double>((now_ - since_) / carrier);
    return static_cast<double>(delivered_) / most;
  }
  // Likewise: the longest that a carrier has waited before the link of its builder unit.
  [[nodiscard]] Duration longest_wait() const { return longest_wait_; }

  static constexpr Duration carrier = 1ms; // takes so long on a link

private:
  struct Unit {
    BarrelShifter order;
    std::vector<Destination> to;
    Time free{}; // its link
  };
  void plan(Time when, std::function<void()> what) { plan_.emplace(when, std::move(what)); }

  void send(std::size_t r) {
    Unit& unit = units_[r];
    while (const auto node = unit.order.next(unit.to, now_)) {
      unit.order.sent(*node, now_);
      const Time begun = std::max(now_, unit.free);
      unit.free = begun + carrier;
      set_under_way(r, *node, +1);
      plan(begun + latency_, [this, r, to = *node] { arrive(r, to); });
    }
    if (unit.order.wake() != never) plan(unit.order.wake(), [this, r] { send(r); });
  }
  void arrive(std::size_t r, NodeId node) { // its first byte
    longest_wait_ = std::max(longest_wait_, free_in_[node] - now_);
    free_in_[node] = std::max(now_, free_in_[node]) + carrier;
    plan(free_in_[node], [this] { ++delivered_; });
    plan(free_in_[node] + latency_, [this, r, node] {
      set_under_way(r, node, -1);
      send(r);
    });
  }
  void set_under_way(std::size_t r, NodeId node, int by) {
    Destination& to = units_[r].to[node];
    to.under_way += static_cast<std::uint32_t>(by);
    to.open = to.under_way < carriers_least;
  }

  Random random_{1};
  std::size_t readouts_;
  std::size_t builders_;
  Duration latency_;
  Time now_{};
  Time since_{};
  std::multimap<Time, std::function<void()>> plan_;
  std::vector<Unit> units_;
  std::vector<Time> free_in_;
  std::uint64_t delivered_ = 0;
  Duration longest_wait_{};
};

TEST(BarrelShifter, fills_the_links_and_queues_stay_short) {
  using Size = std::pair<std::size_t, std::size_t>;
  for (const auto& [readouts, builders] :
       {Size{1, 1}, Size{2, 2}, Size{4, 4}, Size{8, 8}, Size{32, 32}, Size{4, 7}, Size{7, 4},
        Size{2, 1}, Size{1, 2}, Size{16, 5}}) {
    SCOPED_TRACE(std::to_string(readouts) + " x " + std::to_string(builders));
    Network network{readouts, builders, 50us};
    network.run_until_idle();
    network.run(1s);
    EXPECT_GT(network.used(), 0.98);
    EXPECT_LT(network.longest_wait(), 4 * Network::carrier);
  }
}

} // namespace
} // namespace fanin::builder::shaping
