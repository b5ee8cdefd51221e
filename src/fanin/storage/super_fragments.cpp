#include "fanin/storage/super_fragments.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fanin/base/assert.hpp"
#include "fanin/source/receive_format.hpp"
#include "fanin/storage/super_head.hpp"
#include "fanin/wire/super_fragment.hpp"

namespace fanin::storage {

SuperFragments::SuperFragments(BuiltBatch batch, std::span<const SourceInfo> sources, RunNumber run,
                               const wire::Slice& slice, SourceId as)
    : batch_(std::move(batch)), first_(slice.own_number(batch_.range.first)) {
  detail::RowBuilder rows(
      {.sources = sources, .merged = {}, .slice = {}, .node = 0, .incarnation = 1});
  rows.start({});
  rows.add(batch_);
  detail::ExtentIndex index;
  index.read(rows.extents());
  for (const EventRow& row : rows.events()) add_event(rows, row, run, slice, as, index);
  // Without it the slice would wait: with the last number until another one confirms it, and for
  // numbers that no source has here.
  const EventNumber behind = slice.own_number(batch_.range.end - 1) + 1;
  messages_.push_back({.number = behind,
                       .head = heads_.size(),
                       .head_size = sizeof(source::ReceiveHeader),
                       .part = parts_.size(),
                       .size = sizeof(source::ReceiveHeader)});
  const source::ReceiveHeader skip{
      .kind = source::ReceiveKind::skip_to, .source = as, .event = behind};
  put(&skip, sizeof skip);
}

void SuperFragments::put(const void* data, std::size_t size) {
  const auto* const bytes = static_cast<const std::byte*>(data);
  heads_.insert(heads_.end(), bytes, bytes + size);
}

void SuperFragments::add_event(const detail::RowBuilder& rows, const EventRow& row, RunNumber run,
                               const wire::Slice& slice, SourceId as,
                               const detail::ExtentIndex& index) {
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
  append_super_head(run, row, fragments, missing, heads_);
  for (const FragmentRow& fragment : fragments) {
    index.each_part(fragment.offset, fragment.size, [this](std::span<const std::byte> part) {
      parts_.push_back({const_cast<std::byte*>(part.data()), part.size()});
    });
  }
  message.parts = parts_.size() - message.part;
  message.size = message.head_size + row.size;
  payload_bytes_ += row.size;
  messages_.push_back(message);
}

void SuperFragments::not_read_from(EventNumber number) {
  for (Message& message : messages_) message.sent = message.sent && message.number < number;
}

std::size_t SuperFragments::events_missed(EventNumber announced, EventNumber from) const {
  const auto of_events = std::span(messages_).first(events());
  return static_cast<std::size_t>(std::ranges::count_if(of_events, [&](const Message& message) {
    return message.number >= announced || (!message.sent && message.number >= from);
  }));
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
