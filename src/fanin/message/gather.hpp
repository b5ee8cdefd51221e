// Gathers small messages into one page and sends it when the loop has nothing more to add (NetIO's
// high-throughput sending, seed 002, for our own control messages). At low rate a message leaves at
// the end of the turn it was written in; at high rate pages fill.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

#include "fanin/memory/page_pool.hpp"
#include "fanin/net/link.hpp"
#include "fanin/wire/control.hpp"

namespace fanin::message {

// A connection fills one page after the other, whatever the number of its messages, so that a peer
// that stops reading holds no more pages than its bytes need; an idle one holds none.
//
// Thread: the loop of its link. A peer that does not read makes it fail, not grow: `failed()` is
// then true, and the owner gives the connection up. Who can wait instead asks roomy() first.
class Gather {
public:
  Gather() = default;
  // `pool` must outlive it. A page carries at most half a page of messages, since that is what
  // the receiver's pages take.
  Gather(net::Link link, memory::PagePool& pool)
      : link_(link), pool_(&pool), capacity_(pool.page_size() / 2) {}

  // Appends a message: its body, then the bytes of `parts` (arrays of records, or text).
  template <class Body, class... Parts>
  void append(const Body& body, const Parts&... parts) {
    const std::size_t size =
        sizeof(wire::MessageHeader) + sizeof(Body) + (bytes_of(parts).size() + ... + 0);
    std::byte* at = reserve((size + 7) & ~std::size_t{7});
    if (at == nullptr) return;
    const wire::MessageHeader header{Body::type, 0,
                                     static_cast<std::uint32_t>((size + 7) & ~std::size_t{7})};
    put(at, std::as_bytes(std::span{&header, 1}));
    put(at, std::as_bytes(std::span{&body, 1}));
    (put(at, bytes_of(parts)), ...);
    std::memset(at, 0, header.size - size);
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
  [[nodiscard]] std::size_t room_max() const { return capacity_ - body_max; }
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] bool sent() const { return start_ == end_; } // all that was gathered
  [[nodiscard]] const net::Link& link() const { return link_; }
  [[nodiscard]] net::Link& link() { return link_; }
  explicit operator bool() const { return static_cast<bool>(link_); }

private:
  static std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span{text.data(), text.size()});
  }
  template <class T>
    requires(!std::convertible_to<T, std::string_view>)
  static std::span<const std::byte> bytes_of(const T& records) {
    return std::as_bytes(std::span{records});
  }
  static void put(std::byte*& at, std::span<const std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
    at += bytes.size();
  }
  static constexpr std::size_t body_max = 128; // of any message, with its header and padding

  std::byte* reserve(std::size_t size);
  bool make_room(std::size_t size);

  net::Link link_;
  memory::PagePool* pool_ = nullptr;
  std::uint32_t capacity_ = 0;
  memory::Loan page_;
  std::uint32_t start_ = 0; // of what is not sent yet
  std::uint32_t end_ = 0;
  bool failed_ = false;
};

// Calls visit(MessageType, std::span<const std::byte> body) for each message gathered in `page`.
// False if its lengths lie, or when visit returns false.
template <class Visit>
[[nodiscard]] bool for_each_message(std::span<const std::byte> page, Visit visit) {
  while (!page.empty()) {
    wire::MessageHeader header;
    if (page.size() < sizeof header) return false;
    std::memcpy(&header, page.data(), sizeof header);
    if (header.size < sizeof header || header.size > page.size() || header.size % 8 != 0)
      return false;
    if (!visit(header.type, page.subspan(sizeof header, header.size - sizeof header))) return false;
    page = page.subspan(header.size);
  }
  return true;
}

} // namespace fanin::message
