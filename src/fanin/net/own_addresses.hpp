// The IP addresses of this host.
#pragma once

#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/net/address.hpp"

namespace fanin::net {

struct OwnAddress {
  std::string interface;
  Address address;
};
// Those of the interfaces that are up.
[[nodiscard]] FANIN_INTERNAL_API std::vector<OwnAddress> own_addresses();

} // namespace fanin::net
