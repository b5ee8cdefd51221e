#include "fanin/builder/filtering/batch_reader.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace fanin::builder {

void BatchReader::begin(std::vector<ReceivedPart> parts) {
  parts_ = std::move(parts);
  std::ranges::sort(parts_, {}, [](const ReceivedPart& part) {
    const wire::PartHeader& header = part.view.header;
    return std::tuple(header.source, header.first_event, header.payload_offset);
  });
  cursors_.clear();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const SourceId source = parts_[i].view.header.source;
    if (i == 0 || parts_[i - 1].view.header.source != source) cursors_.push_back({.part = i});
    cursors_.back().end = i + 1;
  }
}

void BatchReader::end() {
  fragments_.clear();
  cursors_.clear();
  parts_.clear();
}

std::span<const FilterFragment> BatchReader::fragments_of(EventNumber event) {
  fragments_.clear();
  for (Cursor& cursor : cursors_) add(cursor, event);
  return fragments_;
}

void BatchReader::add(Cursor& cursor, EventNumber event) {
  const auto past = [&] { return parts_[cursor.part].view.header.events().end <= event; };
  while (cursor.part < cursor.end && past()) {
    ++cursor.part;
    cursor.entry = 0;
    cursor.offset = 0;
  }
  if (cursor.part == cursor.end || parts_[cursor.part].view.header.first_event > event) return;
  const wire::PartView& part = parts_[cursor.part].view;
  if (part.partial()) return add_joined(cursor, event);
  const auto index = static_cast<std::uint32_t>(event - part.header.first_event);
  for (; cursor.entry < index; ++cursor.entry) cursor.offset += part.table[cursor.entry].size();
  const wire::FragmentEntry entry = part.table[index]; // its sender may still write there
  if (cursor.offset > part.payload.size() || entry.size() > part.payload.size() - cursor.offset)
    return;
  add_fragment(part.header.source, entry, part.payload.subspan(cursor.offset, entry.size()));
}

void BatchReader::add_joined(Cursor& cursor, EventNumber event) {
  const wire::PartView& first = parts_[cursor.part].view;
  cursor.joined.clear();
  for (std::size_t i = cursor.part; i < cursor.end; ++i) {
    const wire::PartView& part = parts_[i].view;
    if (part.header.first_event != event) break;
    if (part.header.payload_offset != cursor.joined.size()) return; // a message is not there
    cursor.joined.insert(cursor.joined.end(), part.payload.begin(), part.payload.end());
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
