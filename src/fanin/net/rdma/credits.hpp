// The credits of a connection whose receives are posted in advance: a message is sent only if a
// receive waits for it at the peer.
//
// A credit is a posted receive. Credits travel back beside messages. When the peer may have run out
// of them, they travel in a message of their own; for it each side posts one receive more than it
// grants (`reserved`). At most one such message is under way: the next one follows when the peer
// has confirmed the last one, which its next message does. This cannot come to a halt, since a peer
// that has used up its credits has sent a message since. Without messages no credits travel.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fanin/base/assert.hpp"
#include "fanin/net/rdma/hello.hpp"

namespace fanin::net::rdma {

class Credits {
public:
  // Of the receives posted, those that are not for messages.
  static constexpr std::uint32_t reserved = 1;

  // So many receives were posted before the peer knows of them. Returns the peer's credits, for
  // hello.
  std::uint32_t start(std::uint32_t receives) {
    peer_available_ = receives > reserved ? receives - reserved : 0;
    update_after_ = std::max(peer_available_ / 2, 1U);
    return peer_available_;
  }
  void take_hello(const Hello& hello) { available_ = hello.credits; }

  [[nodiscard]] bool can_send() const { return available_ > 0; }
  // Uses a credit for a message.
  [[nodiscard]] Tag spend() {
    FANIN_ASSERT(can_send());
    --available_;
    return tag(TagKind::message);
  }
  // The end of the connection needs a credit too. `taken`: messages of the peer.
  [[nodiscard]] Tag end(std::uint32_t taken) {
    FANIN_ASSERT(can_send());
    --available_;
    return {TagKind::end, taken_odd_, low_bits(taken)};
  }

  // Whether the peer has to be told with a message of its own.
  [[nodiscard]] bool update_is_due() const {
    return owed_ > 0 && !update_under_way_ && (owed_ >= update_after_ || peer_available_ == 0);
  }
  [[nodiscard]] Tag update() {
    update_under_way_ = true;
    updates_odd_ = !updates_odd_;
    return tag(TagKind::credits);
  }

  // The tag of a message that has come. False: the peer has sent more than it may.
  [[nodiscard]] bool take(Tag tag) {
    if (tag.kind != TagKind::end) available_ += tag.credits;
    if (available_ > credits_most) return false;
    if (tag.odd == updates_odd_) update_under_way_ = false;
    if (tag.kind == TagKind::credits) {
      taken_odd_ = !taken_odd_;
      return true;
    }
    if (peer_available_ == 0) return false;
    --peer_available_;
    return true;
  }
  // So many receives are posted again that messages had used. Where there were fewer at the start,
  // the peer may use more from now on.
  void posted(std::uint32_t receives) {
    owed_ += receives;
    update_after_ = std::max(update_after_, (peer_available_ + owed_) / 2);
  }

private:
  [[nodiscard]] Tag tag(TagKind kind) {
    const Tag result{kind, taken_odd_, owed_};
    peer_available_ += owed_;
    owed_ = 0;
    return result;
  }

  std::uint32_t available_ = 0; // messages that may be sent
  std::uint32_t peer_available_ = 0; // messages that may come
  std::uint32_t owed_ = 0; // receives posted that the peer does not know of
  std::uint32_t update_after_ = 1; // so many of them are worth a message of their own
  bool updates_odd_ = false; // sent
  bool taken_odd_ = false; // of the peer's
  bool update_under_way_ = false;
};

} // namespace fanin::net::rdma
