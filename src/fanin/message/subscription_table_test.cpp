#include "fanin/message/subscription_table.hpp"

#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "fanin/base/random.hpp"

namespace fanin::message::detail {
namespace {

TEST(SubscriptionTable, who_gets_a_tag_follows_from_what_was_asked_for_in_any_order) {
  const auto pool = memory::PagePool::make({.page_size = 4096, .pages = 4}).value();
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    constexpr Tag tags = 12;
    std::vector<Member> members(4);
    std::vector<std::set<Tag>> expected(members.size());
    for (Member& member : members) member.mode = Mode::high_throughput;
    SubscriptionTable table(*pool);
    std::set<Tag> wanted; // as the changes say
    for (int step = 0; step < 300; ++step) {
      const std::size_t at = random.below(members.size());
      for (std::uint64_t wishes = random.below(8); wishes > 0; --wishes) {
        const Tag tag = random.below(tags);
        const bool subscribed = random.chance(1, 2);
        members[at].ask(tag, subscribed);
        if (subscribed) {
          expected[at].insert(tag);
        } else {
          expected[at].erase(tag);
        }
      }
      table.take_wishes(members[at]);
      table.place(members[at]);
      if (random.chance(1, 2)) {
        for (const Tag tag : table.take_changes()) {
          if (wanted.erase(tag) == 0) wanted.insert(tag);
        }
        std::set<Tag> all;
        for (const auto& tags_of_one : expected) all.insert(tags_of_one.begin(), tags_of_one.end());
        ASSERT_EQ(wanted, all);
        ASSERT_TRUE(table.take_changes().empty());
      }
      ASSERT_TRUE(std::ranges::equal(members[at].tags, expected[at]));
      for (Tag tag = 0; tag < tags; ++tag) {
        std::set<const Member*> got;
        for (const Group* const group : table.find(tag)) {
          for (const Member* const member : group->members) {
            ASSERT_TRUE(got.insert(member).second); // once
          }
        }
        for (std::size_t i = 0; i < members.size(); ++i)
          ASSERT_EQ(got.contains(&members[i]), expected[i].contains(tag));
      }
      std::size_t sum = 0;
      std::size_t most = 0;
      for (const auto& tags_of_one : expected) {
        sum += tags_of_one.size();
        most = std::max(most, tags_of_one.size());
      }
      ASSERT_EQ(table.tags(), sum);
      ASSERT_EQ(table.greatest() == nullptr ? 0 : table.greatest()->tags.size(), most);
      for (const auto& group : table.groups()) ASSERT_FALSE(group->members.empty());
    }
    for (Member& member : members) table.remove(member);
    ASSERT_EQ(table.tags(), 0U);
  }
}

} // namespace
} // namespace fanin::message::detail
