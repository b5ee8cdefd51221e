#include "fanin/executive/watched_source.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/memory/page_pool.hpp"

namespace fanin::executive {
namespace {

using ::testing::ElementsAre;

// Writes one fragment in each read.
struct OneByOne final : source::Source {
  EventNumber event = 0;
  std::uint32_t size = 0;
  Result<> start(EventNumber, Time) override { return {}; }
  source::ReadResult read(source::FragmentQueue& queue, Time) override {
    const std::array<std::byte, 64> bytes{};
    EXPECT_NE(queue.write(event, std::span{bytes}.first(size)), source::WriteOutcome::full);
    return {};
  }
};

TEST(WatchedSource, says_the_first_drop_of_each_kind_at_once_and_then_one_line_a_second) {
  const auto pool = memory::PagePool::make({.page_size = 65536, .pages = 4});
  ASSERT_TRUE(pool) << pool.error().text;
  source::FragmentQueue queue({.source = 0x10, .fragment_max = 32}, **pool);
  queue.start(7);
  std::vector<std::string> lines;
  auto one_by_one = std::make_unique<OneByOne>();
  OneByOne& inner = *one_by_one;
  WatchedSource watched(std::move(one_by_one), "left",
                        [&lines](LogLevel, std::string_view text) { lines.emplace_back(text); });
  const auto read = [&](EventNumber event, std::uint32_t size, Duration at) {
    inner.event = event;
    inner.size = size;
    (void)watched.read(queue, Time{} + at);
  };
  using std::chrono::milliseconds;
  read(7, 8, milliseconds{0});
  read(8, 33, milliseconds{0});
  read(9, 33, milliseconds{1});
  read(7, 8, milliseconds{2}); // of another kind
  read(10, 33, milliseconds{900});
  EXPECT_EQ(lines.size(), 2U);
  read(11, 8, milliseconds{1100}); // good, but there is something left to say
  read(12, 8, milliseconds{3000});
  EXPECT_THAT(
      lines,
      ElementsAre("source left (0x10): fragments dropped near event 9: oversize (1 so far)",
                  "source left (0x10): fragments dropped near event 10: number_back (1 so far)",
                  "source left (0x10): fragments dropped near event 12: oversize (3 so far)"));
}

} // namespace
} // namespace fanin::executive
