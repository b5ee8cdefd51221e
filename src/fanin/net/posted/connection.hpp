// The state of a connection of PostedTransport; included by its source files only.
#pragma once

#include <array>
#include <bit>
#include <deque>
#include <memory>
#include <vector>

#include "fanin/net/first_count.hpp"
#include "fanin/net/posted/credits.hpp"
#include "fanin/net/posted/network.hpp"
#include "fanin/net/posted/own_receives.hpp"
#include "fanin/net/posted/pages.hpp"
#include "fanin/net/posted/posted.hpp"
#include "fanin/net/posted/shared_receives.hpp"
#include "fanin/net/resolver.hpp"

namespace fanin::net {

namespace posted {

struct Sent {
  Operation operation{.kind = Operation::Kind::message};
  std::array<memory::View, max_extents> extents;
  std::uint32_t count = 0;
  std::uint32_t size = 0; // bytes
  bool inlined = false;
  bool done = false;
};

// A ring; the numbers only grow, and wrap.
static_assert(std::has_single_bit(messages_most));
struct Sending {
  std::array<Sent, messages_most> ring;
  std::uint32_t accepted = first_count;
  std::uint32_t posted = first_count;
  std::uint32_t done = first_count;
  std::uint64_t queued_bytes = 0; // accepted and not done
  std::uint64_t waiting_bytes = 0; // accepted and not posted
  [[nodiscard]] Sent& at(std::uint32_t number) { return ring[number % messages_most]; }
  [[nodiscard]] bool full() const { return accepted - done == messages_most; }
  [[nodiscard]] bool waits() const { return posted != accepted; }
};

// A receive that has completed and was not looked at yet.
struct Arrived {
  std::uint32_t slot = 0;
  std::uint32_t size = 0;
  std::uint64_t tag = 0;
};

// What there is of a connection while its link is open.
struct Traffic {
  Traffic(Link& link, std::unique_ptr<Receives> given);
  [[nodiscard]] const Arrived& next() const { return arrived[taken % arrived.size()]; }
  [[nodiscard]] bool overrun() const { return came - taken == receives->most(); }

  Credits credits;
  std::unique_ptr<Receives> receives;
  std::vector<Arrived> arrived; // a ring of a power of two: for as many as may come at once
  std::uint32_t came = first_count;
  std::uint32_t taken = first_count;
  std::uint32_t heard = first_count; // `came` when the peer was last looked for
  Operation other; // of sends that nobody waits for
  Sending sending;
};

struct Connection {
  enum class Stage : std::uint8_t {
    waiting, // for the way, or for pages to post
    handshake, // until the network says that the connection is there
    open,
    ended, // nothing more comes or goes; `closed` is to be reported
    closing, // closed here: what was accepted is sent, then the end, until the peer hangs up
    buried // its link is closed, until no completion can name it any more
  };

  Connection(const ConnectionOptions& given, PageFiller& packer, std::vector<ConnectionId>& expired,
             std::function<void(Connection&, const Resolver::Found&)> take_addresses)
      : options(given),
        filler(&packer),
        question(
            [this, take = std::move(take_addresses)](const auto& found) { take(*this, found); }),
        deadline([this, &expired] { expired.push_back(id); }) {}

  ConnectionId id = ConnectionId::none;
  Stage stage = Stage::waiting;
  bool handed_out = false; // its `accepted` or `connected` is delivered
  bool ready = false; // in ready_
  bool marked = false; // in marked_
  bool poor = false; // in poor_
  bool given_out = false; // in given_out_
  bool silent = false; // ended before anybody was told of it
  bool trusted = true;
  bool admitted = false; // not trusted, and one of those that have a page
  bool wants_writable = false;
  bool writable_pending = false;
  bool end_sent = false;
  bool cut = false; // by the peer or the network: what has come is all there is
  bool cut_is_known = false; // and all of it is in `arrived`
  bool cut_unexplained = false; // by a cancellation, so far
  CloseReason reason = CloseReason::local; // of `ended`
  CloseReason cut_reason = CloseReason::peer_died;
  ListenerId listener = ListenerId::none; // that accepted it
  Time since{}; // admitted
  std::uint32_t max_message = 0; // that this side takes
  ReceiveOptions receiving;
  std::uint32_t peer_max_message = 0;
  std::uint32_t peer_credits = 0; // in its request
  std::uint32_t wants_copy = 0; // bytes in a page of `copies`
  std::uint64_t reached = ~0ULL; // the last Arena::id() that the link was found to know
  ConnectionOptions options;
  PageFiller* filler;
  Url target; // of connect(), where its host has a name
  Resolver::Question question; // for its addresses
  PageFiller* copies = nullptr; // once needed
  std::unique_ptr<Traffic> traffic;
  Link::Limits limits;
  std::unique_ptr<Link> link; // ends before what it may reach
  Timer deadline; // of the handshake, then of closing, then of coming to rest

  [[nodiscard]] bool ours() const { return listener == ListenerId::none; }
};

} // namespace posted

struct PostedTransport::Listener {
  ConnectionOptions options;
  Terms terms;
  std::unique_ptr<posted::Listening> listening;
  std::uint32_t unidentified = 0; // connections that are admitted and not trusted
  std::deque<ConnectionId> waiting; // to be admitted

  [[nodiscard]] bool has_room() const {
    return unidentified < posted::unidentified_pages_of(options.receive_pool->pages());
  }
};

} // namespace fanin::net
