/// \file
/// The listening side of a socket: connections whose peers have sent a correct hello.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "fanin/message/context.hpp"
#include "fanin/message/counters.hpp"
#include "fanin/message/handshake.hpp"
#include "fanin/net/link.hpp"
#include "fanin/net/listener.hpp"

namespace fanin::message::detail {

// A peer that has introduced itself. Sockets derive their own data from it.
struct Peer {
  Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  virtual ~Peer() = default;
  net::Link link; // none: gone
  PeerId id = PeerId::none;
  Hello hello;
  bool answer_owed = false; // its hello is not answered yet: the transport gave backpressure
  std::string name; // human-readable
};

class AcceptorOwner {
public:
  virtual ~AcceptorOwner() = default;
  // Makes a peer, if the kind of its hello fits this socket; null otherwise.
  [[nodiscard]] virtual std::shared_ptr<Peer> admit(const Hello& hello) = 0;
  // From now on messages can be sent to the peer.
  virtual void on_admitted(const std::shared_ptr<Peer>& peer) = 0;
  virtual void on_message(const std::shared_ptr<Peer>& peer, net::Event& event) = 0;
  virtual void on_writable(Peer& peer) = 0;
  // Called last for a peer.
  virtual void on_closed(const std::shared_ptr<Peer>& peer, CloseReason reason) = 0;
};

class Acceptor final : net::Handler {
public:
  struct Options {
    std::uint64_t message_max = 0; // bytes; peers learn it from the hello
    // Most bytes that the transport holds; where memory is shared, also most that the peer holds.
    std::uint64_t send_queue_bytes = ContextOptions::send_queue;
    bool low_latency = false;
  };
  Acceptor(Context& context, AcceptorOwner& owner, SocketCounters& counters,
           const Options& options);
  ~Acceptor() override; // closes all connections in an orderly way
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Listens at an address. Returns it with the port that was chosen. Errors: those of
  // Transport::listen().
  [[nodiscard]] Result<net::Url> listen(const net::Url& url);
  // Ends one connection at once, counts and logs the reason; no on_closed() follows. Requires a
  // peer whose connection has not ended.
  void close(Peer& peer, CloseReason reason);
  void close(); // closes all connections in an orderly way, and accepts no more
  [[nodiscard]] std::size_t peers() const { return admitted_; }
  [[nodiscard]] std::shared_ptr<Peer> find(PeerId id) const; // null: gone

private:
  struct Hash {
    std::size_t operator()(const net::Link& link) const {
      return std::hash<const void*>{}(link.transport) ^
             std::hash<std::uint64_t>{}(static_cast<std::uint64_t>(link.id));
    }
  };

  void on_event(net::Transport& transport, net::Event& event) override;
  [[nodiscard]] const std::shared_ptr<Peer>& lookup(const net::Link& link);
  void forget(const net::Link& link);
  void introduce(const net::Link& link, const net::Event& event);
  void welcome(Peer& peer);
  net::SendOutcome answer(const net::Link& link, SocketKind kind, Refusal refusal);
  void turn_away(const net::Link& link, CloseReason reason);
  void close_silent();
  void ended(const net::Link& link, CloseReason reason);

  Context& context_;
  AcceptorOwner& owner_;
  SocketCounters& counters_;
  Options options_;
  std::vector<net::Listener> listeners_;
  std::unordered_map<net::Link, Time, Hash> unidentified_; // until when they may say hello
  net::Timer hello_deadline_; // of the first of them
  std::unordered_map<net::Link, std::shared_ptr<Peer>, Hash> peers_;
  std::unordered_map<PeerId, std::shared_ptr<Peer>> by_id_;
  net::Link last_link_; // whose event came last
  std::shared_ptr<Peer> last_;
  std::size_t admitted_ = 0;
  std::uint64_t next_id_ = 1;
};

} // namespace fanin::message::detail
