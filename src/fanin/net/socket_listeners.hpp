/// \file
/// The listeners of a transport over sockets, and which of them may have a connection to accept.
///
/// Thread: the loop's.
#pragma once

#include <cstdint>
#include <string_view>

#include "fanin/base/descriptor.hpp"
#include "fanin/net/close_accounts.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/slot_map.hpp"
#include "fanin/net/transport.hpp"
#include "fanin/net/url.hpp"
#include "fanin/net/work_list.hpp"

namespace fanin::net {

class SocketListeners {
public:
  /// Marks a listener in the data that epoll reports; the other bits are the listener's id.
  static constexpr std::uint64_t epoll_bit = 1ULL << 63;

  struct Listener {
    Listener(SocketListeners& owner, const ConnectionOptions& given, Url real, Descriptor bound);
    ConnectionOptions options; ///< of the connections that it accepts
    Url url;
    Descriptor socket;
    ListenerId id = ListenerId::none;
    WorkList<Listener>::Place waiting{*this};
    Timer pause;
  };

  /// `pause`: before accepting is tried again. `accounts` counts and reports failures of accept().
  SocketListeners(Loop& loop, Duration pause, CloseAccounts& accounts)
      : loop_(loop), pause_(pause), accounts_(accounts) {}

  /// `socket` listens, without blocking; `epoll` reports what comes. Errors: exhausted.
  [[nodiscard]] Result<ListenerId> add(const ConnectionOptions& options, Url real,
                                       Descriptor socket, int epoll);
  [[nodiscard]] Url url(ListenerId id) const;
  /// False: there is none of that id.
  bool close(ListenerId id);

  /// epoll has reported it.
  void mark_waiting(ListenerId id);
  [[nodiscard]] bool any_waiting() const { return !waiting_.empty(); }
  /// Calls `accept_one` for each listener that may have a connection, until it returns false: there
  /// is nothing more for now. One listener is called only so often that the others get their turn.
  template <class AcceptOne>
  void accept(AcceptOne accept_one) {
    waiting_.take_each([&](Listener& listener) {
      for (int left = accepts_at_once; left > 0; --left) {
        if (!accept_one(listener)) return;
      }
      waiting_.add(listener.waiting);
    });
  }

  /// Leaves waiting connections in the kernel's queue for a while.
  void pause(Listener& listener);
  /// After accept() has failed with `error`. True: the failure was that of one connection, and the
  /// next one may be good. False: none waits, or this host lacks descriptors or memory, and
  /// accepting pauses.
  [[nodiscard]] bool may_go_on(Listener& listener, int error);
  /// This host lacks descriptors or memory: to ask again at once would spin.
  void pause_after_failure(Listener& listener, std::string_view text);

private:
  static constexpr int accepts_at_once = 64;

  Loop& loop_;
  Duration pause_;
  CloseAccounts& accounts_;
  SlotMap<ListenerId, Listener> listeners_;
  WorkList<Listener> waiting_;
};

} // namespace fanin::net
