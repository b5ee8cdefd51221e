// A message that was received: views of the pages it came in, kept for as long as the message is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fanin/memory/page_pool.hpp"
#include "fanin/message/peer.hpp"

namespace fanin::message {

// A loan: it holds pages of the receive pool (of the sender's, over shared memory). Whoever keeps
// many of them stops the senders; bytes() copied elsewhere cost nobody anything. It moves, and a
// copy is one more holder. Thread: the socket's. Ends before the Context.
class Message {
public:
  // Contiguous. A message that was split is copied together at the first call; pieces() does not.
  [[nodiscard]] std::span<const std::byte> bytes() {
    if (!more_.empty()) join();
    return view_.bytes();
  }
  [[nodiscard]] std::uint64_t size() const {
    std::uint64_t size = view_.size;
    for (const memory::View& piece : more_) size += piece.size;
    return size;
  }
  // In order; a message that came in one page is one piece.
  [[nodiscard]] std::size_t pieces() const { return 1 + more_.size(); }
  [[nodiscard]] const memory::View& piece(std::size_t index) const {
    return index == 0 ? view_ : more_[index - 1];
  }
  // From whom; of a Subscriber, from which publisher.
  [[nodiscard]] PeerId peer() const { return peer_; }
  // What it was published under. 0 where it was not published.
  [[nodiscard]] std::uint64_t tag() const { return tag_; }

  // For the sockets.
  static constexpr std::uint64_t size_max = 0xffff'ffff;
  void receive(PeerId peer, memory::View view, memory::View rest);
  void receive(PeerId peer, std::vector<memory::View>& pieces); // takes them; at least one
  void release(); // lets go of what it holds
  [[nodiscard]] bool take_tag(); // off the beginning; false: there is none

private:
  friend class PageQueue;
  void join();

  memory::View view_;
  std::vector<memory::View> more_; // of a split message, behind view_
  PeerId peer_ = PeerId::none;
  std::uint64_t tag_ = 0;
};

} // namespace fanin::message
