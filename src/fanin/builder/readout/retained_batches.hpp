// The batches that a readout unit has cut out of its queues and keeps until they are cleared: data
// blocks, ready to be sent as often as needed. Their heads (header and table) lie in metadata
// pages, of which each holds heads for one builder unit only; their payload stays in the sources'
// pages.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <span>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/base/attempt.hpp"
#include "fanin/builder/lane.hpp"
#include "fanin/builder/metadata.hpp"
#include "fanin/builder/recently_decided.hpp"
#include "fanin/builder/shaping/carrier_fill.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/source/fragment_queue.hpp"
#include "fanin/wire/control.hpp"
#include "fanin/wire/data_block.hpp"

namespace fanin::builder {

struct DataBlock {
  memory::View head; // DataBlockHeader and table
  memory::View payload;
  std::uint32_t source = 0; // its position among those of the readout unit
  bool fills_carrier = false; // the last one of its carrier
};

struct RetainedBatch {
  EventRange range;
  Attempt attempt = 0;
  NodeId builder = 0;
  Incarnation builder_incarnation = 0;
  std::vector<DataBlock> blocks;
  std::array<std::uint32_t, rails_max> next_block{}; // to be sent, by lane

  // What is to be sent next over this lane; null: nothing.
  [[nodiscard]] const DataBlock* next_of(const Lane& lane) {
    std::uint32_t& next = next_block[lane.index];
    while (next < blocks.size() && !lane.carries(blocks[next].source)) ++next;
    return next < blocks.size() ? &blocks[next] : nullptr;
  }
};

// Knows no connection and no time.
class RetainedBatches {
public:
  using Batches = std::pmr::map<EventNumber, RetainedBatch>; // by first event
  using Queues = std::span<source::FragmentQueue* const>;    // of all sources of the readout unit

  // `system` and `pool` must outlive it; `pool` has at least layout.pages_least() pages.
  RetainedBatches(const System& system, NodeId node, memory::PagePool& pool,
                  const MetadataLayout& layout);

  // A new incarnation, which joins the run at this event: nothing is kept.
  void begin(RunNumber run, Incarnation incarnation);
  void begin_at(EventNumber event) {
    FANIN_ASSERT(batches_.empty() && cut_.empty());
    cut_until_ = joined_ = event;
  }
  // Nothing is kept, and nothing can be assigned.
  void clear();
  // The builder unit is gone: no heads are added to pages that hold heads for it.
  void forget_builder(NodeId builder) {
    heads_[builder] = {};
    begin_carrier(builder, {.count = 0});
  }
  // With the barrel shifter: what is cut for it from now on, and sent over this lane, is in another
  // carrier.
  void begin_carrier(NodeId builder, const Lane& lane = {}) {
    if (fill_.empty()) return;
    for (std::size_t i = 0; i < lanes_; ++i) {
      if (lane.count != lanes_ || lane.index == i) fill_[builder * lanes_ + i].begin();
    }
  }

  enum class Outcome : std::uint8_t {
    kept, // it has to be sent, from its first block on
    stale, // it was assigned, cut or cleared before
    no_pages, // there are no metadata pages for it now
    no_events // not all sources have answered for all of its events
  };
  struct Kept {
    Outcome outcome{};
    RetainedBatch* batch = nullptr; // kept
    bool cut = false; // cut_until() may have moved
  };
  // `answered(range)`: whether all sources have answered for these events.
  template <class Answered>
  [[nodiscard]] Kept assign(const wire::Assign& assign, Queues queues, Answered answered);
  // Forgets a batch that is decided. True: cut_until() may have moved.
  [[nodiscard]] bool on_clear(EventRange range);

  // Events below were cut, or are not asked for any more: their numbers can be used again.
  [[nodiscard]] EventNumber cut_until() const { return cut_until_; }
  [[nodiscard]] RetainedBatch* find(EventNumber first);
  // Calls use(RetainedBatch&) for each one of that builder unit, the first event first.
  template <class Use>
  void for_each_of(NodeId builder, Incarnation incarnation, Use use) {
    for (auto& [first, batch] : batches_) {
      if (batch.builder == builder && batch.builder_incarnation == incarnation) use(batch);
    }
  }

private:
  struct Heads { // the page that heads for a builder unit are added to
    memory::Loan page;
    std::uint32_t filled = 0;
  };

  [[nodiscard]] bool was_cut(EventNumber first) const;
  [[nodiscard]] std::uint64_t head_bytes_max(EventRange range, Queues queues) const;
  [[nodiscard]] Kept cut(const wire::Assign& assign, Queues queues);
  void cut_source(RetainedBatch& batch, const source::FragmentQueue& queue, std::uint32_t source);
  // Null without the barrel shifter.
  [[nodiscard]] shaping::CarrierFill* fill_of(NodeId builder, std::uint32_t source) {
    return fill_.empty() ? nullptr : &fill_[builder * lanes_ + source % lanes_];
  }
  [[nodiscard]] shaping::CarrierFill::Limits
  limits_of_block(const RetainedBatch& batch, const source::Cursor& cursor,
                  const source::FragmentQueue& queue, const shaping::CarrierFill* fill) const;
  [[nodiscard]] bool readdress(RetainedBatch& batch, const wire::Assign& assign);
  [[nodiscard]] std::byte* reserve_head(Heads& heads, std::uint32_t size);
  // False: its events were cut before.
  bool mark_cut(EventRange range);

  const System& system_;
  NodeId node_;
  memory::PagePool& pool_;
  MetadataLayout layout_;
  RunNumber run_ = 0;
  Incarnation incarnation_ = 0;
  std::vector<Heads> heads_; // by builder unit
  const std::size_t lanes_; // over which data are sent if all rails live
  // Of the lanes to each builder unit, with the barrel shifter; else empty.
  std::vector<shaping::CarrierFill> fill_;
  std::pmr::unsynchronized_pool_resource memory_; // nodes of the two maps, reused
  Batches batches_{&memory_};
  std::pmr::map<EventNumber, EventNumber> cut_{&memory_}; // ranges cut beyond cut_until_
  EventNumber cut_until_ = 0;
  EventNumber joined_ = 0; // the first number announced; all below are absent
  // Batches that were cleared before they were cut: of those from before it joined nothing else is
  // known.
  RecentlyDecided cleared_;
  std::vector<std::vector<DataBlock>> spare_blocks_; // capacity, reused
};

template <class Answered>
RetainedBatches::Kept RetainedBatches::assign(const wire::Assign& assign, Queues queues,
                                              Answered answered) {
  const EventRange range = assign.range();
  if (RetainedBatch* const known = find(range.first)) {
    if (known->range != range || !is_later(assign.attempt, known->attempt)) return {Outcome::stale};
    if (!readdress(*known, assign)) return {Outcome::no_pages};
    return {Outcome::kept, known};
  }
  const bool before = was_cut(range.first) && range.first >= joined_;
  if (before || cleared_.contains(range.first, 0)) return {Outcome::stale};
  if (!answered(range)) return {Outcome::no_events};
  // A batch's worth of pages is kept for batches that are assigned again.
  const std::uint64_t reserve = assign.attempt > 0 ? 0 : layout_.pages_per_batch();
  if (pool_.available() < layout_.pages(head_bytes_max(range, queues)) + reserve) {
    return {Outcome::no_pages};
  }
  return cut(assign, queues);
}

} // namespace fanin::builder
