/// \file
/// Low-latency sockets (Schumacher 2017, table II): "a message that is posted is immediately sent
/// to the remote endpoint without any delay", and "a message that is received is immediately passed
/// to the user code via a callback". Nothing is gathered; the transport frames the messages.
///
/// A receiver may answer over the same connection. So a round trip needs one connection, and its
/// data carry the acknowledgements of both directions.
///
/// Thread: the Context's, also for callbacks. Order: as sent, within a connection and direction.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "fanin/base/export.hpp"
#include "fanin/message/acceptor.hpp"
#include "fanin/message/connector.hpp"
#include "fanin/message/context.hpp"
#include "fanin/message/counters.hpp"
#include "fanin/message/message.hpp"
#include "fanin/net/page_filler.hpp"

namespace fanin::message {

struct LowLatencySenderOptions {
  ReconnectPolicy reconnect = {};
  /// Most bytes that the transport holds; beyond that send() gives backpressure.
  std::uint64_t send_queue_bytes = ContextOptions::send_queue;
  std::function<void()> on_connected = {};
  std::function<void(CloseReason)> on_disconnected = {}; ///< also for each failed attempt to
                                                         ///< connect
  std::function<void()> on_writable = {}; ///< after backpressure: try again
  /// Called for each answer of the receiver, as LowLatencyReceiverOptions::on_message. Empty: the
  /// receiver cannot answer.
  std::function<void(Message&)> on_answer = {};
};

class LowLatencySender final : detail::ConnectorOwner, TurnEndTask {
public:
  /// Returns at once; on_connected follows. Errors: usage, unsupported (the address).
  [[nodiscard]] FANIN_API static Result<std::unique_ptr<LowLatencySender>>
  connect(Context& context, const net::Url& url, LowLatencySenderOptions options = {});
  FANIN_API ~LowLatencySender() override;

  /// Sends at once, without a copy; the views are held until the network no longer needs the bytes.
  /// At most net::max_extents of them. Outcome: backpressure: not taken, on_writable follows;
  /// too_large: over message_max(); closed: not connected (now).
  [[nodiscard]] FANIN_API net::SendOutcome send(std::span<const memory::View> message);
  [[nodiscard]] net::SendOutcome send(const memory::View& message) { return send({&message, 1}); }
  [[nodiscard]] FANIN_API net::SendOutcome send(const memory::View& header,
                                                const memory::View& payload);
  /// Sends bytes that are not in a page: copies them once, into a page of the send pool. Outcome:
  /// too_large also if they do not fit into such a page.
  [[nodiscard]] FANIN_API net::SendOutcome send(std::span<const std::byte> message);

  /// Takes no more messages. What was accepted is delivered (Context::drain()).
  FANIN_API void close();
  [[nodiscard]] bool connected() const { return connector_.open(); }
  [[nodiscard]] std::uint64_t message_max() const { return message_max_; } ///< bytes; 0: not known
  [[nodiscard]] const SocketCounters& counters() const { return counters_; }

private:
  LowLatencySender(Context& context, LowLatencySenderOptions options);
  void on_open(const Hello& peer) override;
  void on_message(net::Event& event) override;
  void on_writable() override;
  void on_closed(CloseReason reason) override;
  Answer at_turn_end() override;

  Context& context_;
  LowLatencySenderOptions options_;
  SocketCounters counters_;
  net::PageFiller filler_;
  Message answer_; // the one in the callback
  std::uint64_t message_max_ = 0;
  bool wants_page_ = false; // backpressure because the send pool was empty
  detail::Connector connector_;
};

struct LowLatencyReceiverOptions {
  /// Required. Called in the loop with each message. Its bytes are valid during the call; move or
  /// copy the message to keep them, which holds pages. If it throws, the connection is closed.
  std::function<void(Message&)> on_message = {};
  std::function<void(PeerId)> on_connected = {};
  std::function<void(PeerId, CloseReason)> on_disconnected = {};
  std::function<void(PeerId)> on_writable = {}; ///< after an answer's backpressure: try again
};

class LowLatencyReceiver final : detail::AcceptorOwner {
public:
  /// Errors: usage (the address, no on_message), unsupported (the address), refused (in use).
  [[nodiscard]] FANIN_API static Result<std::unique_ptr<LowLatencyReceiver>>
  listen(Context& context, const net::Url& url, LowLatencyReceiverOptions options);
  FANIN_API ~LowLatencyReceiver() override;

  /// Listens at one more address, also of another network. Returns it with the port that was
  /// chosen.
  [[nodiscard]] Result<net::Url> also_listen(const net::Url& url) { return acceptor_.listen(url); }
  /// Sends an answer at once to a peer that has on_answer. Outcome: backpressure: not taken,
  /// on_writable follows; too_large: over half of the peer's receive page, or the peer takes no
  /// answers; closed: the peer is gone.
  [[nodiscard]] FANIN_API net::SendOutcome answer(PeerId peer, const memory::View& message);
  /// Copies the bytes once, into a page of the send pool, or to the heap if the pool is empty.
  /// Outcome: too_large also if they do not fit into such a page.
  [[nodiscard]] FANIN_API net::SendOutcome answer(PeerId peer, std::span<const std::byte> message);
  /// Closes the connections and stops listening, finally. Context::drain() then lets the peers
  /// see an orderly end; without it they may be told that what they sent last was not taken.
  void close() { acceptor_.close(); }
  [[nodiscard]] const net::Url& url() const { return url_; } ///< with the port that was chosen
  [[nodiscard]] FANIN_API std::string peer_name(PeerId peer) const;
  [[nodiscard]] std::size_t connections() const { return acceptor_.peers(); }
  [[nodiscard]] const SocketCounters& counters() const { return counters_; }

private:
  LowLatencyReceiver(Context& context, LowLatencyReceiverOptions options);
  std::shared_ptr<detail::Peer> admit(const Hello& hello) override;
  void on_admitted(const std::shared_ptr<detail::Peer>& peer) override;
  void on_message(const std::shared_ptr<detail::Peer>& peer, net::Event& event) override;
  void on_writable(detail::Peer& peer) override;
  void on_closed(const std::shared_ptr<detail::Peer>& peer, CloseReason reason) override;

  LowLatencyReceiverOptions options_;
  SocketCounters counters_;
  net::Url url_;
  Message message_; // the one in the callback
  net::PageFiller filler_; // of answers
  detail::Acceptor acceptor_;
};

} // namespace fanin::message
