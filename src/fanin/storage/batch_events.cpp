#include "fanin/storage/batch_events.hpp"

#include <algorithm>
#include <utility>

#include <sys/uio.h>

#include "fanin/storage/detail/row_builder.hpp"

namespace fanin::storage {

struct BatchEvents::Rows {
  explicit Rows(EventSources of)
      : sources(std::move(of)),
        builder({.sources = sources.sources,
                 .merged = sources.merged,
                 .slice = sources.slice,
                 .node = 0,
                 .incarnation = 1}) {}

  EventSources sources; // the builder refers to it
  detail::RowBuilder builder;
  std::vector<std::uint64_t> extent_ends; // of the builder's extents, in /bytes
};

BatchEvents::BatchEvents(EventSources sources)
    : rows_(std::make_unique<Rows>(std::move(sources))) {}

BatchEvents::~BatchEvents() = default;

void BatchEvents::read(const BuiltBatch& batch) {
  rows_->builder.start({});
  rows_->builder.add(batch);
  rows_->extent_ends.clear();
  std::uint64_t end = 0;
  for (const iovec& extent : rows_->builder.extents()) {
    rows_->extent_ends.push_back(end += extent.iov_len);
  }
}

std::size_t BatchEvents::size() const { return rows_->builder.events().size(); }

EventNumber BatchEvents::number(std::size_t i) const { return rows_->builder.events()[i].event; }

BuiltEvent BatchEvents::event(std::size_t i) {
  const detail::RowBuilder& builder = rows_->builder;
  const EventRow& row = builder.events()[i];
  fragments_.clear();
  joined_.clear();
  for (const FragmentRow& fragment :
       builder.fragments().subspan(row.first_fragment, row.fragment_count)) {
    fragments_.push_back({.source = fragment.source,
                          .crc32c = fragment.crc32c,
                          .flags = fragment.flags,
                          .payload = payload_of(fragment)});
  }
  return {.number = row.event,
          .flags = row.flags,
          .streams = row.streams,
          .fragments = fragments_,
          .missing = builder.missing().subspan(row.first_missing, row.missing_count)};
}

std::span<const std::byte> BatchEvents::payload_of(const FragmentRow& row) {
  if (row.size == 0) return {};
  const auto& ends = rows_->extent_ends;
  auto at = static_cast<std::size_t>(std::ranges::upper_bound(ends, row.offset) - ends.begin());
  const auto bytes_at = [&](std::uint64_t offset, std::uint64_t most) {
    const iovec& extent = rows_->builder.extents()[at];
    const std::uint64_t begin = ends[at] - extent.iov_len;
    return std::span{static_cast<const std::byte*>(extent.iov_base) + (offset - begin),
                     std::min<std::uint64_t>(most, ends[at] - offset)};
  };
  const auto first = bytes_at(row.offset, row.size);
  if (first.size() == row.size) return first;
  std::vector<std::byte> whole(first.begin(), first.end());
  while (whole.size() < row.size) {
    ++at;
    const auto more = bytes_at(row.offset + whole.size(), row.size - whole.size());
    whole.insert(whole.end(), more.begin(), more.end());
  }
  return joined_.emplace_back(std::move(whole));
}

} // namespace fanin::storage
