#include "fanin/builder/readout/retained_batches.hpp"

#include <gtest/gtest.h>

#include <array>

#include "fanin/wire/data_block.hpp"

namespace fanin::builder {
namespace {

using Keeping = RetainedBatches::Outcome;

// Two builder units, one source with 64 events of 100 B, batches of 16.
class Retained : public ::testing::Test {
protected:
  Retained() {
    queue_.start(0);
    const std::array<std::byte, 100> payload{};
    for (EventNumber event = 0; event < 64; ++event) {
      EXPECT_EQ(queue_.write(event, payload), source::WriteOutcome::ok);
    }
    batches_.begin(7, 1);
    batches_.begin_at(0);
  }
  static System one_source() {
    System system;
    system.readout_units = {"ru0"};
    system.builder_units = {"bu0", "bu1"};
    system.sources = {{1, "s1", 0, true}};
    system.batch_events = 16;
    system.data_page = 8192;
    return system;
  }
  static std::unique_ptr<memory::PagePool> pages(std::uint32_t count) {
    return memory::PagePool::make(
               {.page_size = 4096, .pages = count, .arena = {.huge_pages = memory::HugePages::off}})
        .value();
  }
  RetainedBatches::Kept assign(EventNumber first, NodeId builder, Attempt attempt = 0) {
    const wire::Assign message{.first = first,
                               .events = 16,
                               .attempt = attempt,
                               .builder = builder,
                               .builder_incarnation = 1};
    return batches_.assign(message, queues_, [](EventRange) { return true; });
  }
  static wire::DataBlockHeader header_of(const DataBlock& block) {
    const auto view = wire::decode_data_block(block.head.bytes(), block.payload.bytes());
    EXPECT_TRUE(view);
    return view ? view->header : wire::DataBlockHeader{};
  }

  System system_ = one_source();
  std::unique_ptr<memory::PagePool> pool_ = pages(16);
  std::unique_ptr<memory::PagePool> metadata_ = pages(16);
  source::FragmentQueue queue_{{.source = 1, .window = 64, .fragment_max = 4096}, *pool_};
  std::array<source::FragmentQueue*, 1> queues_{&queue_};
  MetadataLayout layout_{.page = 4096,
                         .batch_events = 16,
                         .message_max = 4096,
                         .builders = 2,
                         .sources = 1,
                         .payload = 16 * 4096,
                         .source_page = 4096};
  RetainedBatches batches_{system_, 0, *metadata_, layout_};
};

TEST_F(Retained, batch_is_cut_once_and_kept_until_it_is_cleared) {
  const auto kept = assign(0, 0);
  ASSERT_EQ(kept.outcome, Keeping::kept);
  EXPECT_TRUE(kept.cut);
  EXPECT_EQ(batches_.cut_until(), 16U);
  std::uint64_t bytes = 0;
  for (const DataBlock& block : kept.batch->blocks) bytes += block.payload.size;
  EXPECT_EQ(bytes, 1600U);
  EXPECT_EQ(assign(0, 1).outcome, Keeping::stale);
  EXPECT_EQ(batches_.find(0), kept.batch);
  EXPECT_FALSE(batches_.on_clear({0, 16}));
  EXPECT_EQ(batches_.find(0), nullptr);
  EXPECT_EQ(assign(0, 1, 1).outcome, Keeping::stale);
}

TEST_F(Retained, next_attempt_has_the_same_blocks_with_new_headers) {
  RetainedBatch& batch = *assign(0, 0).batch;
  const std::vector<DataBlock> before = batch.blocks;
  const auto again = assign(0, 1, 1);
  ASSERT_EQ(again.outcome, Keeping::kept);
  EXPECT_FALSE(again.cut);
  ASSERT_EQ(batch.blocks.size(), before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(batch.blocks[i].payload.data(), before[i].payload.data());
    EXPECT_EQ(header_of(before[i]).attempt, 0U); // it may still be on its way
    EXPECT_EQ(header_of(batch.blocks[i]).attempt, 1U);
  }
  std::size_t of_first = 0;
  batches_.for_each_of(0, 1, [&](RetainedBatch&) { ++of_first; });
  EXPECT_EQ(of_first, 0U);
}

TEST_F(Retained, attempts_wrap) {
  (void)assign(0, 0);
  EXPECT_EQ(assign(0, 1, 30'000).outcome, Keeping::kept);
  EXPECT_EQ(assign(0, 0, 60'000).outcome, Keeping::kept);
  EXPECT_EQ(assign(0, 1, 65'535).outcome, Keeping::kept);
  EXPECT_EQ(assign(0, 0, 1).outcome, Keeping::kept);
  EXPECT_EQ(assign(0, 1, 65'535).outcome, Keeping::stale);
}

// The same, in carriers of 1,024 bytes that are filled.
class RetainedInCarriers : public Retained {
protected:
  static System shaped() {
    System system = one_source();
    system.shaping = {.policy = shaping::Policy::barrel_shifter, .carrier = 1024};
    return system;
  }
  System shaped_ = shaped();
  MetadataLayout carriers_{.page = 4096,
                           .batch_events = 16,
                           .message_max = 1024,
                           .builders = 2,
                           .sources = 1,
                           .payload = 8192,
                           .source_page = 4096,
                           .fills_carriers = true};
  std::unique_ptr<memory::PagePool> more_metadata_ = pages(64);
};

TEST_F(RetainedInCarriers, carriers_hold_parts_of_several_batches_and_are_full) {
  RetainedBatches batches{shaped_, 0, *more_metadata_, carriers_};
  batches.begin(7, 1);
  batches.begin_at(0);
  std::uint64_t bytes = 0;
  std::uint64_t carrier = 0;
  std::size_t full = 0;
  EventNumber event = 0;
  std::uint32_t offset = 0;
  for (EventNumber first = 0; first < 48; first += 16) {
    const wire::Assign message{.first = first, .events = 16, .builder_incarnation = 1};
    const auto kept = batches.assign(message, queues_, [](EventRange) { return true; });
    ASSERT_EQ(kept.outcome, Keeping::kept);
    for (const DataBlock& block : kept.batch->blocks) {
      const wire::DataBlockHeader header = header_of(block);
      EXPECT_EQ(header.first_event, event); // nothing is left out
      EXPECT_EQ(header.payload_offset, offset);
      offset = offset + header.payload_size < 100 ? offset + header.payload_size : 0;
      event += offset == 0 ? header.entries : 0;
      EXPECT_EQ(header.fills_carrier != 0, block.fills_carrier);
      bytes += header.payload_size;
      carrier += block.head.size + block.payload.size;
      EXPECT_LE(carrier, 1024U);
      if (!block.fills_carrier) continue;
      EXPECT_GT(carrier, 1024 - shaping::CarrierFill::rest_least);
      carrier = 0;
      ++full;
    }
  }
  EXPECT_EQ(event, 48U);
  EXPECT_EQ(bytes, 4800U);
  EXPECT_GE(full, 5U);
}

TEST_F(RetainedInCarriers, a_carrier_that_has_left_is_not_filled_any_more) {
  for (const bool left : {false, true}) {
    RetainedBatches batches{shaped_, 0, *more_metadata_, carriers_};
    batches.begin(7, 1);
    batches.begin_at(0);
    const auto assign = [&](EventNumber first, std::uint32_t events) {
      const wire::Assign message{.first = first, .events = events, .builder_incarnation = 1};
      return batches.assign(message, queues_, [](EventRange) { return true; }).batch;
    };
    EXPECT_EQ(assign(0, 4)->blocks.size(), 1U);
    if (left) batches.begin_carrier(0);
    const RetainedBatch& batch = *assign(4, 12);
    EXPECT_EQ(header_of(batch.blocks.front()).entries, left ? 8U : 3U);
  }
}

TEST(RetainedBatch, a_lane_sends_the_blocks_of_its_sources) {
  RetainedBatch batch;
  for (const std::uint32_t source : {0U, 0U, 1U, 2U, 2U, 3U})
    batch.blocks.push_back({{}, {}, source});
  const auto sent = [&batch](const Lane& lane) {
    std::vector<std::uint32_t> sources;
    batch.next_block = {};
    for (; batch.next_of(lane) != nullptr; ++batch.next_block[lane.index])
      sources.push_back(batch.next_of(lane)->source);
    return sources;
  };
  EXPECT_EQ(sent({0, 0, 1}), (std::vector<std::uint32_t>{0, 0, 1, 2, 2, 3}));
  EXPECT_EQ(sent({0, 0, 2}), (std::vector<std::uint32_t>{0, 0, 2, 2}));
  EXPECT_EQ(sent({0, 1, 2}), (std::vector<std::uint32_t>{1, 3}));
  EXPECT_EQ(sent({0, 2, 3}), (std::vector<std::uint32_t>{2, 2}));
}

TEST_F(Retained, numbers_come_back_in_order_whoever_decides_first) {
  EXPECT_TRUE(assign(16, 0).cut);
  EXPECT_EQ(batches_.cut_until(), 0U);
  EXPECT_TRUE(batches_.on_clear({0, 16})); // decided without this readout unit
  EXPECT_EQ(batches_.cut_until(), 32U);
  EXPECT_EQ(assign(0, 1).outcome, Keeping::stale);
  EXPECT_FALSE(batches_.on_clear({0, 16})); // known already
}

TEST_F(Retained, batch_waits_for_sources_and_for_metadata_pages) {
  const wire::Assign message{.first = 0, .events = 16};
  const auto nobody = [](EventRange) { return false; };
  EXPECT_EQ(batches_.assign(message, queues_, nobody).outcome, Keeping::no_events);
  std::vector<memory::Loan> taken;
  while (metadata_->available() > layout_.pages_per_batch()) taken.push_back(metadata_->take());
  EXPECT_EQ(assign(0, 0).outcome, Keeping::no_pages); // the rest is kept
  EXPECT_EQ(assign(0, 0, 1).outcome, Keeping::kept);  // for this
  taken.clear();
  EXPECT_EQ(assign(16, 0).outcome, Keeping::kept);
}

TEST_F(Retained, all_pages_are_home_when_nothing_is_kept) {
  for (EventNumber first = 0; first < 64; first += 16) {
    ASSERT_EQ(assign(first, static_cast<NodeId>(first / 16 % 2)).outcome, Keeping::kept);
  }
  batches_.clear();
  EXPECT_EQ(metadata_->available(), metadata_->pages());
}

} // namespace
} // namespace fanin::builder
