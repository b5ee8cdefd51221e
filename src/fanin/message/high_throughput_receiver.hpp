/// \file
/// The receiving side of high throughput (Schumacher 2017, table II and section III-A): pages are
/// queued as they come, and "user code can read the received messages by calling recv()". Messages
/// are not copied: recv() returns views of the page (the paper's zero-copy mode).
///
/// ```cpp
/// #include <fanin/message/high_throughput_receiver.hpp>
///
/// #include <cstdio>
///
/// using namespace fanin;
///
/// int main() { // prints the size of each message
///   const auto context = message::Context::make().value();
///   message::Message received; // used again, since it holds the page that it is in
///   std::unique_ptr<message::HighThroughputReceiver> receiver;
///   receiver = message::HighThroughputReceiver::listen(
///       *context, net::Url::parse("tcp://0.0.0.0:7000").value(),
///       {.on_ready = [&] {
///         while (receiver->recv(received)) std::printf("%zu bytes\n", received.bytes().size());
///       }}).value();
///   context->run();
/// }
/// ```
///
/// Thread: the Context's, also for callbacks. Order: as sent, within a connection.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/message/context.hpp"
#include "fanin/message/listening_socket.hpp"
#include "fanin/message/message.hpp"
#include "fanin/message/page_queue.hpp"

namespace fanin::message {

struct HighThroughputReceiverOptions {
  std::uint64_t message_max = 64U << 20; ///< bytes; senders are told
  /// Most bytes of heap for all incomplete messages together, when receive pages are scarce; 0:
  /// message_max. Beyond it the connection is closed.
  std::uint64_t unfinished_max = 0;
  /// Called when there are messages. Call recv() until it returns false. If you call it fewer
  /// times, on_ready is called again in the next turn; if it reads nothing, the loop may sleep
  /// before that turn, until something else happens. If on_ready throws, the connection whose
  /// message was read last is closed; if no message was read, the connection of the next message.
  std::function<void()> on_ready = {};
  std::function<void(PeerId)> on_connected = {};
  /// Called after all messages of the peer were queued.
  std::function<void(PeerId, CloseReason)> on_disconnected = {};
};

class HighThroughputReceiver : public ListeningSocket {
public:
  /// Errors: usage, unsupported (the address), refused (in use).
  [[nodiscard]] FANIN_API static Result<std::unique_ptr<HighThroughputReceiver>>
  listen(Context& context, const net::Url& url, HighThroughputReceiverOptions options = {});

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

protected:
  HighThroughputReceiver(Context& context, PageQueue::Options options, PageQueue::OnBad on_bad)
      : queue_(context, counters_, std::move(options), std::move(on_bad)) {}
  PageQueue queue_;

private:
  Message copied_; // the one that recv() copies from
};

} // namespace fanin::message
