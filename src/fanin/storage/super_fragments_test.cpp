#include "fanin/storage/super_fragments.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "fanin/source/own_checksum.hpp"
#include "fanin/storage/testing/batch_maker.hpp"
#include "fanin/wire/checksum.hpp"
#include "fanin/wire/super_fragment.hpp"

namespace fanin::storage {
namespace {

using testing::BatchMaker;
using Bytes = std::vector<std::byte>;

constexpr SourceId slice_source = 0x500;
constexpr std::size_t header_size = sizeof(source::CheckedBytes<source::ReceiveHeader>);

Bytes bytes_of(const SuperFragments& batch, std::size_t message, std::uint64_t from = 0) {
  std::vector<iovec> parts;
  batch.append(message, from, parts);
  Bytes bytes;
  for (const iovec& part : parts) {
    const auto* const data = static_cast<const std::byte*>(part.iov_base);
    bytes.insert(bytes.end(), data, data + part.iov_len);
  }
  return bytes;
}

TEST(SuperFragments, have_all_sources_of_an_event_with_their_payload) {
  BatchMaker maker(testing::make_sources(3));
  BuiltBatch batch = maker.make(7, {12, 16}, [](EventNumber event, SourceId source) {
    const bool absent = event == 13 && source == 20;
    return testing::FragmentPlan{.absent = absent, .size = absent ? 0 : source * 1000};
  });
  batch.missing.push_back({{13, 14}, 20, wire::MissingReason::lost});
  batch.bad.push_back({14, 30, wire::fragment_bad_checksum});
  const auto sources = testing::make_sources(3);
  const SuperFragments events(std::move(batch),
                              {sources, 9, {.number = 1, .of = 3, .block = 4}, slice_source});
  EXPECT_EQ(events.ticket(), 7U);
  ASSERT_EQ(events.events(), 4U);
  ASSERT_EQ(events.messages(), 5U);
  EXPECT_EQ(events.last(), 7U); // 12 to 15 are 4 to 7 of the slice
  for (std::size_t i = 0; i < 4; ++i) {
    const Bytes bytes = bytes_of(events, i);
    ASSERT_EQ(bytes.size(), events.bytes(i));
    source::ReceiveHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    EXPECT_TRUE(source::own_checksum_fits(std::span(bytes).first(header_size)));
    EXPECT_EQ(header.event, 4 + i);
    EXPECT_EQ(header.source, slice_source);
    EXPECT_EQ(header.flags, source::receive_has_crc | (i == 1 ? source::receive_truncated : 0));
    const auto fragment = std::span(bytes).subspan(header_size);
    EXPECT_EQ(header.crc32c, wire::crc32c(fragment));
    ASSERT_EQ(header.size, fragment.size());
    const wire::SuperHead head(fragment, fragment.size(), 3);
    ASSERT_TRUE(head.good());
    EXPECT_EQ(head.header().event, 12 + i);
    EXPECT_EQ(head.header().run, 9U);
    EXPECT_EQ(head.header().flags, i == 1 ? wire::super_incomplete : 0);
    std::size_t at = wire::super_head_size(3);
    for (std::size_t k = 0; k < 3; ++k) {
      const wire::SuperEntry entry = head.entry(k);
      EXPECT_EQ(entry.source, 10 * (k + 1));
      if (i == 1 && k == 1) {
        EXPECT_TRUE(entry.entry.absent());
        EXPECT_EQ(entry.entry.crc32c, static_cast<std::uint32_t>(wire::MissingReason::lost));
        continue;
      }
      const auto payload = fragment.subspan(at, entry.entry.size());
      EXPECT_EQ(wire::crc32c(payload), entry.entry.crc32c);
      at += payload.size();
      EXPECT_EQ(entry.entry.flags(), i == 2 && k == 2 ? wire::fragment_bad_checksum : 0U);
    }
    for (const std::size_t from : {1U, 24U, 30U, 100U, 11000U, 39000U}) {
      const Bytes rest = bytes_of(events, i, from);
      ASSERT_EQ(rest.size(), bytes.size() - from);
      EXPECT_TRUE(std::ranges::equal(rest, std::span(bytes).subspan(from)));
    }
  }
  EXPECT_EQ(bytes_of(events, 4).size(), header_size);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(events.number(i), 4 + i);
}

// The slice is to find what changes on the way to it, and not once more what came damaged.
TEST(SuperFragments, have_the_checksum_of_their_bytes_whatever_these_are) {
  const auto sources = testing::make_sources(2);
  BatchMaker maker(sources, 64, 4096);
  BuiltBatch batch = maker.make(
      1, {0, 2}, [](EventNumber, SourceId) { return testing::FragmentPlan{.size = 9000}; });
  for (const SourcePiece& piece : batch.pieces) {
    if (piece.source != 20 || piece.range.first != 1) continue;
    const_cast<std::byte*>(piece.payload.data())[5] ^= std::byte{1};
  }
  batch.bad.push_back({1, 20, wire::fragment_bad_checksum});
  const SuperFragments events(std::move(batch), {sources, 1, {}, slice_source});
  for (std::size_t i = 0; i < 2; ++i) {
    const Bytes bytes = bytes_of(events, i);
    source::ReceiveHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    EXPECT_EQ(header.crc32c, wire::crc32c(std::span(bytes).subspan(header_size))) << i;
  }
}

TEST(SuperFragments, of_a_run_without_checksums_have_none) {
  const auto sources = testing::make_sources(2);
  BatchMaker maker(sources);
  const SuperFragments events(maker.make(1, {0, 1}), {sources, 1, {}, slice_source, false});
  source::ReceiveHeader header;
  std::memcpy(&header, bytes_of(events, 0).data(), sizeof header);
  EXPECT_EQ(header.flags, 0U);
}

TEST(SuperFragments, end_with_the_number_behind_the_batch) {
  const auto sources = testing::make_sources(2);
  const wire::Slice slice{.number = 1, .of = 3, .block = 4};
  const auto end_of = [](const SuperFragments& events) {
    source::ReceiveHeader header;
    const Bytes bytes = bytes_of(events, events.events());
    EXPECT_EQ(bytes.size(), header_size);
    EXPECT_TRUE(source::own_checksum_fits(bytes));
    std::memcpy(&header, bytes.data(), sizeof header);
    EXPECT_EQ(header.kind, source::ReceiveKind::skip_to);
    EXPECT_EQ(header.event, events.end());
    return header.event;
  };
  BuiltBatch without;
  without.range = {16, 20};
  without.gaps.push_back({16, 20});
  const SuperFragments none(std::move(without), {sources, 1, slice, slice_source});
  EXPECT_EQ(none.events(), 0U);
  EXPECT_EQ(end_of(none), 8U);
  EXPECT_EQ(none.number(0), 8U);

  BatchMaker maker(sources);
  BuiltBatch some = maker.make(1, {12, 14});
  some.range = {12, 16};
  some.gaps.push_back({14, 16});
  const SuperFragments events(std::move(some), {sources, 1, slice, slice_source});
  EXPECT_EQ(events.first(), 4U);
  EXPECT_EQ(events.last(), 5U);
  EXPECT_EQ(end_of(events), 8U);
}

} // namespace
} // namespace fanin::storage
