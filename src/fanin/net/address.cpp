#include "fanin/net/address.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "fanin/net/own_addresses.hpp"

namespace fanin::net {
namespace {

// Between views of a socket address there is no way around the cast: the API is of 1983.
template <class To>
const To& as(const sockaddr_storage& storage) {
  return *reinterpret_cast<const To*>(&storage);
}

constexpr std::string_view own_loopback = "127.0.0.1";

// What getaddrinfo says of it; EAI_... in `error`.
std::vector<Address> look_up(const std::string& host, int flags, int& error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  std::vector<Address> addresses;
  if (error != 0) return addresses;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, &freeaddrinfo);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    Address& address = addresses.emplace_back();
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
  }
  return addresses;
}

// 127.0.1.1 and its like, that stand for this host in its own eyes only.
bool is_of_this_host_only(const Address& address) {
  if (address.storage.ss_family != AF_INET) return false;
  const std::uint32_t number = ntohl(as<sockaddr_in>(address.storage).sin_addr.s_addr);
  return number >> 24U == IN_LOOPBACKNET && number != INADDR_LOOPBACK;
}

bool is_unspecified(const Address& address) {
  if (address.storage.ss_family == AF_INET)
    return as<sockaddr_in>(address.storage).sin_addr.s_addr == htonl(INADDR_ANY);
  const in6_addr& number = as<sockaddr_in6>(address.storage).sin6_addr;
  std::uint32_t mapped = 0;
  std::memcpy(&mapped, &number.s6_addr[12], sizeof mapped);
  return IN6_IS_ADDR_UNSPECIFIED(&number) ||
         (IN6_IS_ADDR_V4MAPPED(&number) && mapped == htonl(INADDR_ANY));
}

} // namespace

std::string address_text(const Address& address) {
  return Url{.scheme = "tcp", .host = address.host(), .port = address.port(), .options = {}}.text();
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

bool is_wildcard(const std::string& host) {
  const auto addresses = addresses_of_number(host);
  return addresses && std::ranges::any_of(*addresses, is_unspecified);
}

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

void Address::set_port(std::uint16_t port) {
  const std::uint16_t bytes = htons(port);
  if (storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = bytes;
  } else if (storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = bytes;
  }
}

std::optional<std::vector<Address>> addresses_of_number(const std::string& host) {
  int error = 0;
  auto addresses = look_up(host.empty() ? std::string{own_loopback} : host, AI_NUMERICHOST, error);
  if (error != 0) return std::nullopt;
  return addresses;
}

Result<std::vector<Address>> resolve_host(const std::string& host) {
  if (auto numbers = addresses_of_number(host)) return std::move(*numbers);
  int error = 0;
  auto addresses = look_up(host, AI_ADDRCONFIG, error);
  if (error == 0) return addresses;
  return fail(error == EAI_AGAIN ? ErrorKind::disconnected : ErrorKind::not_found,
              fmt::format("host \"{}\": {}", host, gai_strerror(error)));
}

Result<std::vector<Address>> resolve(const Url& url, bool to_listen) {
  auto addresses = resolve_host(url.host);
  if (!addresses)
    return fail(addresses.error().kind, fmt::format("{}: {}", url.text(), addresses.error().text));
  const bool named = !addresses_of_number(url.host);
  if (to_listen && named && std::ranges::all_of(*addresses, is_of_this_host_only))
    addresses = addresses_of_number("0.0.0.0").value();
  for (Address& address : *addresses) address.set_port(url.port);
  return addresses;
}

std::vector<OwnAddress> own_addresses() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, &freeifaddrs);
  std::vector<OwnAddress> found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    const bool ip4 = one->ifa_addr->sa_family == AF_INET;
    if (!ip4 && one->ifa_addr->sa_family != AF_INET6) continue;
    OwnAddress& own = found.emplace_back(one->ifa_name);
    own.address.length = ip4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&own.address.storage, one->ifa_addr, own.address.length);
  }
  return found;
}

} // namespace fanin::net
