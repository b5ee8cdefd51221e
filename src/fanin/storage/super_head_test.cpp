#include "fanin/storage/super_head.hpp"

#include <array>

#include <gtest/gtest.h>

#include "fanin/wire/super_fragment.hpp"

namespace fanin::storage {
namespace {

struct SuperHeads : ::testing::Test {
  std::vector<std::byte> payload = std::vector<std::byte>(5, std::byte{9});
  std::vector<EventFragment> fragments{
      {.source = 2, .crc32c = 11, .flags = event_truncated, .payload = payload},
      {.source = 9, .crc32c = 12, .flags = 0, .payload = {}}};
  std::vector<FragmentRow> rows{
      {.offset = 100, .source = 2, .size = 5, .crc32c = 11, .flags = event_truncated},
      {.offset = 105, .source = 9, .size = 0, .crc32c = 12, .flags = 0}};
  std::vector<MissingRow> missing{{.event = 4, .source = 3, .reason = 2},
                                  {.event = 4, .source = 10, .reason = 1}};
  std::vector<std::byte> out = std::vector<std::byte>(3, std::byte{1}); // stays before the head
};

TEST_F(SuperHeads, have_present_and_missing_sources_in_ascending_order) {
  append_super_head(6,
                    {.number = 4,
                     .flags = event_incomplete | event_truncated,
                     .fragments = fragments,
                     .missing = missing},
                    out);
  const auto bytes = std::span<const std::byte>(out).subspan(3);
  ASSERT_EQ(bytes.size(), wire::super_head_size(4));
  const wire::SuperHead head(bytes, bytes.size() + 5, 4);
  ASSERT_TRUE(head.good());
  EXPECT_EQ(head.header().event, 4U);
  EXPECT_EQ(head.header().run, 6U);
  EXPECT_EQ(head.header().flags, wire::super_incomplete);
  const std::array expected{
      wire::SuperEntry{2, {5 | wire::fragment_truncated, 11}},
      wire::SuperEntry{3, {wire::fragment_absent, 2}},
      wire::SuperEntry{9, {0, 12}},
      wire::SuperEntry{10, {wire::fragment_absent, 1}},
  };
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(head.entry(i).source, expected[i].source);
    EXPECT_EQ(head.entry(i).entry, expected[i].entry);
  }
}

TEST_F(SuperHeads, are_the_same_for_an_event_and_for_its_rows) {
  append_super_head(
      6, {.number = 4, .flags = event_incomplete, .fragments = fragments, .missing = missing}, out);
  std::vector<std::byte> of_rows = std::vector<std::byte>(3, std::byte{1});
  append_super_head(6, {.event = 4, .flags = event_incomplete}, rows, missing, of_rows);
  EXPECT_EQ(out, of_rows);
}

TEST_F(SuperHeads, of_a_complete_event_have_no_flag) {
  append_super_head(1, {.number = 0, .fragments = fragments}, out);
  const auto bytes = std::span<const std::byte>(out).subspan(3);
  const wire::SuperHead head(bytes, bytes.size() + 5, 2);
  ASSERT_TRUE(head.good());
  EXPECT_EQ(head.header().flags, 0U);
}

} // namespace
} // namespace fanin::storage
