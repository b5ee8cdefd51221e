// TCP sockets: listening, accepting, addresses, options. Of the tcp transport, and of all that
// speaks TCP beside it: ofi, sources that receive, benchmarks.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/net/address.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net {

struct StreamOptions {
  std::string congestion; // empty: the host's
  int dscp = 0; // class of its packets (RFC 2474), 0 to 63: switches may put some first
};

// Listens at the first address where that is possible. The socket does not block. Errors: refused,
// with the remedy.
[[nodiscard]] FANIN_INTERNAL_API Result<Descriptor>
bind_and_listen(const Url& url, std::span<const Address> addresses);

// A socket that has begun to connect, without blocking. Empty: errno says why not. Connecting to a
// port of this host on which nobody listens may, by bad luck in the choice of the own port, reach
// the socket itself: that is refused.
[[nodiscard]] FANIN_INTERNAL_API Descriptor begin_to_connect(const Address& address,
                                                             const StreamOptions& options);
// How connecting has ended: an errno value, or 0.
[[nodiscard]] FANIN_INTERNAL_API int connect_error(int socket);

[[nodiscard]] FANIN_INTERNAL_API Address local_address(int socket);
[[nodiscard]] FANIN_INTERNAL_API Address peer_address(int socket);
// accept4() without blocking. It asks for the peer's address at once, since the kernel does not
// know it after a reset.
[[nodiscard]] FANIN_INTERNAL_API Descriptor accept_from(int listener, Address& peer);

[[nodiscard]] FANIN_INTERNAL_API std::string error_text(int error);

// Makes closing send a reset and forget what was not delivered.
FANIN_INTERNAL_API void set_reset_on_close(const Descriptor& socket);

// Whether this process may use that congestion control. Errors: usage, with those that there are.
[[nodiscard]] FANIN_INTERNAL_API Result<> check_congestion(const std::string& name);

// Whether the peer's kernel acknowledges nothing any more, for about 25 s. A process without room
// is not meant: its kernel still answers.
[[nodiscard]] FANIN_INTERNAL_API bool is_unanswered(int socket);
// Bytes that were written and that the peer's kernel has not acknowledged.
[[nodiscard]] std::uint64_t unacknowledged(int socket);
// Whether bytes have come that were not read yet.
[[nodiscard]] bool has_unread(int socket);

// The queue of this host's interface may put its packets before those of other connections. An
// accepted socket does not inherit this.
FANIN_INTERNAL_API void set_urgent(const Descriptor& socket);

// Sets what every connection wants. An option that the kernel lacks is no error; see
// check_congestion().
FANIN_INTERNAL_API void set_stream_options(int socket, const StreamOptions& options);

} // namespace fanin::net
