// Connects a TCP socket to a host, whose addresses are tried one after the other. Each has its
// share of the time that is left: one that swallows packets must not keep the next from being
// tried.
#pragma once

#include <cerrno>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/descriptor.hpp"
#include "fanin/net/address.hpp"
#include "fanin/net/tcp_socket.hpp"

namespace fanin::net {

class ConnectAttempts {
public:
  ConnectAttempts() = default;
  // `addresses`: in the order in which to try them. `until`: the end of the time for all of them.
  ConnectAttempts(std::span<const Address> addresses, Time until, StreamOptions options)
      : addresses_(addresses.rbegin(), addresses.rend()),
        until_(until),
        options_(std::move(options)) {}

  // A socket that connects to the next address. watch(int socket) registers it, after connect():
  // before, epoll would report a socket that hung up. False: errno says why not. Empty: no address
  // is left.
  template <class Watch>
  [[nodiscard]] Descriptor next(Watch watch) {
    while (!addresses_.empty()) {
      const Address address = addresses_.back();
      addresses_.pop_back();
      Descriptor socket = begin_to_connect(address, options_);
      if (socket && watch(socket.get())) return socket;
      error_ = errno;
    }
    return {};
  }
  void failed(int error) { error_ = error; } // the attempt that next() has begun
  [[nodiscard]] int error() const { return error_; } // an errno value: why the last attempt failed
  [[nodiscard]] bool any_left() const { return !addresses_.empty(); }
  [[nodiscard]] Time until() const { return until_; }
  // When the address that is tried has had its share of the time.
  [[nodiscard]] Time share_ends(Time now) const {
    return now + (until_ - now) / (static_cast<std::int64_t>(addresses_.size()) + 1);
  }

private:
  std::vector<Address> addresses_; // taken from the back
  Time until_{};
  StreamOptions options_;
  int error_ = EHOSTUNREACH;
};

} // namespace fanin::net
