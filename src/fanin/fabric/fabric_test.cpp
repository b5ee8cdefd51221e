#include "fanin/fabric/fabric.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace fanin::fabric {
namespace {

// One byte takes a nanosecond.
FabricOptions gigabyte_links(std::uint32_t hosts) {
  FabricOptions options;
  options.topology.hosts = hosts;
  options.topology.link_rate = 1e9;
  options.packet = 1000;
  options.buffer = 10'000;
  return options;
}

struct Network {
  explicit Network(const FabricOptions& options) {
    auto made = Fabric::make(options);
    EXPECT_TRUE(made.has_value()) << made.error().text;
    fabric = std::move(*made);
    fabric->on_delivered = [this](const Delivery& delivery) { deliveries.push_back(delivery); };
  }
  void run() {
    while (!fabric->idle()) fabric->advance();
  }
  std::unique_ptr<Fabric> fabric;
  std::vector<Delivery> deliveries;
};

std::string error_of(const FabricOptions& options) {
  const auto made = Fabric::make(options);
  return made ? "" : made.error().text;
}

TEST(Rate, of_100_gigabits_is_exact) { EXPECT_EQ(Rate(12.5e9).time_of(64), 5120); }

TEST(Fabric, a_packet_cuts_through_and_takes_its_time_once) {
  FabricOptions options = gigabyte_links(2);
  options.topology.link_latency = Duration{100};
  Network network(options);
  network.fabric->send(0, 0, 1, 1000, 7);
  network.run();
  ASSERT_EQ(network.deliveries.size(), 1U);
  const Delivery& delivery = network.deliveries[0];
  EXPECT_EQ(delivery.tag, 7U);
  EXPECT_EQ(delivery.bytes, 1000U);
  EXPECT_EQ(delivery.first, 200'000);
  EXPECT_EQ(delivery.last, 1'200'000);
  EXPECT_EQ(network.fabric->counters().events, 4U);
  EXPECT_EQ(network.fabric->bytes_over(0), 1000U);
}

TEST(Fabric, packets_of_a_message_follow_each_other) {
  FabricOptions options = gigabyte_links(2);
  options.packet_header = 10;
  Network network(options);
  network.fabric->send(0, 0, 1, 2500, 0);
  network.run();
  ASSERT_EQ(network.deliveries.size(), 1U);
  EXPECT_EQ(network.deliveries[0].last, 2'530'000);
  EXPECT_EQ(network.fabric->counters().packets, 3U);
}

TEST(Fabric, a_message_without_bytes_arrives) {
  Network network(gigabyte_links(2));
  network.fabric->send(0, 0, 1, 0, 0);
  network.run();
  EXPECT_EQ(network.deliveries.size(), 1U);
}

// Hosts 0, 3 and 1 send to 2; then 1 has one for 4, which is free.
TEST(Fabric, a_packet_blocks_those_behind_it_in_an_input_fifo_only) {
  for (const auto& [queueing, last] : {std::pair{Queueing::input_fifo, 4'000'000},
                                       std::pair{Queueing::virtual_output_queues, 2'000'000},
                                       std::pair{Queueing::output_queues, 2'000'000}}) {
    FabricOptions options = gigabyte_links(5);
    options.queueing = queueing;
    Network network(options);
    network.fabric->send(0, 0, 2, 1000, 0);
    network.fabric->send(0, 3, 2, 1000, 1);
    network.fabric->send(0, 1, 2, 1000, 2);
    network.fabric->send(0, 1, 4, 1000, 3);
    network.run();
    ASSERT_EQ(network.deliveries.size(), 4U);
    EXPECT_EQ(std::ranges::find(network.deliveries, 3U, &Delivery::tag)->last, last);
  }
}

TEST(Fabric, a_full_output_queue_pauses_or_drops) {
  for (const WhenFull when_full : {WhenFull::pause, WhenFull::drop}) {
    FabricOptions options = gigabyte_links(5);
    options.when_full = when_full;
    options.buffer = 2000;
    Network network(options);
    for (std::uint32_t host = 0; host < 4; ++host) network.fabric->send(0, host, 4, 1000, host);
    network.run();
    ASSERT_EQ(network.deliveries.size(), 4U);
    const bool drops = when_full == WhenFull::drop;
    EXPECT_EQ(network.fabric->counters().dropped, drops ? 2U : 0U);
    EXPECT_EQ(network.deliveries[3].last, drops ? 200'003'000'000 : 4'000'000);
  }
}

// The buffer holds 100 bytes: the rest of the blocked packet stays on its first link.
TEST(Fabric, a_worm_lies_on_the_links_behind_it) {
  FabricOptions options = gigabyte_links(4);
  options.queueing = Queueing::input_fifo;
  options.buffer = 100;
  Network network(options);
  network.fabric->send(0, 0, 2, 1000, 0);
  network.fabric->send(0, 1, 2, 1000, 1);
  network.fabric->send(0, 1, 3, 1000, 2);
  network.run();
  ASSERT_EQ(network.deliveries.size(), 3U);
  EXPECT_EQ(network.deliveries[1].last, 2'000'000);
  EXPECT_EQ(network.deliveries[2].last, 3'000'000); // its link was free 100 ns before
}

TEST(Fabric, a_network_interface_limits_each_way_and_both_together) {
  FabricOptions options = gigabyte_links(3);
  options.nic_out = 0.5e9;
  options.nic_in = 0.25e9;
  Network out(options);
  out.fabric->send(0, 0, 1, 1000, 0);
  out.run();
  EXPECT_EQ(out.deliveries[0].last, 4'000'000);

  options.nic_shared = true;
  Network both(options);
  both.fabric->send(0, 0, 1, 1000, 0);
  both.fabric->send(0, 1, 2, 1000, 1);
  both.run();
  ASSERT_EQ(both.deliveries.size(), 2U); // host 1: 2 us out and 4 us in
  EXPECT_EQ(std::max(both.deliveries[0].last, both.deliveries[1].last), 6'000'000);
}

TEST(Fabric, messages_of_a_host_begin_at_intervals_of_their_cost) {
  FabricOptions options = gigabyte_links(2);
  options.message_cost = std::chrono::microseconds{5};
  Network network(options);
  for (std::uint64_t i = 0; i < 3; ++i) network.fabric->send(0, 0, 1, 100, i);
  network.run();
  EXPECT_EQ(network.deliveries[2].last, 15'100'000);
}

// Two leaves of four hosts, and two links between each leaf and each of two spines: enough for all.
TEST(Fabric, a_table_by_destination_uses_parallel_links) {
  FabricOptions options = gigabyte_links(8);
  options.topology.shape = Shape::clos;
  options.topology.switch_ports = options.topology.uplinks = 4;
  options.topology.spines = 2;
  options.routing = Routing::destination;
  Network network(options);
  for (std::uint32_t host = 0; host < 4; ++host)
    network.fabric->send(0, host, 4 + host, 1000, host);
  network.run();
  ASSERT_EQ(network.deliveries.size(), 4U);
  for (const Delivery& delivery : network.deliveries) EXPECT_EQ(delivery.last, 1'000'000);
}

// One way between two leaves of three hosts: a blocked head has no other one, and keeps its turn.
TEST(Fabric, adaptive_routing_keeps_the_order_where_there_is_one_way) {
  FabricOptions options = gigabyte_links(6);
  options.topology.shape = Shape::clos;
  options.topology.switch_ports = 3;
  options.topology.uplinks = options.topology.spines = 1;
  options.queueing = Queueing::input_fifo;
  options.routing = Routing::adaptive;
  options.reroute_after = Duration{600};
  Network network(options);
  for (std::uint32_t host = 0; host < 3; ++host)
    network.fabric->send(host * 200'000, host, 3 + host, 1000, host);
  network.run();
  ASSERT_EQ(network.deliveries.size(), 3U);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(network.deliveries[i].tag, i);
  EXPECT_EQ(network.fabric->counters().rerouted, 0U);
}

TEST(Fabric, messages_of_a_host_take_turns_over_its_ports) {
  FabricOptions options = gigabyte_links(2);
  options.topology.ports = 2;
  Network network(options);
  for (std::uint64_t i = 0; i < 4; ++i) network.fabric->send(0, 0, 1, 1000, i);
  network.run();
  EXPECT_EQ(network.deliveries[3].last, 2'000'000);
}

// Everything that was sent comes out, whatever the kind of network; a failing seed is printed.
TEST(Fabric, every_message_of_a_random_network_arrives_once) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    FabricOptions options;
    options.seed = seed;
    options.topology.hosts = 2 + static_cast<std::uint32_t>(random.below(20));
    options.topology.ports = 1 + static_cast<std::uint32_t>(random.below(2));
    options.topology.link_rate = 1e9;
    options.topology.link_latency = Duration{static_cast<std::int64_t>(random.below(500))};
    if (random.chance(1, 2)) {
      options.topology.shape = Shape::clos;
      options.topology.spines = 1 + static_cast<std::uint32_t>(random.below(4));
      options.topology.uplinks =
          options.topology.spines * (1 + static_cast<std::uint32_t>(random.below(2)));
      options.topology.switch_ports = 4;
    }
    options.queueing = static_cast<Queueing>(random.below(3));
    const bool fifo = options.queueing == Queueing::input_fifo;
    if (options.queueing == Queueing::output_queues && random.chance(1, 2))
      options.when_full = WhenFull::drop;
    options.routing = static_cast<Routing>(random.below(fifo ? 4 : 3));
    options.buffer = 500 + random.below(8000); // at least what is under way on a link
    if (options.when_full == WhenFull::drop) options.buffer += 4200;
    options.resend_after = std::chrono::microseconds{50};
    options.packet_header = static_cast<std::uint32_t>(random.below(50));
    options.queue_for_each_destination = random.chance(1, 2);
    options.nic_shared = random.chance(1, 2);
    if (random.chance(1, 2)) options.nic_out = 0.7e9;
    if (random.chance(1, 2)) options.nic_in = 0.6e9;
    Network network(options);
    const std::uint64_t count = 300;
    std::uint64_t bytes = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t size = random.below(20'000);
      bytes += size;
      network.fabric->send(static_cast<Picoseconds>(i * 1000),
                           static_cast<std::uint32_t>(random.below(options.topology.hosts)),
                           static_cast<std::uint32_t>(random.below(options.topology.hosts)), size,
                           i);
    }
    network.run();
    std::vector<int> seen(count);
    for (const Delivery& delivery : network.deliveries) {
      ++seen[delivery.tag];
      bytes -= delivery.bytes;
      EXPECT_LE(delivery.first, delivery.last);
    }
    EXPECT_EQ(std::ranges::count(seen, 1), static_cast<std::ptrdiff_t>(count));
    EXPECT_EQ(bytes, 0U);
  }
}

TEST(Fabric, says_what_it_cannot_simulate) {
  FabricOptions options = gigabyte_links(2);
  options.routing = Routing::adaptive;
  EXPECT_NE(error_of(options).find("adaptive"), std::string::npos);
  options = gigabyte_links(2);
  options.packet = 0;
  EXPECT_NE(error_of(options), "");
  options = gigabyte_links(2);
  options.nic_in = -1;
  EXPECT_NE(error_of(options), "");
  options = gigabyte_links(2);
  options.queueing = Queueing::input_fifo;
  options.when_full = WhenFull::drop;
  EXPECT_NE(error_of(options), "");
  options = gigabyte_links(2);
  options.when_full = WhenFull::drop;
  options.buffer = 999;
  EXPECT_NE(error_of(options).find("at least one packet"), std::string::npos);
  options.when_full = WhenFull::pause;
  options.topology.link_latency = Duration{2000};
  EXPECT_NE(error_of(options).find("under way"), std::string::npos);
  options.buffer = 1000;
  EXPECT_EQ(error_of(options), "");
  options = gigabyte_links(hosts_most);
  options.queue_for_each_destination = true;
  EXPECT_NE(error_of(options).find("fewer hosts"), std::string::npos);
}

} // namespace
} // namespace fanin::fabric
