/// \file
/// The publish socket (Schumacher 2017, table II): "when a message is published under a given tag,
/// the tag is matched against a subscription table and the message is sent to all subscribed remote
/// endpoints via either low-latency or high-throughput send sockets". Subscribers with the same
/// mode and tags share one page: a message is copied once for all of them.
///
/// ```cpp
/// #include <fanin/message/publisher.hpp>
///
/// using namespace fanin;
///
/// int main() { // waits for a subscriber of tag 7, and publishes one message
///   const auto context = message::Context::make().value();
///   const auto publisher = message::Publisher::listen(
///       *context, net::Url::parse("tcp://0.0.0.0:7000").value(),
///       {.on_first_subscriber = [&](message::Tag tag) { if (tag == 7) context->stop();
///       }}).value();
///   context->run();
///   (void)publisher->publish(7, std::as_bytes(std::span("an event")));
///   publisher->close();
///   context->drain(); // until all is delivered
/// }
/// ```
///
/// Thread: the Context's, also for callbacks. Order: as published, within a subscriber's mode.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <span>

#include "fanin/base/export.hpp"
#include "fanin/message/context.hpp"
#include "fanin/message/high_throughput_sender.hpp"
#include "fanin/message/listening_socket.hpp"

namespace fanin::message {

/// What happens to a subscriber that reads more slowly than messages are published.
enum class SlowSubscriber : std::uint8_t {
  disconnect, ///< the subscriber is disconnected, and may connect again
  block, ///< publish() gives backpressure until the subscriber has read: all wait for the slowest
  sample ///< the subscriber misses whole messages, which are counted
};

struct PublisherOptions {
  SlowSubscriber slow = SlowSubscriber::disconnect;
  FlushPolicy flush = {}; ///< of high-throughput subscriptions
  /// Most bytes of memory that messages waiting for one subscriber may take; with more it is slow.
  std::uint64_t send_queue_bytes = ContextOptions::send_queue;
  /// Most tags of a subscriber in one mode; one that asks for more is disconnected (bad_page).
  std::uint32_t tags_max = 65536;
  /// Most tags of all subscribers; beyond this the subscriber with most tags is disconnected
  /// (bad_page).
  std::uint64_t tags_sum_max = 1U << 20;
  /// Most connections at the same time; a further subscriber is disconnected (too_many).
  std::size_t subscribers_max = std::numeric_limits<std::size_t>::max();
  std::function<void(PeerId)> on_subscriber = {}; ///< a subscriber has connected; without tags yet
  std::function<void(PeerId, CloseReason)> on_subscriber_gone = {};
  /// The tag has a subscriber, and had none before: what is published now reaches it.
  std::function<void(Tag)> on_first_subscriber = {};
  /// The tag has no subscriber any more. Neither of the two is called after close().
  std::function<void(Tag)> on_last_subscriber_gone = {};
  std::function<void()> on_writable = {}; ///< after backpressure: try again
};

class Publisher : public ListeningSocket {
public:
  /// Errors: usage, unsupported (the address), refused (in use).
  [[nodiscard]] FANIN_API static Result<std::unique_ptr<Publisher>>
  listen(Context& context, const net::Url& url, PublisherOptions options = {});

  /// Publishes to all subscribers of the tag. If there are none, it is accepted too. Backpressure:
  /// nobody gets it, on_writable follows (SlowSubscriber::block). A subscriber that takes no
  /// messages of that size does not get it, which is counted as skipped and as too large.
  [[nodiscard]] virtual net::SendOutcome publish(Tag tag, std::span<const std::byte> message) = 0;
  /// Publishes a message of at least copy_below_bytes without a copy; copies a smaller one.
  [[nodiscard]] virtual net::SendOutcome publish(Tag tag, const memory::View& message) = 0;

  virtual void flush() = 0; ///< sends at once what was gathered
  /// Takes no more messages and subscribers. Accepted messages are delivered (Context::drain()) to
  /// subscribers that read. Unless SlowSubscriber::block it ends when none has read so much within
  /// 5 s that more could be sent to it.
  void close() override = 0;

  [[nodiscard]] virtual bool has_subscriber(Tag tag) = 0;
  /// Messages that this subscriber did not get.
  [[nodiscard]] virtual std::uint64_t skipped(PeerId subscriber) const = 0;
};

} // namespace fanin::message
