/// \file
/// The sending side of high throughput (Schumacher 2017, table II and section III-A): "messages are
/// copied into a large connection buffer instead of being sent immediately. The buffer is
/// transmitted when it is full or after a timeout occurs", and in fanin also when the loop has
/// nothing more to do.
///
/// Thread: the Context's, also for callbacks. Order: as sent, also over reconnections.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>

#include "fanin/base/export.hpp"
#include "fanin/memory/copy.hpp"
#include "fanin/message/connector.hpp"
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

class HighThroughputSender final : detail::ConnectorOwner, TurnEndTask {
public:
  /// Returns at once; on_connected follows. Errors: usage (the page size, the address), unsupported
  /// (the address).
  [[nodiscard]] FANIN_API static Result<std::unique_ptr<HighThroughputSender>>
  connect(Context& context, const net::Url& url, HighThroughputSenderOptions options = {});
  FANIN_API ~HighThroughputSender() override; ///< what has not been sent is lost, see close()

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
  [[nodiscard]] FANIN_API net::SendOutcome send(const memory::View& message);

  /// Sends what was gathered, as far as the network takes it.
  FANIN_API void flush();
  /// Whether all accepted messages were given to the network.
  [[nodiscard]] bool sent() const { return page_.empty() && outbox_.empty(); }
  /// Takes no more messages. What was accepted is delivered (Context::drain()), unless the peer is
  /// gone.
  FANIN_API void close();
  [[nodiscard]] bool connected() const { return connector_.open(); }
  [[nodiscard]] std::uint64_t message_max() const { return message_max_; } ///< bytes; 0: not known
  [[nodiscard]] const SocketCounters& counters() const { return counters_; }

private:
  HighThroughputSender(Context& context, HighThroughputSenderOptions options);
  void on_open(const Hello& peer) override;
  void on_message(net::Event& event) override;
  void on_writable() override;
  void on_closed(CloseReason reason) override;
  Answer at_turn_end() override;

  FANIN_API net::SendOutcome send_slowly(std::span<const std::byte> message);
  net::SendOutcome send_split(std::span<const std::byte> message);
  net::SendOutcome send_large(const memory::View& message);
  [[nodiscard]] net::SendOutcome check(std::uint64_t size) const;
  net::SendOutcome refuse();
  [[nodiscard]] bool make_room(std::size_t size);
  void hand_over_page();
  void pack_page();
  void hand_over(Parcel parcel);
  [[nodiscard]] bool transmit(const Parcel& parcel);
  void empty_outbox();
  void forget_partly_sent();
  void forget_rest(); // of the message whose pieces come first
  void proceed();
  void finish_closing();
  [[nodiscard]] bool can_take() const;

  GatheringPage page_; // first: what send() touches
  SocketCounters counters_;
  Context& context_;
  HighThroughputSenderOptions options_;
  std::deque<Parcel> outbox_; // before what is in page_; not taken by the transport yet
  std::uint64_t message_max_ = 0;
  std::uint32_t page_max_ = 0; // of a transport message; bytes
  std::uint32_t last_turn_end_ = 0; // of page_, at the last end of a turn
  bool blocked_ = false; // the transport said backpressure
  bool wants_writable_ = false; // the application was told backpressure
  bool partly_sent_ = false; // the transport has only the beginning of a message
  bool beginning_lost_ = false; // of a message whose rest is in outbox_
  bool closing_ = false;
  net::Timer deadline_;
  detail::Connector connector_;
};

} // namespace fanin::message
