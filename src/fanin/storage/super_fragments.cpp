#include "fanin/storage/super_fragments.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fanin/base/assert.hpp"
#include "fanin/source/own_checksum.hpp"
#include "fanin/storage/super_head.hpp"
#include "fanin/wire/checksum.hpp"
#include "fanin/wire/super_fragment.hpp"

namespace fanin::storage {
namespace {

using HeaderBytes = source::CheckedBytes<source::ReceiveHeader>;

std::uint32_t checksum_as_sent(std::span<const std::byte> head,
                               std::span<const FragmentRow> fragments,
                               const detail::ExtentIndex& index) {
  std::uint32_t crc = wire::crc32c(head);
  for (const FragmentRow& fragment : fragments) {
    if (fragment.size == 0) continue;
    // The checksum in the row of a damaged one may be that of what it should be.
    const bool damaged = (fragment.flags & event_bad_checksum) != 0;
    const std::uint32_t own =
        damaged ? index.crc32c(fragment.offset, fragment.size) : fragment.crc32c;
    crc = wire::crc32c_of_both(crc, own, fragment.size);
  }
  return crc;
}

} // namespace

SuperFragments::SuperFragments(BuiltBatch batch, const Options& options)
    : batch_(std::move(batch)), first_(options.slice.own_number(batch_.range.first)) {
  detail::RowBuilder rows({.sources = options.sources,
                           .merged = {},
                           .slice = {},
                           .run = 0,
                           .node = 0,
                           .incarnation = 1});
  rows.start({});
  rows.add(batch_);
  detail::ExtentIndex index;
  index.read(rows.extents());
  for (const EventRow& row : rows.events()) add_event(rows, row, options, index);
  // Without it the slice would wait: with the last number until another one confirms it, and for
  // numbers that no source has here.
  const EventNumber behind = options.slice.own_number(batch_.range.end - 1) + 1;
  messages_.push_back({.number = behind,
                       .head = heads_.size(),
                       .head_size = sizeof(HeaderBytes),
                       .part = parts_.size(),
                       .size = sizeof(HeaderBytes)});
  const HeaderBytes skip = source::with_own_checksum(source::ReceiveHeader{
      .kind = source::ReceiveKind::skip_to, .source = options.source, .event = behind});
  heads_.insert(heads_.end(), skip.begin(), skip.end());
}

void SuperFragments::add_event(const detail::RowBuilder& rows, const EventRow& row,
                               const Options& options, const detail::ExtentIndex& index) {
  const auto fragments = rows.fragments().subspan(row.first_fragment, row.fragment_count);
  const auto missing = rows.missing().subspan(row.first_missing, row.missing_count);
  const std::size_t head_size = wire::super_head_size(fragments.size() + missing.size());
  Message message{.number = options.slice.own_number(row.event),
                  .head = heads_.size(),
                  .head_size = sizeof(HeaderBytes) + head_size,
                  .part = parts_.size()};
  source::ReceiveHeader header{.source = options.source, .event = message.number};
  header.size = static_cast<std::uint32_t>(head_size + row.size);
  unsigned flags = 0;
  if ((row.flags & event_incomplete) != 0) flags |= source::receive_truncated;
  if (options.integrity) flags |= source::receive_has_crc;
  header.flags = static_cast<std::uint8_t>(flags);
  heads_.resize(heads_.size() + sizeof(HeaderBytes));
  append_super_head(options.run, row, fragments, missing, heads_);
  if (options.integrity) {
    header.crc32c = checksum_as_sent(std::span(heads_).last(head_size), fragments, index);
  }
  const HeaderBytes header_bytes = source::with_own_checksum(header);
  std::memcpy(heads_.data() + message.head, header_bytes.data(), header_bytes.size());
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
