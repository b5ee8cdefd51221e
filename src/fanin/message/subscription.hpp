// What a subscriber says to a publisher, in frames of its own (page_format.hpp): the header's type
// is a SubscriptionRequest, the payload an array of tags, 8 bytes each. And what a publisher sends:
// each message begins with its tag.
#pragma once

#include <cstdint>

#include "fanin/message/handshake.hpp"

namespace fanin::message {

using Tag = std::uint64_t;

// How the messages of a subscription come.
enum class Mode : std::uint8_t { low_latency, high_throughput };

[[nodiscard]] constexpr SocketKind subscription_kind(Mode mode) {
  return mode == Mode::low_latency ? SocketKind::subscribe_low_latency
                                   : SocketKind::subscribe_high_throughput;
}

enum class SubscriptionRequest : std::uint16_t { subscribe = 1, unsubscribe = 2 };

} // namespace fanin::message
