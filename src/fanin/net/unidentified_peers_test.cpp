#include "fanin/net/unidentified_peers.hpp"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace fanin::net {
namespace {

using namespace std::chrono_literals;

struct Visitor {
  UnidentifiedPeers<Visitor>::Entry entry{*this};
};

class UnidentifiedPeersTest : public testing::Test {
protected:
  Visitor& arrive() {
    arrived.push_back(std::make_unique<Visitor>());
    peers.add(arrived.back()->entry, now);
    return *arrived.back();
  }

  Time now{};
  UnidentifiedPeers<Visitor> peers{{.peers_max = 3, .patience = 1s}};
  std::vector<std::unique_ptr<Visitor>> arrived;
};

TEST_F(UnidentifiedPeersTest, there_are_as_many_as_the_limit_says) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(peers.full());
    EXPECT_TRUE(peers.admits(now));
    (void)arrive();
  }
  EXPECT_TRUE(peers.full());
  EXPECT_FALSE(peers.admits(now));
}

TEST_F(UnidentifiedPeersTest, a_peer_that_identifies_itself_leaves_its_place_once) {
  for (int i = 0; i < 3; ++i) (void)arrive();
  arrived[1]->entry.mark_identified();
  arrived[1]->entry.mark_identified();
  EXPECT_FALSE(arrived[1]->entry.unidentified());
  EXPECT_EQ(peers.size(), 2U);
  EXPECT_TRUE(peers.admits(now));
}

TEST_F(UnidentifiedPeersTest, a_peer_that_is_renewed_has_its_time_again_behind_the_others) {
  for (int i = 0; i < 3; ++i) (void)arrive();
  now += 1s;
  peers.renew(arrived[0]->entry, now);
  EXPECT_EQ(peers.size(), 3U);
  EXPECT_EQ(peers.peer_to_evict(now), arrived[1].get());
}

TEST_F(UnidentifiedPeersTest, a_connection_that_ends_leaves_its_place) {
  for (int i = 0; i < 3; ++i) (void)arrive();
  arrived.erase(arrived.begin());
  EXPECT_EQ(peers.size(), 2U);
}

TEST_F(UnidentifiedPeersTest, nobody_is_evicted_before_it_has_had_its_time) {
  EXPECT_EQ(peers.peer_to_evict(now), nullptr);
  for (int i = 0; i < 3; ++i) (void)arrive();
  now += 1s - 1ns;
  EXPECT_EQ(peers.peer_to_evict(now), nullptr);
  EXPECT_FALSE(peers.admits(now));
  now += 1ns;
  EXPECT_EQ(peers.peer_to_evict(now), arrived[0].get());
  EXPECT_TRUE(peers.admits(now));
}

TEST_F(UnidentifiedPeersTest, with_less_patience_the_time_of_those_who_are_there_ends_sooner) {
  EXPECT_EQ(peers.next_eviction(), never);
  (void)arrive();
  EXPECT_EQ(peers.next_eviction(), now + 1s);
  peers.set_patience(300ms);
  EXPECT_EQ(peers.next_eviction(), now + 300ms);
  now += 300ms;
  EXPECT_EQ(peers.peer_to_evict(now), arrived[0].get());
}

TEST_F(UnidentifiedPeersTest, the_one_that_came_first_is_evicted_first) {
  for (int i = 0; i < 3; ++i) {
    (void)arrive();
    now += 400ms;
  }
  EXPECT_EQ(peers.peer_to_evict(now), arrived[0].get());
  arrived[0]->entry.mark_identified();
  EXPECT_EQ(peers.peer_to_evict(now), nullptr); // the second one has 200 ms left
  now += 200ms;
  EXPECT_EQ(peers.peer_to_evict(now), arrived[1].get());
}

} // namespace
} // namespace fanin::net
