#include "fanin/doctor/ports.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace fanin::doctor {
namespace {

constexpr std::string_view devices = "sys/class/infiniband";

// "4: ACTIVE" says a number and a name.
std::string word_after_colon(const std::string& text) {
  const auto colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

// RoCE: the addresses of a port know their interfaces.
bool has_address_on(const Host& host, const std::string& folder, const std::string& interface) {
  const std::string known = folder + "/gid_attrs/ndevs";
  return std::ranges::any_of(host.names(known), [&](const std::string& index) {
    return host.text(fmt::format("{}/{}", known, index)) == interface;
  });
}

// IPoIB: an interface of the same device, which says the number of its port, from 0.
bool is_ipoib_of(const Host& host, const std::string& device, const std::string& number,
                 const std::string& interface) {
  if (!host.exists(fmt::format("{}/{}/device/net/{}", devices, device, interface))) return false;
  const auto index = host.number(fmt::format("sys/class/net/{}/dev_port", interface)).value_or(0);
  return fmt::format("{}", index + 1) == number;
}

bool belongs_to(const Host& host, const Port& port, const std::string& interface) {
  const std::string folder = fmt::format("{}/{}/ports/{}", devices, port.device, port.number);
  return has_address_on(host, folder, interface) ||
         is_ipoib_of(host, port.device, port.number, interface);
}

} // namespace

std::uint64_t Port::bits_per_s() const {
  double gigabits = 0;
  const auto [end, error] = std::from_chars(rate.data(), rate.data() + rate.size(), gigabits);
  if (error != std::errc{} || !std::string_view(end).starts_with(" Gb/sec")) return 0;
  return static_cast<std::uint64_t>(std::llround(gigabits * 1e9));
}

std::vector<std::string> rdma_devices(const Host& host) { return host.names(devices); }

std::vector<Port> ports_of(const Host& host, const std::string& device) {
  std::vector<Port> ports;
  const std::string folder = fmt::format("{}/{}/ports", devices, device);
  for (const std::string& number : host.names(folder)) {
    const auto read = [&](const char* file) {
      return host.text(fmt::format("{}/{}/{}", folder, number, file)).value_or("?");
    };
    ports.push_back({.device = device,
                     .number = number,
                     .state = word_after_colon(read("state")),
                     .rate = read("rate"),
                     .link_layer = read("link_layer")});
  }
  return ports;
}

std::vector<std::string> interfaces_of(const Host& host, const Port& port) {
  std::vector<std::string> interfaces = host.names("sys/class/net");
  std::erase_if(interfaces,
                [&](const std::string& interface) { return !belongs_to(host, port, interface); });
  return interfaces;
}

std::optional<Port> port_of(const Host& host, const std::string& interface) {
  for (const std::string& device : rdma_devices(host)) {
    for (Port& port : ports_of(host, device)) {
      if (belongs_to(host, port, interface)) return std::move(port);
    }
  }
  return {};
}

} // namespace fanin::doctor
