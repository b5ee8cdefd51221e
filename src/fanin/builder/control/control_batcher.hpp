// Gathers the control messages of event building into pages and sends them when the loop has
// nothing more to add (NetIO's high-throughput sending, Schumacher 2017, section III-A). At low
// rate a message leaves at the end of the turn it was written in; at high rate pages fill. A
// message is a frame (page_format.hpp) of a multiple of 8 bytes, whose type is its
// wire::MessageType.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

#include "fanin/base/export.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/message/gathering_page.hpp"
#include "fanin/net/link.hpp"
#include "fanin/wire/control.hpp"

namespace fanin::builder {

// The bytes of a part of a message: text, or an array of records.
inline std::span<const std::byte> message_bytes(std::string_view text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}
template <class T>
  requires(!std::convertible_to<T, std::string_view>)
std::span<const std::byte> message_bytes(const T& records) {
  return std::as_bytes(std::span{records});
}
inline void put_bytes(std::byte*& at, std::span<const std::byte> bytes) {
  if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
  at += bytes.size();
}

// A connection fills one page after the other, whatever the number of its messages, so that a peer
// that stops reading holds no more pages than its bytes need; an idle one holds none.
//
// Thread: the loop of its link. A peer that does not read makes it fail, not grow: `failed()` is
// then true, and the owner gives the connection up. Who can wait instead asks roomy() first.
class FANIN_INTERNAL_API ControlBatcher {
public:
  ControlBatcher() = default;
  // `pool` must outlive it. A page carries at most half a page of messages, since that is what
  // the receiver's pages take.
  ControlBatcher(net::Link link, memory::PagePool& pool)
      : link_(link), page_(pool, pool.page_size() / 2) {}

  // Appends a message: its body, then the bytes of `parts` (arrays of records, or text).
  template <class Body, class... Parts>
  void append(const Body& body, const Parts&... parts) {
    const std::size_t size = sizeof(Body) + (message_bytes(parts).size() + ... + 0);
    std::byte* at = reserve(Body::type, (size + 7) & ~std::size_t{7});
    if (at == nullptr) return;
    put_bytes(at, std::as_bytes(std::span{&body, 1}));
    (put_bytes(at, message_bytes(parts)), ...);
  }

  // True if a message with so many bytes of parts can be appended now. Otherwise the peer has not
  // taken what it was sent, or the pool is empty: try again when the link is writable, or next
  // turn.
  [[nodiscard]] bool roomy(std::size_t parts_bytes = 0) {
    return link_ && !failed_ && make_room(parts_bytes + body_max);
  }

  // Sends what was gathered. Called at the end of a turn, and when the link is writable again.
  void flush();

  // The most bytes of records or text that a message can carry after its body.
  [[nodiscard]] std::size_t room_max() const { return page_.payload_max() - body_max; }
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] bool sent() const { return page_.empty(); } // all that was gathered
  [[nodiscard]] bool is_idle() const { return !page_.has_page(); } // flush() has nothing to do
  [[nodiscard]] const net::Link& link() const { return link_; }
  [[nodiscard]] net::Link& link() { return link_; }
  explicit operator bool() const { return static_cast<bool>(link_); }

private:
  static constexpr std::size_t body_max = 120; // of any message, with its padding

  std::byte* reserve(wire::MessageType type, std::size_t size);
  bool make_room(std::size_t size);

  net::Link link_;
  message::GatheringPage page_;
  bool failed_ = false;
};

// Calls visit(MessageType, std::span<const std::byte> body) for each message gathered in `page`.
// False if its lengths lie, or when visit returns false.
template <class Visit>
[[nodiscard]] bool for_each_message(std::span<const std::byte> page, Visit visit) {
  message::PageReader reader{page};
  message::Frame frame;
  message::PageReader::Step step{};
  while ((step = reader.next(frame)) == message::PageReader::Step::frame) {
    if (frame.header.flags != 0 || frame.header.size % message::frame_alignment != 0) return false;
    if (!visit(static_cast<wire::MessageType>(frame.header.type),
               page.subspan(frame.offset, frame.header.size)))
      return false;
  }
  return step == message::PageReader::Step::end;
}

} // namespace fanin::builder
