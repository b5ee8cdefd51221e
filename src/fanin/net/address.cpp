#include "fanin/net/address.hpp"

#include <netdb.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>

#include <fmt/format.h>

namespace fanin::net {
namespace {

// Between views of a socket address there is no way around the cast: the API is of 1983.
template <class To>
const To& as(const sockaddr_storage& storage) {
  return *reinterpret_cast<const To*>(&storage);
}

} // namespace

const sockaddr* Address::get() const { return &as<sockaddr>(storage); }

std::uint16_t Address::port() const {
  if (storage.ss_family == AF_INET) return ntohs(as<sockaddr_in>(storage).sin_port);
  if (storage.ss_family == AF_INET6) return ntohs(as<sockaddr_in6>(storage).sin6_port);
  return 0;
}

std::string Address::host() const {
  char text[NI_MAXHOST] = "";
  if (length == 0) return text;
  (void)getnameinfo(get(), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

Result<std::vector<Address>> resolve(const Url& url, bool to_listen) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  const std::string host = url.host.empty() ? "127.0.0.1" : url.host;
  const std::string port = fmt::format("{}", url.port);
  addrinfo* found = nullptr;
  int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error == EAI_NONAME) {
    hints.ai_flags = (hints.ai_flags & ~AI_NUMERICHOST) | AI_ADDRCONFIG;
    error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  }
  if (error != 0) {
    return fail(error == EAI_AGAIN ? ErrorKind::disconnected : ErrorKind::not_found,
                fmt::format("{}: host \"{}\": {}", url.text(), host, gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, &freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    Address& address = addresses.emplace_back();
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
  }
  return addresses;
}

} // namespace fanin::net
