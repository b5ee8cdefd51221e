// Where IP finds a host: what a URL's host and port stand for.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fanin/base/result.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const;
  [[nodiscard]] std::uint16_t port() const;
  void set_port(std::uint16_t port);
  [[nodiscard]] std::string host() const;
};

// The addresses of a host, numeric ones without asking anybody; an empty host is loopback. Blocks
// for as long as the host's resolver does (net/resolver.hpp does not). Errors: not_found, and
// disconnected where asking again may help.
//
// To listen: a host that knows its own name only as a loopback address (Debian: 127.0.1.1) listens
// at all its addresses, since the others know that name as another one.
[[nodiscard]] Result<std::vector<Address>> resolve(const Url& url, bool to_listen);
// Likewise, without a port, to connect.
[[nodiscard]] Result<std::vector<Address>> resolve_host(const std::string& host);
// Where there is nobody to ask: a number, or the empty name.
[[nodiscard]] std::optional<std::vector<Address>> addresses_of_number(const std::string& host);

} // namespace fanin::net
