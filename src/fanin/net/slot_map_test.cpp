#include "fanin/net/slot_map.hpp"

#include <gtest/gtest.h>

namespace fanin::net {
namespace {

enum class Id : std::uint64_t { none = 0 };

TEST(SlotMap, an_id_is_never_used_twice_and_its_two_highest_bits_stay_free) {
  using Map = SlotMap<Id, int>;
  Map map(Map::uses_max - 3);
  std::uint64_t last = 0;
  for (int i = 0; i < 10; ++i) {
    const auto [id, value] = map.emplace(i);
    EXPECT_EQ(static_cast<std::uint64_t>(id) >> 62, 0U);
    EXPECT_NE(static_cast<std::uint64_t>(id), last);
    last = static_cast<std::uint64_t>(id);
    EXPECT_EQ(*map.find(id), i);
    map.erase(id);
    EXPECT_EQ(map.find(id), nullptr);
    EXPECT_EQ(map.size(), 0U);
  }
}

} // namespace
} // namespace fanin::net
