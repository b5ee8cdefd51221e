// The bytes on the wire: handshake and pages.
#include <gtest/gtest.h>

#include <array>

#include "fanin/message/gathering_page.hpp"
#include "fanin/message/handshake.hpp"
#include "fanin/message/page_format.hpp"

namespace fanin::message {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

const std::vector<std::byte> golden_hello =
    bytes_of({'N', 'T', 'I', 'O', 1, 0, 2, 0, 0, 0, 4,    0, 0, 0, 0, 0,     // page_max 256 KiB
              0,   0,   0,   4,   0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0}); // 64 MiB, 2 MiB

TEST(Hello, has_golden_bytes) {
  const Hello hello{.kind = SocketKind::high_throughput,
                    .page_max = 256U << 10,
                    .message_max = 64U << 20,
                    .lent_max = 2U << 20};
  const auto bytes = std::as_bytes(std::span{&hello, 1});
  EXPECT_EQ(std::vector(bytes.begin(), bytes.end()), golden_hello);
  const auto read = read_hello(golden_hello);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kind, SocketKind::high_throughput);
  EXPECT_EQ(read->message_max, 64U << 20);
}

TEST(Hello, that_is_another_thing_is_told_from_one_of_another_version) {
  const auto with = [](std::size_t at, int value) {
    auto bytes = golden_hello;
    bytes[at] = static_cast<std::byte>(value);
    const auto read = read_hello(bytes);
    return read ? CloseReason::here : read.error();
  };
  EXPECT_EQ(with(0, 'X'), CloseReason::not_a_socket);
  EXPECT_EQ(with(4, 9), CloseReason::wrong_version);
  EXPECT_EQ(with(6, 0), CloseReason::not_a_socket);
  EXPECT_EQ(with(6, 5), CloseReason::not_a_socket);
  EXPECT_EQ(with(7, 3), CloseReason::not_a_socket);
  EXPECT_EQ(with(10, 0), CloseReason::not_a_socket); // takes pages of nothing
  EXPECT_EQ(with(12, 1), CloseReason::not_a_socket);
  EXPECT_EQ(with(7, 2), CloseReason::here); // a refusal is one too
  auto later = golden_hello;
  later[4] = std::byte{9};
  const std::size_t least = offsetof(Hello, kind); // of another version it may end there
  EXPECT_EQ(read_hello(std::span(later).first(least)).error(), CloseReason::wrong_version);
  EXPECT_EQ(read_hello(std::span(later).first(least - 1)).error(), CloseReason::not_a_socket);
  for (std::size_t size = 0; size < golden_hello.size(); ++size)
    EXPECT_FALSE(read_hello(std::span(golden_hello).first(size)));
}

TEST(Page, has_golden_bytes) {
  const auto pool =
      memory::PagePool::make(
          {.page_size = 4096, .pages = 1, .arena = {.huge_pages = memory::HugePages::off}})
          .value();
  GatheringPage page(*pool, 48);
  ASSERT_TRUE(page.open());
  std::memset(pool->arena()->data(), 0xff, 4096);
  const auto first = bytes_of({1, 2, 3});
  std::memcpy(page.append(first.size(), 0x0102), first.data(), first.size());
  ASSERT_NE(page.append(0, 0, FrameHeader::goes_on), nullptr);
  ASSERT_NE(page.append(8, 0, FrameHeader::continued), nullptr);
  std::memset(pool->arena()->data() + 32, 7, 8);
  EXPECT_EQ(page.append(1), nullptr); // 8 bytes are left, and it takes 16
  const auto bytes = page.unsent().bytes();
  EXPECT_EQ(std::vector(bytes.begin(), bytes.end()),
            bytes_of({2, 1, 0, 0, 3, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0, //
                      0, 0, 2, 0, 0, 0, 0, 0,                         //
                      0, 0, 1, 0, 8, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7}));
}

TEST(GatheringPage, goes_on_behind_what_was_sent_and_is_let_go_when_it_is_full) {
  const auto pool =
      memory::PagePool::make(
          {.page_size = 4096, .pages = 1, .arena = {.huge_pages = memory::HugePages::off}})
          .value();
  GatheringPage page(*pool, 4096);
  EXPECT_EQ(page.append(1), nullptr); // not open
  ASSERT_TRUE(page.open());
  EXPECT_FALSE(pool->take());
  ASSERT_NE(page.append(100), nullptr);
  const memory::View first = page.unsent();
  EXPECT_EQ(first.size, frame_size(100));
  page.sent();
  page.suspend();
  EXPECT_EQ(page.append(1), nullptr);
  ASSERT_TRUE(page.open());
  ASSERT_NE(page.append(page.payload_max() - first.size), nullptr);
  EXPECT_FALSE(page.fits(0));
  EXPECT_FALSE(page.append_header(1, 0));
  EXPECT_EQ(page.unsent().offset, first.size);
  page.release();
  EXPECT_FALSE(page.has_page());
}

// All frames of a page; what is left to say when it is malformed.
std::vector<std::uint32_t> sizes_in(std::span<const std::byte> page, PageReader::Step& end,
                                    std::size_t rest = 0) {
  std::vector<std::uint32_t> sizes;
  PageReader reader{page, rest};
  Frame frame;
  while ((end = reader.next(frame)) == PageReader::Step::frame) sizes.push_back(frame.header.size);
  return sizes;
}

TEST(PageReader, refuses_lengths_that_lie) {
  PageReader::Step end{};
  const auto page = bytes_of({0, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0, //
                              0, 0, 0, 0, 1, 0, 0, 0, 9});
  EXPECT_EQ(sizes_in(page, end), (std::vector<std::uint32_t>{3, 1})); // the last one unpadded
  EXPECT_EQ(end, PageReader::Step::end);
  for (const std::size_t cut : {1U, 7U, 10U, 17U, 23U, 24U}) {
    sizes_in(std::span(page).first(cut), end);
    EXPECT_EQ(end, PageReader::Step::malformed) << cut;
  }
  sizes_in(bytes_of({0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}), end);
  EXPECT_EQ(end, PageReader::Step::malformed);
}

TEST(PageReader, takes_the_rest_as_the_payload_of_the_last_header_and_nothing_else) {
  PageReader::Step end{};
  const auto page = bytes_of({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0});
  EXPECT_EQ(sizes_in(page, end, 40), (std::vector<std::uint32_t>{0, 40}));
  EXPECT_EQ(end, PageReader::Step::end);
  for (const std::size_t rest : {0U, 39U, 41U}) {
    sizes_in(page, end, rest);
    EXPECT_EQ(end, PageReader::Step::malformed) << rest;
  }
  sizes_in(std::span(page).first(8), end, 40);
  EXPECT_EQ(end, PageReader::Step::malformed);
}

TEST(Frame, makes_sense_only_where_its_message_is) {
  constexpr auto continued = FrameHeader::continued;
  constexpr auto goes_on = FrameHeader::goes_on;
  EXPECT_TRUE(is_expected({0, 0, 0}, false));
  EXPECT_FALSE(is_expected({0, 0, 0}, true));
  EXPECT_TRUE(is_expected({0, goes_on, 1}, false));
  EXPECT_FALSE(is_expected({0, goes_on, 0}, false));
  EXPECT_FALSE(is_expected({0, continued, 1}, false));
  EXPECT_TRUE(is_expected({0, continued, 1}, true));
  EXPECT_TRUE(is_expected({0, continued | goes_on, 1}, true));
  EXPECT_FALSE(is_expected({0, 4, 1}, false));
  EXPECT_FALSE(is_expected({0, 0x8001, 1}, true));
}

} // namespace
} // namespace fanin::message
