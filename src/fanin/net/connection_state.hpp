/// \file
/// The stages of a connection, and what its owner has been told of it. A transport composes one in
/// each connection.
///
/// Thread: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/base/state.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net {

enum class Stage : std::uint8_t {
  connecting, ///< the network makes the connection, or looks for its way
  handshake, ///< until the peer has introduced itself
  open,
  closing, ///< close() was called: what was accepted is still being delivered
  ended, ///< not by close(): nothing more comes or goes, and `closed` is to be reported
  retired ///< over; the peer or the network may still use memory of this process
};

[[nodiscard]] constexpr bool may_follow(Stage from, Stage to) {
  switch (to) {
  case Stage::connecting: return false;
  case Stage::handshake: return from == Stage::connecting;
  case Stage::open: return from == Stage::handshake;
  case Stage::closing: return from == Stage::open;
  case Stage::ended: return from < Stage::closing;
  case Stage::retired: return from != Stage::retired;
  }
  return false;
}

class ConnectionState {
public:
  [[nodiscard]] Stage stage() const { return stage_; }
  void enter(Stage next) { stage_ = next; }
  [[nodiscard]] bool is_open() const { return stage_ == Stage::open; }
  /// Both ends do not know each other yet.
  [[nodiscard]] bool setting_up() const { return stage_ < Stage::open; }
  /// No message is delivered any more.
  [[nodiscard]] bool over() const { return stage_ > Stage::open; }

  void set_listener(ListenerId listener) { listener_ = listener; }
  /// The listener that accepted it; none: connect() made it.
  [[nodiscard]] ListenerId listener() const { return listener_; }
  [[nodiscard]] bool ours() const { return listener_ == ListenerId::none; }

  /// The owner is told of the connection now, with the event that is returned.
  EventKind announce() {
    FANIN_ASSERT(stage_ == Stage::open && !announced_);
    announced_ = true;
    return ours() ? EventKind::connected : EventKind::accepted;
  }
  [[nodiscard]] bool announced() const { return announced_; }

  /// Over, though not by close().
  void end(CloseReason reason) {
    enter(Stage::ended);
    reason_ = reason;
  }
  [[nodiscard]] CloseReason reason() const { return reason_; }
  /// The reason in words, as it was reported last; empty: it was not.
  void explain(std::string_view text) { why_ = text; }
  [[nodiscard]] const std::string& why() const { return why_; }
  /// A connection that was accepted and ended before its owner knew of it: no event is delivered.
  [[nodiscard]] bool silent() const { return !ours() && !announced_; }

private:
  CheckedState<Stage> stage_ = Stage::connecting;
  bool announced_ = false;
  CloseReason reason_ = CloseReason::local; // of Stage::ended
  ListenerId listener_ = ListenerId::none;
  std::string why_;
};

/// Connections of a listener whose owner does not know of them: they end with the listener. An
/// owner knows of a connection when the event that announces it has been handed out. `connections`:
/// a SlotMap; `state`: the member that is or returns the ConnectionState of a connection in it;
/// `undispatched`: of Transport.
template <class Connections, class State>
[[nodiscard]] std::vector<ConnectionId> unknown_to_owner(const Connections& connections,
                                                         State state, ListenerId listener,
                                                         std::span<const Event> undispatched) {
  std::vector<ConnectionId> unknown;
  connections.for_each([&](ConnectionId id, const auto& connection) {
    const ConnectionState& of_it = std::invoke(state, connection);
    if (of_it.listener() == listener && !of_it.announced()) unknown.push_back(id);
  });
  for (const Event& event : undispatched) {
    if (event.handler == nullptr || event.kind != EventKind::accepted) continue;
    const auto* const connection = connections.find(event.connection);
    if (connection != nullptr && std::invoke(state, *connection).listener() == listener)
      unknown.push_back(event.connection);
  }
  return unknown;
}

} // namespace fanin::net
