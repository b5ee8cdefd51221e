/// \file
/// The other end of a connection: its name, what it subscribes to, and why the connection ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fanin/base/export.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::message {

/// Names the other end of a connection within one socket; never used twice.
enum class PeerId : std::uint64_t { none = 0 };

/// Under which messages are published.
using Tag = std::uint64_t;

/// How the messages of a subscription are sent.
enum class Mode : std::uint8_t { low_latency, high_throughput };

enum class CloseReason : std::uint8_t {
  here, ///< close() or the end of the socket
  peer_closed, ///< the peer closed in order; everything that it had sent has arrived
  peer_died, ///< the connection broke
  unreachable, ///< nobody listens there, or nobody answers
  unknown_host, ///< the name service does not know the host's name now
  no_answer, ///< the peer does not answer, or connects and sends nothing
  not_a_socket, ///< the first bytes are not those of a socket
  wrong_version, ///< a socket of another release
  wrong_kind, ///< a socket of a kind that does not fit to this one
  bad_page, ///< a page with wrong lengths or flags, or an invalid request
  message_too_large,
  unfinished_too_large, ///< incomplete messages would take more memory than allowed
  callback_threw, ///< the application's callback threw, with a message of this connection
  too_slow, ///< a subscriber that does not read (SlowSubscriber::disconnect)
  too_many ///< a subscriber above PublisherOptions::subscribers_max
};
inline constexpr std::size_t close_reasons = 15;
[[nodiscard]] FANIN_API std::string_view name(CloseReason reason);
[[nodiscard]] FANIN_API CloseReason reason_of(net::CloseReason reason);

} // namespace fanin::message
