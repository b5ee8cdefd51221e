// Where IP finds a host: what a URL's host and port stand for.
#pragma once

#include <sys/socket.h>

#include <cstdint>
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
  [[nodiscard]] std::string host() const;
};

// The addresses of a host, numeric ones without asking anybody; an empty host is loopback. Blocks
// for as long as the host's resolver does. Errors: not_found, and disconnected where asking again
// may help.
[[nodiscard]] Result<std::vector<Address>> resolve(const Url& url, bool to_listen);

} // namespace fanin::net
