/// \file
/// The sending side of high throughput (Schumacher 2017, table II and section III-A): messages are
/// copied into a large buffer of the connection. It is sent when it is full, after a time-out, and
/// in fanin also when the loop has nothing more to do.
///
/// ```cpp
/// #include <fanin/message/high_throughput_sender.hpp>
///
/// using namespace fanin;
///
/// int main() { // sends a thousand numbers
///   const auto context = message::Context::make().value();
///   const auto sender = message::HighThroughputSender::connect(
///       *context, net::Url::parse("tcp://localhost:7000").value(),
///       {.on_connected = [&] { context->stop(); }}).value();
///   context->run(); // until it is connected
///   for (int i = 0; i < 1000; ++i) {
///     while (sender->send(std::as_bytes(std::span(&i, 1))) == net::SendOutcome::backpressure)
///       context->turn();
///   }
///   sender->close();
///   context->drain(); // until all is delivered
/// }
/// ```
///
/// Thread: the Context's, also for callbacks. Order: as sent, also over reconnections.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "fanin/base/export.hpp"
#include "fanin/memory/copy.hpp"
#include "fanin/message/context.hpp"
#include "fanin/message/counters.hpp"
#include "fanin/message/gathering_page.hpp"

namespace fanin::message {

/// When a page that is not full is sent.
struct FlushPolicy {
  /// True: the page is sent when a turn of the loop has added nothing to it. So at low rate a
  /// message leaves at once, and at high rate pages fill.
  bool idle = true;
  /// The page is sent at the latest this time after its first message. never_flush: no deadline.
  Duration deadline = std::chrono::microseconds{200};
  static constexpr Duration never_flush = Duration::max();
};

struct HighThroughputSenderOptions {
  FlushPolicy flush = {};
  ReconnectPolicy reconnect = {};
  /// Most bytes that are sent at once; 0: as much as a page has and the peer takes.
  std::uint32_t page_size = 0;
  /// Most bytes that the transport holds; more pages wait in the socket.
  std::uint64_t send_queue_bytes = ContextOptions::send_queue;
  std::function<void()> on_connected = {};
  std::function<void(CloseReason)> on_disconnected = {}; ///< also for each failed attempt to
                                                         ///< connect
  std::function<void()> on_writable = {}; ///< after backpressure: try again
};

class HighThroughputSender {
public:
  /// Returns at once; on_connected follows. Errors: usage (the page size, the address), unsupported
  /// (the address).
  [[nodiscard]] FANIN_API static Result<std::unique_ptr<HighThroughputSender>>
  connect(Context& context, const net::Url& url, HighThroughputSenderOptions options = {});
  virtual ~HighThroughputSender() = default; ///< what has not been sent is lost, see close()

  /// Copies the message into the current page. A larger message is split over pages. Outcome:
  /// backpressure: not taken, on_writable follows; too_large: over message_max(); closed: not
  /// connected (now).
  [[nodiscard]] net::SendOutcome send(std::span<const std::byte> message) {
    std::byte* const at = page_.append(message.size());
    if (at == nullptr) return send_slowly(message);
    memory::copy(at, message);
    ++counters_.messages;
    counters_.bytes += message.size();
    return net::SendOutcome::accepted;
  }
  /// Sends a message of at least copy_below_bytes without a copy: the view is held until the
  /// network no longer needs the bytes. Copies a smaller one.
  [[nodiscard]] virtual net::SendOutcome send(const memory::View& message) = 0;

  /// Sends what was gathered, as far as the network takes it.
  virtual void flush() = 0;
  /// Whether all accepted messages were given to the network.
  [[nodiscard]] virtual bool sent() const = 0;
  /// Takes no more messages. What was accepted is delivered (Context::drain()), unless the peer is
  /// gone.
  virtual void close() = 0;
  [[nodiscard]] virtual bool connected() const = 0;
  /// Why there is no connection, as the log says it; empty: there is one, or none was tried yet.
  [[nodiscard]] virtual std::string trouble() const = 0;
  [[nodiscard]] virtual std::uint64_t message_max() const = 0; ///< bytes; 0: not known
  [[nodiscard]] const SocketCounters& counters() const { return counters_; }

protected:
  explicit HighThroughputSender(memory::PagePool& pool) : page_(pool, 0) {}
  GatheringPage page_;
  SocketCounters counters_;

private:
  virtual net::SendOutcome send_slowly(std::span<const std::byte> message) = 0; // no room in page_
};

} // namespace fanin::message
