#include "fanin/builder/control/control_batcher.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "fanin/builder/testing/stub_transport.hpp"

namespace fanin::builder {
namespace {

std::vector<std::byte> page_of(std::initializer_list<message::FrameHeader> headers) {
  std::vector<std::byte> page;
  for (const auto& header : headers) {
    const auto bytes = std::as_bytes(std::span{&header, 1});
    page.insert(page.end(), bytes.begin(), bytes.end());
  }
  return page;
}

bool accept(wire::MessageType, std::span<const std::byte>) { return true; }

TEST(ForEachMessage, visits_each_message_with_its_body) {
  wire::Clear clear{.first = 7, .end = 10};
  std::vector<std::byte> page;
  for (int i = 0; i < 3; ++i) {
    const message::FrameHeader header{static_cast<std::uint16_t>(wire::MessageType::clear), 0,
                                      sizeof clear};
    const auto head = std::as_bytes(std::span{&header, 1});
    const auto body = std::as_bytes(std::span{&clear, 1});
    page.insert(page.end(), head.begin(), head.end());
    page.insert(page.end(), body.begin(), body.end());
  }
  int count = 0;
  EXPECT_TRUE(for_each_message(page, [&](wire::MessageType type, std::span<const std::byte> body) {
    wire::MessageReader reader{body};
    wire::Clear read;
    EXPECT_EQ(type, wire::MessageType::clear);
    EXPECT_TRUE(reader.read(read));
    EXPECT_EQ(read.first, 7U);
    ++count;
    return true;
  }));
  EXPECT_EQ(count, 3);
}

TEST(ForEachMessage, refuses_lengths_that_lie) {
  constexpr auto clear = static_cast<std::uint16_t>(wire::MessageType::clear);
  EXPECT_FALSE(for_each_message(page_of({{clear, 0, 8}}), accept));
  EXPECT_FALSE(for_each_message(page_of({{clear, 0, 4}, {clear, 0, 0}}), accept));
  EXPECT_FALSE(for_each_message(page_of({{clear, 0, 0xffffffff}}), accept));
  EXPECT_FALSE(for_each_message(page_of({{clear, 1, 0}}), accept));
  const auto page = page_of({{clear, 0, 0}});
  EXPECT_FALSE(for_each_message(std::span{page}.first(5), accept));
  EXPECT_TRUE(for_each_message(page, accept));
  EXPECT_TRUE(for_each_message({}, accept));
}

TEST(ControlBatcher, who_asks_for_room_first_never_fails) {
  const auto pool =
      memory::PagePool::make(
          {.page_size = 4096, .pages = 3, .arena = {.huge_pages = memory::HugePages::off}})
          .value();
  testing::StubTransport transport;
  ControlBatcher batcher{transport.link(), *pool};
  const auto fill = [&] {
    int said = 0;
    for (; batcher.roomy(); ++said) batcher.append(wire::Horizon{7});
    return said;
  };
  transport.blocked = true;
  EXPECT_GT(fill(), 50);
  EXPECT_FALSE(batcher.roomy());
  EXPECT_FALSE(batcher.failed());
  transport.blocked = false;
  EXPECT_GT(fill(), 100); // until the pool is empty
  EXPECT_FALSE(batcher.failed());
  transport.sent.clear();
  EXPECT_TRUE(batcher.roomy(batcher.room_max()));
  transport.blocked = true;
  while (!batcher.failed()) batcher.append(wire::Horizon{7}); // who does not ask
  transport.sent.clear();
}

} // namespace
} // namespace fanin::builder
