// The ports of RDMA devices, as the kernel tells of them in /sys/class/infiniband.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/doctor/host.hpp"

namespace fanin::doctor {

struct Port {
  std::string device; // "mlx5_0"
  std::string number; // "1"
  std::string state; // "ACTIVE"
  std::string rate; // "100 Gb/sec (4X EDR)"
  std::string link_layer; // "InfiniBand" or "Ethernet"
  [[nodiscard]] FANIN_INTERNAL_API std::uint64_t bits_per_s() const; // 0: not known
};

[[nodiscard]] std::vector<std::string> rdma_devices(const Host& host);
[[nodiscard]] std::vector<Port> ports_of(const Host& host, const std::string& device);
// The network interfaces that belong to a port: of RoCE, VLANs of it, or IPoIB.
[[nodiscard]] std::vector<std::string> interfaces_of(const Host& host, const Port& port);
// The port that a network interface belongs to.
[[nodiscard]] FANIN_INTERNAL_API std::optional<Port> port_of(const Host& host,
                                                             const std::string& interface);

} // namespace fanin::doctor
