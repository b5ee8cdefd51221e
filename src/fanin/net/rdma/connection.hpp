// The state of a connection of RdmaTransport; included by its source files only.
#pragma once

#include <array>
#include <bit>
#include <functional>
#include <memory>
#include <vector>

#include "fanin/net/first_count.hpp"
#include "fanin/net/rdma/credits.hpp"
#include "fanin/net/rdma/own_receives.hpp"
#include "fanin/net/rdma/pages.hpp"
#include "fanin/net/rdma/provider.hpp"
#include "fanin/net/rdma/rdma.hpp"
#include "fanin/net/rdma/shared_receives.hpp"
#include "fanin/net/resolver.hpp"

namespace fanin::net {

namespace rdma {

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
  [[nodiscard]] std::uint64_t bytes_under_way() const { return queued_bytes - waiting_bytes; }
  // The peer has not taken everything, as far as the network says.
  [[nodiscard]] bool has_untaken() const { return done != accepted; }
  // The same, as the peer says at its end: what it took may have come before the completions.
  [[nodiscard]] bool has_untaken(Tag end) const {
    return end.credits != low_bits(accepted - first_count);
  }
  // Changes with each message that the peer has taken, or has made room for.
  [[nodiscard]] std::uint32_t progress() const { return posted + done; }
};

// A receive that has completed and was not looked at yet.
struct Arrived {
  std::uint32_t slot = 0;
  std::uint32_t size = 0;
  std::uint64_t tag = 0;
};

// What there is of a connection while its endpoint is open.
struct Traffic {
  Traffic(Endpoint& endpoint, std::unique_ptr<Receives> given);
  [[nodiscard]] const Arrived& next() const { return arrived[taken % arrived.size()]; }
  [[nodiscard]] bool overrun() const { return came - taken == receives->most(); }

  Credits credits;
  std::unique_ptr<Receives> receives;
  std::vector<Arrived> arrived; // a ring of a power of two: for as many as may come at once
  std::uint32_t came = first_count;
  std::uint32_t taken = first_count;
  std::uint32_t messages_taken = 0; // of what was taken; wraps
  std::uint32_t heard = first_count; // `came` when the peer was last looked for
  Operation other; // of sends that nobody waits for
  Sending sending;
};

enum class Cut : std::uint8_t {
  no,
  cut, // by the peer or the provider: what has come is all there is
  complete // and all of it is in `arrived`
};

// It is `connecting` until its route is known and there are pages to post, and `retired` until no
// completion can name it any more.
struct Connection {
  using Place = WorkList<Connection>::Place;

  Connection(const ConnectionOptions& given, PageFiller& packer, WorkList<Connection>& expired_list,
             std::function<void(Connection&, const Resolver::Found&)> take_addresses)
      : options(given),
        filler(&packer),
        question(
            [this, take = std::move(take_addresses)](const auto& found) { take(*this, found); }),
        deadline([this, &expired_list] { expired_list.add(expired); }) {}

  [[nodiscard]] bool is_cut() const { return cut != Cut::no; }

  ConnectionId id = ConnectionId::none;
  ConnectionState state;
  bool identified = true;
  bool admitted = false; // not identified, and has one of the pages for unidentified peers
  bool wants_writable = false;
  bool writable_pending = false;
  bool end_sent = false;
  std::uint32_t progress = 0; // closing: Sending::progress() at the last look
  Cut cut = Cut::no;
  bool cut_unexplained = false; // by a cancellation, so far
  CloseReason cut_reason = CloseReason::peer_died;
  ReceiveOptions receiving;
  std::uint32_t peer_max_message = 0;
  std::uint32_t peer_credits = 0; // in its request
  std::uint32_t wants_copy = 0; // bytes in a page of `copies`
  std::uint64_t reached = ~0ULL; // the last Arena::id() that the endpoint was found to know
  ConnectionOptions options;
  PageFiller* filler;
  Url target; // of connect(), where its host has a name
  Resolver::Question question; // for its addresses
  PageFiller* copies = nullptr; // once needed
  std::unique_ptr<Traffic> traffic;
  Endpoint::Limits limits;
  std::unique_ptr<Endpoint> endpoint; // ends before what it may reach
  Timer deadline; // of the handshake, then of closing, then of being retired
  UnidentifiedPeers<Connection>::Entry unidentified{*this};
  // In the lists of the transport, and of the listener.
  Place waiting{*this};
  Place ready{*this};
  Place flush{*this};
  Place starved{*this};
  Place given_out{*this};
  Place copying{*this};
  Place expired{*this};
  Place sweep{*this};
  Place draining{*this};
};

} // namespace rdma

// An unidentified peer has a page of the receive pool, and there are few: further ones wait.
struct RdmaTransport::Listener {
  Listener(const Terms& given, std::function<void(Listener&)> make_room)
      : terms(given),
        pages_max(rdma::unidentified_pages_of(given.options.receive_pool->pages())),
        unidentified({.peers_max = pages_max}),
        eviction_tick([this, make = std::move(make_room)] { make(*this); }) {}

  // Of those that wait, how many need the page of a peer that is not leaving yet.
  [[nodiscard]] std::size_t pages_wanted() const {
    const std::size_t leaving = pages - unidentified.size();
    return waiting.size() > leaving ? waiting.size() - leaving : 0;
  }

  Terms terms;
  std::unique_ptr<rdma::Listening> listening;
  std::uint32_t pages_max;
  std::uint32_t pages = 0; // that unidentified peers have, or had until their endpoints are retired
  UnidentifiedPeers<rdma::Connection> unidentified; // with a page
  ConnectionList waiting; // for a page
  std::size_t waiting_most = 0; // at once, since none waited
  Timer eviction_tick; // while some wait: for the peer that has had a page for longest
};

} // namespace fanin::net
