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
  /// In what epoll reports; the rest is the listener's id.
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
  /// Calls `accept_one` for the listeners that may have something, until it says that there is
  /// nothing more for now (false); for one listener so often at most that others get their turn.
  template <class AcceptOne>
  void accept(AcceptOne accept_one) {
    waiting_.take_each([&](Listener& listener) {
      for (int left = accepts_at_once; left > 0; --left) {
        if (!accept_one(listener)) return;
      }
      waiting_.add(listener.waiting);
    });
  }

  /// What waits in the kernel's queue stays there for a while.
  void pause(Listener& listener);
  /// After accept() has failed with `error`. True: the failure was that of one connection, and the
  /// next one may be good. False: none waits, or something is missing here, and accepting pauses.
  [[nodiscard]] bool may_go_on(Listener& listener, int error);
  /// Something is missing here: asking again at once would spin.
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
