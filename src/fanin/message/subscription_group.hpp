/// \file
/// A subscriber in one mode, and the group of all subscribers that get the same messages: the
/// messages gathered for the group, and how many of them each subscriber has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "fanin/memory/copy.hpp"
#include "fanin/message/acceptor.hpp"
#include "fanin/message/counters.hpp"
#include "fanin/message/gathering_page.hpp"
#include "fanin/message/subscription.hpp"
#include "fanin/net/page_filler.hpp"

namespace fanin::message::detail {

struct Group;

inline constexpr std::uint32_t tag_size = sizeof(Tag);

// A published message as all subscribers get it: its tag, then its bytes.
inline void write_tagged(std::byte* at, Tag tag, std::span<const std::byte> message) {
  std::memcpy(at, &tag, tag_size);
  memory::copy(at + tag_size, message);
}
// The same in a page of the filler, or on the heap.
[[nodiscard]] memory::View tagged(net::PageFiller& filler, Tag tag,
                                  std::span<const std::byte> message);
// The same in a frame of its own, on the heap.
[[nodiscard]] memory::View framed(Tag tag, std::span<const std::byte> message);

// A subscriber, in one of the two modes.
struct Member final : Peer {
  Mode mode = Mode::low_latency;
  std::vector<Tag> tags; // sorted
  std::uint64_t tags_hash = 0;
  struct Wish {
    Tag tag = 0;
    std::size_t number = 0; // in the order of asking
    bool subscribed = false;
  };
  std::vector<Wish> wishes; // since the tags were changed last, in order
  Group* group = nullptr;
  std::uint32_t offset = 0; // in the group's page: this member has all bytes before it
  std::uint64_t seen = 0; // messages of the group that this member has
  std::deque<Parcel> outbox; // what the transport did not take; it goes before the group's page
  std::uint64_t outbox_bytes = 0; // of memory
  bool blocked = false; // the transport said backpressure
  bool skipping = false; // does not get the message that is being given
  bool disconnecting = false; // gets nothing more, and is disconnected soon
  std::uint64_t skipped = 0; // messages

  void ask(Tag tag, bool subscribed) { wishes.push_back({tag, wishes.size(), subscribed}); }
  // Asks for the changes that the page names. False: the page is invalid.
  [[nodiscard]] bool read_request(std::span<const std::byte> page);
  void take_wishes(); // changes the tags
  void put(Parcel parcel);
  void pop();
  // Sends the part of the group's page that this member does not have yet. False: the transport
  // does not take it now.
  [[nodiscard]] bool deliver(SocketCounters& counters);
  // Sends a parcel, unless other parcels wait before it. False: not sent; call put().
  [[nodiscard]] bool hand_over(const Parcel& parcel, SocketCounters& counters);
  void empty_outbox(SocketCounters& counters); // as far as the transport takes it

private:
  [[nodiscard]] bool transmit(const Parcel& parcel, SocketCounters& counters);
};

// How a message is sent to a group.
enum class DeliveryMode : std::uint8_t {
  none, // its members take no message of that size
  alone, // low latency: as a transport message
  gathered, // copied into the group's page; into one of its own if the send pool is empty
  large // as views, in pieces
};

struct Group {
  Group(memory::PagePool& pool, const Member& like)
      : mode(like.mode),
        page_max(like.hello.page_max),
        message_max(like.hello.message_max),
        tags(like.tags),
        tags_hash(like.tags_hash),
        page(pool, page_max) {}

  Mode mode;
  std::uint32_t page_max; // of a transport message, bytes
  std::uint64_t message_max; // bytes, with the tag
  std::vector<Tag> tags; // sorted
  std::uint64_t tags_hash;
  std::vector<Member*> members;
  GatheringPage page; // high throughput
  std::uint64_t messages = 0; // so far
  std::uint32_t seen_end = 0; // of what is in the page, at the last end of a turn
  bool listed = false; // has something for its members

  // Most bytes before the first piece of a large message: a frame with the tag, and a header.
  static constexpr std::uint32_t prefix_max = 3 * sizeof(FrameHeader);
  // The bytes before a piece of a large message: its header, and before the first piece (`tag` is
  // not null) the tag as a piece of its own. They are in the group's page, or on the heap if the
  // pool is empty.
  [[nodiscard]] memory::View prefix_for(const Tag* tag, const FrameHeader& header);
  // `by_view`: the message is given as a view, which needs no copy.
  [[nodiscard]] DeliveryMode delivery_mode(std::size_t size, bool by_view) const;
  void release_page();
  // The part of the page that the member does not have yet.
  [[nodiscard]] Parcel rest_for(const Member& member) const;
  [[nodiscard]] bool delivered() const; // all members have all that is in the page
};

} // namespace fanin::message::detail
