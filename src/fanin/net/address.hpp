/// \file
/// The IP addresses of a URL's host and port.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net {

struct FANIN_API Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const;
  [[nodiscard]] std::uint16_t port() const;
  void set_port(std::uint16_t port);
  [[nodiscard]] std::string host() const;
};

/// "tcp://10.0.0.1:7000"
[[nodiscard]] FANIN_INTERNAL_API std::string address_text(const Address& address);

/// Whether `host` is a name or number of this host itself, which no other host can reach. False for
/// an empty text.
[[nodiscard]] FANIN_INTERNAL_API bool is_loopback(std::string_view host);
/// Whether `host` stands for all addresses of a host: one can listen there, and connect to none.
[[nodiscard]] FANIN_INTERNAL_API bool is_wildcard(const std::string& host);

/// The addresses of a host. A numeric address needs no name service; an empty host is loopback.
/// Blocks while the host's name service is asked (net/resolver.hpp does not). Errors: not_found;
/// disconnected, if asking again may help.
///
/// `to_listen`: a host that knows its own name only as a loopback address (Debian: 127.0.1.1)
/// listens at all its addresses, since other hosts know that name as another address.
[[nodiscard]] FANIN_API Result<std::vector<Address>> resolve(const Url& url, bool to_listen);
/// The addresses of a host to connect to, without a port. Blocks, and returns errors, as resolve().
[[nodiscard]] FANIN_API Result<std::vector<Address>> resolve_host(const std::string& host);
/// The addresses of a numeric or empty host; nothing for a name.
[[nodiscard]] FANIN_API std::optional<std::vector<Address>>
addresses_of_number(const std::string& host);

} // namespace fanin::net
