#include "fanin/storage/detail/extent_index.hpp"

#include <array>
#include <numeric>

#include <gtest/gtest.h>

namespace fanin::storage::detail {
namespace {

using Bytes = std::vector<std::byte>;

struct Extents : ::testing::Test {
  Extents() {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
    index.read(extents);
  }
  // The parts that the index finds, and how many.
  std::pair<Bytes, std::size_t> find(std::uint64_t offset, std::uint64_t size) const {
    std::pair<Bytes, std::size_t> found;
    index.each_part(offset, size, [&found](std::span<const std::byte> part) {
      found.first.insert(found.first.end(), part.begin(), part.end());
      ++found.second;
    });
    return found;
  }

  Bytes bytes = Bytes(32);
  // 0 to 9, 20 to 29, 10 to 12: not in the order of the memory
  std::array<iovec, 3> extents{iovec{bytes.data(), 10}, iovec{bytes.data() + 20, 10},
                               iovec{bytes.data() + 10, 3}};
  ExtentIndex index;
};

TEST_F(Extents, have_each_range_of_bytes_in_as_many_parts_as_extents) {
  Bytes all(bytes.begin(), bytes.begin() + 10);
  all.insert(all.end(), bytes.begin() + 20, bytes.begin() + 30);
  all.insert(all.end(), bytes.begin() + 10, bytes.begin() + 13);
  const auto extent_of = [](std::uint64_t at) { return at < 10 ? 0U : at < 20 ? 1U : 2U; };
  for (std::uint64_t begin = 0; begin < all.size(); ++begin) {
    for (std::uint64_t end = begin + 1; end <= all.size(); ++end) {
      const auto [found, parts] = find(begin, end - begin);
      EXPECT_EQ(found, Bytes(all.begin() + static_cast<std::ptrdiff_t>(begin),
                             all.begin() + static_cast<std::ptrdiff_t>(end)));
      EXPECT_EQ(parts, extent_of(end - 1) - extent_of(begin) + 1);
    }
  }
}

TEST_F(Extents, have_no_part_of_an_empty_payload_also_at_the_end) {
  for (const std::uint64_t offset : {0U, 10U, 15U, 23U}) EXPECT_EQ(find(offset, 0).second, 0U);
}

TEST_F(Extents, are_forgotten_when_others_are_read) {
  index.read(std::span(extents).last(1));
  EXPECT_EQ(find(0, 3).first, Bytes(bytes.begin() + 10, bytes.begin() + 13));
}

} // namespace
} // namespace fanin::storage::detail
