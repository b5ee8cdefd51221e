#include <gtest/gtest.h>

#include <deque>

#include "fanin/base/random.hpp"
#include "fanin/net/conformance/peer.hpp"
#include "fanin/net/rdma/credits.hpp"
#include "fanin/net/rdma/hello.hpp"
#include "fanin/net/rdma/own_receives.hpp"
#include "fanin/net/rdma/pages.hpp"
#include "fanin/net/rdma/shared_receives.hpp"
#include "fanin/net/rdma/testing/adversarial_provider.hpp"

namespace fanin::net::rdma {
namespace {

TEST(Hello, comes_back_as_it_was_sent) {
  const auto bytes = encode(Hello{.max_message = 0x01020304, .credits = 77});
  const auto hello = decode_hello(bytes);
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->version, protocol_version);
  EXPECT_EQ(hello->max_message, 0x01020304U);
  EXPECT_EQ(hello->credits, 77U);
  std::vector<std::byte> padded(bytes.begin(), bytes.end());
  padded.resize(56);
  EXPECT_TRUE(decode_hello(padded));
}

TEST(Hello, of_another_kind_is_refused) {
  auto bytes = encode(Hello{.max_message = 1000, .credits = 1});
  EXPECT_FALSE(decode_hello(std::span(bytes).first(23)));
  bytes[20] = std::byte{1};
  EXPECT_FALSE(decode_hello(bytes));
  EXPECT_FALSE(decode_hello(encode(Hello{.credits = credits_most + 1})));
  bytes = encode(Hello{.version = 9, .credits = credits_most + 1});
  EXPECT_EQ(decode_hello(bytes)->version, 9U); // known of every version, to be told in words
  bytes[0] = std::byte{0};
  EXPECT_FALSE(decode_hello(bytes));
}

TEST(Tag, comes_back_as_it_was_sent) {
  for (const Tag tag : {Tag{TagKind::message, false, 0}, Tag{TagKind::credits, true, 9},
                        Tag{TagKind::end, true, credits_most}}) {
    const auto back = decode_tag(encode(tag));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->kind, tag.kind);
    EXPECT_EQ(back->odd, tag.odd);
    EXPECT_EQ(back->credits, tag.credits);
  }
  EXPECT_FALSE(decode_tag(3));
  EXPECT_FALSE(decode_tag(std::uint64_t{1} << 33));
}

// Two ends with as many receives as they say, and a random order of everything.
struct End {
  Credits credits;
  std::uint32_t free_receives = 0; // posted
  std::uint32_t used = 0; // by messages, not posted again yet
  std::uint64_t received = 0;
  std::deque<Tag> coming;

  void send(End& to, Tag tag) { to.coming.push_back(tag); }
  void take() {
    const Tag tag = coming.front();
    coming.pop_front();
    ASSERT_GT(free_receives, 0U) << "the receiver was not ready";
    --free_receives;
    ASSERT_TRUE(credits.take(tag));
    if (tag.kind == TagKind::credits) {
      ++free_receives; // at once
    } else {
      ++used;
      ++received;
    }
  }
};

TEST(Credits, never_overrun_and_never_stand_still) {
  for (const std::uint32_t receives : {2U, 3U, 4U, 9U, 64U}) {
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
      SCOPED_TRACE(testing::Message() << receives << " receives, seed " << seed);
      Random random(seed);
      End ends[2];
      for (int i = 0; i < 2; ++i) {
        ends[i].free_receives = receives;
        ends[1 - i].credits.take_hello({.credits = ends[i].credits.start(receives)});
      }
      const std::uint64_t wanted[2] = {seed % 3 == 0 ? 0U : 300U, 300};
      std::uint64_t sent[2] = {};
      const auto done = [&] {
        return ends[1].received == wanted[0] && ends[0].received == wanted[1];
      };
      for (int step = 0; !done() && step < 200'000; ++step) {
        const std::size_t i = random.below(2);
        End& end = ends[i];
        End& other = ends[1 - i];
        switch (random.below(4)) {
        case 0:
          if (sent[i] < wanted[i] && end.credits.can_send()) {
            end.send(other, end.credits.spend());
            ++sent[i];
          }
          break;
        case 1:
          if (!end.coming.empty()) end.take();
          break;
        case 2:
          if (end.credits.update_is_due()) end.send(other, end.credits.update());
          break;
        case 3:
          if (end.used > 0 && random.chance(1, 3)) {
            end.credits.posted(end.used);
            end.free_receives += std::exchange(end.used, 0U);
          }
          break;
        }
      }
      ASSERT_TRUE(done());
    }
  }
}

TEST(Credits, more_than_was_allowed_is_noticed) {
  Credits credits;
  EXPECT_EQ(credits.start(3), 2U);
  EXPECT_TRUE(credits.take({}));
  EXPECT_TRUE(credits.take({}));
  EXPECT_FALSE(credits.take({}));
  EXPECT_FALSE(credits.take({.kind = TagKind::credits, .credits = credits_most + 1}));
}

class RdmaReceives : public testing::Test {
protected:
  std::uint32_t replenish() { return replenish(receives); }
  std::uint32_t replenish(Receives& which) {
    to_post.clear();
    const std::uint32_t more = which.replenish(to_post);
    for (const Receive& receive : to_post) posted.push_back(receive.operation->number);
    return more;
  }
  memory::View take(std::uint32_t size) { return take(receives, size); }
  memory::View take(Receives& which, std::uint32_t size) {
    const std::uint32_t slot = posted.front();
    posted.pop_front();
    bool moved = false;
    memory::View view = which.take(slot, size, false, filler, moved);
    to_post.clear();
    (void)which.replenish(slot, to_post);
    for (const Receive& receive : to_post) posted.push_back(receive.operation->number);
    return view;
  }

  std::unique_ptr<memory::PagePool> pool = conformance::make_pool({.page_size = 16384, .pages = 4});
  PageFiller filler{*pool};
  AdversarialProvider provider{std::make_shared<AdversarialFabric>(1)};
  AdversarialEndpoint endpoint{provider, 0};
  OwnReceives receives{endpoint, *pool, 4096, 2, 64};
  std::vector<Receive> to_post;
  std::deque<std::uint32_t> posted; // slots
};

TEST_F(RdmaReceives, are_pages_cut_into_slots) {
  EXPECT_EQ(receives.most(), 8U);
  EXPECT_EQ(replenish(), 8U);
  EXPECT_EQ(pool->available(), 2U);
  EXPECT_EQ(replenish(), 0U);
}

TEST_F(RdmaReceives, a_large_message_stays_and_a_small_one_makes_room) {
  (void)replenish();
  const std::byte* const first = to_post.front().to;
  const memory::View large = take(3000);
  EXPECT_EQ(large.data(), first);
  EXPECT_EQ(posted.size(), 7U);
  const memory::View small = take(100);
  EXPECT_NE(small.page.get(), large.page.get());
  EXPECT_EQ(posted.size(), 7U); // its slot is posted again
}

TEST_F(RdmaReceives, a_page_that_is_used_up_is_replaced_and_one_that_nobody_holds_is_used_again) {
  (void)replenish();
  for (int i = 0; i < 4; ++i) (void)take(4096); // let go at once
  EXPECT_EQ(posted.size(), 8U);
  EXPECT_EQ(pool->available(), 2U);
  std::vector<memory::View> held;
  for (int i = 0; i < 16; ++i) held.push_back(take(4096));
  EXPECT_EQ(pool->available(), 0U);
  EXPECT_TRUE(posted.empty());
  EXPECT_TRUE(receives.starved());
  EXPECT_FALSE(receives.can_replenish());
  held.clear();
  EXPECT_TRUE(receives.can_replenish());
  EXPECT_EQ(replenish(), 8U);
  EXPECT_FALSE(receives.starved());
  receives.give_back();
  EXPECT_EQ(pool->available(), 4U);
}

TEST_F(RdmaReceives, where_there_is_room_only_small_messages_are_moved) {
  const auto large = conformance::make_pool({.page_size = 512U << 10, .pages = 4});
  PageFiller shared_page(*large);
  OwnReceives slots(endpoint, *large, 256U << 10, 2, 64);
  (void)replenish(slots);
  const auto stays = [&](std::uint32_t size, bool roomy) {
    bool moved = false;
    const std::uint32_t slot = posted.front();
    posted.pop_front();
    (void)slots.take(slot, size, roomy, shared_page, moved);
    return !moved;
  };
  EXPECT_FALSE(stays(64U << 10, false));
  EXPECT_TRUE(stays(64U << 10, true));
  EXPECT_FALSE(stays(16U << 10, true));
  EXPECT_TRUE(stays(128U << 10, false));
}

class RdmaSharedReceives : public RdmaReceives {
protected:
  SlotLayout layout{*pool, 4096, 32};
  SharedReceives all{this, *pool, layout, std::make_unique<AdversarialQueue>()};
};

TEST_F(RdmaSharedReceives, no_more_is_promised_than_is_posted) {
  SharedReceives::Share first(all, 3);
  SharedReceives::Share second(all, 3);
  EXPECT_EQ(replenish(first), 3U);
  EXPECT_EQ(posted.size(), 4U); // a page
  EXPECT_EQ(replenish(second), 3U);
  EXPECT_EQ(posted.size(), 8U);
  EXPECT_EQ(replenish(first), 0U);
  std::vector<memory::View> held;
  for (int i = 0; i < 3; ++i) held.push_back(take(first, 4096));
  EXPECT_EQ(posted.size(), 9U); // one more page, since one receive was not enough
  EXPECT_EQ(pool->available(), 1U);
}

TEST_F(RdmaSharedReceives, are_pages_that_fill_up_one_after_the_other) {
  SharedReceives::Share first(all, 4);
  SharedReceives::Share second(all, 4);
  (void)replenish(first);
  (void)replenish(second);
  std::vector<memory::View> held;
  for (int i = 0; i < 4; ++i) held.push_back(take(i % 2 == 0 ? first : second, 4096));
  for (const memory::View& view : held) EXPECT_EQ(view.page.get(), held[0].page.get());
  EXPECT_EQ(pool->available(), 1U);
  held.clear(); // the page was let go
  EXPECT_EQ(pool->available(), 2U);
  const memory::View small = take(first, 100);
  EXPECT_EQ(pool->available(), 1U); // where small messages lie together
}

TEST_F(RdmaSharedReceives, that_find_no_page_go_on_with_what_others_leave) {
  SharedReceives::Share first(all, 8);
  auto second = std::make_unique<SharedReceives::Share>(all, 8);
  auto third = std::make_unique<SharedReceives::Share>(all, 2);
  EXPECT_EQ(replenish(first), 8U);
  EXPECT_EQ(replenish(*second), 8U);
  EXPECT_EQ(replenish(*third), 0U);
  EXPECT_TRUE(third->starved());
  EXPECT_FALSE(third->can_replenish());
  second.reset();
  EXPECT_TRUE(third->can_replenish());
  EXPECT_EQ(replenish(*third), 2U);
  EXPECT_FALSE(third->starved());
  third.reset();
  EXPECT_FALSE(all.unused());
}

TEST_F(RdmaSharedReceives, post_what_was_let_go_rather_than_more_pages) {
  SharedReceives::Share first(all, 4);
  (void)replenish(first);
  for (int i = 0; i < 40; ++i) {
    (void)take(first, i % 4 == 3 ? 100 : 4096); // a small one's slot is posted again
    EXPECT_GE(pool->available(), 1U);
  }
  SharedReceives::Share second(all, 8);
  EXPECT_EQ(replenish(second), 8U);
  EXPECT_FALSE(second.starved());
}

TEST_F(RdmaSharedReceives, are_for_endpoints_of_one_device_with_messages_of_one_size) {
  EXPECT_TRUE(all.suits(this, *pool, layout, 4));
  EXPECT_FALSE(all.suits(&layout, *pool, layout, 4));
  EXPECT_FALSE(all.suits(this, *pool, SlotLayout(*pool, 8192, 32), 4));
  EXPECT_FALSE(all.suits(this, *pool, layout, 256)); // as many as the queue takes, and a page
}

TEST(ReceiveOptions, say_how_many_pages_are_posted) {
  const auto sharing = [](std::string_view url, std::uint32_t connections) {
    return pages_with_sharing(Url::parse(url).value(), connections);
  };
  EXPECT_EQ(pages_without_sharing(Url::parse("ofi+tcp://a:1").value(), 100),
            200U + unidentified_pages);
  EXPECT_EQ(sharing("verbs://a:1", 32), 64U + unidentified_pages);
  EXPECT_EQ(sharing("fault+verbs://a:1?posted=4", 100), 32U * 4 + 68 * 2 + 1 + unidentified_pages);
  EXPECT_EQ(sharing("verbs://a:1?share_above=0", 100), 101U + unidentified_pages);
  EXPECT_FALSE(receive_options(Url::parse("verbs://a:1?posted=1").value()));
  EXPECT_FALSE(receive_options(Url::parse("verbs://a:1?share_above=some").value()));
}

} // namespace
} // namespace fanin::net::rdma
