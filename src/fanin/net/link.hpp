/// \file
/// The transports of a process by scheme, and one end of a connection.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/net/transport.hpp"

namespace fanin::net {

/// The transports of a process. Code that starts the process adds them.
class TransportSet {
public:
  /// The transport must outlive the set.
  void add(std::string scheme, Transport& transport) {
    entries_.emplace_back(std::move(scheme), &transport);
  }
  [[nodiscard]] Result<Transport*> find(const Url& url) const {
    std::string known;
    for (const auto& [scheme, transport] : entries_) {
      if (scheme == url.scheme) return transport;
      known += known.empty() ? scheme : ", " + scheme;
    }
    return fail(ErrorKind::unsupported,
                fmt::format("{}: no transport for the scheme '{}' here (there are: {})", url.text(),
                            url.scheme, known));
  }
  /// Whether pools from which messages are sent should be shared (ArenaOptions::shared).
  [[nodiscard]] bool share_memory() const {
    return std::ranges::any_of(entries_,
                               [](const auto& entry) { return entry.second->shares_memory(); });
  }

private:
  std::vector<std::pair<std::string, Transport*>> entries_;
};

/// A connection and its transport. It owns neither. In another process than the transport's, which
/// fork() has made, close() leaves the connection as it is.
struct Link {
  Transport* transport = nullptr;
  ConnectionId id = ConnectionId::none;

  explicit operator bool() const { return transport != nullptr; }
  friend bool operator==(const Link&, const Link&) = default;
  friend auto operator<=>(const Link&, const Link&) = default;
  [[nodiscard]] SendOutcome send(std::span<const memory::View> extents) const {
    return transport == nullptr ? SendOutcome::closed : transport->send(id, extents);
  }
  void close(bool abort = false) {
    if (transport != nullptr && !transport->is_copy()) transport->close(id, abort);
    *this = {};
  }
  void mark_identified() const {
    if (transport != nullptr) transport->mark_identified(id);
  }
  [[nodiscard]] std::uint64_t unfinished() const {
    return transport == nullptr ? 0 : transport->unfinished(id);
  }
  [[nodiscard]] std::string peer() const {
    return transport == nullptr ? "nobody" : transport->peer_name(id);
  }
};

} // namespace fanin::net
