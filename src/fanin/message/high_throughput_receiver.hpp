/// \file
/// The receiving side of high throughput (Schumacher 2017, table II and section III-A): pages are
/// queued as they come, and "user code can read the received messages by calling recv()". Messages
/// are not copied: recv() returns views of the page (the paper's zero-copy mode).
///
/// Thread: the Context's, also for callbacks. Order: as sent, within a connection.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/message/acceptor.hpp"
#include "fanin/message/counters.hpp"
#include "fanin/message/message.hpp"
#include "fanin/message/page_queue.hpp"

namespace fanin::message {

struct HighThroughputReceiverOptions {
  std::uint64_t message_max = 64U << 20; ///< bytes; senders are told
  /// Most bytes of heap for all incomplete messages together, when receive pages are scarce; 0:
  /// message_max. Beyond it the connection is closed.
  std::uint64_t unfinished_max = 0;
  /// Called when there are messages. Call recv() until it returns false. If you call it fewer
  /// times, on_ready is called again in the next turn. If on_ready throws, the connection whose
  /// message was read last is closed; if no message was read, the connection of the next message.
  std::function<void()> on_ready = {};
  std::function<void(PeerId)> on_connected = {};
  /// Called after all messages of the peer were queued.
  std::function<void(PeerId, CloseReason)> on_disconnected = {};
};

class HighThroughputReceiver final : detail::AcceptorOwner {
public:
  /// Errors: usage, unsupported (the address), refused (in use).
  [[nodiscard]] FANIN_API static Result<std::unique_ptr<HighThroughputReceiver>>
  listen(Context& context, const net::Url& url, HighThroughputReceiverOptions options = {});
  FANIN_API ~HighThroughputReceiver() override;

  /// Gives the next message, in place; false if there is none now. `message` releases what it held
  /// before, so use the same object again. Does not run the loop.
  [[nodiscard]] bool recv(Message& message) {
    if (!queue_.next(message)) return false;
    ++counters_.messages;
    counters_.bytes += message.size();
    return true;
  }
  /// The next message, copied into the caller's bytes.
  [[nodiscard]] FANIN_API bool recv(std::vector<std::byte>& message);

  /// Listens at one more address, also of another network. Returns it with the port that was
  /// chosen.
  [[nodiscard]] Result<net::Url> also_listen(const net::Url& url) { return acceptor_.listen(url); }
  /// Closes the connections and stops listening, finally. Context::drain() then lets the peers
  /// see an orderly end; without it they may be told that what they sent last was not taken.
  void close() { acceptor_.close(); }
  [[nodiscard]] const net::Url& url() const { return url_; } ///< with the port that was chosen
  [[nodiscard]] FANIN_API std::string peer_name(PeerId peer) const;
  [[nodiscard]] std::size_t connections() const { return acceptor_.peers(); }
  [[nodiscard]] const SocketCounters& counters() const { return counters_; }

private:
  struct Sender; // a peer
  HighThroughputReceiver(Context& context, HighThroughputReceiverOptions options);
  std::shared_ptr<detail::Peer> admit(const Hello& hello) override;
  void on_admitted(const std::shared_ptr<detail::Peer>& peer) override;
  void on_message(const std::shared_ptr<detail::Peer>& peer, net::Event& event) override;
  void on_writable(detail::Peer&) override {}
  void on_closed(const std::shared_ptr<detail::Peer>& peer, CloseReason reason) override;
  void cut_off(PeerId id, CloseReason reason);

  SocketCounters counters_;
  PageQueue queue_;
  HighThroughputReceiverOptions options_;
  net::Url url_;
  Message copied_; // the one that recv() copies from
  detail::Acceptor acceptor_;
};

} // namespace fanin::message
