/// \file
/// The subscribe socket (Schumacher 2017, table II): "sends subscription requests to publish
/// sockets ... and then receives messages via either a low-latency or a high-throughput receive
/// socket". It subscribes to any number of tags of any number of publishers, each in one of the two
/// modes. Subscriptions are renewed after a reconnection.
///
/// ```cpp
/// #include <fanin/message/subscriber.hpp>
///
/// #include <cstdio>
///
/// using namespace fanin;
///
/// int main() { // prints the size of each message with tag 7
///   const auto context = message::Context::make().value();
///   message::Message received; // used again, since it holds the page that it is in
///   std::unique_ptr<message::Subscriber> subscriber;
///   subscriber = message::Subscriber::make(*context, {.on_ready = [&] {
///     while (subscriber->recv(received)) std::printf("%zu bytes\n", received.bytes().size());
///   }});
///   (void)subscriber->subscribe(net::Url::parse("tcp://localhost:7000").value(), 7,
///                               message::Mode::high_throughput).value();
///   context->run();
/// }
/// ```
///
/// Thread: the Context's, also for callbacks. Order: as published, within a publisher and a mode.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "fanin/base/export.hpp"
#include "fanin/message/context.hpp"
#include "fanin/message/counters.hpp"
#include "fanin/message/message.hpp"

namespace fanin::message {

struct SubscriberOptions {
  ReconnectPolicy reconnect = {};
  std::uint64_t message_max = 64U << 20; ///< bytes, without the tag; publishers are told
  std::uint64_t unfinished_max = 0; ///< bytes, with tags; as in HighThroughputReceiverOptions
  /// Called in the loop with each message of a low-latency subscription; see
  /// LowLatencyReceiverOptions. If it throws, the connection is closed and made again.
  std::function<void(Message&)> on_message = {};
  /// Called when there are messages of high-throughput subscriptions, see
  /// HighThroughputReceiverOptions.
  std::function<void()> on_ready = {};
  std::function<void(PeerId)> on_connected = {}; ///< connected; its subscriptions were sent
  /// Also called for each failed attempt to connect.
  std::function<void(PeerId, CloseReason)> on_disconnected = {};
};

class Subscriber {
public:
  [[nodiscard]] FANIN_API static std::unique_ptr<Subscriber> make(Context& context,
                                                                  SubscriberOptions options);
  virtual ~Subscriber() = default;

  /// Subscribes, and connects to that publisher in that mode unless it is connected already.
  /// Returns at once. The id is the same for the same URL, in both modes. Errors: usage (the
  /// address, or close() was called), unsupported (the address).
  [[nodiscard]] virtual Result<PeerId> subscribe(const net::Url& publisher, Tag tag, Mode mode) = 0;
  /// The connection stays, even without tags.
  virtual void unsubscribe(PeerId publisher, Tag tag, Mode mode) = 0;

  /// The next message of a high-throughput subscription; false if there is none now. See
  /// HighThroughputReceiver.
  [[nodiscard]] virtual bool recv(Message& message) = 0;

  virtual void close() = 0; ///< closes the connections to all publishers, finally
  [[nodiscard]] virtual bool connected() const = 0; ///< to all publishers
  /// Why there is no connection to the first publisher that lacks one, as the log says it; empty:
  /// all have one, or none was tried yet.
  [[nodiscard]] virtual std::string trouble() const = 0;
  [[nodiscard]] const SocketCounters& counters() const { return counters_; }

protected:
  SocketCounters counters_;
};

} // namespace fanin::message
