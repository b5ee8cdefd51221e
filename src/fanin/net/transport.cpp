#include "fanin/net/transport.hpp"

namespace fanin::net {

std::string_view name(CloseReason reason) {
  switch (reason) {
  case CloseReason::local: return "closed here";
  case CloseReason::peer_closed: return "closed by the peer";
  case CloseReason::peer_died: return "peer died";
  case CloseReason::connect_failed: return "connect failed";
  case CloseReason::protocol_violation: return "protocol violation";
  case CloseReason::version_mismatch: return "another protocol version";
  case CloseReason::message_too_large: return "message too large";
  case CloseReason::unknown_host: return "unknown host";
  case CloseReason::evicted: return "evicted";
  }
  return "unknown";
}

std::string_view name(EventKind kind) {
  switch (kind) {
  case EventKind::accepted: return "accepted";
  case EventKind::connected: return "connected";
  case EventKind::message: return "message";
  case EventKind::writable: return "writable";
  case EventKind::closed: return "closed";
  }
  return "unknown";
}

std::size_t Transport::withdraw(ConnectionId connection) {
  std::size_t messages = 0;
  for (Event& event : dispatching_) {
    if (event.handler == nullptr || event.connection != connection) continue;
    messages += event.kind == EventKind::message ? 1 : 0;
    event.handler = nullptr;
    event.message = {};
    event.rest = {};
  }
  return messages;
}

} // namespace fanin::net
