#include "fanin/bench/port.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fanin/net/own_addresses.hpp"

namespace fanin::bench {
namespace {

constexpr double bits_per_byte = 8;

// The interfaces of this host that have one of the addresses; of an address without a host, all.
std::vector<std::string> interfaces_of(const net::Url& url) {
  std::vector<std::string> hosts;
  if (!url.host.empty()) {
    const auto addresses = net::resolve(url, true);
    if (!addresses) return {};
    for (const auto& address : *addresses) hosts.push_back(address.host());
  }
  std::vector<std::string> names;
  for (const auto& [interface, address] : net::own_addresses()) {
    const bool is_meant = hosts.empty() ? address.get()->sa_family == AF_INET
                                        : std::ranges::find(hosts, address.host()) != hosts.end();
    if (is_meant) names.push_back(interface);
  }
  return names;
}

} // namespace

std::optional<doctor::Port> find_port(const net::Url& url) {
  if (url.scheme != "verbs" && !url.scheme.starts_with("ofi+verbs")) return {};
  for (const std::string& interface : interfaces_of(url)) {
    auto port = doctor::port_of(doctor::Host(), interface);
    if (port && port->bits_per_s() > 0) return port;
  }
  return {};
}

void put_port(json::Value& result, const std::optional<doctor::Port>& port) {
  if (!port) return;
  json::Value& object = result["port"];
  object["device"] = port->device;
  object["number"] = port->number;
  object["rate_bits_per_s"] = port->bits_per_s();
}

void put_share(json::Value& row, const std::optional<doctor::Port>& port, const Series& series) {
  if (!port) return;
  put(row, "share_of_port", rate(series, [&](const Sample& sample) {
        return bytes_per_s(sample) * bits_per_byte / static_cast<double>(port->bits_per_s());
      }));
}

std::string port_text(const json::Value& result) {
  const json::Value& port = result.at("port");
  if (port.is_null()) return {};
  return fmt::format("the {:.3g} Gb/s of {} port {}", port.at("rate_bits_per_s").real() * 1e-9,
                     port.at("device").text(), port.at("number").text());
}

std::string share_text(const json::Value& row) {
  const json::Value& share = row.at("share_of_port");
  return share.is_null() ? std::string{} : fmt::format("{:.3g} %", share.real() * 100);
}

} // namespace fanin::bench
