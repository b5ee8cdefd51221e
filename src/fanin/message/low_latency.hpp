/// \file
/// Low-latency sockets (Schumacher 2017, table II): "a message that is posted is immediately sent
/// to the remote endpoint without any delay", and "a message that is received is immediately passed
/// to the user code via a callback". Nothing is gathered; the transport frames the messages.
///
/// ```cpp
/// #include <fanin/message/low_latency.hpp>
///
/// using namespace fanin;
///
/// int main() { // a receiver that sends each message back, and a sender that waits for it
///   const auto context = message::Context::make().value();
///   std::unique_ptr<message::LowLatencyReceiver> receiver;
///   receiver = message::LowLatencyReceiver::listen(
///       *context, net::Url::parse("tcp://127.0.0.1").value(),
///       {.on_message = [&](message::Message& received) {
///         (void)receiver->answer(received.peer(), received.bytes());
///       }}).value();
///   std::unique_ptr<message::LowLatencySender> sender;
///   sender = message::LowLatencySender::connect(
///       *context, receiver->url(),
///       {.on_connected = [&] { (void)sender->send(std::as_bytes(std::span("ping"))); },
///        .on_answer = [&](message::Message&) { context->stop(); }}).value();
///   context->run();
/// }
/// ```
///
/// A receiver may answer over the same connection. So a round trip needs one connection, and its
/// data carry the acknowledgements of both directions.
///
/// Thread: the Context's, also for callbacks. Order: as sent, within a connection and direction.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "fanin/base/export.hpp"
#include "fanin/message/context.hpp"
#include "fanin/message/counters.hpp"
#include "fanin/message/listening_socket.hpp"
#include "fanin/message/message.hpp"

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

class LowLatencySender {
public:
  /// Returns at once; on_connected follows. Errors: usage, unsupported (the address).
  [[nodiscard]] FANIN_API static Result<std::unique_ptr<LowLatencySender>>
  connect(Context& context, const net::Url& url, LowLatencySenderOptions options = {});
  virtual ~LowLatencySender() = default;

  /// Sends at once, without a copy; the views are held until the network no longer needs the bytes.
  /// At most net::max_extents of them. Outcome: backpressure: not taken, on_writable follows;
  /// too_large: over message_max(); closed: not connected (now).
  [[nodiscard]] virtual net::SendOutcome send(std::span<const memory::View> message) = 0;
  [[nodiscard]] net::SendOutcome send(const memory::View& message) { return send({&message, 1}); }
  [[nodiscard]] net::SendOutcome send(const memory::View& header, const memory::View& payload) {
    return send(std::array{header, payload});
  }
  /// Sends bytes that are not in a page: copies them once, into a page of the send pool. Outcome:
  /// too_large also if they do not fit into such a page.
  [[nodiscard]] virtual net::SendOutcome send(std::span<const std::byte> message) = 0;

  /// Takes no more messages. What was accepted is delivered (Context::drain()).
  virtual void close() = 0;
  [[nodiscard]] virtual bool connected() const = 0;
  /// Why there is no connection, as the log says it; empty: there is one, or none was tried yet.
  [[nodiscard]] virtual std::string trouble() const = 0;
  [[nodiscard]] virtual std::uint64_t message_max() const = 0; ///< bytes; 0: not known
  [[nodiscard]] const SocketCounters& counters() const { return counters_; }

protected:
  SocketCounters counters_;
};

struct LowLatencyReceiverOptions {
  /// Required. Called in the loop with each message. Its bytes are valid during the call; move or
  /// copy the message to keep them, which holds pages. If it throws, the connection is closed.
  std::function<void(Message&)> on_message = {};
  std::function<void(PeerId)> on_connected = {};
  std::function<void(PeerId, CloseReason)> on_disconnected = {};
  std::function<void(PeerId)> on_writable = {}; ///< after an answer's backpressure: try again
};

class LowLatencyReceiver : public ListeningSocket {
public:
  /// Errors: usage (the address, no on_message), unsupported (the address), refused (in use).
  [[nodiscard]] FANIN_API static Result<std::unique_ptr<LowLatencyReceiver>>
  listen(Context& context, const net::Url& url, LowLatencyReceiverOptions options);

  /// Sends an answer at once to a peer that has on_answer. Outcome: backpressure: not taken,
  /// on_writable follows; too_large: over half of the peer's receive page, or the peer takes no
  /// answers; closed: the peer is gone.
  [[nodiscard]] virtual net::SendOutcome answer(PeerId peer, const memory::View& message) = 0;
  /// Copies the bytes once, into a page of the send pool, or to the heap if the pool is empty.
  /// Outcome: too_large also if they do not fit into such a page.
  [[nodiscard]] virtual net::SendOutcome answer(PeerId peer,
                                                std::span<const std::byte> message) = 0;
};

} // namespace fanin::message
