/// \file
/// What a socket counts.
#pragma once

#include <array>
#include <cstdint>

#include "fanin/message/peer.hpp"

namespace fanin::message {

struct SocketCounters {
  std::uint64_t messages = 0; ///< accepted by send() or publish(), or given to the application
  std::uint64_t bytes = 0; ///< of these messages, without headers and tags
  std::uint64_t answers = 0; ///< accepted by answer(), or handed to on_answer; not in `messages`
  std::uint64_t pages = 0; ///< transport messages that were sent or received
  std::uint64_t skipped = 0; ///< messages that subscribers did not get
  std::uint64_t too_large = 0; ///< of these, those that a subscriber does not take for their size
  std::uint64_t merges = 0; ///< of a publisher: how often a subscriber's tags changed; many tags
                            ///< that change together count once
  /// Messages that the end of a connection cut, or whose page is too large for the peer after a
  /// reconnection.
  std::uint64_t lost = 0;
  std::uint64_t connections = 0; ///< connections that were made; a sender's after the first are
                                 ///< reconnections
  std::array<std::uint64_t, close_reasons> closed{}; ///< by CloseReason
};

} // namespace fanin::message
