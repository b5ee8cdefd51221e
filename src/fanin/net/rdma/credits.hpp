// The accounts of a connection whose receives are posted ahead: a message is sent only where one
// waits for it, so that the receiver is never not ready.
//
// A credit is a posted receive. It travels back beside messages, or, when the peer may have run
// out, in a message of its own, for which each side posts one receive more than it says (`kept`).
// At most one of these is under way: the next follows when the peer has said that it took the last,
// which its next message does. A peer that has used up its credits has sent one since, so this
// cannot stand still; and where no messages are, none of these are either.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fanin/net/rdma/hello.hpp"

namespace fanin::net::rdma {

class Credits {
public:
  // Of the receives posted, those that are not for messages.
  static constexpr std::uint32_t kept = 1;

  // So many receives were posted before the peer knows. What they are worth to the peer, for hello.
  std::uint32_t start(std::uint32_t receives) {
    peer_available_ = receives > kept ? receives - kept : 0;
    update_after_ = std::max(peer_available_ / 2, 1U);
    return peer_available_;
  }
  void take_hello(const Hello& hello) { available_ = hello.credits; }

  [[nodiscard]] bool can_send() const { return available_ > 0; }
  // For a message or the end, which needs a credit too.
  [[nodiscard]] Tag spend(TagKind kind) {
    --available_;
    return tag(kind);
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

  // Of something that has come. False: more than was allowed.
  [[nodiscard]] bool take(Tag tag) {
    available_ += tag.credits;
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
  // So many receives that messages had used are posted again.
  // What it may use in all grows where there were fewer to begin with.
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
