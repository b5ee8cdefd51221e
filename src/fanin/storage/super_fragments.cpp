#include "fanin/storage/super_fragments.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fanin/base/assert.hpp"
#include "fanin/source/receive_format.hpp"
#include "fanin/wire/super_fragment.hpp"

namespace fanin::storage {

SuperFragments::SuperFragments(BuiltBatch batch, std::span<const SourceInfo> sources, RunNumber run,
                               const wire::Slice& slice, SourceId as)
    : batch_(std::move(batch)) {
  detail::RowBuilder rows(
      {.sources = sources, .merged = {}, .slice = {}, .node = 0, .incarnation = 1});
  rows.start({});
  rows.add(batch_);
  std::uint64_t end = 0;
  for (const iovec& extent : rows.extents()) extent_ends_.push_back(end += extent.iov_len);
  for (const EventRow& row : rows.events()) add_event(rows, row, run, slice, as);
  extent_ends_.clear();
  if (messages_.empty()) return;
  // Without it the slice would wait for the next number until it believes the last one.
  const EventNumber last = messages_.back().number;
  messages_.push_back({.number = last + 1,
                       .head = heads_.size(),
                       .head_size = sizeof(source::ReceiveHeader),
                       .part = parts_.size(),
                       .size = sizeof(source::ReceiveHeader)});
  const source::ReceiveHeader skip{
      .kind = source::ReceiveKind::skip_to, .source = as, .event = last + 1};
  put(&skip, sizeof skip);
}

void SuperFragments::put(const void* data, std::size_t size) {
  const auto* const bytes = static_cast<const std::byte*>(data);
  heads_.insert(heads_.end(), bytes, bytes + size);
}

void SuperFragments::add_event(const detail::RowBuilder& rows, const EventRow& row, RunNumber run,
                               const wire::Slice& slice, SourceId as) {
  const auto fragments = rows.fragments().subspan(row.first_fragment, row.fragment_count);
  const auto missing = rows.missing().subspan(row.first_missing, row.missing_count);
  const std::size_t count = fragments.size() + missing.size();
  Message message{.number = slice.own_number(row.event),
                  .head = heads_.size(),
                  .head_size = sizeof(source::ReceiveHeader) + wire::super_head_size(count),
                  .part = parts_.size()};
  const bool incomplete = (row.flags & event_incomplete) != 0;
  source::ReceiveHeader header{.source = as, .event = message.number};
  header.size = static_cast<std::uint32_t>(wire::super_head_size(count) + row.size);
  if (incomplete) header.flags = source::receive_truncated;
  put(&header, sizeof header);
  wire::SuperHeader super{
      .event = row.event, .count = static_cast<std::uint32_t>(count), .run = run};
  if (incomplete) super.flags = wire::super_incomplete;
  put(&super, sizeof super);
  for (std::size_t f = 0, m = 0; f + m < count;) {
    const bool present =
        m == missing.size() || (f < fragments.size() && fragments[f].source < missing[m].source);
    wire::SuperEntry entry;
    if (present) {
      const FragmentRow& fragment = fragments[f++];
      entry = {fragment.source,
               {fragment.size | wire_fragment_flags(fragment.flags), fragment.crc32c}};
      add_payload(rows, fragment);
    } else {
      entry = {missing[m].source, {wire::fragment_absent, missing[m].reason}};
      ++m;
    }
    put(&entry, sizeof entry);
  }
  message.parts = parts_.size() - message.part;
  message.size = message.head_size + row.size;
  payload_bytes_ += row.size;
  messages_.push_back(message);
}

void SuperFragments::add_payload(const detail::RowBuilder& rows, const FragmentRow& row) {
  auto at = static_cast<std::size_t>(std::ranges::upper_bound(extent_ends_, row.offset) -
                                     extent_ends_.begin());
  std::uint64_t offset = row.offset;
  for (std::uint64_t left = row.size; left > 0; ++at) {
    const iovec& extent = rows.extents()[at];
    const std::uint64_t begin = extent_ends_[at] - extent.iov_len;
    const std::uint64_t size = std::min<std::uint64_t>(left, extent_ends_[at] - offset);
    parts_.push_back({static_cast<std::byte*>(extent.iov_base) + (offset - begin), size});
    offset += size;
    left -= size;
  }
}

std::size_t SuperFragments::first_above(EventNumber number) const {
  const auto first = std::ranges::upper_bound(messages_, number, {}, &Message::number);
  return static_cast<std::size_t>(first - messages_.begin());
}

void SuperFragments::append(std::size_t message, std::uint64_t from,
                            std::vector<iovec>& out) const {
  const Message& one = messages_[message];
  const auto add = [&](const std::byte* data, std::uint64_t size) {
    const std::uint64_t left_out = std::min(from, size);
    from -= left_out;
    if (size == left_out) return;
    out.push_back({const_cast<std::byte*>(data) + left_out, size - left_out});
  };
  add(heads_.data() + one.head, one.head_size);
  for (std::size_t i = 0; i < one.parts; ++i) {
    const iovec& part = parts_[one.part + i];
    add(static_cast<const std::byte*>(part.iov_base), part.iov_len);
  }
}

} // namespace fanin::storage
