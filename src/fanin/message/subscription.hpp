/// \file
/// The bytes between subscriber and publisher. A subscriber sends frames (page_format.hpp): the
/// header's type is a SubscriptionRequest, the payload an array of tags, 8 bytes each. A publisher
/// sends messages that begin with their tag.
#pragma once

#include <cstdint>

#include "fanin/message/handshake.hpp"

namespace fanin::message {

[[nodiscard]] constexpr SocketKind subscription_kind(Mode mode) {
  return mode == Mode::low_latency ? SocketKind::subscribe_low_latency
                                   : SocketKind::subscribe_high_throughput;
}

enum class SubscriptionRequest : std::uint16_t { subscribe = 1, unsubscribe = 2 };

} // namespace fanin::message
