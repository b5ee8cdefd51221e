#include "fanin/storage/batch_events.hpp"

#include <utility>

#include "fanin/storage/detail/extent_index.hpp"
#include "fanin/storage/detail/row_builder.hpp"

namespace fanin::storage {

struct BatchEvents::Rows {
  explicit Rows(EventSources of)
      : sources(std::move(of)),
        builder({.sources = sources.sources,
                 .merged = sources.merged,
                 .slice = sources.slice,
                 .run = sources.run,
                 .node = 0,
                 .incarnation = 1}) {}

  EventSources sources; // the builder refers to it
  detail::RowBuilder builder;
  detail::ExtentIndex index; // of the builder's extents
};

BatchEvents::BatchEvents(EventSources sources)
    : rows_(std::make_unique<Rows>(std::move(sources))) {}

BatchEvents::~BatchEvents() = default;

void BatchEvents::read(const BuiltBatch& batch) {
  fragments_.clear();
  joined_.clear(); // of another batch; it may be large
  rows_->builder.start({});
  rows_->builder.add(batch);
  rows_->index.read(rows_->builder.extents());
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
          .time_unix_ns = row.time_unix_ns,
          .fragments = fragments_,
          .missing = builder.missing().subspan(row.first_missing, row.missing_count)};
}

std::span<const std::byte> BatchEvents::payload_of(const FragmentRow& row) {
  std::span<const std::byte> only;
  std::vector<std::byte> whole;
  rows_->index.each_part(row.offset, row.size, [&](std::span<const std::byte> part) {
    if (part.size() == row.size) {
      only = part;
    } else {
      whole.reserve(row.size);
      whole.insert(whole.end(), part.begin(), part.end());
    }
  });
  if (whole.empty()) return only;
  return joined_.emplace_back(std::move(whole));
}

} // namespace fanin::storage
