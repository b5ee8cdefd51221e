// Files of the second of two stages: the detector's numbers, and what super-fragments merge.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "fanin/storage/inspect.hpp"
#include "fanin/storage/run_file_reader.hpp"
#include "fanin/storage/run_file_writer.hpp"
#include "fanin/storage/testing/batch_maker.hpp"
#include "fanin/storage/verify.hpp"
#include "fanin/wire/checksum.hpp"
#include "fanin/wire/super_fragment.hpp"

namespace fanin::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::payload_of;
using testing::TemporaryDirectory;
using Bytes = std::vector<std::byte>;

constexpr wire::FragmentEntry lost_there{wire::fragment_absent,
                                         static_cast<std::uint32_t>(wire::MissingReason::lost)};

// Source 500 merges 10 and 40, source 501 merges 20 and 30: rows are not in the order of pieces.
// Slice 1 of 2, blocks of 4: its events 4 to 7 are 12 to 15.
class MergedFile : public ::testing::Test {
protected:
  MergedFile() {
    options_.directory = directory_.path();
    options_.run = 3;
    options_.node = "bu0";
    options_.sources = testing::make_sources(4);
    options_.sources[3].required = false; // 40
    options_.merged = {{501, {options_.sources[1], options_.sources[2]}},
                       {500, {options_.sources[0], options_.sources[3]}}};
    options_.slice = {.number = 1, .of = 2, .block = 4};
    batch_.range = {4, 8};
  }

  // Of the detector's event, with these entries; a present one has the payload of its source.
  static Bytes super(EventNumber event, const std::vector<wire::SuperEntry>& table,
                     std::uint16_t flags = 0) {
    const wire::SuperHeader header{
        .flags = flags, .event = event, .count = static_cast<std::uint32_t>(table.size())};
    Bytes bytes(wire::super_head_size(table.size()));
    std::memcpy(bytes.data(), &header, sizeof header);
    for (std::size_t i = 0; i < table.size(); ++i) {
      wire::SuperEntry entry = table[i];
      if (!entry.entry.absent()) {
        const Bytes payload = payload_of(event, entry.source, entry.entry.size());
        entry.entry.crc32c = wire::crc32c(payload);
        bytes.insert(bytes.end(), payload.begin(), payload.end());
      }
      std::memcpy(bytes.data() + sizeof header + i * sizeof entry, &entry, sizeof entry);
    }
    return bytes;
  }
  // Puts a super-fragment of the slice's event into the batch, in pieces of at most `most` bytes.
  void add(SourceId source, EventNumber own, const Bytes& bytes, std::size_t most = 16384) {
    const wire::FragmentEntry entry{static_cast<std::uint32_t>(bytes.size()), 0};
    for (std::size_t at = 0; at < bytes.size(); at += most) {
      const auto size = static_cast<std::uint32_t>(std::min(most, bytes.size() - at));
      auto page = pool_->take();
      std::memcpy(page.data(), &entry, sizeof entry);
      std::memcpy(page.data() + sizeof entry, bytes.data() + at, size);
      const memory::View all = page.freeze(0, sizeof entry + size);
      batch_.pieces.push_back({.source = source,
                               .range = {own, own + 1},
                               .table = all.subview(0, sizeof entry),
                               .payload = all.subview(sizeof entry, size),
                               .payload_offset = static_cast<std::uint32_t>(at)});
    }
  }
  void add_all(EventNumber own, EventNumber event) {
    add(500, own, super(event, {{10, {100, 0}}, {40, {7, 0}}}));
    add(501, own, super(event, {{20, {0, 0}}, {30, {300, 0}}}));
  }
  VerifyResult write() {
    auto writer = RunFileWriter::create(options_, 1);
    EXPECT_TRUE(writer);
    path_ = (*writer)->path();
    const BuiltBatch* const group = &batch_;
    EXPECT_TRUE((*writer)->append({&group, 1}));
    EXPECT_TRUE((*writer)->close());
    return verify(std::vector{path_}, {}).value();
  }

  TemporaryDirectory directory_;
  RunFileOptions options_;
  std::unique_ptr<memory::PagePool> pool_ =
      memory::PagePool::make({.page_size = 32768, .pages = 64}).value();
  BuiltBatch batch_;
  std::string path_;
};

TEST_F(MergedFile, has_the_detectors_numbers_and_the_sources_of_the_first_stage) {
  for (EventNumber own = 4; own < 8; ++own) add_all(own, own + 8);
  const auto found = write();
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_EQ(found.events, 4U);
  EXPECT_EQ(found.complete, 4U);
  EXPECT_EQ(found.crc_errors, 0U);
  EXPECT_THAT(inspect_event(path_, 12, {}).value(), HasSubstr("event 12"));
  EXPECT_FALSE(inspect_event(path_, 4, {}));
  const auto file = RunFileReader::open(path_).value();
  ASSERT_EQ(file->info().sources.size(), 4U);
  EXPECT_EQ(file->info().sources[3].id, 40U);
}

TEST_F(MergedFile, what_the_first_stage_lacks_is_missing_with_its_reason) {
  add(500, 4, super(12, {{10, {5, 0}}, {40, lost_there}})); // an optional one
  add(501, 4, super(12, {{20, lost_there}, {30, {5, 0}}}, wire::super_incomplete));
  for (EventNumber own = 5; own < 8; ++own) add_all(own, own + 8);
  const auto found = write();
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_EQ(found.incomplete, 1U);
  EXPECT_THAT(found.missing, ElementsAre(HasSubstr("source-20), lost with its readout unit")));
}

TEST_F(MergedFile, of_a_super_fragment_that_is_missing_all_sources_are) {
  for (EventNumber own = 4; own < 7; ++own) add_all(own, own + 8);
  add(500, 7, super(15, {{10, {5, 0}}, {40, {5, 0}}}));
  batch_.missing.push_back({{7, 8}, 501, wire::MissingReason::deadline});
  const auto found = write();
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_EQ(found.incomplete, 1U);
  EXPECT_THAT(found.missing,
              ElementsAre(HasSubstr("event 15 lacks source 0x14 (source-20), silent at "
                                    "the deadline; source 0x1e (source-30), silent")));
}

TEST_F(MergedFile, may_have_a_super_fragment_in_pieces_its_head_too) {
  for (EventNumber own = 4; own < 7; ++own) add_all(own, own + 8);
  add(500, 7, super(15, {{10, {90, 0}}, {40, {5, 0}}}), 10);
  add(501, 7, super(15, {{20, {90, 0}}, {30, {5, 0}}}), 47);
  const auto found = write();
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_EQ(found.complete, 4U);
  EXPECT_EQ(found.crc_errors, 0U);
}

TEST_F(MergedFile, of_bytes_that_are_no_super_fragment_all_sources_are_missing) {
  for (EventNumber own = 5; own < 8; ++own) add_all(own, own + 8);
  Bytes broken = super(12, {{10, {5, 0}}, {40, {5, 0}}});
  broken[0] = std::byte{0};
  add(500, 4, broken);
  add(501, 4, super(13, {{20, {5, 0}}, {30, {5, 0}}})); // of another event
  const auto found = write();
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_EQ(found.incomplete, 1U);
  EXPECT_THAT(found.missing,
              ElementsAre(HasSubstr("event 12 lacks source 0xa (source-10), dropped at "
                                    "its source; source 0x14 (source-20), dropped at "
                                    "its source; source 0x1e (source-30), dropped")));
}

TEST_F(MergedFile, of_a_damaged_super_fragment_those_are_marked_whose_checksum_differs) {
  for (EventNumber own = 5; own < 8; ++own) add_all(own, own + 8);
  Bytes damaged = super(12, {{10, {50, 0}}, {40, {50, 0}}});
  damaged.back() ^= std::byte{1};
  add(500, 4, damaged, 30);
  add(501, 4, super(12, {{20, {5, 0}}, {30, {5, 0}}}));
  batch_.bad.push_back({4, 500, wire::fragment_bad_checksum});
  const auto found = write();
  EXPECT_EQ(found.crc_errors, 1U);
  EXPECT_EQ(found.flagged, 1U);
  EXPECT_THAT(found.problems, ElementsAre(HasSubstr("event 12, source 0x28")));
}

TEST_F(MergedFile, of_a_super_fragment_whose_table_is_damaged_all_are_marked) {
  for (EventNumber own = 5; own < 8; ++own) add_all(own, own + 8);
  add(500, 4, super(12, {{10, {50, 0}}, {40, {50, 0}}}));
  add(501, 4, super(12, {{20, {5, 0}}, {30, lost_there}}));
  batch_.bad.push_back({4, 500, wire::fragment_bad_checksum});
  batch_.bad.push_back({4, 501, wire::fragment_bad_checksum | wire::fragment_bad_number});
  const auto found = write();
  EXPECT_EQ(found.crc_errors, 0U);
  EXPECT_EQ(found.flagged, 3U);
  EXPECT_THAT(found.problems, IsEmpty());
}

// The event is damaged though nothing of the fragment is there to be marked.
TEST_F(MergedFile, an_event_whose_damaged_super_fragment_has_nothing_is_marked) {
  for (EventNumber own = 5; own < 8; ++own) add_all(own, own + 8);
  add(500, 4, Bytes(100));
  add(501, 4, super(12, {{20, lost_there}, {30, lost_there}}));
  batch_.bad.push_back({4, 500, wire::fragment_bad_checksum});
  const auto found = write();
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_EQ(found.incomplete, 1U);
  std::vector<EventRow> rows(1);
  ASSERT_TRUE(RunFileReader::open(path_).value()->read_events(0, rows));
  EXPECT_EQ(rows[0].flags, event_incomplete | event_bad_checksum);
}

TEST_F(MergedFile, gaps_have_the_detectors_numbers) {
  batch_.gaps = {{0, 3}, {5, 6}};
  for (const EventNumber own : {4U, 6U, 7U}) add_all(own, own + 8);
  const auto found = write();
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_EQ(found.events, 3U);
  EXPECT_EQ(found.gaps, 4U); // 4 to 6, and 13
}

} // namespace
} // namespace fanin::storage
