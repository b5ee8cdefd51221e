// What a socket counts, and why connections of a socket end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fanin/net/transport.hpp"

namespace fanin::message {

// Names the other end of a connection within one socket; never used twice.
enum class PeerId : std::uint64_t { none = 0 };

enum class CloseReason : std::uint8_t {
  here,             // close() or the end of the socket
  peer_closed,      // in order: everything it had sent is here
  peer_died,        // the connection broke
  unreachable,      // nobody listens there
  no_answer,        // somebody listens there and does not answer
  not_a_socket,     // bytes that no socket says first
  wrong_version,    // a socket of another release
  wrong_kind,       // a socket that is no counterpart of this one
  bad_page,         // a page whose lengths or flags lie, or a request that makes no sense
  message_too_large,
  unfinished_too_large, // unfinished messages that would take more memory than agreed
  callback_threw,   // the application's callback, while it had a message of this connection
  too_slow          // a subscriber that does not read (SlowSubscriber::disconnect)
};
inline constexpr std::size_t close_reasons = 13;
[[nodiscard]] std::string_view name(CloseReason reason);
[[nodiscard]] CloseReason reason_of(net::CloseReason reason);

struct SocketCounters {
  std::uint64_t messages = 0; // accepted by send() or publish(); or handed to the application
  std::uint64_t bytes = 0;    // of them, without headers and tags
  std::uint64_t pages = 0;    // transport messages that were sent or received
  std::uint64_t skipped = 0;  // messages that slow subscribers did not get
  std::uint64_t lost = 0;     // messages cut in the middle by the end of a connection
  std::uint64_t connections = 0; // that were made; beyond the first, a sender's are reconnections
  std::array<std::uint64_t, close_reasons> closed{}; // by CloseReason
};

} // namespace fanin::message
