#include "fanin/message/subscription_group.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "fanin/base/assert.hpp"
#include "fanin/memory/heap_page.hpp"
#include "fanin/message/page_format.hpp"

namespace fanin::message::detail {

namespace {

// What it holds while it waits. A message of a few bytes may have a page of its own on the heap.
std::uint64_t memory_of(const Parcel& parcel) {
  return parcel.size() + sizeof(Parcel) + sizeof(memory::HeapPage);
}

} // namespace

memory::View tagged(net::PageFiller& filler, Tag tag, std::span<const std::byte> message) {
  const std::size_t size = message.size() + tag_size;
  if (size <= filler.pool().page_size()) {
    memory::View view = filler.make(static_cast<std::uint32_t>(size),
                                    [&](std::byte* to) { write_tagged(to, tag, message); });
    if (view.page) return view;
  }
  std::byte* at = nullptr;
  memory::View view = memory::HeapPage::make(static_cast<std::uint32_t>(size), at);
  write_tagged(at, tag, message);
  return view;
}

memory::View framed(Tag tag, std::span<const std::byte> message) {
  const FrameHeader header{0, 0, static_cast<std::uint32_t>(message.size()) + tag_size};
  std::byte* at = nullptr;
  memory::View view = memory::HeapPage::make(header.size + sizeof header, at);
  std::memcpy(at, &header, sizeof header);
  write_tagged(at + sizeof header, tag, message);
  return view;
}

// --- Member ---

bool Member::read_request(std::span<const std::byte> page) {
  PageReader reader{page};
  Frame frame;
  PageReader::Step step{};
  while ((step = reader.next(frame)) == PageReader::Step::frame) {
    const auto request = static_cast<SubscriptionRequest>(frame.header.type);
    const bool subscribe = request == SubscriptionRequest::subscribe;
    if (!subscribe && request != SubscriptionRequest::unsubscribe) return false;
    if (frame.header.flags != 0 || frame.header.size % tag_size != 0) return false;
    for (std::uint32_t at = 0; at < frame.header.size; at += tag_size) {
      Tag tag = 0;
      std::memcpy(&tag, page.data() + frame.offset + at, tag_size);
      ask(tag, subscribe);
    }
  }
  return step == PageReader::Step::end;
}

// The last word on each tag counts. However they come, it is sorted and merged once.
void Member::take_wishes() {
  std::ranges::sort(wishes, {}, [](const Wish& wish) { return std::pair{wish.tag, wish.number}; });
  std::vector<Tag> changed;
  changed.reserve(tags.size() + wishes.size());
  auto known = tags.begin();
  for (auto wish = wishes.begin(); wish != wishes.end(); ++wish) {
    if (const auto next = wish + 1; next != wishes.end() && next->tag == wish->tag) continue;
    const auto end = std::lower_bound(known, tags.end(), wish->tag);
    changed.insert(changed.end(), known, end);
    known = end != tags.end() && *end == wish->tag ? end + 1 : end;
    if (wish->subscribed) changed.push_back(wish->tag);
  }
  changed.insert(changed.end(), known, tags.end());
  tags = std::move(changed);
  wishes.clear();
}

void Member::put(Parcel parcel) {
  outbox_bytes += memory_of(parcel);
  outbox.push_back(std::move(parcel));
}

void Member::pop() {
  outbox_bytes -= memory_of(outbox.front());
  outbox.pop_front();
  FANIN_ASSERT(!outbox.empty() || outbox_bytes == 0);
}

bool Member::deliver(SocketCounters& counters) {
  if (offset == group->page.end()) return true;
  if (!hand_over(group->rest_for(*this), counters)) return false;
  offset = group->page.end();
  seen = group->messages;
  return true;
}

bool Member::hand_over(const Parcel& parcel, SocketCounters& counters) {
  if (disconnecting) return true;
  return !blocked && outbox.empty() && transmit(parcel, counters);
}

bool Member::transmit(const Parcel& parcel, SocketCounters& counters) {
  const std::array extents{parcel.page, parcel.payload};
  const auto count = parcel.payload.size == 0 ? 1U : 2U;
  switch (link.send(std::span(extents).first(count))) {
  case net::SendOutcome::accepted: ++counters.pages; return true;
  case net::SendOutcome::backpressure: blocked = true; return false;
  case net::SendOutcome::too_large:
  case net::SendOutcome::closed: return true; // its end is on the way
  }
  return false;
}

void Member::empty_outbox(SocketCounters& counters) {
  while (!blocked && !outbox.empty() && transmit(outbox.front(), counters)) pop();
}

// --- Group ---

DeliveryMode Group::delivery_mode(std::size_t size, bool by_view) const {
  const std::size_t with_tag = size + tag_size;
  if (with_tag > message_max) return DeliveryMode::none;
  if (mode == Mode::low_latency)
    return with_tag > page_max ? DeliveryMode::none : DeliveryMode::alone;
  return by_view || with_tag > page.payload_max() ? DeliveryMode::large : DeliveryMode::gathered;
}

bool Group::delivered() const {
  return std::all_of(members.begin(), members.end(),
                     [this](const Member* member) { return member->offset == page.end(); });
}

Parcel Group::rest_for(const Member& member) const {
  return {.page = page.from(member.offset), .messages = messages - member.seen};
}

void Group::release_page() {
  page.release();
  for (Member* const member : members) member->offset = 0;
}

memory::View Group::prefix_for(const Tag* tag, const FrameHeader& header) {
  if (page.has_page() && !page.fits(prefix_max)) release_page();
  if (page.open()) {
    const std::uint32_t start = page.end();
    if (tag != nullptr) write_tagged(page.append(tag_size, 0, FrameHeader::goes_on), *tag, {});
    const bool fitted = page.append_header(header.size, header.flags);
    FANIN_ASSERT(fitted);
    return page.from(start);
  }
  const struct {
    FrameHeader of_tag;
    Tag tag;
    FrameHeader header;
  } prefix{{0, FrameHeader::goes_on, tag_size}, tag == nullptr ? 0 : *tag, header};
  static_assert(sizeof prefix == prefix_max);
  const auto bytes = std::as_bytes(std::span{&prefix, 1});
  return memory::HeapPage::copy(tag == nullptr ? bytes.last(sizeof header) : bytes);
}

} // namespace fanin::message::detail
