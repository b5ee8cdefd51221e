#include "fanin/wire/filter.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace fanin::wire {
namespace {

using Bytes = std::vector<std::byte>;

template <class... Parts>
Bytes message_of(const Parts&... parts) {
  Bytes bytes;
  const auto add = [&](std::span<const std::byte> more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
  };
  (add(std::as_bytes(std::span(&parts, 1))), ...);
  return bytes;
}

Bytes with(Bytes bytes, std::size_t more) {
  bytes.resize(bytes.size() + more);
  return bytes;
}

template <class Decode>
void expect_no_part_to_do(const Bytes& whole, Decode decode) {
  EXPECT_TRUE(decode(whole).has_value());
  for (std::size_t size = 0; size < whole.size(); ++size) { // with nothing behind it to read
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(decode(cut).has_value()) << size;
  }
}

TEST(FilterMessages, of_another_kind_are_refused) {
  const FilterHello hello{.ahead = 2};
  expect_no_part_to_do(message_of(hello), decode_filter_hello);
  FilterHello other = hello;
  other.header.magic ^= 1;
  EXPECT_EQ(decode_filter_hello(message_of(other)).error().kind, ErrorKind::malformed);
  other = hello;
  other.header.type = FilterMessage::batch;
  EXPECT_EQ(decode_filter_hello(message_of(other)).error().kind, ErrorKind::malformed);
}

TEST(FilterMessages, of_another_version_are_said_to_be_only_in_a_hello) {
  FilterHello hello{.ahead = 2};
  ++hello.header.version;
  EXPECT_EQ(decode_filter_hello(message_of(hello)).error().kind, ErrorKind::refused);
  FilterBatch batch{.events = 1};
  ++batch.header.version;
  EXPECT_EQ(decode_filter_batch(message_of(batch)).error().kind, ErrorKind::malformed);
}

TEST(FilterHello, asks_for_one_batch_at_least_and_not_for_too_many) {
  for (const std::uint32_t ahead : {1U, filter_ahead_max})
    EXPECT_TRUE(decode_filter_hello(message_of(FilterHello{.ahead = ahead})));
  for (const std::uint32_t ahead : {0U, filter_ahead_max + 1})
    EXPECT_FALSE(decode_filter_hello(message_of(FilterHello{.ahead = ahead})));
}

TEST(FilterBatch, has_an_event_to_decide) {
  expect_no_part_to_do(message_of(FilterBatch{.first = 7, .events = 2, .from = 1}),
                       decode_filter_batch);
  EXPECT_FALSE(decode_filter_batch(message_of(FilterBatch{.first = 7, .events = 2, .from = 2})));
  EXPECT_FALSE(decode_filter_batch(message_of(FilterBatch{.first = ~0ULL, .events = 2})));
}

TEST(FilterRefusal, is_one_in_any_version_and_has_a_text) {
  FilterRefuse refuse{.text_size = filter_refusal_max};
  ++refuse.header.version;
  EXPECT_TRUE(is_filter_refusal(message_of(refuse.header)));
  const Bytes header = message_of(refuse.header);
  EXPECT_FALSE(is_filter_refusal(std::span(header).first(header.size() - 1)));
  EXPECT_FALSE(is_filter_refusal(message_of(FilterHello{})));
  FilterHeader other = refuse.header;
  other.magic ^= 1;
  EXPECT_FALSE(is_filter_refusal(message_of(other)));
  expect_no_part_to_do(with(message_of(refuse), filter_refusal_max), decode_filter_refusal);
  expect_no_part_to_do(message_of(FilterRefuse{}), decode_filter_refusal);
  EXPECT_FALSE(decode_filter_refusal(with(message_of(refuse), filter_refusal_max + 1)));
  refuse.text_size = filter_refusal_max + 1;
  EXPECT_FALSE(decode_filter_refusal(with(message_of(refuse), filter_refusal_max + 1)));
}

TEST(FilterDecided, has_the_decisions_and_results_that_it_says) {
  const FilterDecided two{.count = 2};
  const FilterDecision large{.streams = 1, .result_size = filter_result_max};
  const Bytes good =
      with(message_of(two, large, FilterDecision{.result_size = 3}), filter_result_max + 3);
  expect_no_part_to_do(good, decode_filter_decided);
  EXPECT_FALSE(decode_filter_decided(with(good, 1)));
  const auto view = decode_filter_decided(good);
  ASSERT_EQ(view->decisions.size(), 2U);
  EXPECT_EQ(view->decisions[0].streams, 1U);
  EXPECT_EQ(view->results.size(), filter_result_max + 3);
  EXPECT_TRUE(decode_filter_decided(message_of(FilterDecided{}))) << "a sign of life";
  EXPECT_FALSE(decode_filter_decided(with(
      message_of(FilterDecided{.count = 1}, FilterDecision{.result_size = filter_result_max + 1}),
      filter_result_max + 1)));
}

} // namespace
} // namespace fanin::wire
