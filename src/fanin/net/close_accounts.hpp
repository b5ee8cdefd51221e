/// \file
/// How the connections of a transport have ended: counts by reason, and the lines for the log.
///
/// Thread: the loop's.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "fanin/net/connection_state.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net {

/// Called with the reason, in words, when a connection could not be made or was broken off.
using ReportFunction = std::function<void(CloseReason, std::string_view)>;

/// Why a peer was given up, as the log says it.
inline constexpr std::string_view peer_ended_early = "ended before it had taken all that was sent";
inline constexpr std::string_view peer_takes_nothing =
    "has not taken all that was sent, and takes nothing more";
/// Its host or its device has everything, but it may never take that.
inline constexpr std::string_view peer_is_silent =
    "has not said in time that it has taken all that was sent";

[[nodiscard]] inline std::string other_version(std::uint32_t theirs, std::uint32_t ours) {
  return fmt::format("speaks version {} of the protocol, this process version {}: install the same "
                     "release on all nodes",
                     theirs, ours);
}

class CloseAccounts {
public:
  explicit CloseAccounts(ReportFunction report) : report_(std::move(report)) {}

  /// The connection is over, though not by close().
  void end(ConnectionState& state, CloseReason reason) {
    state.end(reason);
    refuse(reason);
  }
  /// Its owner closes it. One that has ended is counted already.
  void close(const ConnectionState& state) {
    if (state.stage() != Stage::ended) refuse(CloseReason::local);
  }
  /// A peer was refused before there was a connection.
  void refuse(CloseReason reason) { ++closed_[static_cast<std::size_t>(reason)]; }

  void report(CloseReason reason, std::string_view peer, std::string_view text) const {
    if (report_) report_(reason, fmt::format("{}: {}", peer, text));
  }

  /// Connections that ended for this reason, and peers that were refused for it.
  [[nodiscard]] std::uint64_t closed(CloseReason reason) const {
    return closed_[static_cast<std::size_t>(reason)];
  }

  std::uint64_t handshake_timeouts = 0; ///< peers that did not answer in time; also in closed()
  std::uint64_t accept_failures = 0; ///< no descriptor or memory was left

private:
  ReportFunction report_;
  std::array<std::uint64_t, close_reasons> closed_{};
};

} // namespace fanin::net
