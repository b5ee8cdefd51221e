// Gathers the control messages of event building into pages and sends them when the loop has
// nothing more to add (NetIO's high-throughput sending, Schumacher 2017, section III-A). At low
// rate a message leaves at the end of the turn it was written in; at high rate pages fill.
#pragma once

#include <cstddef>
#include <span>

#include "fanin/base/export.hpp"
#include "fanin/builder/control/control_frame.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/message/gathering_page.hpp"
#include "fanin/net/link.hpp"
#include "fanin/wire/control.hpp"

namespace fanin::builder {

// A connection fills one page after the other, whatever the number of its messages, so that a peer
// that stops reading holds no more pages than its bytes need; an idle one holds none.
//
// Thread: the loop of its link. It does not grow when a peer does not read: failed() becomes true,
// and the owner closes the connection. A caller that can wait asks roomy() first.
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
    put_message([this](wire::MessageType type, std::size_t size) { return reserve(type, size); },
                body, parts...);
  }

  // True if a message with so many bytes of parts can be appended now. Otherwise the peer has not
  // taken what it was sent, or the pool is empty: try again when the link is writable, or next
  // turn.
  [[nodiscard]] bool roomy(std::size_t parts_bytes = 0) {
    return link_ && !failed_ && make_room(parts_bytes + control_body_max);
  }

  // Sends what was gathered. Called at the end of a turn, and when the link is writable again.
  void flush();

  // The most bytes of records or text that a message can carry after its body.
  [[nodiscard]] std::size_t room_max() const { return page_.payload_max() - control_body_max; }
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] bool sent() const { return page_.empty(); } // all that was gathered
  [[nodiscard]] bool is_idle() const { return !page_.has_page(); } // flush() has nothing to do
  [[nodiscard]] const net::Link& link() const { return link_; }
  [[nodiscard]] net::Link& link() { return link_; }
  explicit operator bool() const { return static_cast<bool>(link_); }

private:
  std::byte* reserve(wire::MessageType type, std::size_t size);
  bool make_room(std::size_t size);

  net::Link link_;
  message::GatheringPage page_;
  bool failed_ = false;
};

} // namespace fanin::builder
