/// \file
/// A received message: views of the pages in which it came.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/message/peer.hpp"

namespace fanin::message {

/// A Message holds pages of the receive pool (over shared memory: of the sender's pool). An
/// application that keeps many messages stops the senders; copy bytes() instead. A copy of a
/// Message holds the same pages. Thread: the socket's. It must be destroyed before the Context.
class Message {
public:
  /// The message in one piece. The first call copies a message that was split; pieces() does not.
  [[nodiscard]] std::span<const std::byte> bytes() {
    if (!more_.empty()) join();
    return view_.bytes();
  }
  [[nodiscard]] std::uint64_t size() const {
    std::uint64_t size = view_.size;
    for (const memory::View& piece : more_) size += piece.size;
    return size;
  }
  /// The pieces, in order. A message that came in one page has one piece.
  [[nodiscard]] std::size_t pieces() const { return 1 + more_.size(); }
  [[nodiscard]] const memory::View& piece(std::size_t index) const {
    return index == 0 ? view_ : more_[index - 1];
  }
  /// The sender; for a Subscriber, the publisher.
  [[nodiscard]] PeerId peer() const { return peer_; }
  /// The tag with which it was published; 0 if it was not published.
  [[nodiscard]] std::uint64_t tag() const { return tag_; }

  /// For the sockets.
  static constexpr std::uint64_t size_max = 0xffff'ffff;
  void receive(PeerId peer, memory::View view, memory::View rest);
  void receive(PeerId peer, std::vector<memory::View>& pieces); ///< takes them; at least one
  void release(); ///< releases its pages
  /// Calls back with it, then releases it. False: the callback threw.
  [[nodiscard]] bool hand_to(const std::function<void(Message&)>& callback) {
    try {
      callback(*this);
    } catch (...) {
      release();
      return false;
    }
    release();
    return true;
  }
  [[nodiscard]] bool take_tag(); ///< from the beginning of the message; false: there is none

private:
  friend class PageQueue;
  FANIN_API void join();

  memory::View view_;
  std::vector<memory::View> more_; // of a split message, behind view_
  PeerId peer_ = PeerId::none;
  std::uint64_t tag_ = 0;
};

} // namespace fanin::message
