#include "fanin/source/allowed_networks.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "fanin/base/number.hpp"
#include "fanin/base/try.hpp"

namespace fanin::source {
namespace {

constexpr std::size_t all_bits = 128;
constexpr std::size_t ipv4_at = 12; // bytes before an IPv4 address within an IPv6 address

std::array<unsigned char, 16> mapped(const void* ipv4) {
  std::array<unsigned char, 16> bytes{};
  bytes[10] = bytes[11] = 0xff;
  std::memcpy(bytes.data() + ipv4_at, ipv4, 4);
  return bytes;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

} // namespace

bool AllowedNetworks::Network::contains(const Bytes& other) const {
  for (std::size_t bit = 0; bit < bits;) {
    const std::size_t width = std::min<std::size_t>(8, bits - bit);
    const auto mask = static_cast<unsigned char>(0xff00U >> width);
    if (((address[bit / 8] ^ other[bit / 8]) & mask) != 0) return false;
    bit += width;
  }
  return true;
}

Result<AllowedNetworks::Network> AllowedNetworks::parse_one(std::string_view text) {
  const auto refuse = [text](std::string_view why) {
    return fail(ErrorKind::usage, fmt::format("\"{}\" {}", text, why));
  };
  const std::size_t slash = text.find('/');
  const std::string host(text.substr(0, slash));
  Network network;
  in_addr ipv4{};
  std::size_t most = all_bits;
  if (inet_pton(AF_INET, host.c_str(), &ipv4) == 1) {
    network.address = mapped(&ipv4);
    most = 32;
  } else if (inet_pton(AF_INET6, host.c_str(), network.address.data()) != 1) {
    return refuse("is not a network: write 10.1.0.0/16, 2001:db8::/32 or an address");
  }
  std::size_t bits = most;
  if (slash != std::string_view::npos) {
    const auto read = parse_number<std::size_t>(text.substr(slash + 1));
    if (!read || *read > most)
      return refuse(fmt::format("needs a number of bits up to {} behind the slash", most));
    bits = *read;
  }
  network.bits = all_bits - most + bits;
  for (std::size_t bit = network.bits; bit < all_bits; ++bit) {
    if ((network.address[bit / 8] & (0x80U >> (bit % 8))) == 0) continue;
    return refuse(fmt::format("has bits set behind the first {}: is it one address, without the "
                              "slash?",
                              bits));
  }
  return network;
}

Result<AllowedNetworks> AllowedNetworks::parse(std::string_view list) {
  AllowedNetworks allowed;
  while (true) {
    const std::size_t comma = list.find(',');
    const Network network = FANIN_TRY(parse_one(trimmed(list.substr(0, comma))));
    allowed.networks_.push_back(network);
    if (comma == std::string_view::npos) return allowed;
    list.remove_prefix(comma + 1);
  }
}

bool AllowedNetworks::contain(const net::Address& address) const {
  if (networks_.empty()) return true;
  Bytes bytes{};
  if (address.storage.ss_family == AF_INET) {
    sockaddr_in ipv4{};
    std::memcpy(&ipv4, &address.storage, sizeof ipv4);
    bytes = mapped(&ipv4.sin_addr);
  } else if (address.storage.ss_family == AF_INET6) {
    sockaddr_in6 ipv6{};
    std::memcpy(&ipv6, &address.storage, sizeof ipv6);
    std::memcpy(bytes.data(), &ipv6.sin6_addr, bytes.size());
  } else {
    return false;
  }
  return std::ranges::any_of(networks_,
                             [&](const Network& network) { return network.contains(bytes); });
}

} // namespace fanin::source
