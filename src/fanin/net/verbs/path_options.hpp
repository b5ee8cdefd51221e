// The options of a verbs:// address: how its packets travel. The connection manager chooses what is
// not given.
#pragma once

#include <cstdint>
#include <optional>

#include "fanin/base/result.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net::verbs {

struct PathOptions {
  std::optional<std::uint8_t> service_level; // 0 to 15
  std::optional<std::uint8_t> traffic_class; // 0 to 255; RoCE: the DSCP in the upper 6 bits
  std::optional<std::uint16_t> pkey; // the partition's key, as in 0xffff
  std::optional<std::uint8_t> gid_index; // `ibv_devinfo -v` shows the port's table
  std::optional<std::uint32_t> mtu; // bytes in a packet: 256 to 4096
};

// Errors: usage.
[[nodiscard]] Result<PathOptions> parse_path_options(const Url& url);

} // namespace fanin::net::verbs
