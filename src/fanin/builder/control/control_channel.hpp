// One end of a conversation between a node and the event manager, which outlives the connections it
// goes over: messages leave in numbered pages, are kept until the peer has acknowledged them, and
// are sent again over the next connection. The memory for what is kept is bounded: when it is full,
// that is backpressure, up to the sources.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "fanin/builder/control/control_frame.hpp"
#include "fanin/builder/control/greeting.hpp"
#include "fanin/message/gathering_page.hpp"
#include "fanin/net/link.hpp"

namespace fanin::builder {

// Thread: the loop of its link. It holds no page while all is acknowledged.
class ControlChannel {
public:
  ControlChannel() = default;
  // `pool` must outlive it. Not connected, and nothing can be said before begin().
  explicit ControlChannel(memory::PagePool& pool)
      : pool_(&pool), page_(pool, pool.page_size() / 2) {}

  // A new conversation over this connection: what was kept of an earlier one is forgotten.
  void begin(net::Link link);
  // The same conversation over a new connection; the peer has received that many pages of it.
  // False: that number is impossible.
  [[nodiscard]] bool resume(net::Link link, std::uint64_t received);
  // Without a connection; what is said waits for the next one.
  void detach();
  // Sends one message ahead of all others, without a number: what opens a connection. Where the
  // pool is empty it waits for a page.
  template <class Body, class... Parts>
  void greet(net::Link link, const Body& body, const Parts&... parts) {
    greeting_.set(link, *pool_, body, parts...);
    greeting_.flush();
  }

  // Appends a message: its body, then the bytes of `parts` (arrays of records, or text). Where
  // there is no room for it now, it is sent later. A caller that may send much asks roomy() first.
  template <class Body, class... Parts>
  void append(const Body& body, const Parts&... parts) {
    put_message([this](wire::MessageType type, std::size_t size) { return reserve(type, size); },
                body, parts...);
  }
  // The place for a message of that size without its frame's header (put_message()); null: the
  // channel has failed.
  [[nodiscard]] std::byte* reserve(wire::MessageType type, std::size_t size);
  // Whether a message with so many bytes of parts has room. Otherwise the peer has not
  // acknowledged what it was told: try again next turn. At most room_max().
  [[nodiscard]] bool roomy(std::size_t parts_bytes = 0);
  // The most bytes of records or text that a message can carry after its body.
  [[nodiscard]] std::size_t room_max() const {
    return page_.payload_max() - control_body_max - number_max;
  }

  // Sends what was said, and acknowledges where enough has come. Called at the end of a turn, and
  // when the link is writable again.
  void flush();
  // Acknowledges now what has come, if that was not done yet.
  void acknowledge();

  // Before the first message of a page that has come.
  void begin_page() { skipping_ = false; }
  enum class Taken : std::uint8_t { message, done, bad }; // for the owner; handled here; invalid
  [[nodiscard]] Taken take(wire::MessageType type, std::span<const std::byte> body);

  // It is far behind, or takes no message.
  [[nodiscard]] bool failed() const { return failed_ || greeting_.failed(); }
  [[nodiscard]] bool sent() const { // all that was said
    return deferred_.empty() && page_.empty() && next_ == unacknowledged_.size() &&
           greeting_.sent();
  }
  [[nodiscard]] bool all_acknowledged() const { return unacknowledged_.empty(); }
  // As much is kept as may be: the peer has to acknowledge some of it. (An empty pool is not its
  // fault.)
  [[nodiscard]] bool full() const {
    return unacknowledged_bytes_ + page_.size() + control_body_max + number_max >
           unacknowledged_max();
  }
  // flush() has nothing to do until something is said, a page comes, or the link is writable.
  [[nodiscard]] bool is_idle() const {
    return sent() && (!page_.has_page() || !unacknowledged_.empty());
  }
  [[nodiscard]] std::uint64_t received() const { return received_; } // pages
  [[nodiscard]] std::uint64_t acknowledged() const { return acknowledged_; }

private:
  static constexpr std::size_t number_max =
      sizeof(wire::Numbered) + 2 * sizeof(message::FrameHeader);
  static constexpr std::size_t deferred_max = 4U << 20; // bytes; beyond, the peer is given up

  [[nodiscard]] std::size_t unacknowledged_max() const {
    return 2 * std::size_t{pool_->page_size()};
  }
  [[nodiscard]] bool make_room(std::size_t size);
  [[nodiscard]] std::byte* place(wire::MessageType type, std::size_t size);
  void append_deferred();
  void seal();
  [[nodiscard]] bool on_acknowledged(std::uint64_t pages);
  void forget();

  net::Link link_;
  memory::PagePool* pool_ = nullptr;
  Greeting greeting_;
  message::GatheringPage page_; // not numbered yet
  std::byte* page_number_ = nullptr; // of page_'s unsent part: its Numbered
  std::deque<memory::View> unacknowledged_; // numbered acknowledged_ + 1 and on
  std::size_t unacknowledged_bytes_ = 0;
  std::size_t next_ = 0; // of unacknowledged_, to be sent over this connection
  std::uint64_t acknowledged_ = 0; // by the peer
  std::vector<std::byte> deferred_; // frames for which there was no room
  std::uint64_t received_ = 0;
  std::uint64_t received_reported_ = 0;
  std::size_t received_bytes_ = 0; // since received_reported_
  bool skipping_ = false; // a page that has come before
  bool failed_ = false;
};

} // namespace fanin::builder
