#include "fanin/message/peer.hpp"

namespace fanin::message {

std::string_view name(CloseReason reason) {
  switch (reason) {
  case CloseReason::here: return "closed here";
  case CloseReason::peer_closed: return "closed by the peer";
  case CloseReason::peer_died: return "peer died";
  case CloseReason::unreachable: return "no connection: nobody listens there, or nobody answers";
  case CloseReason::unknown_host: return "unknown host";
  case CloseReason::no_answer: return "no answer";
  case CloseReason::not_a_socket: return "not a message socket";
  case CloseReason::wrong_version: return "a message socket of another version";
  case CloseReason::wrong_kind: return "a message socket of another kind";
  case CloseReason::bad_page: return "an invalid page";
  case CloseReason::message_too_large: return "message too large";
  case CloseReason::unfinished_too_large: return "incomplete messages use too much memory";
  case CloseReason::callback_threw: return "the callback threw an exception";
  case CloseReason::too_slow: return "reads too slowly";
  case CloseReason::too_many: return "there are enough subscribers";
  }
  return "unknown";
}

CloseReason reason_of(net::CloseReason reason) {
  switch (reason) {
  case net::CloseReason::local: return CloseReason::here;
  case net::CloseReason::peer_closed: return CloseReason::peer_closed;
  case net::CloseReason::peer_died: return CloseReason::peer_died;
  case net::CloseReason::connect_failed: return CloseReason::unreachable;
  case net::CloseReason::protocol_violation: return CloseReason::not_a_socket;
  case net::CloseReason::version_mismatch: return CloseReason::wrong_version;
  case net::CloseReason::unknown_host: return CloseReason::unknown_host;
  case net::CloseReason::evicted: return CloseReason::no_answer;
  case net::CloseReason::message_too_large: return CloseReason::message_too_large;
  }
  return CloseReason::peer_died;
}

} // namespace fanin::message
