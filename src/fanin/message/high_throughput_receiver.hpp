// The receiving side of high throughput (Schumacher 2017, table II and section III-A): pages are
// queued as they come, and "user code can read the received messages by calling recv()". Messages
// are not copied: recv() hands out views of the page (the paper's zero-copy mode).
//
// Thread: the Context's, callbacks too. Order: as sent, within a connection.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "fanin/message/acceptor.hpp"
#include "fanin/message/counters.hpp"
#include "fanin/message/message.hpp"
#include "fanin/message/page_queue.hpp"

namespace fanin::message {

struct HighThroughputReceiverOptions {
  std::uint64_t message_max = 64U << 20; // bytes; said to the senders
  // What unfinished messages may take of the heap when receive pages are scarce, bytes, all
  // together; 0: message_max. Beyond it the connection is closed.
  std::uint64_t unfinished_max = 0;
  // There are messages: call recv() until it gives none, or some; then it is called again next
  // turn. If it throws, the connection whose message was read last is closed; where it read none,
  // the one whose message is next.
  std::function<void()> on_ready = {};
  std::function<void(PeerId)> on_connected = {};
  // All messages of the peer have been queued before.
  std::function<void(PeerId, CloseReason)> on_disconnected = {};
};

class HighThroughputReceiver final : detail::AcceptorOwner {
public:
  // Errors: usage, unsupported (the address), refused (in use).
  [[nodiscard]] static Result<std::unique_ptr<HighThroughputReceiver>>
  listen(Context& context, const net::Url& url, HighThroughputReceiverOptions options = {});
  ~HighThroughputReceiver() override;

  // The next message, in place; false if there is none now. `message` lets go of what it held, so
  // the same one is best used again. Does not turn the loop.
  [[nodiscard]] bool recv(Message& message) {
    if (!queue_.next(message)) return false;
    ++counters_.messages;
    counters_.bytes += message.size();
    return true;
  }
  // The same, copied: the bytes are the caller's.
  [[nodiscard]] bool recv(std::vector<std::byte>& message);

  // At one more address, perhaps of another network. Gives the real one.
  [[nodiscard]] Result<net::Url> also_listen(const net::Url& url) { return acceptor_.listen(url); }
  [[nodiscard]] const net::Url& url() const { return url_; } // with the port that was chosen
  [[nodiscard]] std::string peer_name(PeerId peer) const;
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
