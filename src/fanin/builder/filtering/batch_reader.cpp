#include "fanin/builder/filtering/batch_reader.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace fanin::builder {

void BatchReader::begin(std::vector<ReceivedBlock> blocks) {
  blocks_ = std::move(blocks);
  std::ranges::sort(blocks_, {}, [](const ReceivedBlock& block) {
    const wire::DataBlockHeader& header = block.view.header;
    return std::tuple(header.source, header.first_event, header.payload_offset);
  });
  cursors_.clear();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const SourceId source = blocks_[i].view.header.source;
    if (i == 0 || blocks_[i - 1].view.header.source != source) cursors_.push_back({.block = i});
    cursors_.back().end = i + 1;
  }
}

void BatchReader::end() {
  fragments_.clear();
  cursors_.clear();
  blocks_.clear();
}

std::span<const FilterFragment> BatchReader::fragments_of(EventNumber event) {
  fragments_.clear();
  for (Cursor& cursor : cursors_) add(cursor, event);
  return fragments_;
}

void BatchReader::add(Cursor& cursor, EventNumber event) {
  const auto past = [&] { return blocks_[cursor.block].view.header.events().end <= event; };
  while (cursor.block < cursor.end && past()) {
    ++cursor.block;
    cursor.entry = 0;
    cursor.offset = 0;
  }
  if (cursor.block == cursor.end || blocks_[cursor.block].view.header.first_event > event) return;
  const wire::DataBlockView& view = blocks_[cursor.block].view;
  if (view.partial()) return add_joined(cursor, event);
  const auto index = static_cast<std::uint32_t>(event - view.header.first_event);
  for (; cursor.entry < index; ++cursor.entry) cursor.offset += view.table[cursor.entry].size();
  const wire::FragmentEntry entry = view.table[index]; // its sender may still write there
  if (cursor.offset > view.payload.size() || entry.size() > view.payload.size() - cursor.offset)
    return;
  add_fragment(view.header.source, entry, view.payload.subspan(cursor.offset, entry.size()));
}

void BatchReader::add_joined(Cursor& cursor, EventNumber event) {
  const wire::DataBlockView& first = blocks_[cursor.block].view;
  cursor.joined.clear();
  for (std::size_t i = cursor.block; i < cursor.end; ++i) {
    const wire::DataBlockView& view = blocks_[i].view;
    if (view.header.first_event != event) break;
    if (view.header.payload_offset != cursor.joined.size()) return; // a message is not there
    cursor.joined.insert(cursor.joined.end(), view.payload.begin(), view.payload.end());
  }
  const wire::FragmentEntry entry = first.table.front();
  if (entry.size() == cursor.joined.size()) add_fragment(first.header.source, entry, cursor.joined);
}

void BatchReader::add_fragment(SourceId source, const wire::FragmentEntry& entry,
                               std::span<const std::byte> payload) {
  if (!entry.absent())
    fragments_.push_back({.source = source, .payload = payload, .flags = entry.flags()});
}

} // namespace fanin::builder
