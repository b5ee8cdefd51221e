/// \file
/// Addresses as users write them: scheme://host:port?option=value&...
///
///     tcp://127.0.0.1:7000   tcp://[::1]:0   tcp://daq-bu-03:7100   inproc://evm   tcp
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"

namespace fanin::net {

/// How far a network goes.
enum class Reach : std::uint8_t { process, host, network };

struct FANIN_API Url {
  std::string scheme; ///< "tcp", "inproc", "fault+tcp"; it chooses the transport
  std::string host; ///< without brackets; empty: loopback
  std::uint16_t port = 0; ///< 0: any free one
  std::map<std::string, std::string> options; ///< after '?'

  /// Errors: usage. The text names the part that is wrong and shows a correct example.
  [[nodiscard]] static Result<Url> parse(std::string_view text);
  [[nodiscard]] std::string text() const;
  /// The scheme below all decorators: "tcp" of fault+tcp://.
  [[nodiscard]] std::string_view network() const;
  /// Who can be reached at this address: the same process (inproc), the same host (shm, ofi+shm),
  /// or other hosts (all others, also schemes of plug-ins).
  [[nodiscard]] Reach reach() const;
  friend bool operator==(const Url&, const Url&) = default;
};

} // namespace fanin::net
