#include "fanin/builder/readout/retained_batches.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fanin/base/assert.hpp"

namespace fanin::builder {

namespace {
// A block is cut; `in_carrier`: of its source and batch, since the carrier began.
bool fills_carrier(shaping::CarrierFill& fill, std::uint32_t bytes, std::uint32_t& in_carrier) {
  const bool full = fill.add(bytes);
  if (!full && ++in_carrier < shaping::CarrierFill::blocks_most) return false;
  fill.begin();
  in_carrier = 0;
  return true;
}
} // namespace

RetainedBatches::RetainedBatches(const System& system, NodeId node, memory::PagePool& pool,
                                 const MetadataLayout& layout)
    : system_(system),
      node_(node),
      pool_(pool),
      layout_(layout),
      heads_(system.builder_units.size()),
      lanes_(system.lanes(node)) {
  FANIN_ASSERT(pool.pages() >= layout.pages_least());
  if (system.shaping.fills_carriers()) {
    fill_.assign(heads_.size() * lanes_, shaping::CarrierFill{system.shaping.carrier});
  }
}

void RetainedBatches::begin(RunNumber run, Incarnation incarnation) {
  clear();
  run_ = run;
  incarnation_ = incarnation;
}

void RetainedBatches::clear() {
  batches_.clear();
  cut_.clear();
  cut_until_ = joined_ = 0;
  cleared_ = {};
  for (std::size_t i = 0; i < heads_.size(); ++i) forget_builder(static_cast<NodeId>(i));
}

RetainedBatch* RetainedBatches::find(EventNumber first) {
  const auto found = batches_.find(first);
  return found == batches_.end() ? nullptr : &found->second;
}

bool RetainedBatches::was_cut(EventNumber first) const {
  if (first < cut_until_) return true;
  const auto later = cut_.upper_bound(first);
  return later != cut_.begin() && std::prev(later)->second > first;
}

// At most so many bytes of metadata.
std::uint64_t RetainedBatches::head_bytes_max(EventRange range, Queues queues) const {
  std::uint64_t bytes = 0;
  for (const source::FragmentQueue* const queue : queues) {
    const std::uint64_t payload = queue->position(range.end) - queue->position(range.first);
    bytes += metadata_per_source(range.count()) + layout_.further_pieces(payload);
  }
  return bytes;
}

// There are enough pages: whoever cuts a batch has checked.
std::byte* RetainedBatches::reserve_head(Heads& heads, std::uint32_t size) {
  if (!heads.page || layout_.page - heads.filled < size) {
    heads.page = pool_.take();
    heads.filled = 0;
    FANIN_ASSERT(heads.page);
  }
  return heads.page.data() + heads.filled;
}

RetainedBatches::Kept RetainedBatches::cut(const wire::Assign& assign, Queues queues) {
  const EventRange range = assign.range();
  RetainedBatch& batch = batches_[range.first];
  batch.range = range;
  batch.attempt = assign.attempt;
  batch.builder = assign.builder;
  batch.builder_incarnation = assign.builder_incarnation;
  if (!spare_blocks_.empty()) {
    batch.blocks = std::move(spare_blocks_.back());
    spare_blocks_.pop_back();
  }
  batch.blocks.reserve(queues.size()); // usually one each
  for (std::size_t i = 0; i < queues.size(); ++i) {
    cut_source(batch, *queues[i], static_cast<std::uint32_t>(i));
  }
  return {Outcome::kept, &batch, mark_cut(range)};
}

// Cuts the batch's events of one source into messages.
void RetainedBatches::cut_source(RetainedBatch& batch, const source::FragmentQueue& queue,
                                 std::uint32_t source) {
  Heads& heads = heads_[batch.builder];
  shaping::CarrierFill* const fill = fill_of(batch.builder, source);
  wire::DataBlockHeader header;
  header.run = run_;
  header.batch_first = batch.range.first;
  header.batch_events = static_cast<std::uint32_t>(batch.range.count());
  header.source = queue.options().source;
  header.readout_unit = node_;
  header.attempt = batch.attempt;
  header.readout_incarnation = incarnation_;
  header.builder_incarnation = batch.builder_incarnation;
  std::uint32_t in_carrier = 0; // blocks of this source and batch, in the last carrier

  for (source::Cursor cursor{batch.range.first, 0}; cursor.event < batch.range.end;) {
    const auto limits = limits_of_block(batch, cursor, queue, fill);
    const std::uint32_t head_max =
        static_cast<std::uint32_t>(sizeof header + limits.entries * sizeof(wire::FragmentEntry));
    std::byte* head = reserve_head(heads, head_max);
    auto* table = reinterpret_cast<wire::FragmentEntry*>(head + sizeof header);
    const source::Piece piece =
        queue.cut(cursor, batch.range.end, limits.payload, limits.entries, table);
    header.first_event = piece.range.first;
    header.entries = static_cast<std::uint32_t>(piece.range.count());
    header.payload_size = piece.payload.size;
    header.payload_offset = piece.payload_offset;
    const auto head_size =
        static_cast<std::uint32_t>(sizeof header + header.entries * sizeof(wire::FragmentEntry));
    const bool fills =
        fill != nullptr && fills_carrier(*fill, head_size + piece.payload.size, in_carrier);
    header.fills_carrier = fills ? 1 : 0;
    FANIN_ASSERT(head_size <= head_max && header.entries > 0);
    std::memcpy(head, &header, sizeof header);
    wire::seal_data_block({head, head_size}, system_.integrity);
    batch.blocks.push_back(
        {heads.page.freeze(heads.filled, head_size), piece.payload, source, fills});
    heads.filled += head_size;
  }
}

// How large the next block may be.
shaping::CarrierFill::Limits
RetainedBatches::limits_of_block(const RetainedBatch& batch, const source::Cursor& cursor,
                                 const source::FragmentQueue& queue,
                                 const shaping::CarrierFill* fill) const {
  const auto fragments = static_cast<std::uint32_t>(batch.range.end - cursor.event);
  if (fill != nullptr) {
    const std::uint32_t first = queue.entry(cursor.event).size() - cursor.payload_offset;
    return fill->limits(fragments, first);
  }
  const auto head = static_cast<std::uint32_t>(metadata_per_source(fragments));
  return {fragments, system_.message_max() - head};
}

// The same blocks for another builder unit: new headers, since the old ones may still be on their
// way. False: there are no pages for them now.
bool RetainedBatches::readdress(RetainedBatch& batch, const wire::Assign& assign) {
  std::uint64_t bytes = 0;
  for (const DataBlock& block : batch.blocks) bytes += block.head.size;
  if (pool_.available() < layout_.pages(bytes)) return false;
  Heads& heads = heads_[assign.builder];
  for (DataBlock& block : batch.blocks) {
    std::byte* head = reserve_head(heads, block.head.size);
    std::memcpy(head, block.head.data(), block.head.size);
    wire::DataBlockHeader header;
    std::memcpy(&header, head, sizeof header);
    header.attempt = assign.attempt;
    header.builder_incarnation = assign.builder_incarnation;
    std::memcpy(head, &header, sizeof header);
    wire::seal_data_block({head, block.head.size}, system_.integrity);
    block.head = heads.page.freeze(heads.filled, block.head.size);
    heads.filled += block.head.size;
  }
  batch.attempt = assign.attempt;
  batch.builder = assign.builder;
  batch.builder_incarnation = assign.builder_incarnation;
  return true;
}

bool RetainedBatches::on_clear(EventRange range) {
  const auto found = batches_.find(range.first);
  if (found == batches_.end()) { // decided without this node's answer, which may still be asked for
    cleared_.note(range.first, 0);
    return mark_cut(range);
  }
  auto blocks = std::move(found->second.blocks);
  blocks.clear();
  spare_blocks_.push_back(std::move(blocks));
  batches_.erase(found);
  return false;
}

bool RetainedBatches::mark_cut(EventRange range) {
  if (range.end <= cut_until_) return false;
  auto [entry, inserted] = cut_.try_emplace(range.first, range.end);
  if (!inserted) entry->second = std::max(entry->second, range.end);
  while (!cut_.empty() && cut_.begin()->first <= cut_until_) {
    cut_until_ = std::max(cut_until_, cut_.begin()->second);
    cut_.erase(cut_.begin());
  }
  return true;
}

} // namespace fanin::builder
