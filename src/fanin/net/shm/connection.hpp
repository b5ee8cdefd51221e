// The state of a connection of ShmTransport; included by its source files only.
#pragma once

#include <algorithm>
#include <string>

#include "fanin/net/shm/shm.hpp"

namespace fanin::net {

namespace shm {

// Set beside a connection's id in the data that epoll reports: the event is of its eventfd.
inline constexpr std::uint64_t wake_bit = 1ULL << 62;
static_assert(wake_bit != SocketListeners::epoll_bit);

// The outbox of this end, which others map.
class OwnOutbox {
public:
  // Errors: exhausted.
  [[nodiscard]] static Result<std::unique_ptr<OwnOutbox>> make();
  OwnOutbox(const OwnOutbox&) = delete;
  OwnOutbox& operator=(const OwnOutbox&) = delete;
  ~OwnOutbox();
  [[nodiscard]] Outbox& operator*() const { return *outbox_; }
  [[nodiscard]] Outbox* operator->() const { return outbox_; }
  Descriptor file; // until it is handed over

private:
  OwnOutbox() = default;
  Outbox* outbox_ = nullptr;
};

enum class PeerState : std::uint8_t {
  here,
  ended, // it has aborted
  gone // it has hung up: what it had mapped is not used any more
};

} // namespace shm

inline constexpr std::string_view belongs_to_another_user =
    "belongs to another user; shm:// is for processes of one user";

struct ShmTransport::Connection {
  Connection(ShmTransport& owner, const ConnectionOptions& given, PageFiller& pages);

  ConnectionId id = ConnectionId::none;
  ConnectionState state;
  bool other_user = false; // its peer belongs to one
  bool spoke = false; // a message of it was handed out
  bool deadline_extended = false; // was late and had something unread
  bool wants_writable = false;
  bool writable_pending = false;
  bool socket_full = false; // until EPOLLOUT
  bool broken = false; // the peer has violated the protocol: nothing more is read of it
  bool end_written = false; // closing: behind all messages
  bool to_signal = false; // something new is in the own outbox
  bool room_to_signal = false; // the peer has room that it had not
  shm::PeerState peer_state = shm::PeerState::here;
  std::uint32_t peer_max_message = 0;
  std::uint64_t armed = 0;
  std::uint32_t idle_polls = 0;
  std::uint32_t refused_bytes = 0; // of the message that wants_writable
  std::uint32_t wants_copy = 0; // bytes in a page to copy to
  ConnectionOptions options;
  Descriptor socket;
  Descriptor wake; // of this end
  Descriptor peer_wake;
  std::unique_ptr<shm::OwnOutbox> own;
  shm::Mapping peer_outbox;
  PageFiller* filler;
  shm::LentMemory::Pointer lent;
  Sending sending;
  std::uint32_t progress = 0; // closing: Sending::taken at the last look
  Receiving receiving;
  std::string target; // human-readable
  Url url; // of the listener
  Timer deadline; // of the handshake, then of closing
  Timer retry;
  UnidentifiedPeers<Connection>::Entry unidentified{*this};
  ConnectionList::Place eager{*this};
  ConnectionList::Place flush{*this};
  ConnectionList::Place expired{*this};

  [[nodiscard]] shm::Outbox& out() const { return **own; }
  // Once it is open.
  [[nodiscard]] const shm::Outbox& peer() const {
    return *reinterpret_cast<const shm::Outbox*>(peer_outbox.data());
  }
  [[nodiscard]] bool connected() const { return peer_outbox.data() != nullptr; }
  [[nodiscard]] bool peer_has_ended() const { return peer_state != shm::PeerState::here; }
  [[nodiscard]] bool peer_is_gone() const { return peer_state == shm::PeerState::gone; }
  // The peer's state only goes forward.
  void peer_becomes(shm::PeerState next) { peer_state = std::max(peer_state, next); }
  // Until mark_identified().
  [[nodiscard]] bool has_to_wait() const { return spoke && unidentified.unidentified(); }
  [[nodiscard]] std::size_t lent_out() const {
    return sending.slots.size() - sending.free_slots.size();
  }
};

} // namespace fanin::net
