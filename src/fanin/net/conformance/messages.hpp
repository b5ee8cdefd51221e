/// \file
/// The part of the conformance suite about messages: of all sizes, whole and in order.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fanin/net/conformance/fixture.hpp"

namespace fanin::net::conformance {

TEST_P(TransportConformance, every_size_arrives_whole_and_in_order) {
  open();
  std::vector<std::uint32_t> all{0, 0, 1};
  for (std::uint32_t power = 2; power <= page_size / 2; power *= 2) {
    all.insert(all.end(), {power - 1, power});
    if (power < page_size / 2) all.push_back(power + 1);
  }
  all.insert(all.end(), {0, page_size / 2, page_size / 2, 0, 5});
  const auto size = [&](std::uint64_t number) { return all[number]; };
  server.sizes = size;
  send_all(0, all.size(), size);
  EXPECT_TRUE(run_until([&] { return server.messages == all.size(); }));
}

TEST_P(TransportConformance, random_sizes_in_random_pieces_arrive_in_order) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (std::size_t extents = 1; extents <= max_extents; ++extents) {
    const auto size = [seed](std::uint64_t number) {
      Random random(seed + number);
      const std::uint64_t bound = random.chance(1, 3)   ? page_size / 2 + 1
                                  : random.chance(1, 2) ? 600
                                                        : 20;
      return static_cast<std::uint32_t>(random.below(bound));
    };
    server.sizes = size;
    if (extents == 1) open();
    const std::uint64_t from = (extents - 1) * 400;
    send_all(from, from + 400, size, extents);
    ASSERT_TRUE(run_until([&] { return server.messages == from + 400; }));
  }
}

/// Powers of two and their neighbours, and random sizes, up to the largest message.
TEST_P(TransportConformance, large_messages_arrive_whole_and_in_order) {
  const std::uint32_t largest = GetParam().limits.largest_message;
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<std::uint32_t> all;
  for (std::uint32_t power = page_size; power < largest; power *= 2) {
    all.insert(all.end(), {power - 1, power, power + 1});
  }
  all.insert(all.end(), {largest - 1, largest, 0, largest});
  Random random(seed);
  for (int i = 0; i < 16; ++i) {
    const std::uint64_t bound = random.chance(1, 4) ? largest : largest >> (1 + random.below(12));
    all.push_back(static_cast<std::uint32_t>(random.below(bound + 1)));
  }
  // A strict receiver needs two posted pages and one for small messages.
  set_pools({.receive_pages = 4,
             .send_pages = 2,
             .receive_page_size = 2 * largest,
             .send_page_size = largest});
  open();
  const auto size = [&](std::uint64_t number) { return all[number]; };
  server.sizes = size;
  for (std::uint64_t i = 0; i < all.size(); ++i) send_all(i, i + 1, size, 1 + i % max_extents);
  EXPECT_TRUE(run_until([&] { return server.messages == all.size(); }));
}

TEST_P(TransportConformance, both_directions_work_at_once) {
  open();
  std::uint64_t forth = 0;
  std::uint64_t back = 0;
  constexpr std::uint64_t count = 2000;
  ASSERT_TRUE(run_until([&] {
    if (forth < count &&
        client.send(backend->client(), at_client, forth, 700) == SendOutcome::accepted)
      ++forth;
    if (back < count &&
        server.send(backend->server(), at_server, back, 1900) == SendOutcome::accepted)
      ++back;
    return server.messages == count && client.messages == count;
  }));
}

TEST_P(TransportConformance, a_message_over_the_peers_limit_is_refused) {
  ConnectionOptions small = server.options();
  small.max_message = 1000;
  const auto made = backend->server().listen(backend->address(), small);
  ASSERT_TRUE(made);
  listener = *made;
  at_client = connect(client.options());
  ASSERT_TRUE(run_until([&] { return !client.opened.empty() && !server.opened.empty(); }));
  const auto forth = [&](std::uint32_t size, std::size_t extents = 1) {
    return send(client, backend->client(), at_client, 0, size, extents);
  };
  EXPECT_EQ(forth(1001), SendOutcome::too_large);
  EXPECT_EQ(forth(page_size / 2), SendOutcome::too_large);
  const auto back = [&](std::uint32_t size) { // the other direction has its own limit
    return send(server, backend->server(), server.opened.front(), 0, size);
  };
  EXPECT_EQ(back(page_size / 2 + 1), SendOutcome::too_large);
  EXPECT_EQ(back(page_size / 2), SendOutcome::accepted);
  EXPECT_EQ(forth(10, max_extents + 1), SendOutcome::too_large);
  EXPECT_EQ(forth(1000), SendOutcome::accepted);
  EXPECT_TRUE(run_until([&] { return server.messages == 1 && client.messages == 1; }));
}

TEST_P(TransportConformance, small_messages_share_a_page) {
  open();
  run_until_idle();
  server.keep = true;
  const std::uint32_t before = server.receive_pool->available();
  for (std::uint64_t i = 0; i < 128; ++i) { // two pages' worth, one at a time
    send_all(i, i + 1, [](std::uint64_t) { return page_size / 64; });
    ASSERT_TRUE(run_until([&] { return server.messages == i + 1; }));
  }
  run_until_idle();
  EXPECT_GE(server.receive_pool->available() + 5, before);
}

TEST_P(TransportConformance, what_has_come_of_a_message_counts_until_it_is_whole) {
  open();
  const auto unfinished = [&] { return backend->server().unfinished(at_server); };
  EXPECT_EQ(unfinished(), 0U);
  send_all(0, 4, [](std::uint64_t) { return page_size / 2; });
  EXPECT_TRUE(run_until([&] {
    EXPECT_LE(unfinished(), page_size / 2);
    return server.messages == 4;
  }));
  run_until_idle();
  EXPECT_EQ(unfinished(), 0U);
  backend->server().close(at_server);
  EXPECT_EQ(unfinished(), 0U);
}

TEST_P(TransportConformance, an_idle_connection_owns_no_more_than_its_posted_receives) {
  open();
  run_until_idle();
  const std::uint32_t idle = server.receive_pool->available();
  send_all(0, 30, [](std::uint64_t number) { return static_cast<std::uint32_t>(number * 250); });
  ASSERT_TRUE(run_until([&] { return server.messages == 30; }));
  run_until_idle();
  EXPECT_EQ(server.receive_pool->available(), idle);
}

} // namespace fanin::net::conformance
