// The state of a connection of OfiTransport; included by its source files only.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "fanin/net/ofi/fabric.hpp"
#include "fanin/net/ofi/ofi.hpp"
#include "fanin/net/posted/credits.hpp"
#include "fanin/net/posted/hello.hpp"
#include "fanin/net/posted/receives.hpp"

namespace fanin::net {

namespace ofi {

inline constexpr std::uint32_t sends_most = 64; // accepted and not completed; a power of two
inline constexpr std::uint32_t receives_most = 64; // posted by a connection
inline constexpr std::size_t inject_room = 512; // bytes of a message that the provider copies

// What is under way at the provider. It stays where it is until its completion has come, or none
// can come any more.
struct Operation {
  fi_context2 of_provider{};
  void* connection = nullptr;
  std::uint32_t number = 0; // of the slot, or of the message in the ring
  bool receive = false;
};

struct Sent {
  Operation operation;
  std::array<memory::View, max_extents> extents;
  std::uint32_t count = 0;
  std::uint32_t size = 0; // bytes
  bool done = false;
};

// A ring; the numbers only grow.
struct Sending {
  std::array<Sent, sends_most> ring;
  std::uint32_t accepted = 0;
  std::uint32_t posted = 0;
  std::uint32_t done = 0;
  std::uint64_t queued_bytes = 0; // accepted and not done
  [[nodiscard]] Sent& at(std::uint32_t number) { return ring[number % sends_most]; }
  [[nodiscard]] bool full() const { return accepted - done == sends_most; }
};

// A receive that has completed and was not looked at yet.
struct Arrived {
  std::uint32_t slot = 0;
  std::uint32_t size = 0;
  std::uint64_t tag = 0;
};

} // namespace ofi

struct OfiTransport::Terms {
  std::uint32_t max_message = 0;
  std::uint32_t pages = 0;
};

struct OfiTransport::Connection {
  Connection(OfiTransport& owner, const ConnectionOptions& given, const Terms& terms,
             std::uint32_t receives_at_once, PageFiller& pages);

  ConnectionId id = ConnectionId::none;
  Stage stage = Stage::waiting;
  bool handed_out = false; // its `accepted` or `connected` is delivered
  bool ready = false; // in ready_
  bool marked = false; // in marked_
  bool poor = false; // in poor_
  bool silent = false; // ended before anybody was told of it
  bool trusted = true;
  bool wants_writable = false;
  bool writable_pending = false;
  bool end_sent = false;
  bool cut = false; // by the peer or the network: what has come is all there is
  bool cut_is_known = false; // and all of it is in `arrived`
  bool blocked = false; // the provider takes nothing more just now
  CloseReason reason = CloseReason::local; // of `ended`
  CloseReason cut_reason = CloseReason::peer_died;
  ListenerId listener = ListenerId::none; // that accepted it
  std::uint32_t max_message = 0; // that this side takes
  std::uint32_t peer_max_message = 0;
  std::uint32_t operations = 0; // reserved of `completions`
  std::uint32_t wants_copy = 0; // bytes in a page of `copies`
  ConnectionOptions options;
  PageFiller* filler;
  PageFiller* copies = nullptr; // once needed
  ofi::Domain* domain = nullptr;
  ofi::Completions* completions = nullptr;
  void* receive_description = nullptr; // of the receive pool's memory
  ofi::Info info; // to start with, of a connection that is made from here
  ofi::Owned<fid_ep> endpoint;
  std::size_t inject_most = 0; // bytes that the provider copies at once
  std::size_t pieces_most = 0; // of a message
  std::uint32_t taken = 0; // of `arrived`
  posted::Credits credits;
  posted::Receives receives;
  std::vector<ofi::Operation> receive_operations; // by slot
  std::vector<ofi::Arrived> arrived; // a ring, as many as there are slots
  std::uint32_t came = 0;
  std::unique_ptr<ofi::Sending> sending; // while there is an endpoint
  std::string target; // for people
  Timer deadline; // of the handshake, then of closing

  [[nodiscard]] bool ours() const { return listener == ListenerId::none; }
};

struct OfiTransport::Listener {
  ConnectionOptions options;
  Url url;
  Terms terms;
  ofi::Owned<fid_pep> endpoint;
  ListenerId id = ListenerId::none;
};

} // namespace fanin::net
