#include "fanin/builder/filtering/batch_selection.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include <fmt/format.h>

#include "fanin/builder/filtering/prescale.hpp"
#include "fanin/wire/checksum.hpp"

namespace fanin::builder {
namespace {

constexpr std::uint32_t everything = 1; // the stream of all sources
constexpr std::uint32_t calibration = 2; // the stream of source 7 alone

class Selection : public ::testing::Test {
protected:
  void TearDown() override {
    batch_ = {};
    EXPECT_EQ(pages_.bytes(), 0U);
    EXPECT_EQ(pool_->available(), pool_->pages());
  }
  void add(SourceId source, EventNumber first, const std::vector<std::string>& fragments) {
    const memory::Loan page = pool_->take();
    std::vector<wire::FragmentEntry> table;
    std::string payload;
    for (const std::string& fragment : fragments) {
      table.push_back({static_cast<std::uint32_t>(fragment.size()), 0});
      payload += fragment;
    }
    const auto head = static_cast<std::uint32_t>(table.size() * sizeof table.front());
    std::memcpy(page.data(), table.data(), head);
    std::memcpy(page.data() + head, payload.data(), payload.size());
    batch_.pieces.push_back(
        {.source = source,
         .range = {first, first + fragments.size()},
         .table = page.freeze(0, head),
         .payload = page.freeze(head, static_cast<std::uint32_t>(payload.size()))});
  }
  void add_result(EventNumber event, const std::string& text) {
    const auto bytes = std::as_bytes(std::span{text});
    results_.of_events.push_back({.event = event,
                                  .offset = static_cast<std::uint32_t>(results_.bytes.size()),
                                  .size = static_cast<std::uint32_t>(text.size()),
                                  .crc32c = wire::crc32c(bytes)});
    results_.bytes.insert(results_.bytes.end(), bytes.begin(), bytes.end());
  }
  Selected choose(const std::vector<std::uint32_t>& wanted) {
    batch_.range = {10, 10 + wanted.size()};
    return select(batch_, 1, streams_, wanted, results_, pages_);
  }
  // "source[first,end) fragment|fragment" of each piece.
  std::string left() const {
    std::string text;
    for (const storage::SourcePiece& piece : batch_.pieces) {
      text += piece.source == storage::filter_source ? "result" : fmt::format("{}", piece.source);
      text += fmt::format("[{},{}) ", piece.range.first, piece.range.end);
      const std::string payload{reinterpret_cast<const char*>(piece.payload.bytes().data()),
                                piece.payload.size};
      std::size_t at = 0;
      EXPECT_EQ(piece.table.size, piece.range.count() * sizeof(wire::FragmentEntry));
      for (std::uint64_t i = 0; i < piece.range.count(); ++i) {
        wire::FragmentEntry entry;
        std::memcpy(&entry, piece.table.data() + i * sizeof entry, sizeof entry);
        text += (i == 0 ? "" : "|") + payload.substr(at, entry.size());
        at += entry.size();
      }
      EXPECT_EQ(at, payload.size());
      text += ' ';
    }
    return text;
  }

  std::unique_ptr<memory::PagePool> pool_ =
      memory::PagePool::make(
          {.page_size = 4096, .pages = 16, .arena = {.huge_pages = memory::HugePages::off}})
          .value();
  std::vector<storage::StreamInfo> streams_{{.name = "all"},
                                            {.name = "calibration", .sources = {7}}};
  ResultPages pages_;
  FilterResults results_;
  storage::BuiltBatch batch_;
};

TEST_F(Selection, of_rejected_events_no_fragment_is_left_and_of_accepted_ones_all) {
  add(5, 10, {"a", "bb", "ccc", "d"});
  add(7, 10, {"A", "BB", "CCC", "D"});
  const Selected selected = choose({0, everything, everything, 0});
  EXPECT_EQ(left(), "5[11,13) bb|ccc 7[11,13) BB|CCC ");
  EXPECT_EQ(selected.rejected, 2U);
  EXPECT_EQ(selected.undecided, 0U);
  EXPECT_EQ(batch_.streams, (std::vector<std::uint32_t>{0, everything, everything, 0}));
}

TEST_F(Selection, a_stream_carries_its_sources_only) {
  add(5, 10, {"a", "bb", "ccc", "d", "e"});
  add(7, 10, {"A", "BB", "CCC"});
  add(7, 13, {"D", ""});
  EXPECT_EQ(choose({everything, calibration, everything | calibration, calibration, calibration})
                .rejected,
            0U);
  EXPECT_EQ(left(), "5[10,11) a 5[12,13) ccc 7[10,13) A|BB|CCC 7[13,15) D| ");
}

TEST_F(Selection, an_event_that_no_filter_unit_decided_has_all_fragments) {
  streams_[0].prescale = 1U << 31; // drops all but a few
  add(5, 10, {"a", "b"});
  const Selected selected = choose({everything, storage::error_stream | calibration});
  EXPECT_EQ(left(), "5[11,12) b ");
  EXPECT_EQ(selected.rejected, 1U);
  EXPECT_EQ(selected.undecided, 1U);
  EXPECT_EQ(batch_.streams[1], storage::error_stream | calibration);
}

TEST_F(Selection, pieces_of_one_large_fragment_are_kept_or_left_out_as_they_are) {
  for (const std::uint32_t offset : {0U, 3U}) { // the table has the size of the whole fragment
    add(5, 10, {"abc"});
    add(5, 11, {"xyz"});
    for (std::size_t i = batch_.pieces.size() - 2; i < batch_.pieces.size(); ++i)
      batch_.pieces[i].payload_offset = offset;
  }
  (void)choose({everything, calibration});
  EXPECT_EQ(left(), "5[10,11) abc 5[10,11) abc ");
  EXPECT_EQ(batch_.pieces[0].payload_offset, 0U);
  EXPECT_EQ(batch_.pieces[1].payload_offset, 3U);
}

TEST_F(Selection, numbers_that_no_source_has_are_no_rejected_events) {
  batch_.gaps = {{5, 10}, {9, 11}, {13, 14}};
  EXPECT_EQ(choose({0, 0, everything, 0, 0}).rejected, 2U); // 11 and 14
}

TEST_F(Selection, damage_is_told_of_fragments_that_are_left) {
  batch_.bad = {{.event = 10, .source = 5}, {.event = 11, .source = 5}, {.event = 11, .source = 7}};
  (void)choose({everything, calibration});
  ASSERT_EQ(batch_.bad.size(), 2U);
  EXPECT_EQ(batch_.bad[0].event, 10U);
  EXPECT_EQ(batch_.bad[1].source, 7U);
}

TEST_F(Selection, the_prescale_of_a_stream_is_that_of_its_place_and_of_the_run) {
  streams_[1].prescale = 4;
  (void)choose(std::vector<std::uint32_t>(64, everything | calibration));
  std::size_t kept = 0;
  for (EventNumber event = 10; event < 74; ++event) {
    const bool keeps = prescale_keeps(1, event, 1, 4);
    kept += keeps ? 1 : 0;
    EXPECT_EQ(batch_.streams[event - 10], keeps ? everything | calibration : everything) << event;
  }
  EXPECT_GT(kept, 0U);
  EXPECT_LT(kept, 64U);
}

TEST_F(Selection, results_of_accepted_events_are_a_source_of_their_own) {
  add(5, 10, {"a"});
  add_result(10, "one");
  add_result(11, "rejected");
  add_result(12, "");
  add_result(13, "two");
  add_result(15, "three");
  (void)choose({everything, 0, everything, calibration, everything, everything});
  EXPECT_EQ(left(), "5[10,11) a result[10,11) one result[12,14) |two result[15,16) three ");
  wire::FragmentEntry entry;
  std::memcpy(&entry, batch_.pieces[2].table.data() + sizeof entry, sizeof entry);
  EXPECT_EQ(entry, (wire::FragmentEntry{3, results_.of_events[3].crc32c}));
  EXPECT_EQ(pages_.bytes(), 4 * sizeof entry + 11); // until they are written
}

TEST_F(Selection, where_all_results_are_of_rejected_events_there_is_none) {
  add_result(10, "rejected");
  (void)choose({0});
  EXPECT_EQ(left(), "");
  EXPECT_EQ(pages_.bytes(), 0U);
}

} // namespace
} // namespace fanin::builder
