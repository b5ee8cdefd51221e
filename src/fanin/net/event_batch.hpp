/// \file
/// The events of one poll() of a transport.
///
/// Thread: the loop's.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "fanin/base/assert.hpp"
#include "fanin/memory/heap_page.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net {

class EventBatch {
public:
  /// The poll() may give as many events as `events` has room for.
  explicit EventBatch(std::span<Event> events) : events_(events) {}

  [[nodiscard]] bool full() const { return count_ == events_.size(); }
  [[nodiscard]] std::size_t count() const { return count_; }

  /// The next event, of a connection of the transport; without message and reason. Requires room.
  template <class Connection>
  Event& add(const Connection& connection, EventKind kind) {
    FANIN_ASSERT(!full());
    Event& event = events_[count_++];
    event.kind = kind;
    event.reason = CloseReason::local;
    event.connection = connection.id;
    event.handler = connection.options.handler;
    event.message = {};
    event.rest = {};
    return event;
  }
  /// That the connection has ended, as its state says.
  template <class Connection>
  void add_closed(const Connection& connection) {
    Event& event = add(connection, EventKind::closed);
    event.reason = connection.state.reason();
    if (const std::string& why = connection.state.why(); !why.empty())
      event.message = memory::HeapPage::copy(std::as_bytes(std::span(why)));
  }

private:
  std::span<Event> events_;
  std::size_t count_ = 0;
};

} // namespace fanin::net
