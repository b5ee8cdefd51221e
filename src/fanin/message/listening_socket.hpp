/// \file
/// What the sockets that listen have in common: LowLatencyReceiver, HighThroughputReceiver,
/// Publisher.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/message/counters.hpp"
#include "fanin/message/peer.hpp"
#include "fanin/net/url.hpp"

namespace fanin::message {

namespace detail {
class Acceptor;
}

class ListeningSocket {
public:
  FANIN_API virtual ~ListeningSocket();
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  /// Listens at one more address, also of another network. Returns it with the port that was
  /// chosen.
  [[nodiscard]] FANIN_API Result<net::Url> also_listen(const net::Url& url);
  [[nodiscard]] const net::Url& url() const { return url_; } ///< with the port that was chosen
  [[nodiscard]] FANIN_API std::string peer_name(PeerId peer) const;
  /// Of a publisher: a subscriber with both modes has two.
  [[nodiscard]] FANIN_API std::size_t connections() const;
  [[nodiscard]] const SocketCounters& counters() const { return counters_; }
  /// Closes the connections and stops listening, finally. Context::drain() then lets the peers
  /// see an orderly end; without it they may be told that what they sent last was not taken.
  FANIN_API virtual void close();

protected:
  ListeningSocket();
  SocketCounters counters_;
  net::Url url_;
  std::unique_ptr<detail::Acceptor> acceptor_; // made by the socket that is its owner
};

} // namespace fanin::message
