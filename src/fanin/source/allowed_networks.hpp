/// \file
/// Which addresses may connect: a list of networks, IPv4 and IPv6.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "fanin/base/result.hpp"
#include "fanin/net/address.hpp"

namespace fanin::source {

class AllowedNetworks {
public:
  AllowedNetworks() = default; ///< all

  /// "10.1.0.0/16, 10.2.0.7, 2001:db8::/32"; an address alone is a network of one. Errors: usage,
  /// with what is wrong.
  [[nodiscard]] static Result<AllowedNetworks> parse(std::string_view list);

  /// An IPv4 address that is written as an IPv6 address is an IPv4 address.
  [[nodiscard]] bool contain(const net::Address& address) const;

private:
  using Bytes = std::array<unsigned char, 16>; // of an IPv6 address
  struct Network {
    Bytes address{};
    std::size_t bits = 0; // that count
    [[nodiscard]] bool contains(const Bytes& other) const;
  };
  [[nodiscard]] static Result<Network> parse_one(std::string_view text);

  std::vector<Network> networks_; // empty: all
};

} // namespace fanin::source
