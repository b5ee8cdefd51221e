#include "fanin/builder/building/assembler.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <utility>

#include "fanin/base/random.hpp"
#include "fanin/builder/building/overdue_blocks.hpp"
#include "fanin/builder/building/page_shortage.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/wire/checksum.hpp"
#include "fanin/wire/super_fragment.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using Table = std::vector<wire::FragmentEntry>;
using Missing = wire::MissingReason;

// Sources 1 and 2 of readout unit 0, source 3 of readout unit 1, which is not required. Batches of
// four events.
System three_sources() {
  System system;
  system.readout_units = {"ru0", "ru1"};
  system.builder_units = {"bu0"};
  system.sources = {{1, "s1", 0, true}, {2, "s2", 0, true}, {3, "s3", 1, false}};
  system.batch_events = 4;
  return system;
}

class Blocks : public ::testing::Test {
protected:
  explicit Blocks(System system = three_sources()) : system_(std::move(system)) {}
  // A block of `source` with these fragments from `first` on, whose payload is payload_, then
  // zeros.
  Assembler::Added add(SourceId source, EventNumber first, const Table& table, Attempt attempt = 0,
                       std::uint32_t offset = 0, std::uint32_t size = ~0U) {
    wire::DataBlockHeader header;
    header.batch_first = first / 4 * 4;
    header.batch_events = block_events_;
    header.source = source;
    header.first_event = first;
    header.attempt = attempt;
    header.entries = static_cast<std::uint32_t>(table.size());
    header.payload_offset = offset;
    std::uint32_t whole = 0;
    for (const auto& entry : table) whole += entry.size();
    header.payload_size = size == ~0U ? whole : size;
    auto page = pool_->take();
    std::memset(page.data(), 0, pool_->page_size());
    std::memcpy(page.data(), &header, sizeof header);
    std::memcpy(page.data() + sizeof header, table.data(), table.size() * sizeof table.front());
    const std::size_t head = sizeof header + table.size() * sizeof table.front();
    std::ranges::copy(payload_, page.data() + head);
    wire::seal_data_block({page.data(), head}, true);
    const memory::View message =
        page.freeze(0, static_cast<std::uint32_t>(head + header.payload_size));
    const auto block = wire::decode_data_block(message.bytes());
    EXPECT_TRUE(block) << block.error().text;
    if (!block) return {};
    return assembler_.add({*block, message, {}, sources_.find(source)});
  }
  Assembly* assign(EventNumber first, Attempt attempt = 0, const std::vector<wire::Gap>& gaps = {},
                   const std::vector<wire::MissingRange>& lost = {}) {
    wire::Assign message{.first = first, .events = 4, .attempt = attempt};
    const auto assigned = assembler_.assign(message, gaps, lost);
    EXPECT_TRUE(assigned.valid);
    blocks_dropped_ = assigned.blocks_dropped;
    return assigned.assembly;
  }
  static wire::FragmentEntry good(std::uint32_t size) {
    const std::vector<std::byte> zeros(size);
    return {size, wire::crc32c(zeros)};
  }
  static Table good_table() { return {good(10), good(0), good(20), good(5)}; }

  System system_;
  SourceIndex sources_{system_};
  std::unique_ptr<memory::PagePool> pool_ =
      memory::PagePool::make(
          {.page_size = 4096, .pages = 64, .arena = {.huge_pages = memory::HugePages::off}})
          .value();
  Assembler assembler_{system_, sources_};
  bool blocks_dropped_ = false;
  std::uint32_t block_events_ = 4; // of the batch, as blocks say
  std::vector<std::byte> payload_;
};

// Source 2 merges 20 and 21, which is not required; slice 1 of 2.
class MergedBlocks : public Blocks {
protected:
  explicit MergedBlocks(bool both_required = false) : Blocks(merging(both_required)) {}
  static System merging(bool both_required) {
    System system = three_sources();
    system.sources[1].merged = {
        {.id = 20, .name = {}, .readout_unit = {}, .required = true},
        {.id = 21, .name = {}, .readout_unit = {}, .required = both_required}};
    system.slice = {.number = 1, .of = 2, .block = 4};
    return system;
  }
  struct Super {
    EventNumber event = 0;
    std::array<bool, 2> present{true, true};
    std::uint16_t version = 1;
    Missing reason = Missing::absent; // of those that are missing
    std::uint32_t flags = 0; // of the others
    RunNumber run = 0;
  };
  // Appends it to the payload of the next block; gives its entry.
  wire::FragmentEntry put(const Super& super) {
    const wire::SuperHeader header{
        .version = super.version, .event = super.event, .count = 2, .run = super.run};
    std::vector<std::byte> bytes(wire::super_head_size(2));
    std::memcpy(bytes.data(), &header, sizeof header);
    for (std::size_t i = 0; i < 2; ++i) {
      wire::SuperEntry entry{20 + static_cast<SourceId>(i), {8 | super.flags, 0}};
      if (!super.present[i]) {
        entry.entry = {wire::fragment_absent, static_cast<std::uint32_t>(super.reason)};
      }
      std::memcpy(bytes.data() + sizeof header + i * sizeof entry, &entry, sizeof entry);
      bytes.resize(bytes.size() + entry.entry.size());
    }
    payload_.insert(payload_.end(), bytes.begin(), bytes.end());
    return {static_cast<std::uint32_t>(bytes.size()), wire::crc32c(bytes)};
  }
  // The batch of event 0, in which source 2 has this.
  Assembly* decide(const Table& table) {
    Assembly* const batch = assign(0);
    (void)add(2, 0, table);
    payload_.clear();
    (void)add(1, 0, good_table());
    EXPECT_EQ(add(3, 0, good_table()).complete, batch);
    assembler_.decide(*batch);
    return batch;
  }
  static void expect_lacks(const wire::MissingRange& range, SourceId member, EventRange events,
                           Missing reason) {
    EXPECT_EQ(range.source, 2U);
    EXPECT_EQ(range.within, 1U);
    EXPECT_EQ(range.member, member);
    EXPECT_EQ((EventRange{range.first, range.first + range.count}), events);
    EXPECT_EQ(static_cast<Missing>(range.reason), reason);
  }
};

class BothRequired : public MergedBlocks {
protected:
  BothRequired() : MergedBlocks(true) {}
};

TEST_F(Blocks, batch_is_complete_when_all_sources_have_answered) {
  Assembly* const batch = assign(8);
  EXPECT_EQ(add(1, 8, good_table()).complete, nullptr);
  EXPECT_EQ(add(2, 8, {good(1), good(1)}).complete, nullptr);
  EXPECT_EQ(add(3, 8, good_table()).complete, nullptr);
  EXPECT_TRUE(assembler_.owes(*batch, {0, 0, 1}));
  EXPECT_FALSE(assembler_.owes(*batch, {1, 0, 1}));
  ASSERT_EQ(add(2, 10, {good(1), good(1)}).complete, batch);
  assembler_.decide(*batch);
  EXPECT_EQ(batch->bytes, 74U);
  EXPECT_EQ(batch->batch.pieces.size(), 4U);
  EXPECT_EQ(batch->incomplete, 0U);
  EXPECT_TRUE(batch->batch.missing.empty());
  EXPECT_TRUE(batch->batch.bad.empty());
  assembler_.release(*batch);
  EXPECT_TRUE(assembler_.assemblies().empty());
}

TEST_F(MergedBlocks, what_super_fragments_lack_makes_events_incomplete_if_it_is_required) {
  Table table = {put({4}), put({5, {true, false}}), put({6, {false, true}}), put({7})};
  for (wire::FragmentEntry& entry : table) entry.size_and_flags |= wire::fragment_truncated;
  const Assembly* const batch = decide(table);
  EXPECT_EQ(batch->incomplete, 1U);
  EXPECT_TRUE(batch->batch.missing.empty());
  EXPECT_TRUE(batch->bad.empty()); // to lack a fragment is no damage
  ASSERT_EQ(batch->missing.size(), 1U);
  expect_lacks(batch->missing[0], 20, {2, 3}, Missing::absent);
}

TEST_F(MergedBlocks, a_fragment_that_was_cut_short_is_damaged) {
  Table cut = good_table();
  cut[0].size_and_flags |= wire::fragment_truncated;
  Assembly* const batch = assign(0);
  (void)add(1, 0, cut);
  (void)add(2, 0, {put({4}), put({5}), put({6}), put({7})});
  payload_.clear();
  ASSERT_EQ(add(3, 0, good_table()).complete, batch);
  assembler_.decide(*batch);
  EXPECT_EQ(batch->incomplete, 0U);
  ASSERT_EQ(batch->batch.bad.size(), 1U);
  EXPECT_EQ(batch->batch.bad[0].event, 0U);
  EXPECT_EQ(batch->batch.bad[0].source, 1U);
}

TEST_F(BothRequired, what_consecutive_events_lack_is_one_range_for_each_member) {
  for (const bool again : {false, true}) { // it forgets what the batch before had
    const Super none{.present = {false, false}, .reason = Missing::lost};
    const Assembly* const batch =
        decide({put({4, none.present, 1, none.reason}), put({5, none.present, 1, none.reason}),
                put({6, {true, false}}), put({7})});
    EXPECT_EQ(batch->incomplete, 3U) << again;
    ASSERT_EQ(batch->missing.size(), 3U);
    expect_lacks(batch->missing[0], 20, {0, 2}, Missing::lost);
    expect_lacks(batch->missing[1], 21, {0, 2}, Missing::lost);
    expect_lacks(batch->missing[2], 21, {2, 3}, Missing::absent);
    assembler_.clear();
  }
}

TEST_F(BothRequired, of_what_events_lack_in_turn_each_is_incomplete) {
  const Assembly* const batch = decide({put({4, {true, false}}), put({5, {false, true}}),
                                        put({6, {true, false}}), put({7, {false, true}})});
  EXPECT_EQ(batch->incomplete, 4U);
  EXPECT_EQ(batch->missing.size(), 4U);
}

TEST_F(MergedBlocks, what_came_damaged_to_the_first_stage_is_reported_once_an_event) {
  Table table = {put({.event = 4, .flags = wire::fragment_bad_number}),
                 put({.event = 5, .flags = wire::fragment_bad_checksum}), put({6}), put({7})};
  ++table[1].crc32c; // and on its way here
  ++table[2].crc32c;
  const Assembly* const batch = decide(table);
  ASSERT_EQ(batch->bad.size(), 3U);
  for (EventNumber event = 0; event < 3; ++event) EXPECT_EQ(batch->bad[event].event, event);
  EXPECT_EQ(batch->bad[0].flags, wire::fragment_bad_number);
  EXPECT_EQ(batch->bad[1].flags, wire::fragment_bad_checksum);
  EXPECT_EQ(batch->batch.bad.size(), 2U); // storage reads the rest itself
}

TEST_F(MergedBlocks, bytes_that_are_no_super_fragment_of_the_event_lack_everything) {
  const auto absent = wire::FragmentEntry::make_absent(wire::AbsentReason::none);
  const Assembly* const batch =
      decide({put({4}), put({.event = 5, .version = 2}), put({.event = 4}), absent});
  EXPECT_EQ(batch->incomplete, 3U);
  EXPECT_EQ(batch->batch.missing.size(), 1U);
  ASSERT_EQ(batch->missing.size(), 2U);
  expect_lacks(batch->missing[1], 2, {1, 3}, Missing::dropped); // all of it
  ASSERT_EQ(assembler_.merged().not_fitting().size(), 1U);
  EXPECT_EQ(
      text_of(assembler_.merged().not_fitting()[0], system_),
      "2 super-fragments of source s2 dropped: that of event 1 is not a super-fragment: see what "
      "its sender sends");
}

TEST_F(MergedBlocks, of_a_slice_with_other_numbers_it_is_said_which_and_where_to_look) {
  for (const bool again : {false, true}) { // it forgets what the batch before had
    const Assembly* const batch = decide({put({4}), put({5}), put({2}), put({3})});
    EXPECT_EQ(batch->incomplete, 2U) << again;
    ASSERT_EQ(assembler_.merged().not_fitting().size(), 1U);
    EXPECT_EQ(text_of(assembler_.merged().not_fitting()[0], system_),
              "2 super-fragments of source s2 dropped: that of event 2 is of the detector's event "
              "2, not 6: see slice.number = 1, slice.of = 2 and slice.block = 4 here, and "
              "event.batch_events and the order of slice.urls of its group");
    assembler_.clear();
  }
  (void)decide({put({4}), put({5}), put({6}), put({7})});
  EXPECT_TRUE(assembler_.merged().not_fitting().empty());
}

TEST_F(MergedBlocks, of_another_run_are_dropped_and_both_runs_are_named) {
  assembler_.begin(42);
  const Assembly* const batch = decide({put({.event = 4, .run = 42}), put({.event = 5, .run = 77}),
                                        put({.event = 6}), put({.event = 7, .run = 77})});
  EXPECT_EQ(batch->incomplete, 2U);
  ASSERT_EQ(assembler_.merged().not_fitting().size(), 1U);
  EXPECT_EQ(text_of(assembler_.merged().not_fitting()[0], system_),
            "2 super-fragments of source s2 dropped: that of event 1 is of run 77, and here run 42 "
            "is built: give both the same `run.number`");
}

// The ledger counts them.
TEST_F(MergedBlocks, of_a_batch_with_many_gaps_all_that_is_of_no_use_is_listed) {
  constexpr std::uint32_t count = 1500;
  const auto pool = memory::PagePool::make({.page_size = 32768, .pages = 1}).value();
  Table table;
  for (std::uint32_t i = 0; i < count; ++i) {
    table.push_back(good(0));
    table.push_back(wire::FragmentEntry::make_absent(wire::AbsentReason::none));
  }
  const auto size = static_cast<std::uint32_t>(table.size() * sizeof table.front());
  auto page = pool->take();
  std::memcpy(page.data(), table.data(), size);
  const memory::View all = page.freeze(0, size);
  const std::vector<storage::SourcePiece> pieces{{.source = 2,
                                                  .range = {0, 2 * count},
                                                  .table = all,
                                                  .payload = all.subview(size, 0),
                                                  .payload_offset = 0}};
  MergedContents contents(system_);
  contents.read(pieces);
  EXPECT_EQ(contents.lacking().size(), count);
  EXPECT_EQ(contents.incomplete().size(), count);
  ASSERT_EQ(contents.not_fitting().size(), 1U);
  EXPECT_EQ(contents.not_fitting()[0].count, count);
}

class NoneRequired : public Blocks {
protected:
  static System optional() {
    System system = three_sources();
    system.sources[2].merged = {{.id = 20, .name = {}, .readout_unit = {}, .required = false},
                                {.id = 30, .name = {}, .readout_unit = {}, .required = false}};
    return system;
  }
  NoneRequired() : Blocks(optional()) {}
};

TEST_F(NoneRequired, what_is_no_super_fragment_is_reported_and_its_event_is_complete) {
  Assembly* const batch = assign(0);
  (void)add(1, 0, good_table());
  (void)add(2, 0, good_table());
  EXPECT_EQ(add(3, 0, good_table()).complete, batch);
  assembler_.decide(*batch);
  EXPECT_EQ(batch->incomplete, 0U);
  ASSERT_EQ(batch->missing.size(), 1U);
  EXPECT_EQ(batch->missing[0].member, 3U);
  EXPECT_EQ(batch->missing[0].count, 4U);
  ASSERT_EQ(assembler_.merged().not_fitting().size(), 1U);
  EXPECT_EQ(assembler_.merged().not_fitting()[0].count, 4U);
}

// Its head may come in several blocks, too.
TEST_F(MergedBlocks, a_super_fragment_in_several_blocks_is_read) {
  for (const bool present : {true, false}) {
    const wire::FragmentEntry entry = put({4, {present, true}});
    const std::vector<std::byte> whole = std::exchange(payload_, {});
    for (std::uint32_t at = 0; at < entry.size(); at += 10) {
      const std::uint32_t size = std::min(10U, entry.size() - at);
      payload_.assign(whole.begin() + at, whole.begin() + at + size);
      (void)add(2, 0, {entry}, 0, at, size);
    }
    payload_.clear();
    (void)add(2, 1, {put({5}), put({6}), put({7})});
    payload_.clear();
    (void)add(1, 0, good_table());
    (void)add(3, 0, good_table());
    Assembly* const batch = assign(0);
    ASSERT_EQ(batch->open_sources, 0U);
    assembler_.decide(*batch);
    EXPECT_EQ(batch->incomplete, present ? 0U : 1U);
    EXPECT_TRUE(batch->batch.bad.empty());
    assembler_.clear();
  }
}

TEST_F(Blocks, blocks_may_come_before_the_assignment) {
  EXPECT_NE(add(1, 0, good_table()).early, nullptr);
  EXPECT_EQ(add(2, 0, good_table()).early, nullptr);
  EXPECT_EQ(add(3, 0, good_table()).complete, nullptr);
  const Assembly* const batch = assign(0);
  EXPECT_FALSE(blocks_dropped_);
  EXPECT_EQ(batch->open_sources, 0U);
}

TEST_F(Blocks, damaged_and_absent_fragments_are_told_apart) {
  Assembly* const batch = assign(0);
  wire::FragmentEntry damaged = good(10);
  ++damaged.crc32c;
  (void)add(1, 0,
            {damaged, wire::FragmentEntry::make_absent(wire::AbsentReason::silent),
             wire::FragmentEntry::make_absent(wire::AbsentReason::silent),
             wire::FragmentEntry::make_absent(wire::AbsentReason::dropped)});
  (void)add(2, 0, good_table());
  ASSERT_EQ(add(3, 0, good_table()).complete, batch);
  assembler_.decide(*batch);
  ASSERT_EQ(batch->batch.bad.size(), 1U);
  EXPECT_EQ(batch->batch.bad[0].event, 0U);
  ASSERT_EQ(batch->batch.missing.size(), 2U);
  EXPECT_EQ(batch->batch.missing[0].events, (EventRange{1, 3}));
  EXPECT_EQ(batch->batch.missing[0].reason, Missing::deadline);
  EXPECT_EQ(batch->batch.missing[1].reason, Missing::dropped);
  EXPECT_EQ(batch->incomplete, 3U);
}

TEST_F(Blocks, fragment_in_several_blocks_has_one_checksum) {
  Assembly* const batch = assign(0);
  const wire::FragmentEntry whole = good(100);
  EXPECT_EQ(add(1, 0, {whole}, 0, 0, 60).wrong, "");
  EXPECT_NE(add(1, 0, {good(90)}, 0, 60, 30).wrong, ""); // they disagree
  EXPECT_NE(add(1, 0, {whole}, 0, 70, 30).wrong, "");    // one is left out
  EXPECT_EQ(add(1, 0, {whole}, 0, 60, 40).wrong, "");
  EXPECT_TRUE(batch->bad.empty());
  EXPECT_EQ(batch->progress[0].next, 1U);
}

TEST_F(Blocks, block_that_was_sent_again_is_stale_and_one_left_out_is_wrong) {
  (void)assign(0);
  (void)add(1, 0, {good(1), good(1)});
  EXPECT_EQ(add(1, 0, {good(1), good(1)}).wrong, "");
  EXPECT_EQ(assembler_.stale(), 1U);
  EXPECT_NE(add(1, 3, {good(1)}).wrong, "");
}

TEST_F(Blocks, only_the_latest_attempt_counts) {
  (void)add(1, 0, good_table(), 0);
  (void)add(1, 0, good_table(), 1); // what came before is thrown away
  EXPECT_EQ(assembler_.late(), 1U);
  (void)add(2, 0, good_table(), 0);
  EXPECT_EQ(assembler_.stale(), 1U);
  Assembly* const batch = assign(0, 1);
  EXPECT_FALSE(blocks_dropped_);
  EXPECT_EQ(batch->open_sources, 2U);
  assembler_.hand_back(*batch);
  (void)add(2, 0, good_table(), 1);
  EXPECT_EQ(assembler_.late(), 2U);
  (void)assign(0, 1);
  EXPECT_TRUE(blocks_dropped_);
}

// Two attempts were handed back before what is under way of the first one has come.
TEST_F(Blocks, rest_of_an_attempt_long_over_begins_no_batch) {
  (void)add(1, 0, {good(1), good(1)}, 1);
  assembler_.hand_back(*assign(0, 1));
  assembler_.hand_back(*assign(0, 2));
  const auto rest = add(1, 2, {good(1), good(1)}, 1);
  EXPECT_EQ(rest.batch, nullptr);
  EXPECT_EQ(rest.wrong, "");
  EXPECT_EQ(assembler_.late(), 1U);
}

TEST_F(Blocks, attempts_wrap) {
  (void)add(1, 0, good_table(), 65'535);
  (void)add(1, 0, good_table(), 1);
  EXPECT_EQ(assembler_.late(), 1U);
  (void)add(1, 4, good_table(), 65'535);
  EXPECT_EQ(assign(4, 1)->open_sources, 3U);
  EXPECT_FALSE(blocks_dropped_);
}

TEST_F(Blocks, dead_readout_unit_is_absent_or_lost_as_the_event_manager_says) {
  Assembly* const batch = assign(0);
  (void)add(1, 0, {good(1), good(1)});
  (void)add(1, 2, {good(50)}, 0, 0, 20); // half a fragment
  (void)add(3, 0, good_table());
  const std::vector<wire::MissingRange> lost{
      {.source = 1, .count = 1, .first = 2, .reason = static_cast<std::uint32_t>(Missing::lost)}};
  EXPECT_TRUE(assembler_.add_lost(lost));
  assembler_.give_up(*batch, 0);
  ASSERT_EQ(batch->open_sources, 0U);
  EXPECT_EQ(batch->bytes, 37U); // without the half
  assembler_.decide(*batch);
  const auto& missing = batch->batch.missing;
  ASSERT_EQ(missing.size(), 3U);
  EXPECT_EQ(missing[0].reason, Missing::lost);
  EXPECT_EQ(missing[1].reason, Missing::absent);
  EXPECT_EQ(missing[1].events, (EventRange{3, 4}));
  EXPECT_EQ(missing[2].events, (EventRange{0, 4}));
  EXPECT_EQ(batch->incomplete, 4U);
}

TEST_F(Blocks, lost_fragments_may_be_named_more_than_once_and_in_any_order) {
  Assembly* const batch = assign(0);
  const auto lost = [](SourceId source, EventNumber first, std::uint32_t count) {
    return wire::MissingRange{
        .source = source, .count = count, .first = first, .reason = 3}; // lost
  };
  const std::vector all{lost(2, 3, 1), lost(1, 2, 1), lost(1, 0, 3), lost(1, 1, 1), lost(2, 0, 1)};
  EXPECT_TRUE(assembler_.add_lost(all));
  for (const NodeId readout : {NodeId{0}, NodeId{1}}) assembler_.give_up(*batch, readout);
  assembler_.decide(*batch);
  const auto reason_of = [&](SourceId source, EventNumber event) {
    for (const auto& one : batch->batch.missing) {
      if (one.source == source && one.events.contains(event)) return one.reason;
    }
    ADD_FAILURE() << source << " has " << event;
    return Missing::absent;
  };
  for (EventNumber event = 0; event < 4; ++event) {
    EXPECT_EQ(reason_of(1, event), event < 3 ? Missing::lost : Missing::absent) << event;
    EXPECT_EQ(reason_of(2, event), event % 3 == 0 ? Missing::lost : Missing::absent) << event;
    EXPECT_EQ(reason_of(3, event), Missing::absent) << event;
  }
}

TEST_F(Blocks, gap_is_no_event_if_all_sources_say_so) {
  Assembly* const batch = assign(0, 0, {{1, 2}, {3, 4}});
  const auto absent = wire::FragmentEntry::make_absent(wire::AbsentReason::none);
  for (const SourceId source : {1U, 2U}) (void)add(source, 0, {good(1), absent, good(1), absent});
  (void)add(3, 0, {good(1), absent, good(1), good(1)});
  assembler_.decide(*batch);
  EXPECT_EQ(batch->batch.gaps, (std::vector<EventRange>{{1, 2}}));
  EXPECT_EQ(batch->batch.missing.size(), 2U); // event 3 of two sources
  EXPECT_EQ(batch->incomplete, 1U);
}

TEST_F(Blocks, gap_that_a_source_knows_nothing_of_is_none) {
  Assembly* const batch = assign(0, 0, {{1, 2}});
  for (const SourceId source : {1U, 2U, 3U}) (void)add(source, 0, good_table());
  assembler_.decide(*batch);
  EXPECT_TRUE(batch->batch.gaps.empty());
  EXPECT_TRUE(batch->batch.missing.empty());
}

TEST_F(Blocks, missing_fragments_are_joined_only_where_they_follow_in_one_source) {
  Assembly* const batch = assign(0);
  const auto absent = wire::FragmentEntry::make_absent(wire::AbsentReason::none);
  (void)add(1, 0, {absent, good(1), absent, absent});
  (void)add(2, 0, {good(1), good(1), good(1), good(1)});
  (void)add(3, 0, {absent, absent, good(1), good(1)});
  assembler_.decide(*batch);
  const auto& missing = batch->batch.missing;
  ASSERT_EQ(missing.size(), 3U);
  EXPECT_EQ(missing[0].events, (EventRange{0, 1}));
  EXPECT_EQ(missing[1].events, (EventRange{2, 4}));
  EXPECT_EQ(missing[2].events, (EventRange{0, 2}));
  EXPECT_EQ(missing[2].source, 3U);
}

TEST_F(Blocks, batches_that_follow_each_other_in_two_sources_are_not_joined) {
  Assembly* const batch = assign(0);
  const auto absent = wire::FragmentEntry::make_absent(wire::AbsentReason::none);
  (void)add(1, 0, {good(1), absent, good(1), good(1)});
  (void)add(2, 0, {good(1), good(1), absent, good(1)});
  (void)add(3, 0, good_table());
  assembler_.decide(*batch);
  ASSERT_EQ(batch->batch.missing.size(), 2U);
  EXPECT_EQ(batch->batch.missing[0].source, 1U);
  EXPECT_EQ(batch->batch.missing[1].source, 2U);
}

TEST_F(Blocks, block_of_a_decided_batch_is_late) {
  Assembly* const batch = assign(0);
  for (const SourceId source : {1U, 2U, 3U}) EXPECT_EQ(add(source, 0, good_table()).early, nullptr);
  assembler_.decide(*batch);
  EXPECT_EQ(add(1, 0, good_table()).batch, nullptr);
  EXPECT_EQ(assembler_.late(), 1U);
  EXPECT_EQ(assembler_.stale(), 0U);
}

TEST_F(Blocks, block_of_a_batch_that_is_cut_otherwise_spoils_it) {
  (void)add(1, 0, good_table());
  block_events_ = 2;
  EXPECT_EQ(add(2, 0, {good(1), good(1)}).batch, nullptr);
  EXPECT_EQ(assembler_.stale(), 1U);
  EXPECT_EQ(assign(0)->open_sources, 2U);
  EXPECT_TRUE(blocks_dropped_);
  (void)add(1, 4, {good(1), good(1)}); // before its assignment to four events
  const Assembly* const batch = assign(4);
  EXPECT_TRUE(blocks_dropped_);
  EXPECT_EQ(batch->range, (EventRange{4, 8}));
  EXPECT_EQ(batch->open_sources, 3U);
  EXPECT_EQ(assembler_.late(), 1U);
}

TEST_F(Blocks, next_event_before_the_end_of_a_fragment_is_wrong) {
  (void)assign(0);
  EXPECT_EQ(add(1, 0, {good(100)}, 0, 0, 60).wrong, "");
  EXPECT_NE(add(1, 1, {good(1)}).wrong, "");
  EXPECT_EQ(assembler_.stale(), 0U);
}

TEST_F(Blocks, fragment_in_several_blocks_may_be_damaged) {
  const Assembly* const batch = assign(0);
  wire::FragmentEntry damaged = good(100);
  ++damaged.crc32c;
  (void)add(1, 0, {damaged}, 0, 0, 60);
  (void)add(1, 0, {damaged}, 0, 60, 40);
  ASSERT_EQ(batch->bad.size(), 1U);
  EXPECT_EQ(batch->bad[0].flags, wire::fragment_bad_checksum);
}

TEST_F(Blocks, early_batches_that_are_gone_make_room_for_others) {
  for (EventNumber first = 0; first < EventNumber{4} * 5000; first += 4) {
    const auto added = add(1, first, good_table());
    ASSERT_NE(added.early, nullptr) << first;
    assembler_.release(*added.early);
  }
  (void)add(1, 0, good_table());
  (void)assign(4);
  assembler_.clear();
  EXPECT_TRUE(assembler_.assemblies().empty());
  EXPECT_NE(add(1, 0, good_table()).early, nullptr);
}

TEST_F(Blocks, assignment_with_gaps_that_cannot_be_is_none) {
  for (const wire::Gap odd : {wire::Gap{2, 2}, wire::Gap{3, 2}, wire::Gap{3, 5}}) {
    const wire::Assign message{.first = 0, .events = 4};
    EXPECT_FALSE(assembler_.assign(message, std::vector{odd}, {}).valid);
    assembler_.clear();
  }
}

TEST_F(Blocks, assignment_in_two_messages_is_one) {
  const wire::Assign begin{.first = 0, .events = 4, .more = 1};
  const auto first = assembler_.assign(begin, std::vector{wire::Gap{0, 1}}, {});
  EXPECT_TRUE(first.valid);
  EXPECT_EQ(first.assembly, nullptr);
  const Assembly* const batch = assign(0, 0, {{2, 3}});
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(batch->gaps.size(), 2U);
}

TEST_F(Blocks, lost_fragments_are_of_assigned_batches_and_of_sources_that_there_are) {
  const auto lost = [](SourceId source, EventNumber first, std::uint32_t count) {
    return std::vector<wire::MissingRange>{
        {.source = source, .count = count, .first = first, .reason = 3}};
  };
  const Assembly* const one = assign(0);
  const Assembly* const early = add(1, 4, good_table()).early;
  const Assembly* const two = assign(8);
  EXPECT_FALSE(assembler_.add_lost(lost(9, 0, 1)));
  EXPECT_FALSE(assembler_.add_lost(lost(1, ~EventNumber{0}, 2)));
  EXPECT_TRUE(assembler_.add_lost(lost(1, 2, 8)));
  EXPECT_TRUE(assembler_.add_lost(lost(1, 12, 4)));
  ASSERT_EQ(one->lost.size(), 1U);
  EXPECT_EQ(one->lost[0].first, 2U);
  EXPECT_EQ(one->lost[0].count, 2U);
  EXPECT_TRUE(early->lost.empty());
  ASSERT_EQ(two->lost.size(), 1U);
  EXPECT_EQ(two->lost[0].first, 8U);
  EXPECT_EQ(two->lost[0].count, 2U);
}

TEST_F(Blocks, readout_unit_that_is_given_up_takes_nothing_of_another_with_it) {
  Assembly* const batch = assign(0);
  (void)add(1, 0, {good(7)});
  (void)add(3, 0, {good(50)}, 0, 0, 20);
  assembler_.give_up(*batch, 1);
  EXPECT_EQ(batch->bytes, 7U);
  EXPECT_EQ(batch->batch.pieces.size(), 1U);
  EXPECT_EQ(batch->open_sources, 2U);
  assembler_.give_up(*batch, 1); // it owes nothing any more
  EXPECT_EQ(batch->open_sources, 2U);
}

TEST_F(Blocks, only_assigned_batches_are_owed) {
  (void)add(1, 0, good_table());
  EXPECT_FALSE(assembler_.owes({0, 0, 1}));
  EXPECT_TRUE(assembler_.owed_by({0, 0, 1}).empty());
  Assembly* const batch = assign(4);
  EXPECT_TRUE(assembler_.owes({0, 0, 1}));
  EXPECT_EQ(assembler_.owed_by({0, 0, 1}), std::vector<Assembly*>{batch});
  (void)add(1, 4, good_table());
  (void)add(2, 4, good_table());
  EXPECT_FALSE(assembler_.owes({0, 0, 1}));
  EXPECT_TRUE(assembler_.owed_by({0, 0, 1}).empty());
  EXPECT_EQ(assembler_.owed_by({1, 0, 1}), std::vector<Assembly*>{batch});
}

TEST_F(Blocks, way_is_gone_when_a_readout_unit_owes_blocks_and_completes_none) {
  OverdueBlocks overdue{2, 1, 100ms, 2s};
  const std::vector<Lane> everybody{{0, 0, 1}, {1, 0, 1}};
  Assembly* const batch = assign(0);
  batch->assigned_at = batch->heard_at = 1s;
  overdue.heard({0, 0, 1});
  overdue.heard({1, 0, 1});
  EXPECT_TRUE(overdue.check(assembler_, 1s, everybody).unreachable.empty());
  (void)add(3, 0, good_table());
  overdue.heard({1, 0, 1});
  const auto found = overdue.check(assembler_, 1s + 100ms, everybody);
  EXPECT_EQ(found.unreachable, (std::vector<Lane>{{0, 0, 1}}));
  EXPECT_TRUE(found.stuck.empty());
  const std::vector<Lane> nobody;
  EXPECT_TRUE(overdue.check(assembler_, 2s, nobody).unreachable.empty());
  EXPECT_EQ(overdue.check(assembler_, 4s, nobody).stuck, std::vector<Assembly*>{batch});
}

// Readout unit 0 has the sources 1 and 2.
TEST_F(Blocks, lane_owes_the_blocks_of_its_sources) {
  const Lane first{0, 0, 2};
  const Lane second{0, 1, 2};
  Assembly* const batch = assign(0);
  (void)add(2, 0, good_table());
  EXPECT_TRUE(assembler_.owes(first));
  EXPECT_FALSE(assembler_.owes(second));
  OverdueBlocks overdue{2, 2, 100ms, 2s};
  batch->assigned_at = batch->heard_at = 1s;
  const std::vector<Lane> both{first, second};
  EXPECT_TRUE(overdue.check(assembler_, 1s, both).unreachable.empty());
  EXPECT_EQ(overdue.check(assembler_, 2s, both).unreachable, std::vector<Lane>{first});
  overdue.begins_again(first);
  EXPECT_TRUE(overdue.check(assembler_, 2s, both).unreachable.empty()); // it has just said hello
}

TEST_F(Blocks, readout_unit_that_sends_in_turn_is_waited_for_longer_the_next_time) {
  OverdueBlocks overdue{2, 1, 100ms, 1s, true};
  const std::vector<Lane> first_one{{0, 0, 1}};
  const auto patience = [&] {
    Duration now = 10s;
    overdue.begins_again({0, 0, 1});
    overdue.heard({0, 0, 1});
    Assembly* const batch = assembler_.find(0);
    batch->assigned_at = batch->heard_at = now;
    while (overdue.check(assembler_, now, first_one).unreachable.empty()) now += 25ms;
    return now - 10s;
  };
  assign(0);
  for (const Duration expected : {100ms, 1000ms, 1000ms}) {
    EXPECT_EQ(patience(), expected);
  }
  overdue.forget(0);
  EXPECT_EQ(patience(), 100ms);
}

TEST_F(Blocks, readout_unit_that_sends_all_again_comes_to_each_batch_again) {
  OverdueBlocks overdue{2, 1, 100ms, 2s};
  const std::vector<Lane> first_one{{0, 0, 1}};
  Assembly* const first = assign(0);
  Assembly* const second = assign(4);
  first->assigned_at = first->heard_at = 1s;
  second->assigned_at = second->heard_at = 2s;
  overdue.heard({0, 0, 1}, *second);
  overdue.begins_again({0, 0, 1});
  overdue.heard({0, 0, 1});
  EXPECT_TRUE(overdue.check(assembler_, 10s, first_one).stuck.empty());
  overdue.heard({0, 0, 1}, *second);
  overdue.heard({0, 0, 1});
  EXPECT_EQ(overdue.check(assembler_, 20s, first_one).stuck, std::vector<Assembly*>{first});
}

TEST_F(Blocks, batch_is_not_stuck_while_its_readout_unit_is_busy_with_earlier_ones) {
  OverdueBlocks overdue{2, 1, 100ms, 2s};
  const std::vector<Lane> everybody{{0, 0, 1}, {1, 0, 1}};
  Assembly* const first = assign(0);
  Assembly* const second = assign(4);
  Assembly* const third = assign(8);
  first->assigned_at = first->heard_at = 1s;
  second->assigned_at = second->heard_at = 2s;
  third->assigned_at = third->heard_at = 3s;
  const auto found = [&](Duration now) {
    for (const Lane& lane : everybody) overdue.heard(lane); // parts of blocks
    return overdue.check(assembler_, now, everybody).stuck;
  };
  EXPECT_TRUE(found(10s).empty());
  overdue.heard({0, 0, 1}, *second);
  EXPECT_TRUE(found(20s).empty()); // the other one has begun none
  overdue.heard({1, 0, 1}, *second);
  EXPECT_EQ(found(30s), std::vector<Assembly*>{first});
}

TEST_F(Blocks, those_that_were_not_assigned_go_first_where_no_page_is_free) {
  (void)add(1, 8, good_table());
  Assembly* const oldest = assign(0);
  Assembly* const next = assign(4);
  Assembly* const early = assembler_.find(8);
  EXPECT_EQ(PageShortage::to_give_up(assembler_), std::vector{early});
  assembler_.throw_away(*early);
  EXPECT_EQ(PageShortage::to_give_up(assembler_), std::vector{next});
  assembler_.hand_back(*next);
  EXPECT_EQ(PageShortage::to_give_up(assembler_), std::vector{oldest}); // it alone has all pages
}

TEST_F(Blocks, storage_gives_pages_back_of_what_is_decided_unless_that_waits_for_earlier_ones) {
  (void)assign(0);
  Assembly* const next = assign(4);
  for (const SourceId source : {1U, 2U, 3U}) (void)add(source, 4, good_table());
  EXPECT_FALSE(PageShortage::storage_has_any(assembler_, false));
  assembler_.decide(*next);
  EXPECT_TRUE(PageShortage::storage_has_any(assembler_, false));
  EXPECT_FALSE(PageShortage::storage_has_any(assembler_, true));
}

TEST(PageShortages, last_when_no_page_was_free_all_the_time) {
  PageShortage shortage{1s};
  Time now{10s};
  const auto lasts = [&](bool short_now, int calls) {
    bool any = false;
    for (; calls > 0; --calls) {
      any = shortage.lasts(short_now, now) || any;
      now += 200ms;
    }
    return any;
  };
  EXPECT_FALSE(lasts(true, 5)); // 800 ms
  EXPECT_FALSE(lasts(false, 1));
  EXPECT_FALSE(lasts(true, 5));
  EXPECT_TRUE(lasts(true, 1));
  EXPECT_FALSE(lasts(true, 1));
}

TEST(PageShortages, do_not_last_while_the_builder_unit_itself_stands_still) {
  PageShortage shortage{1s};
  EXPECT_FALSE(shortage.lasts(true, Time{10s}));
  EXPECT_FALSE(shortage.lasts(true, Time{15s}));
  for (Time now{15200ms}; now < Time{16s}; now += 200ms) EXPECT_FALSE(shortage.lasts(true, now));
  EXPECT_TRUE(shortage.lasts(true, Time{16s}));
}

} // namespace
} // namespace fanin::builder
