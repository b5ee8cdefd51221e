#include "fanin/message/gather.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace fanin::message {
namespace {

std::vector<std::byte> page_of(std::initializer_list<wire::MessageHeader> headers) {
  std::vector<std::byte> page;
  for (const auto& header : headers) {
    const auto bytes = std::as_bytes(std::span{&header, 1});
    page.insert(page.end(), bytes.begin(), bytes.end());
  }
  return page;
}

bool accept(wire::MessageType, std::span<const std::byte>) { return true; }

TEST(for_each_message, visits_each_message_with_its_body) {
  wire::Clear clear{.first = 7, .events = 3};
  std::vector<std::byte> page;
  for (int i = 0; i < 3; ++i) {
    const wire::MessageHeader header{wire::MessageType::clear, 0, sizeof header + sizeof clear};
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

TEST(for_each_message, refuses_lengths_that_lie) {
  EXPECT_FALSE(for_each_message(page_of({{wire::MessageType::clear, 0, 0}}), accept));
  EXPECT_FALSE(for_each_message(page_of({{wire::MessageType::clear, 0, 4}}), accept));
  EXPECT_FALSE(for_each_message(page_of({{wire::MessageType::clear, 0, 16}}), accept));
  EXPECT_FALSE(for_each_message(page_of({{wire::MessageType::clear, 0, 12}}), accept));
  EXPECT_FALSE(for_each_message(page_of({{wire::MessageType::clear, 0, 0xffffffff}}), accept));
  const auto page = page_of({{wire::MessageType::clear, 0, 8}});
  EXPECT_FALSE(for_each_message(std::span{page}.first(5), accept));
  EXPECT_TRUE(for_each_message(page, accept));
  EXPECT_TRUE(for_each_message({}, accept));
}

} // namespace
} // namespace fanin::message
